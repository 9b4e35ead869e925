//! The origin of the paced streams: it offers each one a chunk in each period, whatever happens to
//! earlier ones.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::chunks::{STAMP_BYTES, Stamp, nanos_between};

/// Chunks that are due within this time are offered together, so that thousands of streams do not
/// need a timer each.
const TOGETHER: Duration = Duration::from_micros(500);

#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub streams: u32,
    pub chunk_bytes: usize,
    /// From a stream's chunk to its next.
    pub period: Duration,
    /// The swarm's beginning.
    pub epoch: Instant,
}

#[derive(Debug, Default)]
pub struct Log {
    /// For each stream, when each of its chunks was, ns.
    pub offered_ns: Vec<Vec<u64>>,
    /// How much later than due each chunk was offered, ns.
    pub late_ns: Vec<u64>,
}

/// An origin that waits for its streams' connections.
pub struct Origin {
    pace: Pace,
    connections: Arc<Mutex<HashMap<u32, TcpStream>>>,
    acceptor: tokio::task::JoinHandle<()>,
}

pub struct Sending {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Log>>,
}

impl Origin {
    /// Listens at `at`. A connection names its stream by a number of four
    /// bytes. Must be called within a runtime.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn listen(at: SocketAddr, pace: Pace) -> io::Result<Origin> {
        let listener = std::net::TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let connections: Arc<Mutex<HashMap<u32, TcpStream>>> = Arc::default();
        let accepted = connections.clone();
        let acceptor = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let accepted = accepted.clone();
                tokio::spawn(async move {
                    // A connection that names no stream gets none, and its stream counts as not
                    // connected.
                    if let Ok((number, stream)) = named(stream).await {
                        let mut accepted = accepted.lock().unwrap_or_else(PoisonError::into_inner);
                        accepted.insert(number, stream);
                    }
                });
            }
        });
        Ok(Origin {
            pace,
            connections,
            acceptor,
        })
    }

    pub fn connected(&self) -> usize {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Begins to send. The streams' turns are spread over the period in an
    /// order without pattern, the same in each run.
    pub fn start(self) -> Sending {
        self.acceptor.abort();
        let connections = self.connections.lock();
        let mut connections =
            std::mem::take(&mut *connections.unwrap_or_else(PoisonError::into_inner));
        let mut order: Vec<u32> = (0..self.pace.streams).collect();
        fastrand::Rng::with_seed(u64::from(self.pace.streams)).shuffle(&mut order);
        let lanes = order.into_iter().map(|stream| Lane {
            stream,
            connection: connections.remove(&stream),
            unsent: Vec::new(),
        });
        let mut pacer = Pacer {
            pace: self.pace,
            lanes: lanes.collect(),
            chunk: vec![0x5a; self.pace.chunk_bytes],
            held: Vec::new(),
            log: Log {
                offered_ns: vec![Vec::new(); self.pace.streams as usize],
                late_ns: Vec::new(),
            },
        };
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        let thread = thread::spawn(move || pacer.run(&stop).map(|()| pacer.log));
        Sending { stopped, thread }
    }
}

impl Sending {
    /// Ends the streams.
    ///
    /// # Errors
    /// When a connection has broken.
    pub fn stop(self) -> io::Result<Log> {
        self.stopped.store(true, Ordering::Relaxed);
        let done = self.thread.join();
        done.map_err(|_| io::Error::other("the origin's thread has panicked"))?
    }
}

async fn named(mut stream: tokio::net::TcpStream) -> io::Result<(u32, TcpStream)> {
    let number = stream.read_u32().await?;
    let stream = stream.into_std()?;
    stream.set_nodelay(true)?;
    Ok((number, stream))
}

struct Lane {
    stream: u32,
    /// None where the hub has not dialled.
    connection: Option<TcpStream>,
    /// What the connection has not taken yet.
    unsent: Vec<u8>,
}

struct Pacer {
    pace: Pace,
    /// In the order of their turns.
    lanes: Vec<Lane>,
    chunk: Vec<u8>,
    /// Lanes with something unsent.
    held: Vec<usize>,
    log: Log,
}

impl Pacer {
    fn run(&mut self, stopped: &AtomicBool) -> io::Result<()> {
        let begun = Instant::now();
        let turns = self.lanes.len() as u64;
        let mut turn = 0u64;
        while !stopped.load(Ordering::Relaxed) {
            let due = |turn: u64| begun + self.pace.period.mul_f64(turn as f64 / turns as f64);
            let now = Instant::now();
            let until = due(turn);
            if until > now {
                thread::sleep((until - now).max(TOGETHER));
                self.send_held()?;
                continue;
            }
            self.offer((turn % turns) as usize, until)?;
            turn += 1;
        }
        Ok(())
    }

    fn offer(&mut self, place: usize, due: Instant) -> io::Result<()> {
        let lane = &mut self.lanes[place];
        let Some(connection) = &mut lane.connection else {
            return Ok(());
        };
        let offered = &mut self.log.offered_ns[lane.stream as usize];
        let now = Instant::now();
        let stamp = Stamp {
            stream: lane.stream,
            number: offered.len() as u32,
            offered_ns: nanos_between(self.pace.epoch, now),
        };
        self.chunk[..STAMP_BYTES].copy_from_slice(&stamp.to_bytes());
        offered.push(stamp.offered_ns);
        self.log.late_ns.push(nanos_between(due, now));
        if lane.unsent.is_empty() {
            let sent = write(connection, &self.chunk)?;
            if sent < self.chunk.len() {
                self.held.push(place);
            }
            lane.unsent.extend_from_slice(&self.chunk[sent..]);
        } else {
            lane.unsent.extend_from_slice(&self.chunk);
        }
        Ok(())
    }

    fn send_held(&mut self) -> io::Result<()> {
        let lanes = &mut self.lanes;
        let mut broken = None;
        self.held.retain(|place| {
            let lane = &mut lanes[*place];
            let sent = match &mut lane.connection {
                Some(connection) => write(connection, &lane.unsent),
                None => Ok(lane.unsent.len()),
            };
            match sent {
                Ok(sent) => drop(lane.unsent.drain(..sent)),
                Err(error) => broken = Some(error),
            }
            !lane.unsent.is_empty()
        });
        broken.map_or(Ok(()), Err)
    }
}

/// Writes what the connection takes at once.
fn write(connection: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match connection.write(bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}
