//! Bundles that are too long for memory, and bundles that the node refuses.

use std::fs::OpenOptions;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};
use underpass_bare::{Config, Layer, Neighbour};
use underpass_cla::{
    Down, Intake, Node, Outcome, Refusal, Session, SessionId, SessionInfo, Transfer,
};
use underpass_cla_testing::node::{TestNode, transfer};
use underpass_payloads::{Limits, Payloads, Spool};

use super::{ONE, TWO, Two, config, free, host, ltp, on_disk, said_in_time, two};

const LONG_BYTES: usize = 17 << 20;

/// A node that receives long bundles piece by piece; it refuses the next short one if
/// told to.
struct Disk {
    node: Arc<dyn Node>,
    taken: UnboundedSender<Vec<u8>>,
    refuses: Mutex<Option<Refusal>>,
    /// The folder where long blocks wait.
    folder: Option<Arc<Payloads>>,
}

/// A bundle of known length, and the part of it that has come.
struct Pieces {
    length: u64,
    bytes: Vec<u8>,
    taken: UnboundedSender<Vec<u8>>,
}

impl Intake for Pieces {
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, piece: Bytes) {
        assert!(piece.len() <= 256 << 10);
        self.bytes.extend_from_slice(&piece);
    }

    fn poll_end(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let whole = std::mem::take(&mut self.bytes);
        if whole.len() as u64 != self.length {
            return Poll::Ready(Err(Refusal::NotAcceptable));
        }
        let _ = self.taken.send(whole);
        Poll::Ready(Ok(()))
    }
}

impl Node for Disk {
    fn session_up(&self, id: SessionId, info: SessionInfo, session: Arc<dyn Session>) -> SessionId {
        self.node.session_up(id, info, session)
    }

    fn ready(&self, id: SessionId) {
        self.node.ready(id);
    }

    fn admit(&self, id: SessionId, length: Option<u64>) -> Result<(), Refusal> {
        self.node.admit(id, length)
    }

    fn intake(&self, _id: SessionId, length: u64) -> Result<Option<Box<dyn Intake>>, Refusal> {
        if length < LONG_BYTES as u64 {
            return Ok(None);
        }
        Ok(Some(Box::new(Pieces {
            length,
            bytes: Vec::new(),
            taken: self.taken.clone(),
        })))
    }

    fn spool(&self, _id: SessionId) -> Result<Spool, Refusal> {
        let folder = self.folder.as_ref().ok_or(Refusal::NoResources)?;
        folder.spool(1).map_err(|_| Refusal::NoResources)
    }

    fn received(&self, id: SessionId, bundle: Bytes) -> Result<(), Refusal> {
        let refuses = self.refuses.lock().expect("no test panics with it").take();
        refuses.map_or_else(|| self.node.received(id, bundle), Err)
    }

    fn progress(&self, id: SessionId, key: u64, acknowledged: u64) {
        self.node.progress(id, key, acknowledged);
    }

    fn finished(&self, id: SessionId, key: u64, outcome: Outcome) {
        self.node.finished(id, key, outcome);
    }

