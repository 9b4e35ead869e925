//! Bundles that are too long for memory: taken piece by piece, and read from disk as they are sent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::warn;
use underpass_cla::{Intake, Refusal};

use super::driver::Driver;
use super::transport::Transport;
use crate::session::{Resumption, Wanted};

/// The intake of the transfer that is being received.
pub(super) struct Taking {
    intake: Box<dyn Intake>,
    /// The last piece, once it has come.
    last: Option<Bytes>,
    ended: bool,
}

impl Taking {
    /// The last piece has come.
    pub(super) fn end(&mut self, last: Bytes) {
        self.last = Some(last);
        self.ended = true;
    }
}

/// A part of a payload that a thread is reading.
pub(super) struct ReadingPart {
    wanted: Wanted,
    read: JoinHandle<io::Result<Bytes>>,
}

impl<T: Transport> Driver<T> {
    /// A transfer begins, if the node admits it: one that is too long for memory is taken piece by
    /// piece, from its first byte on.
    pub(super) fn begin(
        &mut self,
        verdict: Result<(), Refusal>,
        length: Option<u64>,
        named: Option<Resumption>,
    ) {
        self.taking = None;
        let long = length.filter(|_| verdict.is_ok());
        let Some(length) = long else {
            return self.begin_receiving(verdict, named);
        };
        let most = self.around.whole_mru_bytes;
        if named.is_some_and(|named| named.offset > 0) {
            // Bundles that are too long for memory are not kept when a session breaks.
            return match length > most {
                true => {
                    self.forget_receiving();
                    self.core.resume(None);
                }
                false => self.begin_receiving(verdict, named),
            };
        }
        match self.around.node.intake(self.around.id, length) {
            Ok(Some(intake)) => {
                self.forget_receiving();
                self.taking = Some(Taking {
                    intake,
                    last: None,
                    ended: false,
                });
                self.core.take_apart();
            }
            Ok(None) if length > most => {
                self.begin_receiving(Err(Refusal::NotAcceptable), named);
            }
            Ok(None) => self.begin_receiving(verdict, named),
            Err(refusal) => self.begin_receiving(Err(refusal), named),
        }
    }

    /// Passes on the received pieces of a bundle, as far as there is room for them.
    pub(super) fn poll_taking(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(taking) = &mut self.taking else {
            return false;
        };
        let verdict = if taking.last.is_some() || self.core.has_piece() {
            match taking.intake.poll_ready(cx) {
                Poll::Ready(Ok(())) => {
                    let last = taking.last.take();
                    if let Some(piece) = last.or_else(|| self.core.take_piece()) {
                        taking.intake.take(piece);
                    }
                    self.digest();
                    return true;
                }
                Poll::Ready(Err(refusal)) => Err(refusal),
                Poll::Pending => return false,
            }
        } else if taking.ended {
            match taking.intake.poll_end(cx) {
                Poll::Ready(verdict) => verdict,
                Poll::Pending => return false,
            }
        } else {
            return false;
        };
        self.taking = None;
        self.core.answer(verdict);
        self.digest();
        true
    }

    /// Reads the next part of a payload on disk ahead, on a thread that may wait for the disk.
    pub(super) fn poll_reading(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        loop {
            if self.reading.is_none() {
                let Some(wanted) = self.core.wanted() else {
                    return progress;
                };
                let (file, offset) = (wanted.file.clone(), wanted.offset);
                let mut part = vec![0; wanted.bytes];
                let read = spawn_blocking(move || {
                    file.read_at(&mut part, offset)?;
                    Ok(Bytes::from(part))
                });
                self.reading = Some(ReadingPart { wanted, read });
            }
            let Some(reading) = &mut self.reading else {
                return progress;
            };
            let Poll::Ready(read) = Pin::new(&mut reading.read).poll(cx) else {
                return progress;
            };
            let read = read.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
            if let Some(ReadingPart { wanted, .. }) = self.reading.take() {
                match read {
                    Ok(part) => self.core.supply(&wanted, part),
                    Err(error) => {
                        warn!(%error, "a payload cannot be read");
                        let reason = format!("a payload cannot be read: {error}");
                        self.core.cannot_supply(&wanted, &reason);
                    }
                }
            }
            progress = true;
        }
    }
}
