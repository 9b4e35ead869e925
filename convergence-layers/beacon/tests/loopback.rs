//! Beacons over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use underpass_beacon::{
    Beacons, Endpoint, Key, Node, PeerConfig, PeerId, Signs, SocketConfig, bind,
};

const PEER: PeerId = PeerId(0);
const PATIENCE: Duration = Duration::from_secs(60);

struct Receiver(mpsc::UnboundedSender<PeerId>);

impl Node for Receiver {
    fn signs(&self, _peer: PeerId) -> Signs {
        Signs::default()
    }

    fn heard(&self, peer: PeerId, _at: Instant) {
        let _ = self.0.send(peer);
    }

    fn key_unknown(&self, _peer: PeerId) {}
}

fn node(
    number: u32,
    local: &str,
    peer: u32,
    address: Option<SocketAddr>,
) -> (Beacons, mpsc::UnboundedReceiver<PeerId>) {
    let socket = SocketConfig {
        local: local.parse().unwrap(),
        interface: None,
        mark: None,
    };
    let (sender, heard) = mpsc::unbounded_channel();
    let endpoint = Endpoint::new(number, 1, Instant::now());
    let beacons =
        Beacons::spawn(bind(&socket).unwrap(), endpoint, Arc::new(Receiver(sender))).unwrap();
    let config = PeerConfig {
        node: peer,
        rtt: Duration::from_millis(1),
        address,
        patience: std::time::Duration::MAX,
    };
    beacons.add_peer(PEER, config);
    beacons.add_key(PEER, Key::new(&[9; 32]));
    (beacons, heard)
}

async fn both_hear(hub: &str, reached_at: &str, terminal: &str) {
    let (hub, mut at_hub) = node(1, hub, 2, None);
    let mut reached: SocketAddr = reached_at.parse().unwrap();
    reached.set_port(hub.local_addr().port());
    let (terminal, mut at_terminal) = node(2, terminal, 1, Some(reached));
    for heard in [&mut at_hub, &mut at_terminal] {
        let first = tokio::time::timeout(PATIENCE, heard.recv()).await;
        assert_eq!(first.unwrap(), Some(PEER));
    }
    assert!(hub.counters().heard > 0 && terminal.counters().sent > 0);
}

#[tokio::test]
async fn both_ends_hear_each_other_over_ipv4() {
    both_hear("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0").await;
}

#[tokio::test]
async fn both_ends_hear_each_other_over_ipv6() {
    both_hear("[::1]:0", "[::1]:0", "[::1]:0").await;
}

#[tokio::test]
async fn one_socket_of_a_hub_serves_both_families() {
    both_hear("[::]:0", "127.0.0.1:0", "0.0.0.0:0").await;
}

#[tokio::test]
async fn a_beacon_counts_from_its_arrival_however_late_it_is_read() {
    const BUSY: Duration = Duration::from_millis(400);
    let (hub, mut heard) = node(1, "127.0.0.1:0", 2, None);
    let address = hub.local_addr();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let _terminal = node(2, "127.0.0.1:0", 1, Some(address));
            tokio::time::sleep(PATIENCE).await;
        });
    });
    // Beacons 150 ms apart wait for a hub that is busy. Other programs may delay the
    // terminal between reading its clock and sending, so one correct time is enough.
    heard.recv().await.unwrap();
    let mut late = BUSY;
    let begun = Instant::now();
    while late > BUSY / 4 && begun.elapsed() < PATIENCE / 2 {
        std::thread::sleep(BUSY);
        while heard.try_recv().is_ok() {}
        heard.recv().await.unwrap();
        late = hub.delayed(PEER).from_peer.unwrap_or(BUSY);
    }
    assert!(late <= BUSY / 4, "{late:?}");
}
