//! Peers with a valid certificate that do what no node does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Level;
use underpass_cla::{Class, Down, Outcome, Session, Transfer};
use underpass_coded::parity::LossEstimate;
use underpass_coded::{Protection, Sender};
use underpass_quic::wire::{ALPN, Hello, Message};
use underpass_quic::{Coding, Dialer, Listener, ListenerConfig};

use crate::{hub, terminal, terminal_of};
use underpass_cla_testing::log::Log;
use underpass_cla_testing::node::{TestNode, transfer};
use underpass_cla_testing::pki::{Ca, Naming, nothing_revoked};

/// An event that takes longer than this never comes, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The first message of a peer.
pub fn hello_of(node_id: &str) -> Hello {
    Hello {
        node_id: node_id.into(),
        class: None,
        standby: false,
        coded: true,
        incarnation: 1,
        transfer_mru_bytes: 1 << 20,
    }
}

/// A hub, and a peer that speaks QUIC by hand.
pub struct Scene {
    ca: Ca,
    pub hub: TestNode,
    /// The hub's handle of the session.
    pub session: Arc<dyn Session>,
    listener: Listener,
    connection: Connection,
    control: (SendStream, RecvStream),
    _endpoint: Endpoint,
}

impl Scene {
    async fn new() -> Scene {
        Scene::of(None, Coding::Never).await
    }

    /// A session of this class with a hub of this coding.
    async fn of(class: Option<Class>, coding: Coding) -> Scene {
        let coded = |hub: &mut ListenerConfig| hub.session.coding = Arc::new([coding]);
        Scene::at(TestNode::new(), class, coded).await
    }

    /// A session of this class with a hub whose configuration is changed.
    pub async fn at(
        mut hub_node: TestNode,
        class: Option<Class>,
        configure: impl FnOnce(&mut ListenerConfig),
    ) -> Scene {
        let ca = Ca::new();
        let mut listening = hub(&ca);
        configure(&mut listening);
        let listener = Listener::bind(listening, hub_node.node.clone()).expect("a free port");
        let (connection, endpoint) = connect(&ca, listener.local_addr()).await;
        let control = say_hello(&connection, class).await;
        let (_, _, session) = hub_node.up().await;
        Scene {
            ca,
            hub: hub_node,
            session,
            listener,
            connection,
            control,
            _endpoint: endpoint,
        }
    }

    /// Another session of the same peer.
    pub async fn another(&mut self) -> Another {
        let (connection, endpoint) = connect(&self.ca, self.listener.local_addr()).await;
        let control = say_hello(&connection, None).await;
        self.hub.up().await;
        (connection, control, endpoint)
    }

    async fn say(&mut self, message: Message) {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        let said = self.control.0.write_all(&bytes).await;
        said.expect("it is open");
    }

    /// Waits for a message that `is_wanted` accepts.
    async fn hear(&mut self, is_wanted: impl Fn(&Message) -> bool) {
        let mut unread = BytesMut::new();
        loop {
            while let Some(message) = Message::decode(&mut unread).expect("messages") {
                if is_wanted(&message) {
                    return;
                }
            }
            let chunk = self.control.1.read_chunk(4096, true).await;
            let chunk = chunk.expect("a connection").expect("it is open");
            unread.extend_from_slice(&chunk.bytes);
        }
    }

    /// Begins a bundle of `length` bytes, and sends `bytes` of it.
    pub async fn begin(&self, length: u64, bytes: &[u8]) -> SendStream {
        begin(&self.connection, length, bytes).await
    }

    /// Whether another peer's bundles arrive.
    async fn serves_others(&mut self) -> bool {
        let mut other = TestNode::new();
        let dialling = terminal_of(&self.ca, self.listener.local_addr(), 3);
        let dialer = Dialer::spawn(dialling, other.node.clone());
        let (id, _, session) = other.up().await;
        other.ready(id).await;
        session.offer(transfer(1, 100_000).0);
        let arrived = other.finished().await == (1, Outcome::Acknowledged);
        dialer.shutdown().await;
        arrived
    }
}

/// Another session; it lives as long as this value.
pub type Another = (Connection, (SendStream, RecvStream), Endpoint);

/// Connects as node 1, and sends nothing yet.
async fn connect(ca: &Ca, hub: SocketAddr) -> (Connection, Endpoint) {
    let tls = ca.client(&ca.node("ipn:1.0", 1, Naming::OtherName), nothing_revoked());
    let mut config = (*(tls.source)()).clone();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicClientConfig::try_from(config).expect("TLS 1.3");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let endpoint = Endpoint::client(any).expect("a free port");
    let connection = endpoint
        .connect_with(ClientConfig::new(Arc::new(crypto)), hub, "127.0.0.1")
        .expect("a usable configuration")
        .await
        .expect("a connection");
    (connection, endpoint)
}

