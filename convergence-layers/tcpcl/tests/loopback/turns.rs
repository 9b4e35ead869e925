//! Sessions and other tasks of a thread take turns.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use underpass_cla::{Down, Node, Outcome, Refusal, Session, SessionId, SessionInfo};
use underpass_tcpcl::Listener;

use super::hub;
use super::plain::CONTACT_AND_INIT;
use underpass_cla_testing::node::TestNode;

const BUNDLE_BYTES: usize = 64 << 10;
const BUNDLES: usize = 128;
/// One turn's 512 KiB, the read that ends it, and the earlier part of a bundle.
const MOST_BYTES: usize = 1 << 20;

/// Counts the bytes of bundles that arrive.
struct Counting {
    node: Arc<dyn Node>,
    bytes: AtomicUsize,
}

impl Node for Counting {
    fn session_up(&self, id: SessionId, info: SessionInfo, session: Arc<dyn Session>) -> SessionId {
        self.node.session_up(id, info, session)
    }

    fn poll_in_use(&self, id: SessionId, cx: &mut Context<'_>) -> Poll<SessionId> {
        self.node.poll_in_use(id, cx)
    }

    fn ready(&self, id: SessionId) {
        self.node.ready(id);
    }

    fn admit(&self, id: SessionId, length: Option<u64>) -> Result<(), Refusal> {
        self.node.admit(id, length)
    }

    fn received(&self, id: SessionId, bundle: Bytes) -> Result<(), Refusal> {
        self.bytes.fetch_add(bundle.len(), SeqCst);
        self.node.received(id, bundle)
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

/// A task that takes turn after turn until all bundles have arrived; returns the most
/// bytes that came between two of its turns.
async fn most_between_turns(counting: Arc<Counting>) -> usize {
    let (mut most, mut all) = (0, 0);
    poll_fn(|cx| {
        let bytes = counting.bytes.swap(0, SeqCst);
        most = bytes.max(most);
        all += bytes;
        if all == BUNDLES * BUNDLE_BYTES {
            return Poll::Ready(most);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[tokio::test]
async fn a_peer_that_sends_without_a_pause_leaves_others_their_turns() {
    let mut at_hub = TestNode::new();
    // Bytes that arrive before the session is used may be read without a pause.
    at_hub.uses_sessions(false);
    let counting = Arc::new(Counting {
        node: at_hub.node.clone(),
        bytes: AtomicUsize::new(0),
    });
    let mut config = hub();
    config.session.socket.receive_buffer_bytes = Some(4 << 20);
    let listener = Listener::bind(config, counting.clone()).expect("a free port");
    let mut peer = TcpStream::connect(listener.local_addr())
        .await
        .expect("it listens");
    peer.write_all(CONTACT_AND_INIT).await.expect("taken");
    at_hub.up().await;
    let length = (BUNDLE_BYTES as u64).to_be_bytes();
    let head = [&[1, 3][..], &[0; 8], &[0; 4], &length].concat();
    let bundles = [head, vec![7; BUNDLE_BYTES]].concat().repeat(BUNDLES);
    let sending = tokio::spawn(async move {
        peer.write_all(&bundles).await.expect("taken");
        peer
    });
    // By then the peer has sent as much as the kernel takes.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let others = tokio::spawn(most_between_turns(counting));
    at_hub.uses_sessions(true);
    let most = others.await.expect("no panic");
    assert!(most <= MOST_BYTES, "{most} bytes in one turn");
    drop(sending.await.expect("all is sent"));
}
