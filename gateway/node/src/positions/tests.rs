use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use underpass_reports::{Body, Position};

use super::*;
use crate::known_time::KnownTime;
use crate::run::reports::{Made, ReportSender};

const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    positions: Arc<Positions>,
    made: mpsc::Receiver<Made>,
    _task: AbortOnDropHandle<()>,
}

impl World {
    fn new(config: &str) -> World {
        let config = toml::from_str(config).unwrap();
        let (sender, made) = ReportSender::new(1, Instant::now());
        let positions = Arc::new(Positions::new(config, sender, KnownTime::load(None)));
        let task = AbortOnDropHandle::new(tokio::spawn(follow(positions.clone())));
        World {
            positions,
            made,
            _task: task,
        }
    }

    async fn reported(&mut self) -> Position {
        let made = timeout(PATIENCE, self.made.recv()).await.unwrap().unwrap();
        match made.report.body {
            Body::Position(position) => position,
            other => panic!("{other:?}"),
        }
    }

    fn state(&self) -> SourceState {
        self.positions.view().source.state
    }

    async fn until(&self, reached: impl Fn(&Positions) -> bool) {
        let ticks = async {
            while !reached(&self.positions) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, ticks).await.unwrap();
    }
}

fn sentence(body: &str) -> String {
    let sum = body.bytes().fold(0, |sum, byte| sum ^ byte);
    format!("${body}*{sum:02X}\r\n")
}

fn rmc(clock: &str) -> String {
    sentence(&format!(
        "GPRMC,{clock},A,4619.0000,N,00655.5000,E,10.0,90.0,010626,,,A"
    ))
}

#[tokio::test]
async fn a_receiver_that_comes_back_is_heard_again() {
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = receiver.local_addr().unwrap();
    let mut world = World::new(&format!(
        "source = \"nmea\"\naddress = \"{address}\"\ninterval_ms = 100"
    ));
    for clock in ["120000.00", "120001.00"] {
        let (mut socket, _) = timeout(PATIENCE, receiver.accept()).await.unwrap().unwrap();
        socket.write_all(rmc(clock).as_bytes()).await.unwrap();
        let position = world.reported().await;
        assert_eq!(position.longitude, 6.925);
        assert_eq!(world.state(), SourceState::Fix);
        drop(socket);
        world
            .until(|p| p.view().source.state == SourceState::Connecting)
            .await;
    }
    let view = world.positions.view();
    assert_eq!(
        view.source.error.as_deref(),
        Some("it has closed the connection")
    );
    assert!(view.fix.is_some(), "the latest fix stays");
    let figures = world.positions.figures();
    assert_eq!(
        (figures.reported, figures.counts.fixes, figures.lost),
        (2, 2, 2)
    );
}

#[tokio::test]
async fn a_loss_of_fix_shows_at_once() {
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = receiver.local_addr().unwrap();
    let mut world = World::new(&format!("source = \"nmea\"\naddress = \"{address}\""));
    let (mut socket, _) = timeout(PATIENCE, receiver.accept()).await.unwrap().unwrap();
    socket.write_all(rmc("120000.00").as_bytes()).await.unwrap();
    world.reported().await;
    let lost = sentence("GPRMC,120001.00,V,,,,,,,010626,,,N");
    socket.write_all(lost.as_bytes()).await.unwrap();
    world
        .until(|p| p.view().source.state == SourceState::Searching)
        .await;
}

#[tokio::test]
async fn datagrams_of_others_are_counted_and_not_read() {
    // No other test uses this host address.
    let free = UdpSocket::bind("127.0.0.4:0").await.unwrap();
    let listen = free.local_addr().unwrap();
    drop(free);
    let mut world = World::new(&format!(
        "source = \"nmea\"\nlisten = \"{listen}\"\nsenders = [\"127.0.0.2/32\"]"
    ));
    let known = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    let stranger = UdpSocket::bind("127.0.0.3:0").await.unwrap();
    let elsewhere = rmc("120000.00").replace("4619", "1119");
    // The node may not have bound its socket yet, or may bind it between the two calls.
    let is_told = || {
        let figures = world.positions.figures();
        figures.counts.fixes > 0 && figures.foreign > 0
    };
    let mut second = 1;
    while !is_told() {
        let _ = stranger.send_to(elsewhere.as_bytes(), listen).await;
        let clock = format!("12{:02}{:02}.00", second / 60, second % 60);
        let _ = known.send_to(rmc(&clock).as_bytes(), listen).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        second += 1;
        assert!(second < 3_000, "nothing read");
    }
    let position = world.reported().await;
    assert!(
        (position.latitude - 46.316_666).abs() < 1e-5,
        "{position:?}"
    );
    assert_eq!(world.positions.figures().counts.spoilt, 0);
}

#[tokio::test]
async fn a_place_that_does_not_change_is_reported_without_a_receiver() {
    let mut world = World::new("source = \"fixed\"\nlongitude = 8.7\nlatitude = 50.1");
    let position = world.reported().await;
    assert_eq!((position.longitude, position.latitude), (8.7, 50.1));
    assert_eq!(position.gnss_time_ms, None);
    assert_eq!(world.state(), SourceState::Fix);
}

#[tokio::test]
async fn a_replayed_drive_is_driven_now() {
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = receiver.local_addr().unwrap();
    let mut world = World::new(&format!(
        "source = \"nmea\"\naddress = \"{address}\"\nreplay = true"
    ));
    let (mut socket, _) = timeout(PATIENCE, receiver.accept()).await.unwrap().unwrap();
    let old = sentence("GPRMC,120000.00,A,4619.0000,N,00655.5000,E,10.0,90.0,010610,,,A");
    socket.write_all(old.as_bytes()).await.unwrap();
    let position = world.reported().await;
    assert_eq!(position.gnss_time_ms, position.node_time_ms);
}
