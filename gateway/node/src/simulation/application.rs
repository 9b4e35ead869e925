//! An application: performs its part of a script and records what it sees.

use std::io::{self, ErrorKind};
use std::sync::LazyLock;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use underpass_edge::relay::Socket;

use super::random::Random;
use super::script::{Leave, PATIENCE, Part, Step};

/// Most bytes of one call.
const CALL_BYTES: usize = 64 << 10;
/// A prime number, so that no two places of a stream look alike because of their alignment.
const PATTERN_BYTES: usize = 262_139;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random::new(1);
    let bytes = (0..PATTERN_BYTES + CALL_BYTES).map(|_| (random.next() >> 56) as u8);
    let mut pattern: Vec<u8> = bytes.collect();
    pattern.copy_within(0..CALL_BYTES, PATTERN_BYTES);
    pattern
});

/// The bytes of a direction from an offset on.
fn pattern(direction: u64, offset: u64, length: usize) -> &'static [u8] {
    let start = Random::new(direction).next() % PATTERN_BYTES as u64;
    let at = ((start + offset) % PATTERN_BYTES as u64) as usize;
    &PATTERN[at..at + length.min(CALL_BYTES)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The application did not read so far.
    NotSeen,
    /// read(2) gave 0.
    Finished,
    /// read(2) gave an error.
    Reset,
}

/// What one application saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Bytes that write(2) took.
    pub written: u64,
    /// Bytes that read(2) gave.
    pub read: u64,
    pub end: End,
    /// A write or shutdown failed.
    pub refused: bool,
    /// Its side has ended in order, as far as it knows.
    pub finished: bool,
    /// The offset from which the bytes read differ from those sent.
    pub wrong: Option<u64>,
    /// It waited in vain, and left.
    pub gave_up: bool,
}

pub struct Application<S> {
    socket: S,
    side: usize,
    /// The patterns that it sends and expects, by number.
    directions: [u64; 2],
    began: Instant,
    /// Of a reset, by a write that failed.
    writer_was_told: bool,
    seen: Seen,
}

impl<S: Socket> Application<S> {
    pub fn new(socket: S, number: u64, side: usize) -> Application<S> {
        let direction = |side: usize| 2 * number + side as u64;
        Application {
            socket,
            side,
            directions: [direction(side), direction(1 - side)],
            began: Instant::now(),
            writer_was_told: false,
            seen: Seen {
                written: 0,
                read: 0,
                end: End::NotSeen,
                refused: false,
                finished: false,
                wrong: None,
                gave_up: false,
            },
        }
    }

    /// Does a part of a script to its end.
    pub async fn perform(mut self, part: &Part) -> Seen {
        for step in &part.steps {
            let done = timeout(PATIENCE[self.side], self.step(*step)).await;
            if done.is_err() {
                self.seen.gave_up = true;
                break;
            }
        }
        match part.leave {
            Leave::Abort => self.socket.end_by_reset(),
            Leave::Close => self.seen.finished |= !self.seen.refused,
        }
        self.seen
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Send(bytes) => self.send(bytes).await,
            Step::Read(bytes) => self.read(bytes, CALL_BYTES, Duration::ZERO).await,
            Step::ReadOut => self.read(u64::MAX, CALL_BYTES, Duration::ZERO).await,
            Step::ReadSlowly(bytes, pause) => {
                let most = usize::try_from(bytes).unwrap_or(CALL_BYTES);
                self.read(u64::MAX, most, Duration::from_millis(pause))
                    .await;
            }
            Step::Exchange(bytes) => self.exchange(bytes).await,
            Step::Until(ms) => sleep_until(self.began + Duration::from_millis(ms)).await,
            Step::Pause(ms) => sleep(Duration::from_millis(ms)).await,
            Step::Shutdown => {
                let done = self.socket.shutdown().await;
                self.shut(done);
            }
        }
    }

    async fn send(&mut self, bytes: u64) {
        let all = self.seen.written + bytes;
        while self.seen.written < all {
            let data = self.outgoing(all);
            let written = self.socket.write(data).await;
            if !self.wrote(written) {
                return;
            }
        }
    }

    async fn read(&mut self, bytes: u64, most: usize, pause: Duration) {
        let all = self.seen.read.saturating_add(bytes);
        let mut buffer = vec![0; most.min(CALL_BYTES)];
        while self.seen.read < all {
            let most = usize::try_from(all - self.seen.read).unwrap_or(usize::MAX);
            let room = buffer.len().min(most);
            let read = self.socket.read(&mut buffer[..room]).await;
            if !self.took(read, &buffer) {
                return;
            }
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
    }

    async fn exchange(&mut self, bytes: u64) {
        let all = self.seen.written + bytes;
        let mut buffer = vec![0; CALL_BYTES];
        let (mut writing, mut reading) = (true, true);
        while writing || reading {
            let data = self.outgoing(all);
            let (mut reader, mut writer) = tokio::io::split(&mut self.socket);
            tokio::select! {
                biased;
                read = reader.read(&mut buffer), if reading => {
                    reading = self.took(read, &buffer);
                }
                written = writer.write(data), if writing => {
                    writing = self.wrote(written) && self.seen.written < all;
                    if !writing && !self.seen.refused {
                        let done = self.socket.shutdown().await;
                        self.shut(done);
                    }
                }
            }
        }
    }

    /// What is written next of all that is to be.
    fn outgoing(&self, all: u64) -> &'static [u8] {
        let left = usize::try_from(all - self.seen.written).unwrap_or(usize::MAX);
        pattern(self.directions[0], self.seen.written, left)
    }

    /// Records the outcome of a write. Returns whether to go on.
    fn wrote(&mut self, written: io::Result<usize>) -> bool {
        match written {
            Ok(count) => self.seen.written += count as u64,
            Err(error) => {
                self.seen.refused = true;
                self.writer_was_told |= error.kind() == ErrorKind::ConnectionReset;
            }
        }
        !self.seen.refused
    }

    /// Records the outcome of a read. Returns whether to go on.
    fn took(&mut self, read: io::Result<usize>, buffer: &[u8]) -> bool {
        match read {
            Ok(0) => {
                if self.seen.end == End::NotSeen {
                    // A reset is reported only once.
                    self.seen.end = match self.writer_was_told {
                        true => End::Reset,
                        false => End::Finished,
                    };
                }
                false
            }
            Ok(count) => {
                let offset = self.seen.read;
                if buffer[..count] != *pattern(self.directions[1], offset, count) {
                    self.seen.wrong.get_or_insert(offset);
                }
                self.seen.read += count as u64;
                true
            }
            Err(_) => {
                self.seen.end = self.seen.end.max(End::Reset);
                false
            }
        }
    }

    fn shut(&mut self, done: io::Result<()>) {
        match done {
            Ok(()) => self.seen.finished |= !self.seen.refused,
            Err(error) => {
                debug_assert_eq!(error.kind(), ErrorKind::NotConnected);
                self.seen.refused = true;
            }
        }
    }
}
