//! A conduit whose other end is a socket of this host.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use crate::relay::{Socket, poll_read_bytes};
use crate::stream::{Conduit, Connected, Failure, FailureCode, Received};

/// Most bytes held for the origin: one read of the relay.
const QUEUE: usize = 256 * 1024;

pub(super) type Dial = Pin<Box<dyn Future<Output = Result<TcpStream, Failure>> + Send>>;

enum Leg {
    Dialling(Dial),
    Open(TcpStream),
    Failed(Failure),
}

pub(super) struct DirectConduit {
    leg: Leg,
    queue: VecDeque<Bytes>,
    queued: usize,
    finishing: bool,
    shut: bool,
    received_all: bool,
    /// Why the origin takes nothing more. What it has sent before is received
    /// first: an origin that answers and then resets has answered.
    unwritable: Option<Failure>,
}

impl DirectConduit {
    pub fn new(dial: Dial) -> DirectConduit {
        DirectConduit {
            leg: Leg::Dialling(dial),
            queue: VecDeque::new(),
            queued: 0,
            finishing: false,
            shut: false,
            received_all: false,
            unwritable: None,
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<&mut TcpStream, Failure>> {
        if let Leg::Dialling(dial) = &mut self.leg {
            self.leg = match ready!(dial.as_mut().poll(cx)) {
                Ok(socket) => {
                    socket.send_at_once();
                    socket.end_by_reset();
                    Leg::Open(socket)
                }
                Err(failure) => Leg::Failed(failure),
            };
        }
        Poll::Ready(match &mut self.leg {
            Leg::Open(socket) => Ok(socket),
            Leg::Failed(failure) => Err(failure.clone()),
            // Replaced above once the dial is over.
            Leg::Dialling(_) => return Poll::Pending,
        })
    }

    /// Writes what is queued, then shuts down if this side has finished.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            if let Some(failure) = &self.unwritable {
                return Poll::Ready(Err(failure.clone()));
            }
            ready!(self.poll_open(cx))?;
            let Leg::Open(socket) = &mut self.leg else {
                return Poll::Pending;
            };
            let result: io::Result<()> = if self.queue.is_empty() {
                if !self.finishing || self.shut {
                    return Poll::Ready(Ok(()));
                }
                socket.end_in_order();
                ready!(Pin::new(socket).poll_shutdown(cx)).map(|()| self.shut = true)
            } else {
                let mut slices = [IoSlice::new(&[]); 16];
                for (slice, data) in slices.iter_mut().zip(&self.queue) {
                    *slice = IoSlice::new(data);
                }
                let count = self.queue.len().min(slices.len());
                ready!(Pin::new(socket).poll_write_vectored(cx, &slices[..count]))
                    .map(|written| self.written(written))
            };
            if let Err(error) = result {
                self.unwritable = Some(Failure::of_socket("the server", &error));
                self.queue = VecDeque::new();
                self.queued = 0;
            }
        }
    }

    fn written(&mut self, mut count: usize) {
        self.queued -= count;
        while count > 0 {
            let front = &mut self.queue[0];
            if front.len() > count {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.queue.pop_front();
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }

    /// Closes the origin's socket with a RST.
    fn fail(&mut self, failure: Failure) {
        if let Leg::Open(socket) = &self.leg {
            socket.end_by_reset();
        }
        self.leg = Leg::Failed(failure);
        self.queue = VecDeque::new();
        self.queued = 0;
    }
}

impl Conduit for DirectConduit {
    fn poll_send_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        if let Poll::Ready(Err(failure)) = self.poll_flush(cx) {
            return Poll::Ready(Err(failure));
        }
        if self.queued == 0 {
            return Poll::Ready(Ok(QUEUE));
        }
        Poll::Pending
    }

    fn send(&mut self, data: Bytes) {
        let broken = matches!(self.leg, Leg::Failed(_)) || self.unwritable.is_some();
        if !broken && !data.is_empty() {
            self.queued += data.len();
            self.queue.push_back(data);
        }
    }

    fn finish(&mut self) {
        self.finishing = true;
    }

    /// The origin is slowed by its own window until the end.
    fn stop(&mut self) {}

    fn reset(&mut self, failure: Failure) {
        self.fail(failure);
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Received> {
        // A failure to write is reported after all that there is to read.
        let _ = self.poll_flush(cx);
        if self.received_all {
            return Poll::Ready(Ok(None));
        }
        let socket = ready!(self.poll_open(cx))?;
        match ready!(poll_read_bytes(socket, cx, max)) {
            // The write has received the reset error; a read then reports only the end.
            Ok(data) if data.is_empty() => match self.unwritable.clone() {
                Some(failure) => {
                    self.fail(failure.clone());
                    Poll::Ready(Err(failure))
                }
                None => {
                    self.received_all = true;
                    Poll::Ready(Ok(None))
                }
            },
            Ok(data) => Poll::Ready(Ok(Some(data))),
            Err(error) => {
                let failure = Failure::of_socket("the server", &error);
                self.fail(failure.clone());
                Poll::Ready(Err(failure))
            }
        }
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        let socket = ready!(self.poll_open(cx))?;
        Poll::Ready(Ok(Connected {
            origin: socket.peer_addr().ok(),
            resolved: None,
        }))
    }

    fn connected(&mut self, _: Connected) {}
}

impl Drop for DirectConduit {
    fn drop(&mut self) {
        let broken = matches!(self.leg, Leg::Failed(_)) || self.unwritable.is_some();
        if broken || self.shut {
            return;
        }
        if !self.finishing {
            return self.fail(Failure::new(FailureCode::Reset, "the stream was dropped"));
        }
        // The origin has yet to take the rest.
        let mut rest = DirectConduit {
            leg: std::mem::replace(
                &mut self.leg,
                Leg::Failed(Failure::new(FailureCode::Reset, "")),
            ),
            queue: std::mem::take(&mut self.queue),
            unwritable: None,
            ..*self
        };
        tokio::spawn(async move { poll_fn(|cx| rest.poll_flush(cx)).await });
    }
}
