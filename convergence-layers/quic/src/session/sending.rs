//! Bundles to the peer, a stream for each or as symbols.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn::{SendStream, WriteError};
use tokio::time::sleep;
use underpass_cla::{Down, Transfer};

use super::Link;
use crate::congestion::Gate;
use crate::outgoing::Name;
use crate::pace::Pace;

/// QUIC holds so many bytes more than may be in flight, so that it never has
/// to wait for this task.
const SLACK_BYTES: u64 = 64 << 10;
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
            let bytes = self.outgoing().next_bytes();
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
            if let Err(error) = self.send_bundle(stream, transfer, &mut line).await {
                return match error {
                    WriteError::ConnectionLost(error) => self.down(&error),
                    other => Down::Broken(other.to_string()),
                };
            }
        }
    }

    async fn send_bundle(
        &self,
        mut stream: SendStream,
        transfer: Transfer,
        line: &mut Line,
    ) -> Result<(), WriteError> {
        let mut left = transfer.len();
        let mut head = BytesMut::with_capacity(crate::wire::LENGTH_BYTES);
        head.extend_from_slice(&left.to_be_bytes());
        let mut written = stream.write_chunk(head.freeze()).await;
        for mut chunk in transfer.chunks {
            while written.is_ok() && !chunk.is_empty() {
                let piece = self.await_turn(line, &mut chunk).await;
                let bytes = piece.len() as u64;
                written = stream.write_chunk(piece).await;
                left -= bytes;
                self.outgoing().wrote(bytes);
                self.tell_ready();
            }
        }
        match written {
            // Whether the peer can be told is another's concern.
            Ok(()) => drop(stream.finish()),
            // The peer says on the control stream why it wants no more.
            Err(WriteError::Stopped(_)) => {
                self.outgoing().wrote(left);
            }
            Err(error) => return Err(error),
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

fn bytes_in(rate: f64, time_s: f64, bounds: std::ops::RangeInclusive<u64>) -> u64 {
    ((rate * time_s) as u64).clamp(*bounds.start(), *bounds.end())
}

fn take(chunk: &mut Bytes, most: u64) -> Bytes {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    chunk.split_to(chunk.len().min(most))
}