/// Opens the control stream of a session of this class.
async fn say_hello(connection: &Connection, class: Option<Class>) -> (SendStream, RecvStream) {
    let (mut send, receive) = connection.open_bi().await.expect("a stream");
    let mut hello = BytesMut::new();
    let own = hello_of("ipn:1.0");
    Message::Hello(Hello { class, ..own }).encode(&mut hello);
    send.write_all(&hello).await.expect("a connection");
    (send, receive)
}

/// Begins a bundle of `length` bytes, and sends `bytes` of it.
pub async fn begin(connection: &Connection, length: u64, bytes: &[u8]) -> SendStream {
    let mut stream = connection.open_uni().await.expect("a stream");
    stream
        .write_all(&length.to_be_bytes())
        .await
        .expect("a connection");
    stream.write_all(bytes).await.expect("a connection");
    stream
}

#[tokio::test]
async fn a_contact_that_a_blockage_may_have_ended_is_no_warning() {
    let log = Log::record();
    let (ca, far) = (Ca::new(), TestNode::new());
    let mut listening = hub(&ca);
    listening.session.contact_timeout = Duration::from_secs(2);
    let listener = Listener::bind(listening, far.node.clone()).expect("a free port");
    let (connection, _endpoint) = connect(&ca, listener.local_addr()).await;
    connection.closed().await;
    assert_eq!(log.levels_of("contact failed"), [Level::INFO]);
}

#[tokio::test]
async fn streams_are_bounded_and_stalled_ones_hold_up_nobody_else() {
    let mut scene = Scene::new().await;
    let mut stalled = Vec::new();
    for _ in 0..256 {
        stalled.push(scene.begin(10_000, b"and no more").await);
    }
    let one_more = timeout(Duration::from_millis(500), scene.connection.open_uni()).await;
    assert!(one_more.is_err(), "there are 256 streams at most");
    assert!(scene.serves_others().await);
}

#[tokio::test]
async fn a_stalled_bundle_holds_up_no_other_of_its_peer() {
    let mut scene = Scene::new().await;
    let _stalled = scene.begin(1 << 20, b"and no more").await;
    let mut whole = scene.begin(5, b"whole").await;
    whole.finish().expect("it is open");
    assert_eq!(&scene.hub.received().await.1[..], b"whole");
}

