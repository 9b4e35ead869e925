//! A model of the TCP connection below a session. Written bytes leave at the rate of the line, in
//! arbitrary pieces; they arrive in order after a delay, wait during blockages, and are
//! acknowledged. The connection ends in order, by a reset, or by a cut, which each end notices at a
//! different time.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use underpass_cla::PathFigures;
use underpass_tcpcl::net::{Pacing, Socket, Transport};

use super::link::Link;

/// The largest piece that leaves at once is one of these lengths, bytes.
const PIECES: [u64; 10] = [
    1, 100, 1_460, 16_000, 65_000, 65_000, 65_000, 65_000, 65_000, 65_000,
];
/// A buffer lets at least this much pass, bytes per ms. With less, a run would take longer than its
/// applications wait.
const LEAST_PASSING: u64 = 100;
/// One end notices a cut within this time, and the other within as much again, ms.
const CUT_NOTICED_IN: u64 = 5_000;

/// One end of a connection; dropping it closes it.
pub struct Connection(End);

/// The same end, for the node's session handle.
#[derive(Clone)]
pub struct End {
    line: Arc<Line>,
    side: usize,
}

struct Line {
    link: Arc<Link>,
    ends: Mutex<[State; 2]>,
    /// By sending end: notified when there may be something to send.
    moved: [Notify; 2],
    /// Nothing passes any more.
    cut: CancellationToken,
}

struct State {
    /// Written and not sent.
    unsent: VecDeque<Bytes>,
    unsent_bytes: usize,
    /// Sent and not acknowledged, bytes.
    flying_bytes: usize,
    send_buffer: usize,
    /// Sent and not read by the other end, bytes.
    unread_bytes: usize,
    receive_buffer: usize,
    /// Bytes per second; `None` is as fast as the line.
    rate: Option<u64>,
    paced_until: Instant,
    low_water: usize,
    /// It has shut its side down, or is closed.
    ended: bool,
    closed: bool,
    /// Closed, it resets the connection.
    resets: bool,

    arrived: VecDeque<Bytes>,
    /// The other end has ended its side.
    finished: bool,
    /// What every call says from now on.
    error: Option<ErrorKind>,
    figures: PathFigures,
    heard_at: Instant,

    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Waits for less unsent than the low-water mark.
    drained: Option<Waker>,
}

enum Piece {
    Data(Bytes),
    End,
    Reset,
}

/// Two connected ends over a link; `cut` cuts it.
pub fn connect(link: &Arc<Link>, cut: CancellationToken) -> [Connection; 2] {
    let line = Arc::new(Line {
        link: link.clone(),
        ends: Mutex::new([State::new(link), State::new(link)]),
        moved: [Notify::new(), Notify::new()],
        cut,
    });
    tokio::spawn(line.clone().run());
    [0, 1].map(|side| {
        let line = line.clone();
        Connection(End { line, side })
    })
}

impl State {
    fn new(link: &Link) -> State {
        let now = Instant::now();
        let rtt = Duration::from_millis(2 * link.plan.delay);
        let least = 2 * link.plan.delay * LEAST_PASSING;
        let buffer = || link.pick(&[4 << 10, 64 << 10, 4 << 20]).max(least) as usize;
        State {
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            flying_bytes: 0,
            send_buffer: buffer(),
            unread_bytes: 0,
            receive_buffer: buffer(),
            rate: None,
            paced_until: now,
            low_water: 64 << 10,
            ended: false,
            closed: false,
            resets: false,
            arrived: VecDeque::new(),
            finished: false,
            error: None,
            figures: PathFigures {
                rtt,
                min_rtt: rtt,
                ..PathFigures::default()
            },
            heard_at: now,
            reader: None,
            writer: None,
            drained: None,
        }
    }

    fn fail(&mut self, error: ErrorKind) {
        self.error = self.error.or(Some(error));
        self.unsent.clear();
        self.unsent_bytes = 0;
        self.wake_all();
    }

    fn wake_all(&mut self) {
        let wakers = [&mut self.reader, &mut self.writer, &mut self.drained];
        wakers
            .into_iter()
            .filter_map(Option::take)
            .for_each(Waker::wake);
    }

