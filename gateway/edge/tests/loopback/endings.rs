//! How a socket ends when its stream or its process ends.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use underpass_edge::relay::{Socket, relay};
use underpass_edge::stream::{Conduit, Connected, Failure, FailureCode, Received};

/// The child process' end of the connection.
const ADDRESS: &str = "UNDERPASS_TEST_RELAY_TO";
const LARGE: usize = 6_000_000;

/// A conduit that gives some bytes and then ends in a given way. It records what is sent
/// through it.
struct Script {
    left: Vec<Bytes>,
    end: End,
    sent: Arc<Mutex<Vec<u8>>>,
}

enum End {
    Finished,
    Closed,
    Reset,
    Silence,
}

impl Conduit for Script {
    fn poll_send_capacity(&mut self, _: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        match (&self.end, self.left.is_empty()) {
            (End::Reset, true) => Poll::Ready(Err(failure())),
            _ => Poll::Ready(Ok(65_536)),
        }
    }

    fn send(&mut self, data: Bytes) {
        self.sent.lock().unwrap().extend_from_slice(&data);
    }

    fn finish(&mut self) {}

    fn stop(&mut self) {}

    fn reset(&mut self, _: Failure) {}

    fn poll_receive(&mut self, _: &mut Context<'_>, max: usize) -> Poll<Received> {
        if let Some(piece) = self.left.last_mut() {
            let taken = piece.split_to(max.min(piece.len()));
            if piece.is_empty() {
                self.left.pop();
            }
            return Poll::Ready(Ok(Some(taken)));
        }
        match self.end {
            End::Finished | End::Closed => Poll::Ready(Ok(None)),
            End::Reset => Poll::Ready(Err(failure())),
            End::Silence => Poll::Pending,
        }
    }

    fn peer_has_closed(&self) -> bool {
        matches!(self.end, End::Closed) && self.left.is_empty()
    }

    fn poll_outcome(&mut self, _: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        Poll::Ready(Ok(Connected::default()))
    }

    fn connected(&mut self, _: Connected) {}
}

fn failure() -> Failure {
    Failure::new(FailureCode::Unavailable, "the peer node restarted")
}

async fn relay_to(address: SocketAddr, bytes: usize, end: End) {
    let socket = TcpStream::connect(address).await.unwrap();
    let script = Script {
        left: vec![Bytes::from(vec![b'x'; bytes])],
        end,
        sent: Arc::default(),
    };
    let _ = relay(socket, Box::new(script), Bytes::new()).await;
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Reads slowly; returns the number of bytes, and how they ended.
async fn read_slowly(socket: &mut TcpStream) -> (usize, Option<ErrorKind>) {
    let mut buffer = vec![0; 100_000];
    let mut count = 0;
    loop {
        match socket.read(&mut buffer).await {
            Ok(0) => return (count, None),
            Ok(read) => count += read,
            Err(error) => return (count, Some(error.kind())),
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// [`a_process_that_is_killed_resets_its_connections`] runs this in a process of its own;
/// otherwise it does nothing.
#[tokio::test]
async fn relay_until_killed() {
    if let Ok(address) = std::env::var(ADDRESS) {
        relay_to(address.parse().unwrap(), 14, End::Silence).await;
    }
}

#[tokio::test]
async fn a_process_that_is_killed_resets_its_connections() {
    let (listener, address) = listener().await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "endings::relay_until_killed"])
        .env(ADDRESS, address.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (mut socket, _) = listener.accept().await.unwrap();
    socket.read_exact(&mut [0; 14]).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let error = socket.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn an_end_in_order_delivers_all_that_was_written() {
    let (listener, address) = listener().await;
    let relaying = tokio::spawn(relay_to(address, LARGE, End::Finished));
    let (mut socket, _) = listener.accept().await.unwrap();
    assert_eq!(read_slowly(&mut socket).await, (LARGE, None));
    drop(socket);
    relaying.await.unwrap();
}

#[tokio::test]
async fn a_socket_that_is_silent_is_left_once_the_peer_has_closed() {
    let (listener, address) = listener().await;
    let relaying = tokio::spawn(relay_to(address, LARGE, End::Closed));
    let (mut socket, _) = listener.accept().await.unwrap();
    // The client gets everything, in order, and sends nothing.
    assert_eq!(read_slowly(&mut socket).await, (LARGE, None));
    let left = timeout(Duration::from_secs(60), relaying).await;
    left.expect("it is not waited for").unwrap();
    // Its own bytes are refused now, as by any closed socket.
    let refused = loop {
        match socket.write_all(b"late").await {
            Ok(()) => sleep(Duration::from_millis(2)).await,
            Err(error) => break error.kind(),
        }
    };
    let resets = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(resets.contains(&refused), "{refused}");
}

#[tokio::test]
async fn what_came_before_a_reset_is_delivered_before_it() {
    let (listener, address) = listener().await;
    let relaying = tokio::spawn(relay_to(address, LARGE, End::Reset));
    let (mut socket, _) = listener.accept().await.unwrap();
    let ended = read_slowly(&mut socket).await;
    assert_eq!(ended, (LARGE, Some(ErrorKind::ConnectionReset)));
    relaying.await.unwrap();
}

/// A socket that has received an answer and a reset: a write fails before a read can see
/// either.
#[derive(Default)]
struct Answered {
    reads: u32,
}

impl AsyncRead for Answered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reads += 1;
        match self.reads {
            1 | 2 => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            3 => buffer.put_slice(b"answer"),
            _ => {}
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Answered {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(ErrorKind::ConnectionReset.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Socket for Answered {
    fn send_at_once(&self) {}

    fn end_by_reset(&self) {}

    fn end_in_order(&self) {}

    fn unacknowledged(&self) -> io::Result<u32> {
        Ok(0)
    }
}

#[tokio::test]
async fn what_a_socket_received_before_its_reset_is_sent_although_a_write_met_that_first() {
    let sent = Arc::<Mutex<Vec<u8>>>::default();
    let script = Script {
        left: vec![Bytes::from_static(b"request")],
        end: End::Silence,
        sent: sent.clone(),
    };
    let (_, ended) = relay(Answered::default(), Box::new(script), Bytes::new()).await;
    assert_eq!(ended.unwrap_err().code, FailureCode::Reset);
    assert_eq!(*sent.lock().unwrap(), b"answer");
}
