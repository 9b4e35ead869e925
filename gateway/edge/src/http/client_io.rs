//! A client's socket as hyper's connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Buf;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::interim::Outbox;
use super::refusal::{Answers, with_reason};
use crate::relay::{Glances, Socket};

/// A client's socket that hyper has done with, to be left in order.
pub(super) type Left = Arc<Mutex<Option<TcpStream>>>;

/// A client's socket that closes by RST once `cut` is set, and when the process
/// dies: a response that ends where its connection ends must not look whole
/// when it is not. What is in `outbox` is written before hyper's next byte.
pub(super) struct ClientIo {
    /// `None` once it has become a tunnel's.
    socket: Option<TokioIo<TcpStream>>,
    cut: Arc<AtomicBool>,
    outbox: Arc<Outbox>,
    left: Left,
    answers: Arc<Answers>,
    /// The answers of which the socket has every byte.
    written: u64,
    /// Whether a read waits for the client, and would report its reset.
    reads: bool,
    glances: Glances,
}

impl ClientIo {
    pub fn new(
        socket: TcpStream,
        cut: Arc<AtomicBool>,
        outbox: Arc<Outbox>,
        left: Left,
        answers: Arc<Answers>,
    ) -> ClientIo {
        socket.end_by_reset();
        ClientIo {
            socket: Some(TokioIo::new(socket)),
            cut,
            outbox,
            left,
            answers,
            written: 0,
            reads: false,
            glances: Glances::default(),
        }
    }

    /// Fails once the client has reset the connection, if no read would report that. While hyper
    /// waits for an answer it does not read, but flushes each time it is woken. On an idle
    /// connection it reads, and is not woken.
    fn glance(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let reads = std::mem::take(&mut self.reads);
        match &self.socket {
            Some(socket) if !reads => self.glances.poll(cx, socket.inner()),
            _ => Ok(()),
        }
    }

    fn poll_outbox(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut bytes = self.outbox.take();
        while !bytes.is_empty() {
            match Pin::new(&mut *self).socket()?.poll_write(cx, &bytes) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => bytes.advance(count),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.outbox.give_back(bytes);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether `bytes` are a refusal by hyper itself; then the outbox has it with its reason.
    fn refuses(&self, bytes: &[u8]) -> bool {
        let is_hypers = self.answers.begun() == self.written;
        let whole = is_hypers.then(|| with_reason(bytes)).flatten();
        whole.map(|whole| self.outbox.give_back(whole)).is_some()
    }

    pub fn into_socket(mut self) -> Option<TcpStream> {
        let socket = self.socket.take().map(TokioIo::into_inner);
        socket.inspect(Socket::end_in_order)
    }

    fn socket(self: Pin<&mut Self>) -> io::Result<Pin<&mut TokioIo<TcpStream>>> {
        let socket = self.get_mut().socket.as_mut();
        socket
            .map(Pin::new)
            .ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl Read for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.as_mut().socket()?.poll_read(cx, buffer);
        self.reads = read.is_pending();
        read
    }
}

impl Write for ClientIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_outbox(cx))?;
        self.outbox.set_clear(false);
        if self.refuses(data) {
            return Poll::Ready(Ok(data.len()));
        }
        self.socket()?.poll_write(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_outbox(cx))?;
        self.outbox.set_clear(false);
        if let [data] = slices
            && self.refuses(data)
        {
            return Poll::Ready(Ok(data.len()));
        }
        self.socket()?.poll_write_vectored(cx, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.glance(cx)?;
        ready!(self.poll_outbox(cx))?;
        // hyper flushes once it has written all of its own buffer.
        self.outbox.set_clear(true);
        self.written = self.answers.ended();
        self.socket()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = self.socket()?;
        socket.inner().end_in_order();
        socket.poll_shutdown(cx)
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        // hyper drops the connection without a shutdown when a body breaks.
        let Some(socket) = self.socket.take().map(TokioIo::into_inner) else {
            return;
        };
        if self.cut.load(Ordering::Relaxed) {
            return socket.end_by_reset();
        }
        socket.end_in_order();
        if let Ok(mut left) = self.left.lock() {
            *left = Some(socket);
        }
    }
}

/// Marks the client's connection as cut if the body breaks off.
pub(super) fn mark_cut(cut: &Arc<AtomicBool>) -> impl Fn(hyper::Error) -> hyper::Error + use<> {
    let cut = cut.clone();
    move |error| {
        cut.store(true, Ordering::Relaxed);
        error
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use hyper::rt::ReadBuf;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_woken_now_and_then_only_while_nothing_is_read_from_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = TcpStream::connect(address).await.unwrap();
        let (_client, _) = listener.accept().await.unwrap();
        let mut io = ClientIo::new(
            socket,
            Arc::default(),
            Arc::default(),
            Left::default(),
            Arc::default(),
        );
        for reads in [true, false] {
            let mut polls = 0;
            let waits = poll_fn(|cx| {
                polls += 1;
                if reads {
                    let mut memory = [0u8; 8];
                    let mut buffer = ReadBuf::new(&mut memory);
                    let read = Pin::new(&mut io).poll_read(cx, buffer.unfilled());
                    assert!(read.is_pending());
                }
                assert!(Pin::new(&mut io).poll_flush(cx).is_ready());
                Poll::<()>::Pending
            });
            assert!(timeout(Duration::from_secs(60), waits).await.is_err());
            assert_eq!(polls > 6, !reads, "{polls} polls");
        }
    }
}