    /// The next piece to send, at most `most` bytes.
    fn take_piece(&mut self, most: usize) -> Option<Piece> {
        if self.closed && self.resets {
            return Some(Piece::Reset);
        }
        let Some(front) = self.unsent.front_mut() else {
            return self.ended.then_some(Piece::End);
        };
        let room = self.receive_buffer.saturating_sub(self.unread_bytes);
        let length = most.min(front.len()).min(room);
        if length == 0 {
            return None;
        }
        let data = front.split_to(length);
        if front.is_empty() {
            self.unsent.pop_front();
        }
        self.unsent_bytes -= length;
        self.flying_bytes += length;
        self.unread_bytes += length;
        self.figures.sent_bytes += length as u64;
        self.figures.segments_sent += 1;
        if let Some(rate) = self.rate {
            let takes = Duration::from_micros(length as u64 * 1_000_000 / rate.max(1));
            self.paced_until = Instant::now() + takes;
        }
        Some(Piece::Data(data))
    }

    fn write(&mut self, data: &[u8], cx: &Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(error) = self.error {
            return Poll::Ready(Err(error.into()));
        }
        if self.ended {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        let held = self.unsent_bytes + self.flying_bytes;
        let length = data.len().min(self.send_buffer.saturating_sub(held));
        if length == 0 {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.unsent
            .push_back(Bytes::copy_from_slice(&data[..length]));
        self.unsent_bytes += length;
        Poll::Ready(Ok(length))
    }

    fn acknowledged(&mut self, bytes: usize) {
        self.flying_bytes -= bytes;
        self.heard_at = Instant::now();
        self.writer.take().into_iter().for_each(Waker::wake);
        // Linux checks the low-water mark when an acknowledgement comes.
        self.look();
    }

    fn look(&mut self) {
        if self.unsent_bytes < self.low_water {
            self.drained.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, [State; 2]> {
        self.ends.lock().unwrap()
    }

    async fn run(self: Arc<Self>) {
        let both = async { tokio::join!(self.carry(0), self.carry(1)) };
        tokio::select! {
            biased;
            () = self.cut.cancelled() => {}
            _ = both => return,
        }
        let first = usize::from(self.link.chance().is_multiple_of(2));
        for side in [first, 1 - first] {
            let late = self.link.chance() % CUT_NOTICED_IN;
            sleep(Duration::from_millis(late)).await;
            self.lock()[side].fail(ErrorKind::TimedOut);
        }
    }

    /// Carries what one end sends.
    async fn carry(&self, from: usize) {
        let (sent, mut arriving) = mpsc::unbounded_channel();
        let (answers, mut answered) = mpsc::unbounded_channel();
        let delay = Duration::from_millis(self.link.plan.delay);
        let sending = async move {
            loop {
                let piece = self.next(from).await;
                if let Piece::Data(data) = &piece {
                    self.link.transmit(from, data.len()).await;
                    self.link.pass().await;
                }
                let last = !matches!(piece, Piece::Data(_));
                let _ = sent.send((Instant::now() + delay, piece));
                if last {
                    return;
                }
            }
        };
        let arriving = async move {
            while let Some((at, piece)) = arriving.recv().await {
                sleep_until(at).await;
                self.link.pass().await;
                if let Some(bytes) = self.arrive(1 - from, piece) {
                    let _ = answers.send((Instant::now() + delay, bytes));
                }
            }
        };
        let hearing = async {
            while let Some((at, bytes)) = answered.recv().await {
                sleep_until(at).await;
                self.link.pass().await;
                self.lock()[from].acknowledged(bytes);
            }
        };
        tokio::join!(sending, arriving, hearing);
    }

    /// What an end sends next, when it may.
    async fn next(&self, from: usize) -> Piece {
        loop {
            let moved = self.moved[from].notified();
            let paced_until = self.lock()[from].paced_until;
            if paced_until > Instant::now() {
                // A new rate applies at once.
                let _ = timeout_at(paced_until, moved).await;
                continue;
            }
            let most = self.link.chance() % self.link.pick(&PIECES) + 1;
            if let Some(piece) = self.lock()[from].take_piece(most as usize) {
                return piece;
            }
            moved.await;
        }
    }

    /// A piece arrives. Returns how many bytes of it are acknowledged.
    fn arrive(&self, at: usize, piece: Piece) -> Option<usize> {
        let ends = &mut *self.lock();
        let [own, other] = match ends {
            [zero, one] if at == 0 => [zero, one],
            [zero, one] => [one, zero],
        };
        own.heard_at = Instant::now();
        match piece {
            Piece::Data(_) if own.closed => {
                // There is no receiver.
                other.fail(ErrorKind::ConnectionReset);
                None
            }
            Piece::Data(data) => {
                let length = data.len();
                own.figures.received_bytes += length as u64;
                own.arrived.push_back(data);
                own.reader.take().into_iter().for_each(Waker::wake);
                Some(length)
            }
            Piece::End => {
                own.finished = true;
                own.reader.take().into_iter().for_each(Waker::wake);
                None
            }
            Piece::Reset => {
                own.fail(ErrorKind::ConnectionReset);
                None
            }
        }
    }
}

impl End {
    fn with<R>(&self, call: impl FnOnce(&mut State) -> R) -> R {
        let result = call(&mut self.line.lock()[self.side]);
        self.line.moved[self.side].notify_one();
        result
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let End { line, side } = &self.0;
        let mut ends = line.lock();
        let own = &mut ends[*side];
        if let Some(front) = own.arrived.front_mut() {
            let length = front.len().min(buffer.remaining());
            buffer.put_slice(&front[..length]);
            front.advance(length);
            if front.is_empty() {
                own.arrived.pop_front();
            }
            ends[1 - side].unread_bytes -= length;
            line.moved[1 - side].notify_one();
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = own.error {
            return Poll::Ready(Err(error.into()));
        }
        if own.finished {
            return Poll::Ready(Ok(()));
        }
        own.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.with(|own| own.write(data, cx))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.with(|own| own.ended = true);
        Poll::Ready(Ok(()))
    }
}

impl Transport for Connection {
    type Socket = End;

    fn socket(&self, _: bool, _: u32) -> io::Result<(End, SocketAddr)> {
        let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, 4556));
        Ok((self.0.clone(), remote))
    }

    fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.with(|own| match own.error {
            Some(error) => Poll::Ready(Err(error.into())),
            None if own.unsent_bytes < own.low_water => Poll::Ready(Ok(())),
            None => {
                own.drained = Some(cx.waker().clone());
                Poll::Pending
            }
        })
    }

    fn end_by_reset(&self) {
        self.0.with(|own| own.resets = true);
    }
}

impl Socket for End {
    fn set_rate(&mut self, ip_bps: Option<u64>) -> io::Result<Pacing> {
        self.with(|own| {
            own.rate = ip_bps.map(|bps| bps / 8);
            own.paced_until = Instant::now();
            // As much as the line sends in 60 ms.
            let low_water = ip_bps.map_or(64 << 10, |bps| bps * 60 / 8_000);
            own.low_water = low_water.clamp(8 << 10, 512 << 10) as usize;
        });
        Ok(Pacing::ByTransport)
    }

    fn figures(&mut self) -> PathFigures {
        self.with(|own| PathFigures {
            in_flight_bytes: (own.unsent_bytes + own.flying_bytes) as u64,
            unsent_bytes: own.unsent_bytes as u64,
            heard_ago: Some(own.heard_at.elapsed()),
            ..own.figures
        })
    }

    fn look(&self) {
        self.with(State::look);
    }

    fn congestion_control(&self) -> String {
        "model".to_owned()
    }
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("End").finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let End { line, side } = &self.0;
        // Bytes that come now find no receiver, and no full buffer.
        line.lock()[1 - side].unread_bytes = 0;
        line.moved[1 - side].notify_one();
        self.0.with(|own| {
            // Closing with unread bytes resets the connection.
            own.resets |= !own.arrived.is_empty();
            (own.ended, own.closed) = (true, true);
            own.arrived.clear();
            if own.resets {
                own.unsent.clear();
                own.unsent_bytes = 0;
            }
        });
    }
}