#[tokio::test]
async fn the_rest_of_a_bundle_is_due_until_it_has_come() {
    let mut scene = Scene::new().await;
    assert!(!scene.session.figures().receiving);
    let mut bundle = scene.begin(10, b"the ").await;
    let session = scene.session.clone();
    let begins = async {
        while !session.figures().receiving {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, begins).await.expect("it has begun");
    bundle.write_all(b"rest..").await.expect("it is open");
    bundle.finish().expect("it is open");
    assert_eq!(&scene.hub.received().await.1[..], b"the rest..");
    assert!(!session.figures().receiving);
}

/// A bundle of so many pieces of 64 KiB.
fn long(key: u64, pieces: usize) -> Transfer {
    let piece = transfer(key, 64 << 10).1;
    Transfer::new(key, vec![piece; pieces])
}

#[tokio::test]
async fn a_bundle_that_the_peer_does_not_read_holds_up_none_of_those_behind_it() {
    let mut scene = Scene::new().await;
    let (short, bytes) = transfer(2, 500);
    // It is longer than the window of one of the peer's streams.
    scene.hub.supply([long(1, 64), short]);
    let first = scene.connection.accept_uni().await;
    let mut first = first.expect("a bundle");
    let second = timeout(PATIENCE, scene.connection.accept_uni()).await;
    let second = second.expect("it waits behind the first");
    let second = second.expect("a bundle").read_to_end(1_000).await;
    assert_eq!(&second.expect("it is whole")[8..], &bytes[..]);
    scene.say(Message::Taken { stream: 1 }).await;
    assert_eq!(scene.hub.finished().await, (2, Outcome::Acknowledged));
    // The first one goes on once it is read.
    let whole = timeout(PATIENCE, first.read_to_end(8 << 20)).await;
    let whole = whole.expect("it goes on").expect("it is whole");
    assert_eq!(whole.len(), 8 + (64 << 16));
    scene.say(Message::Taken { stream: 0 }).await;
    assert_eq!(scene.hub.finished().await, (1, Outcome::Acknowledged));
    assert_eq!(scene.session.figures().unsent_bytes, 0);
}

#[tokio::test]
async fn a_peer_that_reads_nothing_gets_few_bundles() {
    let scene = Scene::new().await;
    scene.hub.supply((1..20).map(|key| long(key, 64)));
    let mut unread = Vec::new();
    // The first one, and four more.
    while unread.len() < 5 {
        let stream = timeout(PATIENCE, scene.connection.accept_uni()).await;
        unread.push(stream.expect("there is room for it").expect("a bundle"));
    }
    let soon = Duration::from_secs(2);
    let more = timeout(soon, scene.connection.accept_uni()).await;
    assert!(more.is_err(), "one more than there is room for");
}

#[tokio::test]
async fn a_bundle_of_which_nothing_is_read_leaves_others_room() {
    let hub = TestNode::new();
    hub.uses_sessions(false);
    let least = |hub: &mut ListenerConfig| hub.session.receive_window_bytes = 4 << 20;
    let mut scene = Scene::at(hub, None, least).await;
    let mut stalled = scene.begin(4 << 20, b"").await;
    let (soon, piece) = (Duration::from_millis(500), vec![7; 64 << 10]);
    while let Ok(written) = timeout(soon, stalled.write_all(&piece)).await {
        written.expect("a connection");
    }
    let whole = timeout(PATIENCE, scene.begin(5, b"whole")).await;
    let mut whole = whole.expect("there is room for another one");
    whole.finish().expect("it is open");
    scene.hub.uses_sessions(true);
    assert_eq!(&scene.hub.received().await.1[..], b"whole");
}

#[tokio::test]
async fn a_length_beyond_the_limit_is_refused_before_memory_is_taken() {
    let mut scene = Scene::new().await;
    let stream = scene.begin(u64::MAX, b"").await;
    let stopped = timeout(PATIENCE, stream.stopped()).await;
    assert!(matches!(stopped, Ok(Ok(Some(_)))));
    let mut whole = scene.begin(5, b"whole").await;
    whole.finish().expect("it is open");
    assert_eq!(&scene.hub.received().await.1[..], b"whole");
}

#[tokio::test]
async fn room_that_is_claimed_and_not_used_is_bounded() {
    let mut scene = Scene::new().await;
    // 4 MiB, and twice a window of 8 MiB: five bundles of 4 MiB.
    let _claimed = claim([&scene.connection; 2], 5, 4 << 20).await;
    assert!(scene.serves_others().await);
}

/// Begins bundles of so many bytes on two sessions of node 1 by turns, one more than
/// there is room for.
async fn claim(sessions: [&Connection; 2], fit: usize, length: u64) -> Vec<SendStream> {
    let (mut claimed, mut refusals) = (Vec::new(), JoinSet::new());
    for number in 0..=fit {
        let stream = begin(sessions[number % 2], length, b"x").await;
        refusals.spawn(stream.stopped());
        claimed.push(stream);
    }
    let refused = timeout(PATIENCE, refusals.join_next()).await;
    let refused = refused.expect("one has no room").expect("they run");
    assert!(matches!(refused, Ok(Ok(Some(_)))), "{refused:?}");
    let more = timeout(Duration::from_millis(300), refusals.join_next()).await;
    assert!(more.is_err(), "the others have room: {more:?}");
    claimed
}

#[tokio::test]
async fn sessions_of_one_peer_share_its_room_and_other_peers_have_theirs() {
    let mut scene = Scene::new().await;
    let another = scene.another().await;
    // As on one session: five bundles of 4 MiB.
    let claimed = claim([&scene.connection, &another.0], 5, 4 << 20).await;
    let third = scene.another().await;
    let refused = begin(&third.0, 4 << 20, b"x").await;
    let stopped = timeout(PATIENCE, refused.stopped()).await;
    assert!(
        matches!(stopped, Ok(Ok(Some(_)))),
        "a new session has no new room"
    );
    let mut short = begin(&third.0, 5, b"short").await;
    short.finish().expect("it is open");
    assert_eq!(&scene.hub.received().await.1[..], b"short");
    assert!(scene.serves_others().await);
    // When the peer gives up bundles, their room is free for its sessions.
    for mut stream in claimed {
        // The hub may have refused one of them.
        let _ = stream.reset(0u8.into());
    }
    let bytes = vec![7; 3 << 20];
    let arrives = async {
        loop {
            let mut long = begin(&third.0, 3 << 20, b"").await;
            // It may still be refused.
            if long.write_all(&bytes).await.is_err() || long.finish().is_err() {
                continue;
            }
            let received = timeout(Duration::from_secs(1), scene.hub.received()).await;
            if received.is_ok_and(|(_, bundle)| bundle.len() == bytes.len()) {
                break;
            }
        }
    };
    let arrived = timeout(PATIENCE, arrives).await;
    assert!(arrived.is_ok(), "no room comes back");
}

#[tokio::test]
async fn bundles_that_come_as_symbols_have_no_room_of_their_own() {
    let mut scene = Scene::new().await;
    let another = scene.another().await;
    let sessions = [&scene.connection, &another.0];
    let _long = claim(sessions, 5, 4 << 20).await;
    // Short bundles have a little room beyond that.
    let _short = claim(sessions, 4, 2 << 20).await;
    let mut sender = Sender::new(Protection::Always, LossEstimate::default());
    sender.opened(underpass_coded::VERSION, 1 << 20);
    sender.set_datagram_bytes(1_200);
    sender.push([Bytes::from_static(b"a bundle")]);
    let symbol = sender.poll_datagram(Instant::now()).expect("a symbol");
    let sent = scene.connection.send_datagram(symbol.bytes);
    sent.expect("a small one");
    let is_refusal = |message: &Message| {
        matches!(
            message,
            Message::Coded(underpass_coded::Message::Refused { bundle: 0, .. })
        )
    };
    let refused = timeout(PATIENCE, scene.hear(is_refusal)).await;
    assert!(refused.is_ok(), "the room is full");
}

#[tokio::test]
async fn who_has_not_said_who_it_is_sends_little() {
    let mut scene = Scene::new().await;
    let (stranger, _endpoint) = connect(&scene.ca, scene.listener.local_addr()).await;
    let mut stream = stranger.open_uni().await.expect("a stream");
    let (soon, piece) = (Duration::from_millis(500), [7; 1 << 10]);
    let mut written = 0;
    while let Ok(one_more) = timeout(soon, stream.write_all(&piece)).await {
        one_more.expect("a connection");
        written += piece.len();
        assert!(written <= 64 << 10, "{written} bytes of somebody unknown");
    }
    assert!(scene.serves_others().await);
}

#[tokio::test]
async fn who_sends_datagrams_before_it_says_who_it_is_is_not_served() {
    let mut scene = Scene::new().await;
    let (stranger, _endpoint) = connect(&scene.ca, scene.listener.local_addr()).await;
    let sent = stranger.send_datagram(Bytes::from_static(b"early"));
    sent.expect("a small one");
    let ended = timeout(Duration::from_secs(15), stranger.closed()).await;
    assert!(ended.is_ok(), "datagrams are kept for somebody unknown");
    assert!(scene.serves_others().await);
}

#[tokio::test]
async fn bundles_of_another_length_than_announced_end_the_session() {
    for (length, bytes) in [(3, &b"longer"[..]), (30, b"shorter")] {
        let mut scene = Scene::new().await;
        let mut stream = scene.begin(length, bytes).await;
        let _ = stream.finish();
        let down = scene.hub.down().await.1;
        assert!(matches!(down, Down::Protocol(_)), "{down:?}");
    }
}

#[tokio::test]
async fn datagrams_that_are_no_symbols_end_the_session() {
    for bytes in [&b""[..], b"not a symbol", &[1; 40], &[0xff; 1_000]] {
        let mut scene = Scene::new().await;
        let datagram = BytesMut::from(bytes).freeze();
        scene
            .connection
            .send_datagram(datagram)
            .expect("a small one");
        let down = scene.hub.down().await.1;
        assert!(matches!(down, Down::Protocol(_)), "{down:?}");
        assert!(scene.serves_others().await);
    }
}

#[tokio::test]
async fn a_verdict_on_symbols_that_were_not_sent_ends_the_session() {
    let mut scene = Scene::new().await;
    let taken = underpass_coded::Message::Taken { bundle: 7 };
    scene.say(Message::Coded(taken)).await;
    let down = scene.hub.down().await.1;
    assert!(matches!(down, Down::Protocol(_)), "{down:?}");
}

#[tokio::test]
async fn a_bundle_that_is_given_up_with_its_session_does_not_end_as_if_it_were_whole() {
    let mut scene = Scene::new().await;
    // The session cannot end before somebody reads this.
    let _stalled = scene.begin(1 << 20, b"and no more").await;
    scene.session.set_rate(Some(1_000_000));
    scene.session.offer(transfer(1, 1 << 20).0);
    let mut stream = scene.connection.accept_uni().await.expect("a bundle");
    let first = stream.read_chunk(4096, true).await;
    assert!(first.expect("a bundle").is_some());
    let taken = underpass_coded::Message::Taken { bundle: 7 };
    scene.say(Message::Coded(taken)).await;
    let last = loop {
        match stream.read_chunk(4096, true).await {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    assert!(last.is_err(), "it ends in order");
}

#[tokio::test]
async fn the_end_of_a_block_does_not_wait_for_all_of_a_long_bundle_behind_it() {
    let mut scene = Scene::of(Some(Class(0)), Coding::Tail).await;
    let open = underpass_coded::Message::Open {
        version: underpass_coded::VERSION,
        room_bytes: 10_000,
    };
    scene.say(Message::Coded(open)).await;
    // The hub does not answer.
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene.session.set_rate(Some(250_000));
    scene.session.offer(transfer(1, 5_000).0);
    // There is no room for it as symbols, and as a stream it takes 32 s.
    let piece = transfer(2, 64 << 10).1;
    let long = Transfer::new(2, vec![piece; 16]);
    scene.session.offer(long);
    let is_sent = |message: &Message| {
        matches!(
            message,
            Message::Coded(underpass_coded::Message::Sent { .. })
        )
    };
    let sent = timeout(Duration::from_secs(16), scene.hear(is_sent)).await;
    assert!(sent.is_ok(), "what is lost of the first is never asked for");
}

/// An attacker between a terminal and a hub: it relays all packets, and also sends the
/// terminal's packets from another address of its own.
struct Spoofer {
    address: SocketAddr,
    /// Bytes that the hub has sent to that address.
    led_away: Arc<AtomicUsize>,
    spoofed: Arc<AtomicUsize>,
    is_on: Arc<AtomicBool>,
}

impl Spoofer {
    async fn before(hub: SocketAddr) -> Spoofer {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let near = UdpSocket::bind(any).await.expect("a free port");
        let far = UdpSocket::bind(any).await.expect("a free port");
        let other = UdpSocket::bind(any).await.expect("a free port");
        let spoofer = Spoofer {
            address: near.local_addr().expect("it is bound"),
            led_away: Arc::default(),
            spoofed: Arc::default(),
            is_on: Arc::default(),
        };
        let (led_away, spoofed) = (spoofer.led_away.clone(), spoofer.spoofed.clone());
        let is_on = spoofer.is_on.clone();
        tokio::spawn(async move {
            let (mut up, mut down, mut away) = (vec![0; 2048], vec![0; 2048], vec![0; 2048]);
            let mut terminal = None;
            loop {
                tokio::select! {
                    Ok((length, from)) = near.recv_from(&mut up) => {
                        terminal = Some(from);
                        if is_on.load(Relaxed) {
                            // The copy overtakes the terminal's own packet.
                            let _ = other.send_to(&up[..length], hub).await;
                            spoofed.fetch_add(length, Relaxed);
                        }
                        let _ = far.send_to(&up[..length], hub).await;
                    }
                    Ok((length, _)) = far.recv_from(&mut down) => {
                        if let Some(terminal) = terminal {
                            let _ = near.send_to(&down[..length], terminal).await;
                        }
                    }
                    Ok((length, _)) = other.recv_from(&mut away) => {
                        led_away.fetch_add(length, Relaxed);
                    }
                }
            }
        });
        spoofer
    }
}

#[tokio::test]
async fn who_sends_from_another_address_leads_little_there_and_holds_up_nothing_for_long() {
    let ca = Ca::new();
    let (mut near, mut far) = (TestNode::new(), TestNode::new());
    let listener = Listener::bind(hub(&ca), far.node.clone()).expect("a free port");
    let spoofer = Spoofer::before(listener.local_addr()).await;
    let dialer = Dialer::spawn(terminal(&ca, spoofer.address), near.node.clone());
    let (_, _, _) = near.up().await;
    let (id, _, session) = far.up().await;
    far.ready(id).await;
    spoofer.is_on.store(true, Relaxed);
    // An attacker on the path that overtakes all packets decides what arrives.
    session.offer(transfer(1, 3_000_000).0);
    let is_heard = async {
        while spoofer.spoofed.load(Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let is_heard = timeout(PATIENCE, is_heard).await;
    is_heard.expect("the terminal says something");
    tokio::time::sleep(Duration::from_secs(1)).await;
    spoofer.is_on.store(false, Relaxed);
    assert_eq!(far.finished().await, (1, Outcome::Acknowledged));
    let (away, spoofed) = (&spoofer.led_away, &spoofer.spoofed);
    // At most three times what came from that address (RFC 9000, 8.1), and far less than
    // the bundle.
    let (away, spoofed) = (away.load(Relaxed), spoofed.load(Relaxed));
    assert!(away < 3_000_000 / 2, "{away} bytes for {spoofed}");
    dialer.shutdown().await;
}
