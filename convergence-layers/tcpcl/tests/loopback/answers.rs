//! What a session answers, over a stream in memory where all input is available at once.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use underpass_cla::PathFigures;
use underpass_cla_testing::node::TestNode;
use underpass_tcpcl::net::{Pacing, Side, Socket, Transport, run_session};

use super::defaults;
use super::plain::CONTACT_AND_INIT;

/// XFER_SEGMENT and XFER_ACK, and the flags of a segment (RFC 9174, 5.2.2).
const SEGMENT: u8 = 1;
const ACK: u8 = 2;
const END: u8 = 1;
const START: u8 = 2;
const ACK_BYTES: usize = 18;

/// For each write, the bytes that were read before it.
type Writes = Arc<Mutex<Vec<usize>>>;

/// One end of a stream in memory, whose reads return at most one piece.
struct Counted {
    stream: DuplexStream,
    piece: usize,
    read: usize,
    writes: Writes,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = vec![0; self.piece.min(into.remaining())];
        let mut piece = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut piece))?;
        into.put_slice(piece.filled());
        self.read += piece.filled().len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        if written.is_ready() {
            let mut writes = self.writes.lock().expect("no test panics with it");
            writes.push(self.read);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Transport for Counted {
    type Socket = NoSocket;

    fn socket(&self, _: bool, _: u32) -> io::Result<(NoSocket, SocketAddr)> {
        Ok((NoSocket, SocketAddr::from(([192, 0, 2, 1], 4556))))
    }

    fn poll_drained(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn end_by_reset(&self) {}
}

#[derive(Debug)]
struct NoSocket;

impl Socket for NoSocket {
    fn set_rate(&mut self, _: Option<u64>) -> io::Result<Pacing> {
        Ok(Pacing::ByTransport)
    }

    fn figures(&mut self) -> PathFigures {
        PathFigures::default()
    }

    fn look(&self) {}

    fn congestion_control(&self) -> String {
        String::new()
    }
}

/// A session that is up; it reads nothing until it is used, and then at most one piece at
/// a time. Returns also its peer, and what it writes from then on.
async fn session(piece: usize) -> (TestNode, DuplexStream, Writes) {
    let mut at_hub = TestNode::new();
    at_hub.uses_sessions(false);
    let (stream, mut peer) = duplex(1 << 20);
    let writes = Writes::default();
    let transport = Counted {
        stream,
        piece,
        read: 0,
        writes: writes.clone(),
    };
    let node = at_hub.node.clone();
    tokio::spawn(async move {
        let defaults = defaults(2);
        run_session(transport, Side::Accepted, &defaults, node).await
    });
    peer.write_all(CONTACT_AND_INIT).await.expect("room for it");
    at_hub.up().await;
    let count = peer.read(&mut [0; 1024]).await.expect("its contact");
    assert!(count > 0);
    writes.lock().expect("no test panics with it").clear();
    (at_hub, peer, writes)
}

/// A segment of transfer 0.
fn segment(flags: u8, bytes: usize) -> Vec<u8> {
    let mut segment = vec![SEGMENT, flags];
    segment.extend([0; 8]);
    if flags & START != 0 {
        // No extensions.
        segment.extend([0; 4]);
    }
    segment.extend((bytes as u64).to_be_bytes());
    segment.resize(segment.len() + bytes, 7);
    segment
}

fn ack(flags: u8, bytes: usize) -> Vec<u8> {
    let mut ack = vec![ACK, flags];
    ack.extend([0; 8]);
    ack.extend((bytes as u64).to_be_bytes());
    ack
}

#[tokio::test]
async fn segments_that_are_there_are_acknowledged_by_one_write() {
    const BYTES: usize = 150_000;
    let (mut at_hub, mut peer, writes) = session(usize::MAX).await;
    for flags in [START, 0, END] {
        peer.write_all(&segment(flags, BYTES))
            .await
            .expect("room for it");
    }
    at_hub.uses_sessions(true);
    assert_eq!(at_hub.received().await.1.len(), 3 * BYTES);
    let mut acks = [0; 3 * ACK_BYTES];
    peer.read_exact(&mut acks).await.expect("acknowledgements");
    let expected = [ack(START, BYTES), ack(0, 2 * BYTES), ack(END, 3 * BYTES)];
    assert_eq!(acks[..], expected.concat());
    let writes = writes.lock().expect("no test panics with it");
    assert_eq!(writes.len(), 1);
}

/// With pieces this small, the runtime lets a task read 128 KiB in a turn and then write
/// nothing.
#[tokio::test]
async fn a_peer_that_sends_without_a_pause_is_answered_before_it_makes_one() {
    const BYTES: usize = 150_000;
    let (mut at_hub, mut peer, writes) = session(1024).await;
    for flags in [START, 0, 0, 0, END] {
        peer.write_all(&segment(flags, BYTES))
            .await
            .expect("room for it");
    }
    at_hub.uses_sessions(true);
    assert_eq!(at_hub.received().await.1.len(), 5 * BYTES);
    let mut acks = [0; 5 * ACK_BYTES];
    peer.read_exact(&mut acks).await.expect("acknowledgements");
    let writes = writes.lock().expect("no test panics with it");
    let before = writes.first().expect("a write");
    assert!(
        *before < 2 * BYTES,
        "{before} bytes before the first answer"
    );
}

#[tokio::test]
async fn what_came_before_the_peers_end_is_acknowledged() {
    let (mut at_hub, mut peer, _) = session(usize::MAX).await;
    peer.write_all(&segment(START | END, 1000))
        .await
        .expect("room for it");
    peer.shutdown().await.expect("it ends");
    at_hub.uses_sessions(true);
    assert_eq!(at_hub.received().await.1.len(), 1000);
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).await.expect("an end");
    assert_eq!(rest, ack(START | END, 1000));
}
