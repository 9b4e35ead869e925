//! A model of one TCP connection as Linux applications see it: bytes in order after a delay,
//! bounded buffers, and every kind of end.
//!
//! No segment is lost: loss on a real connection appears as delay. The behaviour of an end that is
//! closed, aborted or reset follows tcp_close(), tcp_reset() and tcp_rcv_state_process() of Linux;
//! the tests state what real kernel sockets do.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use underpass_edge::relay::Socket;

/// Most bytes of one segment, as large offloaded ones have.
const SEGMENT_BYTES: usize = 64 << 10;

/// What lies between the ends of a connection.
#[derive(Clone, Debug)]
pub struct Wire {
    /// One way, by the end that sends.
    pub delays: [Duration; 2],
    /// Bytes written and not acknowledged.
    pub send_buffer: usize,
    /// Bytes received and not read, by the end that receives.
    pub receive_buffers: [usize; 2],
    /// Segments that would arrive in these intervals arrive at their ends.
    pub blockages: Arc<[(Instant, Instant)]>,
}

/// Connections that are not gone.
#[derive(Clone, Debug, Default)]
pub struct Census(Arc<AtomicUsize>);

impl Census {
    pub fn alive(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One end of a connection. Dropping it closes it.
pub struct ModelSocket {
    line: Arc<Line>,
    side: usize,
}

/// Two connected ends.
pub fn connect(wire: Wire, census: &Census) -> (ModelSocket, ModelSocket) {
    let line = Arc::new(Line {
        ends: Mutex::new([0, 1].map(|side| End::new(&wire, side))),
        wire,
        moved: Notify::new(),
    });
    census.0.fetch_add(1, Ordering::Relaxed);
    let (driven, census) = (line.clone(), census.clone());
    tokio::spawn(async move {
        driven.drive().await;
        census.0.fetch_sub(1, Ordering::Relaxed);
    });
    let end = |side| ModelSocket {
        line: line.clone(),
        side,
    };
    (end(0), end(1))
}

struct Line {
    ends: Mutex<[End; 2]>,
    wire: Wire,
    /// Something is under way.
    moved: Notify,
}

#[derive(Debug)]
enum Segment {
    Data(Bytes),
    Fin,
    Reset,
    /// All below `received` is here, all below `edge` may be sent.
    Ack {
        received: u64,
        edge: u64,
        fin: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fin {
    None,
    Queued,
    Sent,
    Acknowledged,
}

struct End {
    unsent: VecDeque<Bytes>,
    written: u64,
    sent: u64,
    acknowledged: u64,
    /// What the other end lets be sent.
    edge: u64,
    fin: Fin,

    queue: VecDeque<Bytes>,
    unread: u64,
    received: u64,
    told_edge: u64,
    fin_received: bool,

    /// sk_err: told once.
    error: Option<ErrorKind>,
    /// In state CLOSE, by a reset of either end.
    dead: bool,
    /// No application has it any more.
    orphan: bool,
    zero_linger: bool,

    arriving: VecDeque<(Instant, Segment)>,
    wakers: [Option<Waker>; 2],
}

const READER: usize = 0;
const WRITER: usize = 1;

impl End {
    fn new(wire: &Wire, side: usize) -> End {
        let [own, other] = [side, 1 - side].map(|side| wire.receive_buffers[side] as u64);
        End {
            unsent: VecDeque::new(),
            written: 0,
            sent: 0,
            acknowledged: 0,
            edge: other,
            fin: Fin::None,
            queue: VecDeque::new(),
            unread: 0,
            received: 0,
            told_edge: own,
            fin_received: false,
            error: None,
            dead: false,
            orphan: false,
            zero_linger: false,
            arriving: VecDeque::new(),
            wakers: [None, None],
        }
    }

    fn wake(&mut self, which: usize) {
        if let Some(waker) = self.wakers[which].take() {
            waker.wake();
        }
    }

    /// The connection is over: nothing is sent or kept any more.
    fn die(&mut self) {
        self.dead = true;
        self.unsent.clear();
        self.wake(READER);
        self.wake(WRITER);
    }

    /// The other end has gone with a RST.
    fn reset(&mut self) {
        self.error = Some(match self.fin_received && self.fin == Fin::None {
            // CLOSE_WAIT.
            true => ErrorKind::BrokenPipe,
            false => ErrorKind::ConnectionReset,
        });
        self.die();
    }

    fn is_over(&self) -> bool {
        self.orphan && (self.dead || self.fin == Fin::Acknowledged && self.fin_received)
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, [End; 2]> {
        self.ends.lock().unwrap()
    }

    /// Sends a segment from an end.
    fn emit(&self, ends: &mut [End; 2], side: usize, segment: Segment) {
        let mut at = Instant::now() + self.wire.delays[side];
        for (from, to) in self.wire.blockages.iter() {
            if (*from..*to).contains(&at) {
                at = *to;
            }
        }
        let arriving = &mut ends[1 - side].arriving;
        let at = arriving.back().map_or(at, |(last, _)| at.max(*last));
        arriving.push_back((at, segment));
        self.moved.notify_one();
    }

    /// Sends what the window lets be sent.
    fn push(&self, ends: &mut [End; 2], side: usize) {
        loop {
            let end = &mut ends[side];
            let room = usize::try_from(end.edge - end.sent).unwrap();
            let Some(front) = end.unsent.front_mut() else {
                break;
            };
            let length = front.len().min(room).min(SEGMENT_BYTES);
            if length == 0 {
                return;
            }
            let data = front.split_to(length);
            if front.is_empty() {
                end.unsent.pop_front();
            }
            end.sent += length as u64;
            self.emit(ends, side, Segment::Data(data));
        }
        if ends[side].fin == Fin::Queued {
            ends[side].fin = Fin::Sent;
            self.emit(ends, side, Segment::Fin);
        }
    }

    fn acknowledge(&self, ends: &mut [End; 2], side: usize) {
        let end = &mut ends[side];
        end.told_edge = end.received - end.unread + self.wire.receive_buffers[side] as u64;
        let segment = Segment::Ack {
            received: end.received,
            edge: end.told_edge,
            fin: end.fin_received,
        };
        self.emit(ends, side, segment);
    }

    fn arrive(&self, ends: &mut [End; 2], side: usize, segment: Segment) {
        let end = &mut ends[side];
        if end.dead {
            // This end no longer has the connection.
            if matches!(segment, Segment::Data(_) | Segment::Fin) {
                self.emit(ends, side, Segment::Reset);
            }
            return;
        }
        match segment {
            Segment::Data(_) if end.orphan => {
                // RFC 9293, 3.10.7.4: there is no receiver. Unsent bytes are lost with the
                // connection.
                end.die();
                self.emit(ends, side, Segment::Reset);
            }
            Segment::Data(data) => {
                end.received += data.len() as u64;
                end.unread += data.len() as u64;
                end.queue.push_back(data);
                end.wake(READER);
                self.acknowledge(ends, side);
            }
            Segment::Fin => {
                end.fin_received = true;
                end.wake(READER);
                self.acknowledge(ends, side);
            }
            Segment::Reset => end.reset(),
            Segment::Ack {
                received,
                edge,
                fin,
            } => {
                end.acknowledged = received;
                end.edge = edge;
                if fin {
                    end.fin = Fin::Acknowledged;
                }
                end.wake(WRITER);
                self.push(ends, side);
            }
        }
    }

    /// Lets arrive what is due; when the next is.
    fn settle(&self) -> Option<Instant> {
        let ends = &mut *self.lock();
        loop {
            let due = |end: &End| end.arriving.front().map(|(at, _)| *at);
            let first = [due(&ends[0]), due(&ends[1])];
            let side = match first {
                [None, None] => return None,
                [Some(a), Some(b)] => usize::from(b < a),
                [a, _] => usize::from(a.is_none()),
            };
            if first[side].is_some_and(|at| at > Instant::now()) {
                return first[side];
            }
            if let Some((_, segment)) = ends[side].arriving.pop_front() {
                self.arrive(ends, side, segment);
            }
        }
    }

    /// Runs until both ends are gone.
    async fn drive(&self) {
        loop {
            let next = self.settle();
            if self.lock().iter().all(End::is_over) {
                return;
            }
            match next {
                Some(at) => tokio::select! {
                    biased;
                    () = sleep_until(at) => {}
                    () = self.moved.notified() => {}
                },
                None => self.moved.notified().await,
            }
        }
    }
}

impl ModelSocket {
    fn poll_take(&mut self, cx: &Context<'_>, max: usize) -> Poll<io::Result<Bytes>> {
        let ends = &mut *self.line.lock();
        let end = &mut ends[self.side];
        if let Some(front) = end.queue.front_mut() {
            let data = front.split_to(max.min(front.len()));
            if front.is_empty() {
                end.queue.pop_front();
            }
            end.unread -= data.len() as u64;
            let window = self.line.wire.receive_buffers[self.side] as u64;
            let edge = end.received - end.unread + window;
            if !end.dead && edge >= end.told_edge + window.div_ceil(4) {
                self.line.acknowledge(ends, self.side);
            }
            return Poll::Ready(Ok(data));
        }
        if end.fin_received {
            return Poll::Ready(Ok(Bytes::new()));
        }
        if let Some(error) = end.error.take() {
            return Poll::Ready(Err(error.into()));
        }
        if end.dead {
            return Poll::Ready(Ok(Bytes::new()));
        }
        end.wakers[READER] = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_put(&mut self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let ends = &mut *self.line.lock();
        let end = &mut ends[self.side];
        if end.dead || end.fin != Fin::None {
            let error = end.error.take().unwrap_or(ErrorKind::BrokenPipe);
            return Poll::Ready(Err(error.into()));
        }
        let unacknowledged = usize::try_from(end.written - end.acknowledged).unwrap();
        let mut room = self.line.wire.send_buffer.saturating_sub(unacknowledged);
        if room == 0 {
            end.wakers[WRITER] = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut taken = 0;
        for slice in slices {
            let part = &slice[..slice.len().min(room)];
            room -= part.len();
            taken += part.len();
            if !part.is_empty() {
                end.unsent.push_back(Bytes::copy_from_slice(part));
            }
        }
        end.written += taken as u64;
        self.line.push(ends, self.side);
        Poll::Ready(Ok(taken))
    }
}

impl AsyncRead for ModelSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        while buffer.remaining() > 0 {
            match self.poll_take(cx, buffer.remaining()) {
                Poll::Ready(Ok(data)) if data.is_empty() => break,
                Poll::Ready(Ok(data)) => buffer.put_slice(&data),
                _ if buffer.filled().len() > before => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
            if self.line.lock()[self.side].queue.is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ModelSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_put(cx, &[IoSlice::new(data)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_put(cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ends = &mut *self.line.lock();
        let end = &mut ends[self.side];
        if end.dead {
            return Poll::Ready(Err(ErrorKind::NotConnected.into()));
        }
        end.fin = end.fin.max(Fin::Queued);
        self.line.push(ends, self.side);
        Poll::Ready(Ok(()))
    }
}

impl Socket for ModelSocket {
    fn send_at_once(&self) {}

    fn end_by_reset(&self) {
        self.line.lock()[self.side].zero_linger = true;
    }

    fn end_in_order(&self) {
        self.line.lock()[self.side].zero_linger = false;
    }

    fn unacknowledged(&self) -> io::Result<u32> {
        let ends = &mut *self.line.lock();
        let end = &mut ends[self.side];
        if let Some(error) = end.error.take() {
            return Err(error.into());
        }
        let fin = u64::from(matches!(end.fin, Fin::Queued | Fin::Sent));
        Ok(u32::try_from(end.written - end.acknowledged + fin).unwrap())
    }
}

impl Drop for ModelSocket {
    fn drop(&mut self) {
        let ends = &mut *self.line.lock();
        let end = &mut ends[self.side];
        end.orphan = true;
        let both_ended = end.fin != Fin::None && end.fin_received;
        let aborts = end.zero_linger && !(both_ended && end.unsent.is_empty());
        if !end.dead {
            if end.unread > 0 || aborts {
                end.die();
                self.line.emit(ends, self.side, Segment::Reset);
            } else {
                end.fin = end.fin.max(Fin::Queued);
                // A FIN announces the window, too.
                self.line.acknowledge(ends, self.side);
                self.line.push(ends, self.side);
            }
        }
        // This may end the connection.
        self.line.moved.notify_one();
    }
}

mod tests;
