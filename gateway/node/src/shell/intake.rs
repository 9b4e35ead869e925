//! Bundles with long payloads, which are written to disk as they come in.
//!
//! A thread for each decodes and writes it, and may wait for the disk: a few pieces are queued,
//! then the session stops reading. No neighbour can have many such threads, since each has reserved
//! room for its payload first. A bundle that would be deleted is not written: the engine judges it
//! by the blocks before its payload.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::PollSender;
use underpass_bundle::wire::Bundle;
use underpass_bundle::{Decoded, Insecure, LongDecoding, Unopened};
use underpass_cla::{Intake, Refusal, SessionId};
use underpass_payloads::{Payloads, Refused, Room, Spool, WriteError};

use super::Shell;

/// Pieces that wait for the disk.
const PIECES: usize = 2;

pub(super) struct LongPayloads {
    payloads: Arc<Payloads>,
    /// Bundles that are longer are long, bytes.
    above_bytes: u64,
    /// Has the threads that judge what is put together; whoever finds it whole may be outside of
    /// it, as the thread of the applications' mailbox is.
    runtime: Option<Handle>,
}

impl Shell {
    /// Writes bundles longer than `above_bytes` to disk from now on, and judges those that were put
    /// together there on threads of the runtime that this is called in.
    pub fn attach_payloads(&self, payloads: Arc<Payloads>, above_bytes: u64) {
        let long = LongPayloads {
            payloads,
            above_bytes,
            runtime: Handle::try_current().ok(),
        };
        // Attached once, at the start.
        let _ = self.long.set(long);
    }

    /// The folder of long payloads, if this node has any.
    pub fn payloads(&self) -> Option<&Payloads> {
        self.long.get().map(|long| &*long.payloads)
    }

    /// Whether a bundle of this many bytes is written to disk.
    pub(super) fn is_long(&self, bytes: u64) -> bool {
        let long = self.long.get();
        long.is_some_and(|long| bytes > long.above_bytes)
    }

    /// Whether a long bundle may be written to the disk.
    fn judge_long(
        &self,
        id: SessionId,
        bundle: &Bundle,
        secured: Result<(), Insecure>,
    ) -> Result<(), Refusal> {
        self.with_inner(self.of_session(id), |inner, now| {
            let secured = secured.map_err(|_| Refusal::NotAcceptable);
            let judged = secured.and_then(|()| inner.engine.judge_long(now, id, bundle));
            if judged.is_err() {
                inner.counts.refused_bundles += 1;
            }
            judged
        })
    }

    /// Judges a bundle that was put together on the disk, on a thread of its own: all of it is read.
    pub(super) fn judge(&self, shard: usize, unopened: Unopened) {
        let runtime = self.long.get().and_then(|long| long.runtime.as_ref());
        let (Some(runtime), Some(shell)) = (runtime, self.this.upgrade()) else {
            return;
        };
        drop(runtime.spawn_blocking(move || {
            let opened = shell.decoder.open_whole(unopened);
            shell.with_inner(shard, |inner, now| {
                let taken = inner.engine.receive_opened(now, None, opened);
                // The neighbours have been told that the fragments were taken.
                inner.counts.refused_bundles += u64::from(taken.is_err());
            });
        }));
    }

    /// A file for data that is too long for memory, until it is known what it is.
    pub(super) fn long_spool(&self, id: SessionId) -> Result<Spool, Refusal> {
        let long = self.long.get().ok_or(Refusal::NoResources)?;
        let owner = self.owner(id)?;
        long.payloads.spool(owner).map_err(refusal)
    }

    /// The owner of what comes by a session: its neighbour.
    fn owner(&self, id: SessionId) -> Result<u64, Refusal> {
        let inner = self.lock(self.of_session(id));
        let neighbour = inner.engine.session_neighbour(id);
        neighbour.ok_or(Refusal::NoResources)
    }

