//! What a session answers, over a stream in memory: all of it is there at once.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};

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

/// An end of a stream in memory, which counts what is written to it.
struct Counted {
    stream: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
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
        self.writes.fetch_add(1, SeqCst);
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
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

/// A session that is up, and reads nothing until it is used; its peer, and how often
/// the session has written.
async fn session() -> (TestNode, DuplexStream, Arc<AtomicUsize>) {
    let mut at_hub = TestNode::new();
    at_hub.uses_sessions(false);
    let (stream, mut peer) = duplex(1 << 20);
    let writes = Arc::new(AtomicUsize::new(0));
    let transport = Counted {
        stream,
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
    let (mut at_hub, mut peer, writes) = session().await;
    for flags in [START, 0, END] {
        peer.write_all(&segment(flags, BYTES))
            .await
            .expect("room for it");
    }
    let before = writes.load(SeqCst);
    at_hub.uses_sessions(true);
    assert_eq!(at_hub.received().await.1.len(), 3 * BYTES);
    let mut acks = [0; 3 * ACK_BYTES];
    peer.read_exact(&mut acks).await.expect("acknowledgements");
    let expected = [ack(START, BYTES), ack(0, 2 * BYTES), ack(END, 3 * BYTES)];
    assert_eq!(acks[..], expected.concat());
    assert_eq!(writes.load(SeqCst) - before, 1);
}

#[tokio::test]
async fn what_came_before_the_peers_end_is_acknowledged() {
    let (mut at_hub, mut peer, _) = session().await;
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
