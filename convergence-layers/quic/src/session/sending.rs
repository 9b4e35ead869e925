//! Bundles to the peer, a stream for each or as symbols.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn::{SendStream, WriteError};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use underpass_cla::{Down, Transfer};
use underpass_payloads::PayloadFile;

use super::Link;
use crate::code;
use crate::congestion::Gate;
use crate::outgoing::Name;
use crate::pace::Pace;

/// QUIC holds so many bytes more than may be in flight, so that it never has
/// to wait for this task.
const SLACK_BYTES: u64 = 64 << 10;
/// What is read of a payload on disk at once.
const READ_BYTES: u64 = 256 << 10;
/// A bundle is at most so much line time, s.
const BUNDLE_LINE_TIME_S: f64 = 0.06;
const READY_BYTES: std::ops::RangeInclusive<u64> = 8 << 10..=512 << 10;
/// What goes to QUIC at once: a few milliseconds of the rate.
const PIECE_TIME_S: f64 = 0.004;
const PIECE_BYTES: std::ops::RangeInclusive<u64> = 1200..=16 << 10;

/// What QUIC may hold of a session whose window is this.
pub(super) fn send_window(window: u64) -> u64 {
    window.saturating_add(SLACK_BYTES)
}

/// The rate as it was last looked at.
pub(super) struct Line {
    pace: Pace,
    rate: Option<f64>,
    lost_bytes: u64,
    send_window: u64,
}

/// The stream of a bundle. QUIC ends one that is dropped in order, as if the bundle were
/// whole: so it is reset unless it is.
struct BundleStream {
    stream: SendStream,
    is_whole: bool,
}

impl BundleStream {
    fn new(stream: SendStream) -> Self {
        let is_whole = false;
        Self { stream, is_whole }
    }

    /// All of the bundle is written.
    fn finish(mut self) {
        self.is_whole = true;
        // Whether the peer can be told is another's concern.
        let _ = self.stream.finish();
    }
}

impl Drop for BundleStream {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = self.stream.reset(code::ABORTED);
        }
    }
}

impl Link {
    /// Sends bundle after bundle; what is lost of one holds up no other.
    pub(super) async fn send_bundles(&self) -> Down {
        let mut line = Line {
            pace: Pace::new(Instant::now()),
            rate: None,
            lost_bytes: 0,
            send_window: 0,
        };
        loop {
            self.tell_ready();
            if let Err(down) = self.send_symbols(&mut line).await {
                return down;
            }
            let bytes = self.outgoing().next_bytes_in_memory();
            let codes = bytes.is_some_and(|bytes| self.codes(bytes));
            let transfer = self.outgoing().next();
            let Some(transfer) = transfer else {
                tokio::select! {
                    () = self.writable.notified() => {}
                    () = self.symbols_due() => {}
                }
                continue;
            };
            if codes {
                self.cut(transfer);
                continue;
            }
            let stream = match self.connection.open_uni().await {
                Ok(stream) => stream,
                Err(error) => return self.down(&error),
            };
            self.outgoing().begin(Name::Stream(stream.id().index()));
            let stream = BundleStream::new(stream);
            if let Err(down) = self.send_bundle(stream, transfer, &mut line).await {
                return down;
            }
        }
    }

    async fn send_bundle(
        &self,
        mut stream: BundleStream,
        transfer: Transfer,
        line: &mut Line,
    ) -> Result<(), Down> {
        let mut left = transfer.len();
        let mut head = BytesMut::with_capacity(crate::wire::LENGTH_BYTES);
        head.extend_from_slice(&left.to_be_bytes());
        let mut written = stream.stream.write_chunk(head.freeze()).await;
        let mut file = transfer.file;
        for chunk in transfer.chunks {
            // What the peer lacks of bundles before does not wait for all of a long
            // one.
            self.send_symbols(line).await?;
            if written.is_ok() {
                written = self.write(&mut stream.stream, chunk, line, &mut left).await;
            }
            // A payload on disk is behind the first piece.
            let Some(file) = file.take() else {
                continue;
            };
            let mut offset = 0;
            while written.is_ok() && offset < file.len() {
                self.send_symbols(line).await?;
                let part = read(file.clone(), offset).await;
                let part = part
                    .map_err(|error| Down::Broken(format!("a payload cannot be read: {error}")))?;
                offset += part.len() as u64;
                written = self.write(&mut stream.stream, part, line, &mut left).await;
            }
        }
        match written {
            Ok(()) => stream.finish(),
            // The peer says on the control stream why it wants no more.
            Err(WriteError::Stopped(_)) => {
                self.outgoing().wrote(left);
            }
            Err(WriteError::ConnectionLost(error)) => return Err(self.down(&error)),
            Err(other) => return Err(Down::Broken(other.to_string())),
        }
        Ok(())
    }