    /// Takes a long bundle piece by piece, if there is room for it.
    pub(super) fn long_intake(
        &self,
        id: SessionId,
        length: u64,
    ) -> Result<Option<Box<dyn Intake>>, Refusal> {
        let (Some(long), Some(shell)) = (self.long.get(), self.this.upgrade()) else {
            return Ok(None);
        };
        let decoder = self.decoder.long();
        let owner = self.owner(id)?;
        let room = long.payloads.reserve(owner, length).map_err(refusal)?;
        let (sender, pieces) = mpsc::channel(PIECES);
        let judging = shell.clone();
        let judge = move |bundle: &Bundle, secured| judging.judge_long(id, bundle, secured);
        let writing = spawn_blocking(move || write(room, decoder, length, pieces, judge));
        Ok(Some(Box::new(LongIntake {
            shell,
            id,
            pieces: PollSender::new(sender),
            writing,
        })))
    }
}

struct LongIntake {
    shell: Arc<Shell>,
    id: SessionId,
    pieces: PollSender<Bytes>,
    writing: JoinHandle<Result<Decoded, Refusal>>,
}

impl LongIntake {
    /// The outcome of the bundle, once the thread has ended.
    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let written = ready!(Pin::new(&mut self.writing).poll(cx));
        let decoded = written.unwrap_or(Err(Refusal::NoResources));
        Poll::Ready(decoded.and_then(|decoded| self.shell.receive(self.id, decoded)))
    }
}

impl Intake for LongIntake {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        match ready!(self.pieces.poll_reserve(cx)) {
            Ok(()) => Poll::Ready(Ok(())),
            // The thread has ended before the bundle has.
            Err(_) => {
                let verdict = ready!(self.poll_verdict(cx));
                Poll::Ready(verdict.and(Err(Refusal::NotAcceptable)))
            }
        }
    }

    fn take(&mut self, piece: Bytes) {
        // This fails if the thread has ended; the next poll of the verdict reports that.
        let _ = self.pieces.send_item(piece);
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.pieces.close();
        self.poll_verdict(cx)
    }
}

/// Decodes a bundle of `length` bytes and writes its payload. `Ok` contains the bundle, or says why
/// it is malformed.
fn write(
    room: Room,
    mut decoder: LongDecoding,
    length: u64,
    mut pieces: mpsc::Receiver<Bytes>,
    judge: impl Fn(&Bundle, Result<(), Insecure>) -> Result<(), Refusal>,
) -> Result<Decoded, Refusal> {
    let (mut room, mut writer) = (Some(room), None);
    while let Some(piece) = pieces.blocking_recv() {
        let part = match decoder.take(piece) {
            Ok(part) => part,
            Err(malformed) => return Ok(Decoded::long(length, Err(malformed))),
        };
        if let Some((bundle, bytes)) = decoder.opened()
            && let Some(room) = room.take()
        {
            judge(bundle, decoder.secured())?;
            // More bytes than the transfer has are refused as too many.
            writer = Some(room.begin(bytes).map_err(refusal)?);
        }
        if let Some(writer) = &mut writer {
            writer.write(&part).map_err(failure)?;
        }
    }
    // If the session has broken off, this ends here, too.
    let writer = writer.filter(|writer| writer.left() == 0);
    let file = writer.ok_or(Refusal::NotAcceptable)?.finish();
    let file = file.map_err(failure)?;
    let decoded = decoder
        .finish(file)
        .map_err(|error| failure(error.into()))?;
    Ok(Decoded::long(length, decoded))
}

fn refusal(refused: Refused) -> Refusal {
    match refused {
        Refused::TooLong { .. } => Refusal::NotAcceptable,
        Refused::Quota => Refusal::NoResources,
        Refused::Disk(error) => {
            tracing::warn!(%error, "there is no room for a payload on the disk");
            Refusal::NoResources
        }
    }
}

fn failure(error: WriteError) -> Refusal {
    match error {
        WriteError::Length { .. } => Refusal::NotAcceptable,
        WriteError::Disk(error) => {
            tracing::warn!(%error, "a payload cannot be written or decrypted");
            Refusal::NoResources
        }
    }
}
