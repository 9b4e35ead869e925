//! Bundles to the peer, a stream for each or as symbols.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;
use underpass_cla::Down;

use super::Link;
use super::writing::Writing;
use crate::congestion::Gate;
use crate::outgoing::Name;
use crate::pace::Pace;

/// QUIC holds this many bytes more than may be in flight, so that it never has to wait for this
/// task.
const SLACK_BYTES: u64 = 64 << 10;
/// A bundle is at most so much line time, s.
const BUNDLE_LINE_TIME_S: f64 = 0.06;
const READY_BYTES: std::ops::RangeInclusive<u64> = 8 << 10..=512 << 10;
/// The time of the rate that is given to QUIC at once: a few milliseconds.
const PIECE_TIME_S: f64 = 0.004;
const PIECE_BYTES: std::ops::RangeInclusive<u64> = 1200..=16 << 10;

/// What QUIC may hold of a session whose window is this.
pub(super) fn send_window(window: u64) -> u64 {
    window.saturating_add(SLACK_BYTES)
}

/// Bundles at most that wait for peer or disk while others go on.
pub(super) const MOST_ASIDE: usize = 4;

/// The rate as it was last looked at.
pub(super) struct Line {
    pace: Pace,
    rate: Option<f64>,
    lost_bytes: u64,
    send_window: u64,
}

impl Line {
    pub(super) fn new(now: Instant) -> Line {
        Line {
            pace: Pace::new(now),
            rate: None,
            lost_bytes: 0,
            send_window: 0,
        }
    }
}

impl Link {
    /// Sends bundle after bundle. Losses of one do not delay others, and neither does a bundle that
    /// waits for the peer or the disk.
    pub(super) async fn send_bundles(self: &Arc<Self>) -> Down {
        let mut aside = JoinSet::new();
        loop {
            let changed = self.writable.notified();
            self.tell_ready();
            if let Err(down) = self.send_symbols().await {
                return down;
            }
            while let Some(ended) = aside.try_join_next() {
                if let Some(down) = down_of(ended) {
                    return down;
                }
            }
            let bytes = self.outgoing().next_bytes_in_memory();
            let codes = bytes.is_some_and(|bytes| self.codes(bytes));
            let transfer = self.outgoing().next();
            let Some(transfer) = transfer else {
                tokio::select! {
                    () = changed => {}
                    () = self.symbols_due() => {}
                    Some(ended) = aside.join_next() => if let Some(down) = down_of(ended) {
                        return down;
                    },
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
            let (waits, is_aside) = oneshot::channel();
            let writing = Writing::new(self.clone(), stream, transfer.len(), waits);
            let mut writing = Box::pin(writing.send(transfer));
            let ended = tokio::select! {
                biased;
                ended = &mut writing => Some(ended),
                _ = is_aside => None,
            };
            match ended {
                Some(Ok(())) => {}
                Some(Err(down)) => return down,
                None => {
                    aside.spawn(writing);
                }
            }
        }
    }

    /// Waits until bytes may be sent, and takes the next ones from `chunk`.
    pub(super) async fn await_turn(&self, chunk: &mut Bytes) -> Bytes {
        let Some(rate) = self.await_rate().await else {
            return take(chunk, *PIECE_BYTES.end());
        };
        let piece = take(chunk, bytes_in(rate, PIECE_TIME_S, PIECE_BYTES));
        let mut line = self.line();
        line.pace.sent(Instant::now(), piece.len() as u64, rate);
        piece
    }

    /// Waits until a datagram of `bytes` may be sent.
    pub(super) async fn await_datagram(&self, bytes: usize) {
        if let Some(rate) = self.await_rate().await {
            let cost = self.flow.cost_of_datagram(bytes);
            let mut line = self.line();
            line.pace.sent(Instant::now(), cost, rate);
        }
    }

    /// Waits until bytes may be sent. Returns the rate at which they count.
    async fn await_rate(&self) -> Option<f64> {
        loop {
            let changed = self.writable.notified();
            let gate = self.flow.gate();
            let now = Instant::now();
            self.widen(now);
            let Gate::Open(rate) = gate else {
                changed.await;
                continue;
            };
            let (rate, wait) = self.wait(now, rate)?;
            if wait.is_zero() {
                return Some(rate);
            }
            tokio::select! {
                () = sleep(wait.max(Duration::from_millis(1))) => {}
                () = changed => {}
            }
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap()
    }

    /// How long bytes have to wait at this rate, if there is one.
    fn wait(&self, now: Instant, rate: Option<f64>) -> Option<(f64, Duration)> {
        let lost_bytes = self.flow.lost_bytes();
        let mut line = self.line();
        if rate != line.rate {
            line.rate = rate;
            line.pace.begin_anew(now);
            line.lost_bytes = lost_bytes;
        }
        let rate = rate?;
        // QUIC's retransmissions are part of the rate, too. It does not retransmit datagrams.
        let lost_since = lost_bytes.saturating_sub(line.lost_bytes);
        if lost_since > 0 {
            if !self.coded.sends() {
                line.pace.sent(now, lost_since, rate);
            }
            line.lost_bytes = lost_bytes;
        }
        Some((rate, line.pace.wait(now)))
    }

    /// Lets QUIC hold about as much as may be in flight, and no more.
    fn widen(&self, now: Instant) {
        let wanted = send_window(self.flow.window(now));
        let mut line = self.line();
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

/// The session's end that results from a bundle that was put aside, if any.
fn down_of(ended: Result<Result<(), Down>, JoinError>) -> Option<Down> {
    match ended {
        Ok(Ok(())) => None,
        Ok(Err(down)) => Some(down),
        Err(broken) => Some(Down::Broken(broken.to_string())),
    }
}

fn bytes_in(rate: f64, time_s: f64, bounds: std::ops::RangeInclusive<u64>) -> u64 {
    ((rate * time_s) as u64).clamp(*bounds.start(), *bounds.end())
}

fn take(chunk: &mut Bytes, most: u64) -> Bytes {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    chunk.split_to(chunk.len().min(most))
}