    /// Writes a piece of a bundle, as the rate allows; what is left of the bundle
    /// is less then.
    async fn write(
        &self,
        stream: &mut SendStream,
        mut chunk: Bytes,
        line: &mut Line,
        left: &mut u64,
    ) -> Result<(), WriteError> {
        while !chunk.is_empty() {
            let piece = self.await_turn(line, &mut chunk).await;
            let bytes = piece.len() as u64;
            let written = stream.write_chunk(piece).await;
            *left -= bytes;
            self.outgoing().wrote(bytes);
            self.tell_ready();
            written?;
        }
        Ok(())
    }

    /// Waits until bytes may go, and takes the next ones from `chunk`.
    async fn await_turn(&self, line: &mut Line, chunk: &mut Bytes) -> Bytes {
        let Some(rate) = self.await_rate(line).await else {
            return take(chunk, *PIECE_BYTES.end());
        };
        let piece = take(chunk, bytes_in(rate, PIECE_TIME_S, PIECE_BYTES));
        line.pace.sent(Instant::now(), piece.len() as u64, rate);
        piece
    }

    /// Waits until a datagram of so many bytes may go.
    pub(super) async fn await_datagram(&self, line: &mut Line, bytes: usize) {
        if let Some(rate) = self.await_rate(line).await {
            let cost = self.flow.cost_of_datagram(bytes);
            line.pace.sent(Instant::now(), cost, rate);
        }
    }

    /// Waits until bytes may go; the rate that they count at.
    async fn await_rate(&self, line: &mut Line) -> Option<f64> {
        loop {
            let gate = self.flow.gate();
            self.widen(line);
            let now = Instant::now();
            let Gate::Open(rate) = gate else {
                self.writable.notified().await;
                continue;
            };
            if rate != line.rate {
                line.rate = rate;
                line.pace.begin_anew(now);
                line.lost_bytes = self.flow.lost_bytes();
            }
            let rate = rate?;
            // What QUIC sends again is part of the rate, too. Of datagrams it
            // sends nothing again.
            let lost_bytes = self.flow.lost_bytes();
            if lost_bytes > line.lost_bytes {
                if !self.coded.sends() {
                    line.pace.sent(now, lost_bytes - line.lost_bytes, rate);
                }
                line.lost_bytes = lost_bytes;
            }
            let wait = line.pace.wait(now);
            if wait.is_zero() {
                return Some(rate);
            }
            tokio::select! {
                () = sleep(wait.max(Duration::from_millis(1))) => {}
                () = self.writable.notified() => {}
            }
        }
    }

    /// Has QUIC hold about what may be in flight, and no more.
    fn widen(&self, line: &mut Line) {
        let wanted = send_window(self.flow.window(Instant::now()));
        if wanted.abs_diff(line.send_window) > line.send_window / 16 {
            line.send_window = wanted;
            self.connection.set_send_window(wanted);
        }
    }

    /// Tells the node when little waits here.
    pub(super) fn tell_ready(&self) {
        let most = match self.flow.gate() {
            Gate::Open(Some(rate)) => bytes_in(rate, BUNDLE_LINE_TIME_S, READY_BYTES),
            _ => *READY_BYTES.start(),
        };
        let is_ready = self.outgoing().gets_ready(most);
        if is_ready {
            self.node.ready(self.id());
        }
    }
}

/// The part of a payload on disk from an offset on.
async fn read(file: Arc<PayloadFile>, offset: u64) -> io::Result<Bytes> {
    let bytes = READ_BYTES.min(file.len() - offset);
    // No more than fits memory: `READ_BYTES` is small.
    let mut part = vec![0; bytes as usize];
    let read = spawn_blocking(move || {
        file.read_at(&mut part, offset)?;
        Ok(Bytes::from(part))
    });
    read.await
        .unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()))
}

fn bytes_in(rate: f64, time_s: f64, bounds: std::ops::RangeInclusive<u64>) -> u64 {
    ((rate * time_s) as u64).clamp(*bounds.start(), *bounds.end())
}

fn take(chunk: &mut Bytes, most: u64) -> Bytes {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    chunk.split_to(chunk.len().min(most))
}
