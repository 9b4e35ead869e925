//! Sessions that begin and do not continue, and more sessions than needed.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use underpass_cla::Class;

use super::{Answers, Attacker};
use crate::forge::FrameBuilder;
use crate::raw::{self, RawSession};

/// What is done to the transport.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    HalfTransfers,
    SilentConnections,
    HalfHandshakes,
    Handshakes,
    Sessions,
    Deaf,
    Segments,
}

pub const ALL: &[(&str, Kind)] = &[
    ("half-transfers", Kind::HalfTransfers),
    ("silent-connections", Kind::SilentConnections),
    ("half-handshakes", Kind::HalfHandshakes),
    ("handshakes", Kind::Handshakes),
    ("sessions", Kind::Sessions),
    ("deaf", Kind::Deaf),
    ("segments", Kind::Segments),
];

/// How long connections are kept that do nothing.
const HELD: Duration = Duration::from_secs(10);

pub async fn run(at: &Attacker, kind: Kind, answers: &mut Answers) {
    match kind {
        Kind::HalfTransfers => half_transfers(at, answers).await,
        Kind::SilentConnections => hold_connections(at, answers, b"").await,
        // A contact header that offers TLS, and nothing of TLS itself.
        Kind::HalfHandshakes => hold_connections(at, answers, b"dtn!\x04\x01").await,
        Kind::Handshakes => handshakes(at, answers).await,
        Kind::Sessions => sessions(at, answers).await,
        Kind::Deaf => deaf(at, answers).await,
        Kind::Segments => segments(at, answers).await,
    }
}

/// Sets up sessions beside those that there are, some at once; counts what
/// became of them.
async fn open_many(at: &Attacker, count: usize, answers: &mut Answers) -> Vec<RawSession> {
    const AT_ONCE: usize = 16;
    let mut opening = JoinSet::new();
    let mut open = Vec::new();
    for number in 0..count {
        if opening.len() == AT_ONCE {
            take(opening.join_next().await, answers, &mut open);
        }
        let cast = at.cast.clone();
        let class = Class((number % 4) as u8);
        opening
            .spawn(async move { raw::open(cast.hub, &cast.pki, cast.node, cast.run, class).await });
    }
    while !opening.is_empty() {
        take(opening.join_next().await, answers, &mut open);
    }
    open
}

type Opened = Option<Result<std::io::Result<RawSession>, tokio::task::JoinError>>;

fn take(opened: Opened, answers: &mut Answers, open: &mut Vec<RawSession>) {
    match opened {
        Some(Ok(Ok(session))) => {
            answers.note("session");
            open.push(session);
        }
        _ => answers.note("no-session"),
    }
}

/// Bundles of which the first bytes come and no more.
async fn half_transfers(at: &Attacker, answers: &mut Answers) {
    let mut sessions = open_many(at, 64, answers).await;
    let mut payload = FrameBuilder::new(at.cast.run, at.line.hub_run());
    payload.data(1, 0, &vec![0x55; 8 << 20]);
    let bundle = at.streams_bundle(payload.finish());
    for session in &mut sessions {
        let sent = session.send_part(bundle.clone(), 300 << 10).await;
        answers.note(if sent.is_ok() { "half" } else { "broken" });
    }
    sleep(HELD).await;
}

async fn hold_connections(at: &Attacker, answers: &mut Answers, first: &[u8]) {
    let mut connecting = JoinSet::new();
    for _ in 0..500 {
        let hub = at.cast.hub;
        connecting.spawn(timeout(Duration::from_secs(5), TcpStream::connect(hub)));
    }
    let mut connections = Vec::new();
    for connected in connecting.join_all().await {
        let Ok(Ok(mut tcp)) = connected else {
            answers.note("not-connected");
            continue;
        };
        // If it was closed already, the next read shows that.
        let _ = tcp.write_all(first).await;
        connections.push(tcp);
    }
    sleep(HELD).await;
    for tcp in &mut connections {
        let mut input = [0; 64];
        let read = async { while matches!(tcp.read(&mut input).await, Ok(1..)) {} };
        let ended = timeout(Duration::from_millis(1), read).await.is_ok();
        answers.note(if ended { "ended" } else { "held" });
    }
}

/// Complete handshakes, one behind the other on several connections at once.
async fn handshakes(at: &Attacker, answers: &mut Answers) {
    for _ in 0..10 {
        drop(open_many(at, 50, answers).await);
    }
}

/// More sessions than a terminal may have, none of which it ends.
async fn sessions(at: &Attacker, answers: &mut Answers) {
    let mut open = open_many(at, 300, answers).await;
    sleep(HELD).await;
    for session in &mut open {
        let ended = session.is_ended_within(Duration::from_millis(1)).await;
        answers.note(if ended { "ended" } else { "held" });
    }
}

/// Asks for a lot and reads none of it.
async fn deaf(at: &Attacker, answers: &mut Answers) {
    let mut open = open_many(at, 8, answers).await;
    let request = format!(
        "GET /bytes/1000000000 HTTP/1.1\r\nHost: {}\r\n\r\n",
        at.cast.origin
    );
    for (session, n) in open.iter_mut().zip(0..) {
        let mut payload = FrameBuilder::new(at.cast.run, at.line.hub_run());
        payload.hello(at.next() << 40, 1 << 40);
        for stream in (0..8).map(|m| (at.next() << 20) + 2 * (8 * n + m) + 1) {
            payload.open(stream, 2, at.cast.origin);
            payload.data(stream, 0, request.as_bytes());
        }
        let sent = session.send(at.streams_bundle(payload.finish())).await;
        answers.note(if sent.is_ok() { "asked" } else { "broken" });
    }
    sleep(HELD).await;
}

/// XFER_SEGMENTs that are longer than anything, and messages that are none.
async fn segments(at: &Attacker, answers: &mut Answers) {
    let most = u64::MAX.to_be_bytes();
    let mut start = vec![0x01, 0x02];
    start.extend(0_u64.to_be_bytes());
    start.extend(0_u32.to_be_bytes());
    start.extend(most);
    let mut extensions = vec![0x01, 0x02];
    extensions.extend(0_u64.to_be_bytes());
    extensions.extend(u32::MAX.to_be_bytes());
    let mut acknowledgement = vec![0x02, 0x01];
    acknowledgement.extend(most);
    acknowledgement.extend(most);
    let unknown = vec![0xee; 64];
    for message in [start, extensions, acknowledgement, unknown] {
        let mut open = open_many(at, 1, answers).await;
        for session in &mut open {
            let _ = session.send_bytes(&message).await;
            let _ = session.send_bytes(&vec![0x55; 1 << 20]).await;
            let ended = session.is_ended_within(Duration::from_secs(2)).await;
            answers.note(if ended { "ended" } else { "held" });
        }
    }
}
