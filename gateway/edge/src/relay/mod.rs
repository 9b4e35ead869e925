//! Moves bytes between a client's or origin's socket and a conduit.
//!
//! One future per connection serves both directions. It reads only what the conduit can take, so a
//! full stream slows the sender by TCP's own window, and it borrows a buffer only for the length of
//! a read call: a waiting connection holds none, so ten thousand idle ones need little memory.

mod ending;
mod glances;
mod moving;
mod pool;
mod socket;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stream::{Conduit, Failure};
use ending::PATIENCE;
pub(crate) use glances::Glances;
pub use moving::{HeldRelay, RelayState, Relayed, Relays};
pub(crate) use pool::poll_read_bytes;
pub use socket::Socket;

/// Most bytes taken from the conduit before the socket has taken them.
const WRITE_BATCH: usize = 256 * 1024;
/// Most buffers in one writev(2).
const WRITE_SLICES: usize = 32;

/// What a relay has moved, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// From the socket to the conduit.
    pub to_peer: u64,
    /// From the conduit to the socket.
    pub from_peer: u64,
}

/// Relays until both directions have finished. `early` are bytes already read from the socket.
/// Half-close passes through in each direction. On an error of either side the other one is reset:
/// a socket by RST, since a FIN would let the client take a cut body for a whole one. Bytes that
/// the conduit gave before it broke are delivered first.
///
/// # Errors
/// Which side broke, and how.
pub async fn relay(
    socket: impl Socket,
    conduit: Box<dyn Conduit>,
    early: Bytes,
) -> (Moved, Result<(), Failure>) {
    Relay::begin(socket, early).run_to_end(conduit).await
}

/// Closes `socket` with a RST: the answer to a stream that could not be
/// opened after the client has been told that it was.
pub fn abort(socket: TcpStream) {
    socket.end_by_reset();
}

enum Broken {
    Socket(io::Error),
    Conduit(Failure),
    /// The socket has all that the peer has sent, and the peer takes nothing
    /// more.
    Closed,
}

struct Relay<S> {
    socket: S,
    early: Bytes,
    up_done: bool,
    pending: VecDeque<Bytes>,
    peer_finished: bool,
    down_done: bool,
    /// Why the conduit gives nothing more.
    broken: Option<Failure>,
    moved: Moved,
    /// For a socket that has half-closed: no read would show its reset, and no write either while
    /// the conduit is silent.
    glances: Glances,
}

impl<S: Socket> Relay<S> {
    fn begin(socket: S, early: Bytes) -> Relay<S> {
        // Interactive bytes leave at once; bulk is written in large vectors.
        socket.send_at_once();
        socket.end_by_reset();
        Relay {
            socket,
            early,
            up_done: false,
            pending: VecDeque::new(),
            peer_finished: false,
            down_done: false,
            broken: None,
            moved: Moved::default(),
            glances: Glances::default(),
        }
    }

    async fn run_to_end(mut self, mut conduit: Box<dyn Conduit>) -> (Moved, Result<(), Failure>) {
        let ended = poll_fn(|cx| self.poll(cx, conduit.as_mut())).await;
        self.end(conduit, ended).await
    }

    /// Finishes up once a side has broken or both are done.
    async fn end(
        mut self,
        mut conduit: Box<dyn Conduit>,
        ended: Result<(), Broken>,
    ) -> (Moved, Result<(), Failure>) {
        let result = match ended {
            Ok(()) => Ok(()),
            Err(Broken::Socket(error)) => {
                let failure = Failure::of_socket("the other end", &error);
                // If the socket had ended in order, its bytes and that end still go on: the conduit
                // is closed, not reset.
                if !self.up_done {
                    self.take_last(conduit.as_mut()).await;
                    conduit.reset(failure.clone());
                }
                Err(failure)
            }
            Err(Broken::Conduit(failure)) => {
                self.deliver(conduit.as_mut()).await;
                Err(failure)
            }
            // The socket is closed as well. The kernel then refuses further bytes; otherwise a
            // silent origin would hold it for ever.
            Err(Broken::Closed) => {
                conduit.finish();
                ending::delivered(|| self.socket.unacknowledged()).await;
                Ok(())
            }
        };
        if result.is_err() {
            self.socket.end_by_reset();
        }
        (self.moved, result)
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        conduit: &mut dyn Conduit,
    ) -> Poll<Result<(), Broken>> {
        if !self.up_done && self.poll_up(cx, conduit)?.is_ready() {
            self.up_done = true;
        }
        if !self.down_done && self.poll_down(cx, conduit)?.is_ready() {
            self.down_done = true;
        }
        if self.up_done && self.down_done {
            return Poll::Ready(Ok(()));
        }
        if self.down_done && conduit.peer_has_closed() {
            return Poll::Ready(Err(Broken::Closed));
        }
        if self.up_done {
            let there = self.glances.poll(cx, &self.socket);
            there.map_err(Broken::Socket)?;
        }
        Poll::Pending
    }

    fn poll_up(
        &mut self,
        cx: &mut Context<'_>,
        conduit: &mut dyn Conduit,
    ) -> Poll<Result<(), Broken>> {
        loop {
            let capacity = ready!(conduit.poll_send_capacity(cx)).map_err(Broken::Conduit)?;
            let data = if self.early.is_empty() {
                ready!(poll_read_bytes(&mut self.socket, cx, capacity)).map_err(Broken::Socket)?
            } else {
                self.early.split_to(capacity.min(self.early.len()))
            };
            if data.is_empty() {
                self.early = Bytes::new();
                conduit.finish();
                return Poll::Ready(Ok(()));
            }
            self.moved.to_peer += data.len() as u64;
            conduit.send(data);
        }
    }