    fn session_down(&self, id: SessionId, reason: Down) {
        self.node.session_down(id, reason);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_longer_than_memory_takes_is_taken_piece_by_piece() {
    for (layers, whole_bytes) in [
        ([Layer::Stcp; 2], 4 << 20),
        ([Layer::Mtcp; 2], 4 << 20),
        // A block is whole before it is written.
        ([ltp(1, 2), ltp(2, 1)], 32 << 20),
    ] {
        let addresses = [free(ONE), free(TWO)];
        let mut one = TestNode::new();
        let mut two = TestNode::new();
        let (taken, mut long) = unbounded_channel();
        let disk = Arc::new(Disk {
            node: two.node.clone(),
            taken,
            refuses: Mutex::default(),
            folder: None,
        });
        let of = |index: usize| Config {
            transfer_mru_bytes: whole_bytes,
            long_mru_bytes: 64 << 20,
            peer_transfer_mru_bytes: Some(64 << 20),
            ..config(layers[index], addresses[index], addresses[1 - index])
        };
        let neighbours = [
            Neighbour::spawn(of(0), one.node.clone()),
            Neighbour::spawn(of(1), disk),
        ];
        let (id, _, session) = one.up().await;
        let _theirs = two.up().await;
        one.ready(id).await;
        for (key, length) in [(1, LONG_BYTES), (2, LONG_BYTES - 1), (3, 1_000)] {
            let (sent, whole): (Transfer, Bytes) = transfer(key, length);
            session.offer(sent);
            match length {
                LONG_BYTES => assert!(long.recv().await.expect("it comes") == whole, "{layers:?}"),
                // A bundle that needs no disk fits in memory or is lost; then the next
                // one comes.
                _ if length as u64 <= whole_bytes => {
                    assert!(two.received().await.1 == whole, "{layers:?}");
                }
                _ => {}
            }
            assert_eq!(one.finished().await, (key, Outcome::Acknowledged));
        }
        for neighbour in &neighbours {
            neighbour.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_bundle_that_comes_outlives_the_session_to_its_sender() {
    let addresses = [free(ONE), free(TWO)];
    let listener = TcpListener::bind(addresses[1]).await.expect("free");
    let mut one = TestNode::new();
    let (taken, mut long) = unbounded_channel();
    let disk = Arc::new(Disk {
        node: one.node.clone(),
        taken,
        refuses: Mutex::default(),
        folder: None,
    });
    let config = Config {
        long_mru_bytes: 64 << 20,
        ..config(Layer::Stcp, addresses[0], addresses[1])
    };
    let _kept = Neighbour::spawn(config, disk);
    let (accepted, _) = listener.accept().await.expect("it dials");
    let (dialled, ..) = one.up().await;
    let whole: Vec<u8> = (0..LONG_BYTES).map(|i| (i % 251) as u8).collect();
    let (early, late) = whole.split_at(LONG_BYTES / 2);
    let head = u32::try_from(LONG_BYTES).expect("it fits").to_be_bytes();
    let early = [&head[..], early].concat();
    let mut sender = said_in_time(host(TWO), addresses[0], &early).await;
    drop((accepted, listener));
    assert_eq!(one.down().await.0, dialled);
    sender.write_all(late).await.expect("it is read");
    assert!(long.recv().await.expect("it comes") == whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_ltp_what_has_no_room_waits_and_what_is_never_taken_is_not_sent_again() {
    for (refusal, is_taken) in [
        (Refusal::NotAcceptable, false),
        (Refusal::Completed, false),
        (Refusal::NoResources, true),
    ] {
        let addresses = [free(ONE), free(TWO)];
        let (mut one, mut two) = (TestNode::new(), TestNode::new());
        let (taken, _long) = unbounded_channel();
        let disk = Arc::new(Disk {
            node: two.node.clone(),
            taken,
            refuses: Mutex::default(),
            folder: None,
        });
        let of = |local: u64, remote: u64, at: usize| {
            config(ltp(local, remote), addresses[at], addresses[1 - at])
        };
        let _neighbours = [
            Neighbour::spawn(of(1, 2, 0), one.node.clone()),
            Neighbour::spawn(of(2, 1, 1), disk.clone()),
        ];
        let (id, _, session) = one.up().await;
        one.ready(id).await;
        for (key, length) in [(1, 1_000), (2, 300_000)] {
            *disk.refuses.lock().expect("no test panics with it") = Some(refusal);
            let (sent, whole) = transfer(key, length);
            session.offer(sent);
            if is_taken {
                assert!(two.received().await.1 == whole);
            }
            let finished = one.finished().await;
            assert_eq!(
                finished,
                (key, Outcome::Acknowledged),
                "{refusal}, {length}"
            );
        }
    }
}

/// A node that sends over LTP to another one, which keeps long blocks on the disk.
struct Spooling {
    nodes: [TestNode; 2],
    neighbours: [Neighbour; 2],
    /// The bundles that the other node has received piece by piece.
    long: UnboundedReceiver<Vec<u8>>,
    payloads: Arc<Payloads>,
    folder: tempfile::TempDir,
}

/// The other node has room for `quota_bytes`.
fn spooling(quota_bytes: u64) -> Spooling {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits {
        quota_bytes,
        payload_bytes: quota_bytes,
        leave_free_bytes: 0,
    };
    let payloads = Payloads::open(folder.path(), limits).expect("a folder");
    let nodes = [TestNode::new(), TestNode::new()];
    let (taken, long) = unbounded_channel();
    let disk = Arc::new(Disk {
        node: nodes[1].node.clone(),
        taken,
        refuses: Mutex::default(),
        folder: Some(payloads.clone()),
    });
    let addresses = [free(ONE), free(TWO)];
    let of = |local: u64, remote: u64, at: usize| Config {
        // A bundle longer than 4 MiB does not fit in memory.
        long_mru_bytes: 64 << 20,
        peer_transfer_mru_bytes: Some(64 << 20),
        spools: true,
        ..config(ltp(local, remote), addresses[at], addresses[1 - at])
    };
    let neighbours = [
        Neighbour::spawn(of(1, 2, 0), nodes[0].node.clone()),
        Neighbour::spawn(of(2, 1, 1), disk),
    ];
    Spooling {
        nodes,
        neighbours,
        long,
        payloads,
        folder,
    }
}

/// Waits until no payload is on the disk any more.
async fn is_empty(payloads: &Payloads) {
    let emptied = async {
        while payloads.used() != (0, 0) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let emptied = timeout(Duration::from_secs(30), emptied).await;
    emptied.expect("nothing stays there");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_ltp_a_block_that_is_too_long_for_memory_waits_on_the_disk() {
    let Spooling {
        nodes: [mut one, mut two],
        neighbours: _neighbours,
        mut long,
        payloads,
        folder: _folder,
    } = spooling(64 << 20);
    let (id, _, session) = one.up().await;
    one.ready(id).await;
    for (key, length) in [(1, LONG_BYTES), (2, LONG_BYTES - 1), (3, 1_000)] {
        let (sent, whole): (Transfer, Bytes) = transfer(key, length);
        session.offer(sent);
        match length {
            LONG_BYTES => assert!(long.recv().await.expect("it comes") == whole),
            1_000 => assert!(two.received().await.1 == whole),
            // The node does not take it piece by piece, and it is too long for memory.
            _ => {}
        }
        assert_eq!(one.finished().await, (key, Outcome::Acknowledged));
    }
    is_empty(&payloads).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_ltp_a_block_for_which_the_disk_has_no_room_is_refused_and_others_come() {
    let Spooling {
        nodes: [mut one, mut two],
        neighbours: _neighbours,
        long: _long,
        payloads,
        folder: _folder,
    } = spooling(8 << 20);
    let (id, _, session) = one.up().await;
    one.ready(id).await;
    session.offer(transfer(1, LONG_BYTES).0);
    let refused = Outcome::Refused(Refusal::NoResources);
    assert_eq!(one.finished().await, (1, refused));
    let (sent, whole) = transfer(2, 1_000);
    session.offer(sent);
    assert!(two.received().await.1 == whole);
    assert_eq!(one.finished().await, (2, Outcome::Acknowledged));
    is_empty(&payloads).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_ltp_a_payload_that_cannot_be_read_ends_its_bundle_and_no_other() {
    let Two {
        nodes: [mut one, mut two],
        neighbours: _neighbours,
        ..
    } = two([ltp(1, 2), ltp(2, 1)]);
    let (id, _, session) = one.up().await;
    one.ready(id).await;
    let folder = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> = (0..2_000_000_u32).map(|i| (i % 251) as u8).collect();
    let file = on_disk(folder.path(), &content);
    // The end of the block gets lost, so that its beginning has left by then.
    file.save(1).expect("it has a name");
    let named = OpenOptions::new()
        .write(true)
        .open(folder.path().join(file.name()));
    let named = named.expect("it is there");
    named.set_len(600_000).expect("it is shorter");
    let (mut sent, _) = transfer(1, 1_000);
    sent.file = Some(file);
    session.offer(sent);
    let refused = Outcome::Refused(Refusal::NoResources);
    assert_eq!(one.finished().await, (1, refused));
    one.ready(id).await;
    let (sent, whole) = transfer(2, 1_000);
    session.offer(sent);
    assert_eq!(two.received().await.1, whole);
    assert_eq!(one.finished().await, (2, Outcome::Acknowledged));
}
