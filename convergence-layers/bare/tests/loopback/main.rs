//! Two nodes over each layer, on real sockets.

mod ecla;
mod long;
mod taking_over;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use underpass_backoff::Backoff;
use underpass_bare::{Config, Layer, LtpLimits, LtpMemory, Neighbour};
use underpass_cla::{Down, Outcome, Refusal, Transfer};
use underpass_cla_testing::node::{TestNode, transfer};
use underpass_payloads::{Limits, PayloadFile, Payloads};

fn ltp(local: u64, remote: u64) -> Layer {
    Layer::Ltp { local, remote }
}

/// Marks the loopback addresses of one end, for this process.
const ONE: u8 = 64;
/// The same for the other end.
const TWO: u8 = 128;
/// The same for a stranger.
const STRANGER: u8 = 192;

/// The address of this process for `end`.
fn host(end: u8) -> IpAddr {
    // A process number has 22 bits at most.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    IpAddr::from([127, end | high, middle, low])
}

/// An address for `end` that is free for both TCP and UDP, and stays so until it is bound: no
/// other process has the host, no other test has the port, and the kernel gives neither away.
fn free(end: u8) -> SocketAddr {
    static PORTS: AtomicU16 = AtomicU16::new(20_000);
    SocketAddr::new(host(end), PORTS.fetch_add(1, Ordering::Relaxed))
}

fn config(layer: Layer, listen: SocketAddr, remote: SocketAddr) -> Config {
    Config {
        layer,
        path: "link".to_owned(),
        peer_node_id: "ipn:2.0".to_owned(),
        remote,
        listen,
        place: None,
        announced: Vec::new(),
        interface: None,
        mark: None,
        transfer_mru_bytes: 4 << 20,
        long_mru_bytes: 4 << 20,
        spools: false,
        peer_transfer_mru_bytes: None,
        mtu_bytes: 1_500,
        rtt: Duration::from_millis(50),
        green: false,
        ltp: LtpLimits::default(),
        ltp_memory: LtpMemory::new(16 << 20),
        ceiling_bps: Some(200_000_000),
        backoff: Backoff {
            base: Duration::from_millis(50),
            max: Duration::from_millis(200),
        },
        session_ids: Arc::new(AtomicU64::new(0)),
    }
}

struct Two {
    addresses: [SocketAddr; 2],
    nodes: [TestNode; 2],
    neighbours: [Neighbour; 2],
}