    fn poll_down(
        &mut self,
        cx: &mut Context<'_>,
        conduit: &mut dyn Conduit,
    ) -> Poll<Result<(), Broken>> {
        loop {
            let more = self.gather(cx, conduit);
            if self.pending.is_empty() {
                if let Some(failure) = self.broken.take() {
                    return Poll::Ready(Err(Broken::Conduit(failure)));
                }
                if !self.peer_finished {
                    debug_assert!(more.is_pending());
                    return Poll::Pending;
                }
                self.socket.end_in_order();
                ready!(Pin::new(&mut self.socket).poll_shutdown(cx)).map_err(Broken::Socket)?;
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_write(cx)).map_err(Broken::Socket)?;
        }
    }

    /// Fills `pending` from the conduit if it is empty.
    fn gather(&mut self, cx: &mut Context<'_>, conduit: &mut dyn Conduit) -> Poll<()> {
        if !self.pending.is_empty() || self.peer_finished || self.broken.is_some() {
            return Poll::Ready(());
        }
        let mut room = WRITE_BATCH;
        while room > 0 && self.pending.len() < WRITE_SLICES {
            match conduit.poll_receive(cx, room) {
                Poll::Ready(Ok(Some(data))) => {
                    room = room.saturating_sub(data.len());
                    if !data.is_empty() {
                        self.pending.push_back(data);
                    }
                }
                Poll::Ready(Ok(None)) => {
                    self.peer_finished = true;
                    return Poll::Ready(());
                }
                // Bytes that came before a reset are delivered before it: an origin may answer and
                // then reset.
                Poll::Ready(Err(failure)) => {
                    self.broken = Some(failure);
                    return Poll::Ready(());
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    /// Takes what the socket had received before it broke: a failed write is noticed before these
    /// bytes are read, and an origin may answer and then reset.
    async fn take_last(&mut self, conduit: &mut dyn Conduit) {
        // A peer that does not read before all its own bytes are taken would keep the conduit full.
        conduit.stop();
        let all = poll_fn(|cx| {
            loop {
                let Ok(capacity) = ready!(conduit.poll_send_capacity(cx)) else {
                    return Poll::Ready(());
                };
                // The runtime may not know yet of bytes that came just before the reset that a
                // write has found.
                match ready!(poll_read_bytes(&mut self.socket, cx, capacity)) {
                    Ok(data) if !data.is_empty() => {
                        self.moved.to_peer += data.len() as u64;
                        conduit.send(data);
                    }
                    _ => return Poll::Ready(()),
                }
            }
        });
        // If the conduit takes nothing for this long, or the socket's end does not come, the rest
        // is given up.
        let _ = timeout(PATIENCE, all).await;
    }

    /// Delivers what the conduit still has after it has broken, as long as the
    /// socket takes it.
    async fn deliver(&mut self, conduit: &mut dyn Conduit) {
        if !self.down_done {
            loop {
                let next = poll_fn(|cx| self.poll_last(cx, conduit));
                match timeout(PATIENCE, next).await {
                    Ok(true) => {}
                    Ok(false) | Err(_) => break,
                }
            }
        }
        ending::delivered(|| self.socket.unacknowledged()).await;
    }

    /// Writes a batch of what is left; false at its end.
    fn poll_last(&mut self, cx: &mut Context<'_>, conduit: &mut dyn Conduit) -> Poll<bool> {
        // As with the socket, bytes that came before the end may not be known yet.
        let end = self.gather(cx, conduit);
        if self.pending.is_empty() {
            return end.map(|()| false);
        }
        let written = ready!(self.poll_write(cx));
        Poll::Ready(written.is_ok())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); WRITE_SLICES];
        let count = self.pending.len().min(WRITE_SLICES);
        for (slice, data) in slices.iter_mut().zip(&self.pending) {
            *slice = IoSlice::new(data);
        }
        let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, &slices[..count]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.moved.from_peer += written as u64;
        let mut left = written;
        while left > 0 {
            let front = &mut self.pending[0];
            if front.len() > left {
                front.advance(left);
                break;
            }
            left -= front.len();
            self.pending.pop_front();
        }
        if self.pending.is_empty() {
            // An idle connection keeps no queue either.
            self.pending = VecDeque::new();
        }
        Poll::Ready(Ok(()))
    }
}

/// Waits for the outcome of the far dial, in a blockage also for the link. The caller must notice
/// that its client is gone.
pub(crate) async fn outcome(
    conduit: &mut Box<dyn Conduit>,
) -> Result<crate::stream::Connected, Failure> {
    poll_fn(|cx| conduit.poll_outcome(cx)).await
}

/// The same for a client from whose socket nobody reads meanwhile: that it has reset its connection
/// is noticed. One that has closed it in order may only have sent all that it will.
///
/// # Errors
/// Why the dial failed, or that the client's connection is gone.
pub(crate) async fn outcome_for(
    client: &impl Socket,
    conduit: &mut Box<dyn Conduit>,
) -> Result<crate::stream::Connected, Failure> {
    let mut glances = Glances::default();
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = conduit.poll_outcome(cx) {
            return Poll::Ready(outcome);
        }
        match glances.poll(cx, client) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(Failure::of_socket("the client", &error))),
        }
    })
    .await
}
