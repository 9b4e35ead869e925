//! A session over TCP on which only this node sends: the connection that it has dialled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use underpass_cla::{Down, Node, Outcome, PathFigures, Refusal, SessionId};
use underpass_payloads::PayloadFile;

use crate::config::Config;
use crate::framing::Framing;
use crate::handle::{self, Command, Orders};
use crate::pace::Pace;
use crate::socket;

/// How often a silent session sends a keepalive, as ION-DTN does.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// How often the peer's TCP acknowledgements are checked, while any is missing.
const GLANCE: Duration = Duration::from_millis(20);

/// What goes to the kernel at once, bytes.
const PIECE_BYTES: usize = 16 << 10;

/// Bytes of a payload that are read from disk at once.
const READ_BYTES: u64 = 256 << 10;

/// The header of TCP in each packet, bytes.
const HEADER_BYTES: u64 = 32;

/// What waits to be written.
enum Piece {
    Bytes(Bytes),
    /// A payload on disk, from an offset on.
    File(Arc<PayloadFile>, u64),
}

/// A bundle whose bytes are in the kernel, or being written to it.
struct Sent {
    key: u64,
    /// Bytes of the connection up to its end.
    end: u64,
}

pub(crate) struct Session<'a> {
    config: &'a Config,
    node: &'a Arc<dyn Node>,
    stream: TcpStream,
    framing: Framing,
    orders: Orders,
    handle: Option<Arc<handle::Handle>>,
    pace: Pace,
    blocked: bool,
    closing: bool,
    /// Bytes that wait to be written.
    waiting: VecDeque<Piece>,
    /// The next part of the first bundle's payload on disk.
    reading: Option<JoinHandle<std::io::Result<Bytes>>>,
    sent: VecDeque<Sent>,
    queued_bytes: u64,
    written_bytes: u64,
    last_written: Instant,
    told_ready: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        config: &'a Config,
        node: &'a Arc<dyn Node>,
        stream: TcpStream,
        framing: Framing,
    ) -> Self {
        let (handle, orders) = handle::pair();
        let now = Instant::now();
        Session {
            config,
            node,
            stream,
            framing,
            orders,
            handle: Some(handle),
            pace: Pace::new(config.ceiling_bps, now),
            blocked: false,
            closing: false,
            waiting: VecDeque::new(),
            reading: None,
            sent: VecDeque::new(),
            queued_bytes: 0,
            written_bytes: 0,
            last_written: now,
            told_ready: false,
        }
    }

    /// Sends bundles until the connection is over.
    pub(crate) async fn run(mut self, stop: &CancellationToken) -> Down {
        let number = self.config.next_id();
        let Some(handle) = self.handle.take() else {
            return Down::Closed;
        };
        let id = self.node.session_up(number, self.config.info(), handle);
        let (id, down) = match handle::in_use(self.node, id, stop).await {
            Ok(id) => (id, self.carry(id, stop).await),
            Err(id) => (id, Down::Closed),
        };
        let keys = self.sent.iter().map(|sent| sent.key);
        self.orders.end(&**self.node, id, keys, down.clone());
        down
    }

    async fn carry(&mut self, id: SessionId, stop: &CancellationToken) -> Down {
        loop {
            if let Err(error) = self.look(id) {
                return Down::Broken(error.to_string());
            }
            if self.closing && self.sent.is_empty() {
                return Down::Closed;
            }
            let now = Instant::now();
            let next = self.pace.next().unwrap_or(now + KEEPALIVE);
            let paced = next <= now;
            let ready = self.read_ahead();
            let writes = ready && !self.blocked && paced;
            let mut wake = self.last_written + KEEPALIVE;
            if !self.sent.is_empty() {
                wake = wake.min(now + GLANCE);
            }
            if !paced && ready {
                wake = wake.min(next);
            }
            tokio::select! {
                () = stop.cancelled() => return Down::Closed,
                command = self.orders.commands.recv() => match command {
                    Some(Command::Abort(reason)) => return Down::Broken(reason),
                    Some(command) => self.order(id, command),
                    None => return Down::Closed,
                },
                ready = self.stream.ready(interest(writes)) => {
                    let done = ready.and_then(|ready| {
                        if ready.is_readable() {
                            self.discard()?;
                        }
                        if writes && ready.is_writable() {
                            self.write()?;
                        }
                        Ok(())
                    });
                    if let Err(error) = done {
                        return Down::Broken(error.to_string());
                    }
                }
                part = part_of(&mut self.reading) => {
                    self.reading = None;
                    if let Err(error) = part.and_then(|part| self.supply(part)) {
                        return Down::Broken(format!("a payload cannot be read: {error}"));
                    }
                }
                () = sleep_until(wake.into()) => self.keep_alive(),
            }
        }
    }

    fn order(&mut self, id: SessionId, command: Command) {
        match command {
            Command::Offer(transfer) => {
                self.told_ready = false;
                let length = transfer.len();
                let Some(head) = self.framing.head(length) else {
                    let refused = Outcome::Refused(Refusal::NotAcceptable);
                    self.node.finished(id, transfer.key, refused);
                    return;
                };
                self.queued_bytes += head.len() as u64 + length;
                self.waiting.push_back(Piece::Bytes(head.into()));
                let mut chunks = transfer.chunks.into_iter().map(Piece::Bytes);
                self.waiting.extend(chunks.next());
                let file = transfer.file.map(|file| Piece::File(file, 0));
                self.waiting.extend(file.into_iter().chain(chunks));
                self.sent.push_back(Sent {
                    key: transfer.key,
                    end: self.queued_bytes,
                });
            }
            Command::Rate(rate) => self.pace.set(Instant::now(), rate),
            Command::Suspend(blocked) => self.blocked = blocked,
            Command::Close => self.closing = true,
            Command::Abort(_) => {}
        }
    }

    /// Begins to read what is written next, if it is on disk. Returns whether there is something to
    /// write.
    fn read_ahead(&mut self) -> bool {
        let Some(Piece::File(file, offset)) = self.waiting.front() else {
            return !self.waiting.is_empty();
        };
        if self.reading.is_none() {
            let (file, offset) = (file.clone(), *offset);
            // No more than fits memory: `READ_BYTES` is small.
            let mut part = vec![0; READ_BYTES.min(file.len() - offset) as usize];
            self.reading = Some(spawn_blocking(move || {
                file.read_at(&mut part, offset)?;
                Ok(Bytes::from(part))
            }));
        }
        false
    }

    /// Puts a part of the present payload, read from disk, before the rest.
    fn supply(&mut self, part: Bytes) -> std::io::Result<()> {
        let Some(Piece::File(file, offset)) = self.waiting.front_mut() else {
            return Err(std::io::Error::other("no payload was to be read"));
        };
        *offset += part.len() as u64;
        if *offset == file.len() {
            self.waiting.pop_front();
        }
        self.waiting.push_front(Piece::Bytes(part));
        Ok(())
    }

    /// Writes what the pace allows.
    fn write(&mut self) -> std::io::Result<()> {
        let now = Instant::now();
        let Some(Piece::Bytes(first)) = self.waiting.front_mut() else {
            return Ok(());
        };
        let piece = &first[..first.len().min(PIECE_BYTES)];
        match self.stream.try_write(piece) {
            Ok(count) => {
                let _ = first.split_to(count);
                if first.is_empty() {
                    self.waiting.pop_front();
                }
                let count = count as u64;
                self.written_bytes += count;
                self.last_written = now;
                let headers = self.config.ip_header_bytes() + HEADER_BYTES;
                let payload = u64::from(self.config.mtu_bytes)
                    .saturating_sub(headers)
                    .max(1);
                self.pace.sent(now, count + count * headers / payload);
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The neighbour sends nothing here; reading only detects that it has closed.
    fn discard(&self) -> std::io::Result<()> {
        let mut bytes = BytesMut::with_capacity(1024);
        match self.stream.try_read_buf(&mut bytes) {
            Ok(0) => Err(std::io::Error::other("closed by the neighbour")),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn keep_alive(&mut self) {
        let silent = self.last_written.elapsed() >= KEEPALIVE && self.waiting.is_empty();
        if silent {
            self.last_written = Instant::now();
            if self.framing == Framing::Stcp && !self.blocked {
                self.queued_bytes += 4;
                let keepalive = Bytes::from_static(&[0; 4]);
                self.waiting.push_back(Piece::Bytes(keepalive));
            }
        }
    }

    /// Reports to the node which bundles have arrived, and whether it may offer another.
    fn look(&mut self, id: SessionId) -> std::io::Result<()> {
        let unacknowledged = socket::unacknowledged(&self.stream)?;
        let there = self.written_bytes.saturating_sub(unacknowledged);
        while self.sent.front().is_some_and(|sent| sent.end <= there) {
            if let Some(sent) = self.sent.pop_front() {
                self.node.finished(id, sent.key, Outcome::Acknowledged);
            }
        }
        let rtt = socket::round_trip(&self.stream).unwrap_or(self.config.rtt);
        self.orders.show(PathFigures {
            rtt,
            min_rtt: rtt,
            in_flight_bytes: unacknowledged,
            unsent_bytes: self.queued_bytes - self.written_bytes,
            sent_bytes: self.written_bytes,
            delivered_bytes: there,
            on_their_way_bytes: unacknowledged,
            ..PathFigures::default()
        });
        if !self.told_ready && !self.closing && self.waiting.is_empty() {
            self.told_ready = true;
            self.node.ready(id);
        }
        Ok(())
    }
}

/// The part of a payload that is being read; waits for ever if none is.
async fn part_of(
    reading: &mut Option<JoinHandle<std::io::Result<Bytes>>>,
) -> std::io::Result<Bytes> {
    match reading {
        Some(reading) => {
            let read = reading.await;
            read.unwrap_or_else(|_| Err(std::io::ErrorKind::Interrupted.into()))
        }
        None => std::future::pending().await,
    }
}

fn interest(writes: bool) -> tokio::io::Interest {
    let readable = tokio::io::Interest::READABLE;
    if writes {
        readable.add(tokio::io::Interest::WRITABLE)
    } else {
        readable
    }
}