fn two(layers: [Layer; 2]) -> Two {
    let addresses = [free(ONE), free(TWO)];
    let nodes = [TestNode::new(), TestNode::new()];
    let spawn = |index: usize| {
        let config = config(layers[index], addresses[index], addresses[1 - index]);
        Neighbour::spawn(config, nodes[index].node.clone())
    };
    let neighbours = [spawn(0), spawn(1)];
    Two {
        addresses,
        nodes,
        neighbours,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_go_both_ways_over_each_layer() {
    let layers = [
        ([Layer::Stcp; 2], 3_000_000),
        ([Layer::Mtcp; 2], 3_000_000),
        ([Layer::Udp; 2], 60_000),
        ([ltp(1, 2), ltp(2, 1)], 3_000_000),
    ];
    for (layers, largest) in layers {
        let Two {
            nodes: [mut one, mut two],
            neighbours,
            ..
        } = two(layers);
        let (first, info, session) = one.up().await;
        let (second, _, other) = two.up().await;
        assert_eq!(info.convergence_layer, layers[0].name());
        assert_eq!(
            (info.tls, info.class, info.incarnation),
            (false, None, None)
        );
        one.ready(first).await;
        two.ready(second).await;
        for (key, length) in [(1, 1), (2, 1_000), (3, largest)] {
            let (sent, whole) = transfer(key, length);
            session.offer(sent);
            assert_eq!(two.received().await.1, whole, "{layers:?}");
            assert_eq!(one.finished().await, (key, Outcome::Acknowledged));
            let (sent, whole) = transfer(key, length);
            other.offer(sent);
            assert_eq!(one.received().await.1, whole, "{layers:?}");
            assert_eq!(two.finished().await, (key, Outcome::Acknowledged));
        }
        session.close();
        one.down().await;
        for neighbour in &neighbours {
            neighbour.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_without_custody_go_as_green_blocks_where_that_is_configured() {
    // The segment's type: all of a red block with its checkpoint, or the end of a green one.
    for (green, reliable, code) in [(true, false, 7), (true, true, 3), (false, false, 3)] {
        let addresses = [free(ONE), free(TWO)];
        let peer = tokio::net::UdpSocket::bind(addresses[1]).await;
        let peer = peer.expect("free");
        let mut one = TestNode::new();
        let config = Config {
            green,
            ..config(ltp(1, 2), addresses[0], addresses[1])
        };
        let neighbour = Neighbour::spawn(config, one.node.clone());
        let (id, _, session) = one.up().await;
        one.ready(id).await;
        let (sent, _) = transfer(1, 100);
        session.offer(Transfer { reliable, ..sent });
        let mut segment = [0; 1_500];
        let (count, _) = peer.recv_from(&mut segment).await.expect("a segment");
        assert!(count > 100, "{count}");
        assert_eq!(segment[0], code, "{green} {reliable}");
        if code == 7 {
            // Nothing is waited for.
            assert_eq!(one.finished().await, (1, Outcome::Acknowledged));
        }
        neighbour.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_green_block_is_received() {
    let addresses = [free(ONE), free(TWO)];
    let mut nodes = [TestNode::new(), TestNode::new()];
    let layers = [ltp(1, 2), ltp(2, 1)];
    let neighbours = [0, 1].map(|index| {
        let config = Config {
            green: index == 0,
            ..config(layers[index], addresses[index], addresses[1 - index])
        };
        Neighbour::spawn(config, nodes[index].node.clone())
    });
    let (id, _, session) = nodes[0].up().await;
    let _second = nodes[1].up().await;
    nodes[0].ready(id).await;
    let (sent, whole) = transfer(1, 20_000);
    session.offer(Transfer {
        reliable: false,
        ..sent
    });
    assert_eq!(nodes[1].received().await.1, whole);
    assert_eq!(nodes[0].finished().await, (1, Outcome::Acknowledged));
    for neighbour in &neighbours {
        neighbour.shutdown().await;
    }
}

fn on_disk(folder: &Path, content: &[u8]) -> Arc<PayloadFile> {
    let limits = Limits {
        quota_bytes: 16 << 20,
        payload_bytes: 16 << 20,
        leave_free_bytes: 0,
    };
    let payloads = Payloads::open(folder, limits).expect("a folder");
    let room = payloads.reserve(1, content.len() as u64).expect("room");
    let mut writer = room.begin(content.len() as u64).expect("room");
    writer.write(content).expect("room");
    writer.finish().expect("a file")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_on_disk_goes_in_its_place() {
    for layers in [[Layer::Stcp; 2], [Layer::Mtcp; 2], [ltp(1, 2), ltp(2, 1)]] {
        let Two {
            nodes: [mut one, mut two],
            neighbours,
            ..
        } = two(layers);
        let (id, info, session) = one.up().await;
        assert!(info.takes_files);
        one.ready(id).await;
        let folder = tempfile::tempdir().expect("a folder");
        let content: Vec<u8> = (0..3_000_001_u32).map(|i| (i % 251) as u8).collect();
        let (mut sent, whole) = transfer(1, 1_000);
        let first = sent.chunks[0].clone();
        sent.file = Some(on_disk(folder.path(), &content));
        session.offer(sent);
        let expected = [&first[..], &content, &whole[first.len()..]].concat();
        assert_eq!(two.received().await.1, expected, "{layers:?}");
        assert_eq!(one.finished().await, (1, Outcome::Acknowledged));
        for neighbour in &neighbours {
            neighbour.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_may_take_more_than_this_node_does() {
    for layer in [Layer::Stcp, Layer::Mtcp, ltp(1, 2)] {
        let addresses = [free(ONE), free(TWO)];
        let _neighbour = tokio::net::TcpListener::bind(addresses[1])
            .await
            .expect("free");
        let mut one = TestNode::new();
        let config = Config {
            peer_transfer_mru_bytes: Some(1 << 40),
            ..config(layer, addresses[0], addresses[1])
        };
        let _kept = Neighbour::spawn(config, one.node.clone());
        let (_, info, _) = one.up().await;
        assert_eq!(info.transfer_mru_bytes, 1 << 40, "{layer:?}");
    }
}

/// What one end receives when `from` sends it `bytes`, a bundle of one byte in each
/// framing.
async fn said_by(from: IpAddr, to: SocketAddr, bytes: &[u8]) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().expect("a socket");
    let from = SocketAddr::new(from, 0);
    socket.bind(from).expect("an address of the loopback");
    let mut stream = socket.connect(to).await.ok()?;
    let _ = stream.write_all(bytes).await;
    Some(stream)
}

/// The same, once the other end listens.
async fn said_in_time(host: IpAddr, to: SocketAddr, bytes: &[u8]) -> TcpStream {
    loop {
        if let Some(stream) = said_by(host, to, bytes).await {
            return stream;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn is_closed(mut stream: TcpStream) -> bool {
    let mut byte = [0; 1];
    let read = stream.read(&mut byte);
    let read = tokio::time::timeout(Duration::from_secs(60), read).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_from_another_address_is_refused() {
    let bundles: [(Layer, &[u8]); 2] = [(Layer::Stcp, &[0, 0, 0, 1, 7]), (Layer::Mtcp, &[0x41, 7])];
    for (layer, bundle) in bundles {
        let Two {
            addresses,
            nodes: [mut one, _two],
            neighbours: _kept,
        } = two([layer; 2]);
        let _ours = one.up().await;
        let stranger = said_by(host(STRANGER), addresses[0], bundle).await;
        assert!(is_closed(stranger.expect("it listens")).await);
        let peer = said_by(host(TWO), addresses[0], bundle).await;
        // The first bundle that arrives is the neighbour's.
        assert_eq!(&one.received().await.1[..], [7]);
        drop(peer);
    }
    for layers in [[Layer::Udp; 2], [ltp(1, 2), ltp(2, 1)]] {
        let Two {
            addresses,
            nodes: [mut one, _two],
            neighbours: _kept,
        } = two(layers);
        let _ours = one.up().await;
        // A whole block of LTP, and a bundle of UDP, from both hosts.
        let block = |byte| vec![3, 2, 9, 0, 1, 0, 1, 5, 0, byte];
        for (end, byte) in [(STRANGER, 1), (TWO, 2)] {
            let socket = UdpSocket::bind((host(end), 0)).expect("a socket");
            socket
                .send_to(&block(byte), addresses[0])
                .expect("it is sent");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let (_, bundle) = one.received().await;
        assert_eq!(bundle.last(), Some(&2), "{layers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_hears_of_refusals_where_its_layer_can_tell() {
    let layers = [
        ([Layer::Stcp; 2], false),
        ([Layer::Mtcp; 2], false),
        ([Layer::Udp; 2], false),
        ([ltp(1, 2), ltp(2, 1)], true),
    ];
    for (layers, hears) in layers {
        let Two {
            nodes: [mut one, _two],
            neighbours: _kept,
            ..
        } = two(layers);
        let (_, info, _) = one.up().await;
        assert_eq!(info.hears_refusals, hears, "{layers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_that_only_sends_is_read() {
    let bundles: [(Layer, &[u8]); 2] = [(Layer::Stcp, &[0, 0, 0, 1, 7]), (Layer::Mtcp, &[0x41, 7])];
    for (layer, bundle) in bundles {
        // Nobody listens at the second one.
        let addresses = [free(ONE), free(TWO)];
        let mut one = TestNode::new();
        let config = config(layer, addresses[0], addresses[1]);
        let kept = Neighbour::spawn(config, one.node.clone());
        let sensor = said_in_time(host(TWO), addresses[0], bundle).await;
        let (id, info, session) = one.receiving_up().await;
        assert_eq!(info.remote.ip(), addresses[1].ip());
        let (by, taken) = one.received().await;
        assert_eq!((by, &taken[..]), (id, &[7][..]));
        drop(sensor);
        assert_eq!(one.down().await, (id, Down::Closed));
        assert_eq!(session.figures().received_bytes, 1);
        // The node ends one of the connections.
        let sensor = said_in_time(host(TWO), addresses[0], bundle).await;
        let (id, _, session) = one.receiving_up().await;
        session.set_rate(Some(0));
        session.abort("enough");
        assert!(is_closed(sensor).await);
        assert_eq!(one.down().await, (id, Down::Broken("enough".to_owned())));
        kept.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_is_read_once_sessions_may_begin() {
    let addresses = [free(ONE), free(TWO)];
    let mut one = TestNode::new();
    let config = config(Layer::Stcp, addresses[0], addresses[1]);
    let kept = Neighbour::spawn_early(config, one.node.clone());
    let _sensor = said_in_time(host(TWO), addresses[0], &[0, 0, 0, 1, 7]).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(one.never_up());
    kept.hold(false);
    assert_eq!(&one.received().await.1[..], [7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_that_lies_ends_its_connection_and_nothing_else() {
    let lies = [
        (Layer::Stcp, vec![0xff; 8]),
        (Layer::Mtcp, [vec![0x5b], vec![0xff; 8]].concat()),
        (Layer::Mtcp, vec![0x9f, 0x00]),
    ];
    for (layer, lie) in lies {
        let Two {
            addresses,
            nodes: [mut one, mut two],
            neighbours: _kept,
        } = two([layer; 2]);
        let _ours = one.up().await;
        let (second, _, session) = two.up().await;
        let liar = said_by(host(TWO), addresses[0], &lie).await;
        assert!(is_closed(liar.expect("it listens")).await);
        two.ready(second).await;
        let (sent, whole) = transfer(1, 5_000);
        session.offer(sent);
        assert_eq!(one.received().await.1, whole);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_stay_open_hold_up_no_new_one() {
    let Two {
        addresses,
        nodes: [mut one, _two],
        neighbours: _kept,
    } = two([Layer::Stcp; 2]);
    let _ours = one.up().await;
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(said_by(host(TWO), addresses[0], &[0, 0, 0, 9]).await);
    }
    open.push(said_by(host(TWO), addresses[0], &[0, 0, 0, 1, 7]).await);
    assert_eq!(&one.received().await.1[..], [7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_that_restarts_is_dialled_again_and_what_was_under_way_is_broken_once() {
    let addresses = [free(ONE), free(TWO)];
    let mut one = TestNode::new();
    let dialling = config(Layer::Stcp, addresses[0], addresses[1]);
    let _kept = Neighbour::spawn(dialling, one.node.clone());
    // A neighbour that accepts connections but reads nothing.
    let listener = tokio::net::TcpListener::bind(addresses[1])
        .await
        .expect("free");
    let (silent, _) = listener.accept().await.expect("it dials");
    let (first, _, session) = one.up().await;
    one.ready(first).await;
    session.offer(transfer(1, 30_000_000).0);
    // The transfer is under way.
    silent.peek(&mut [0; 1]).await.expect("it sends");
    drop((silent, listener));
    let broken = Outcome::Broken { acknowledged: 0 };
    assert_eq!(one.finished().await, (1, broken));
    one.down().await;
    let mut two = TestNode::new();
    let _other = Neighbour::spawn(
        config(Layer::Stcp, addresses[1], addresses[0]),
        two.node.clone(),
    );
    let (again, _, session) = one.up().await;
    one.ready(again).await;
    let (sent, whole) = transfer(2, 100_000);
    session.offer(sent);
    assert_eq!(two.received().await.1, whole);
    assert_eq!(one.finished().await, (2, Outcome::Acknowledged));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_fits_no_datagram_is_refused_and_the_next_one_goes() {
    let Two {
        nodes: [mut one, mut two],
        neighbours: _kept,
        ..
    } = two([Layer::Udp; 2]);
    let (first, info, session) = one.up().await;
    let _theirs = two.up().await;
    assert_eq!(info.transfer_mru_bytes, 65_507);
    one.ready(first).await;
    session.offer(transfer(1, 65_508).0);
    let refused = Outcome::Refused(Refusal::NotAcceptable);
    assert_eq!(one.finished().await, (1, refused));
    one.ready(first).await;
    let (sent, whole) = transfer(2, 65_507);
    session.offer(sent);
    assert_eq!(two.received().await.1, whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_at_a_rate_of_zero_or_while_the_link_is_blocked() {
    for layers in [[Layer::Stcp; 2], [Layer::Udp; 2], [ltp(1, 2), ltp(2, 1)]] {
        let Two {
            nodes: [mut one, mut two],
            neighbours: _kept,
            ..
        } = two(layers);
        let (first, _, session) = one.up().await;
        let _theirs = two.up().await;
        one.ready(first).await;
        session.suspend(true);
        session.set_rate(Some(0));
        let (sent, whole) = transfer(1, 2_000);
        session.offer(sent);
        let early = tokio::time::timeout(Duration::from_millis(300), two.received()).await;
        assert!(early.is_err(), "{layers:?}");
        session.suspend(false);
        session.set_rate(None);
        assert_eq!(two.received().await.1, whole, "{layers:?}");
        assert_eq!(one.finished().await, (1, Outcome::Acknowledged));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_is_not_lost_while_the_peer_has_no_bundle_agent() {
    let addresses = [free(ONE), free(TWO)];
    let mut one = TestNode::new();
    let _kept = Neighbour::spawn(
        config(ltp(1, 2), addresses[0], addresses[1]),
        one.node.clone(),
    );
    let peer = tokio::net::UdpSocket::bind(addresses[1])
        .await
        .expect("free");
    let (first, _, session) = one.up().await;
    one.ready(first).await;
    // The peer's reasons to cancel (RFC 5326, 3.2.4), and their meaning.
    let answers = [
        (0, Refusal::NotAcceptable),
        (1, Refusal::NoResources),
        (4, Refusal::NoResources),
    ];
    for (reason, refusal) in answers {
        session.offer(transfer(1, 100).0);
        let mut segment = [0; 2_000];
        let count = peer.recv(&mut segment).await.expect("a segment");
        // Engine number 1, then the session's number: in the bytes of a number, only the
        // last one has its high bit clear.
        let length = segment[2..count].iter().position(|byte| byte & 0x80 == 0);
        let number = segment[2..3 + length.expect("a number")].to_vec();
        let cancelled = [&[14, 1], &number[..], &[0, reason]].concat();
        peer.send_to(&cancelled, addresses[0])
            .await
            .expect("it is sent");
        assert_eq!(one.finished().await, (1, Outcome::Refused(refusal)));
        // It acknowledges that, after what it may have sent again meanwhile: segments of data
        // have a type below 8 (RFC 5326, 3.1).
        let mut count = peer.recv(&mut segment).await.expect("a segment");
        while segment[0] < 8 {
            count = peer.recv(&mut segment).await.expect("a segment");
        }
        assert_eq!((segment[0], count), (15, 3 + number.len()));
    }
}
