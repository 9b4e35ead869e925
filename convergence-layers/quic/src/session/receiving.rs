//! Bundles from the peer, each read by its own task.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn::{ReadError, ReadExactError, RecvStream};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::sleep;
use underpass_cla::{Down, Intake, Refusal};

use super::Link;
use crate::incoming::Place;
use crate::wire::{LENGTH_BYTES, Message};
use crate::{STREAMS, code};

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes after which the peer gets a progress report of a bundle.
const PROGRESS_BYTES: u64 = 64 << 10;

/// The peer's stream is no bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum Violation {
    #[error("a bundle is shorter than was announced")]
    Short,
    #[error("a bundle is longer than was announced")]
    Long,
}

/// Counts a bundle, until this is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Counted<'_> {
    fn new(bundles: &AtomicUsize) -> Counted<'_> {
        bundles.fetch_add(1, Relaxed);
        Counted(bundles)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Link {
    /// Takes bundles until one is none.
    pub(super) async fn receive_bundles(
        self: &Arc<Self>,
        readers: &mut JoinSet<Result<(), Violation>>,
    ) -> Down {
        let most = STREAMS as usize;
        loop {
            tokio::select! {
                Some(ended) = readers.join_next() => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(violation)) => return Down::Protocol(violation.to_string()),
                    Err(broken) => return Down::Broken(broken.to_string()),
                },
                stream = self.connection.accept_uni(), if readers.len() < most => match stream {
                    Ok(stream) => {
                        let link = self.clone();
                        readers.spawn(async move { link.receive(stream).await });
                    }
                    Err(error) => return self.down(&error),
                },
            }
        }
    }

    /// Reads one bundle. If the connection breaks, its end is reported elsewhere; a stream that its
    /// sender gives up is forgotten.
    async fn receive(&self, mut stream: RecvStream) -> Result<(), Violation> {
        let number = stream.id().index();
        let mut head = [0; LENGTH_BYTES];
        match stream.read_exact(&mut head).await {
            Ok(()) => {}
            Err(ReadExactError::FinishedEarly(_)) => return Err(Violation::Short),
            Err(ReadExactError::ReadError(_)) => return Ok(()),
        }
        let length = u64::from_be_bytes(head);
        let _begun = Counted::new(&self.begun_bundles);
        match self.long_intake(length) {
            Ok(Some(intake)) => return self.take_long(&mut stream, length, intake).await,
            Ok(None) => {}
            Err(refusal) => {
                let _ = stream.stop(code::CLOSED);
                self.tell(number, Err(refusal)).await;
                return Ok(());
            }
        }
        let place = match self.admit(&mut stream, length).await {
            Ok(Some(place)) => place,
            Ok(None) => return Ok(()),
            Err(refusal) => {
                // It is about to be told why.
                let _ = stream.stop(code::CLOSED);
                self.tell(number, Err(refusal)).await;
                return Ok(());
            }
        };
        let Some(bundle) = self.read(&mut stream, number, length).await? else {
            return Ok(());
        };
        let verdict = self.node.received(self.id(), bundle.freeze());
        drop(place);
        self.tell(number, verdict).await;
        Ok(())
    }

    /// The intake for a bundle of `length` bytes, if it is too long for memory.
    fn long_intake(&self, length: u64) -> Result<Option<Box<dyn Intake>>, Refusal> {
        if length > self.transfer_mru_bytes {
            return Err(Refusal::NotAcceptable);
        }
        self.node.intake(self.id(), length)
    }

    /// Passes the pieces of a bundle on as they come. It reads no more than there is room for.
    async fn take_long(
        &self,
        stream: &mut RecvStream,
        length: u64,
        mut intake: Box<dyn Intake>,
    ) -> Result<(), Violation> {
        let number = stream.id().index();
        let (mut bytes, mut told) = (0, 0);
        let verdict = loop {
            let chunk = match self.next_piece(stream).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) if bytes == length => break poll_fn(|cx| intake.poll_end(cx)).await,
                Ok(None) => return Err(Violation::Short),
                Err(_) => return Ok(()),
            };
            bytes += chunk.len() as u64;
            if bytes > length {
                return Err(Violation::Long);
            }
            // If room was reserved for a piece, the piece must follow; only then may this end.
            if let Err(refusal) = poll_fn(|cx| intake.poll_ready(cx)).await {
                let _ = stream.stop(code::CLOSED);
                break Err(refusal);
            }
            intake.take(chunk);
            if bytes - told >= PROGRESS_BYTES && bytes < length {
                told = bytes;
                let stream = number;
                self.send(Message::Progress { stream, bytes }).await;
            }
        };
        self.tell(number, verdict).await;
        Ok(())
    }

    /// Room for a bundle; `None` if its sender gives it up before there is some.
    async fn admit(&self, stream: &mut RecvStream, length: u64) -> Result<Option<Place>, Refusal> {
        if length > self.whole_mru_bytes {
            return Err(Refusal::NotAcceptable);
        }
        let place = match self.room.take(length) {
            Some(place) => Some(place),
            None => self.await_room(stream, length).await?,
        };
        if place.is_some() {
            self.node.admit(self.id(), Some(length))?;
        }
        Ok(place)
    }

    /// Waits until there is room for a bundle. Nothing of it is read meanwhile, so its sender
    /// stops. Its unread bytes take up to half of the session's window, so only one bundle waits:
    /// those that have room, and free it once they are complete, need the rest.
    async fn await_room(
        &self,
        stream: &mut RecvStream,
        length: u64,
    ) -> Result<Option<Place>, Refusal> {
        let Ok(_turn) = self.waits_for_room.try_acquire() else {
            return Err(Refusal::NoResources);
        };
        tokio::select! {
            place = self.room.wait(length) => place.map(Some).ok_or(Refusal::NoResources),
            _ = stream.received_reset() => Ok(None),
            () = sleep(self.room_timeout) => Err(Refusal::NoResources),
        }
    }

    /// The whole bundle; `None` if its sender has given it up.
    async fn read(
        &self,
        stream: &mut RecvStream,
        number: u64,
        length: u64,
    ) -> Result<Option<BytesMut>, Violation> {
        let mut bundle = BytesMut::new();
        let mut told = 0;
        loop {
            let chunk = match self.next_piece(stream).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) if bundle.len() as u64 == length => return Ok(Some(bundle)),
                Ok(None) => return Err(Violation::Short),
                Err(ReadError::Reset(_)) | Err(_) => return Ok(None),
            };
            if (bundle.len() + chunk.len()) as u64 > length {
                return Err(Violation::Long);
            }
            bundle.extend_from_slice(&chunk);
            let bytes = bundle.len() as u64;
            if bytes - told >= PROGRESS_BYTES && bytes < length {
                told = bytes;
                let stream = number;
                self.send(Message::Progress { stream, bytes }).await;
            }
        }
    }

    /// The next piece of a bundle; `None` at its end. While it is awaited, the peer owes it: this
    /// end waits for neither room nor disk.
    async fn next_piece(&self, stream: &mut RecvStream) -> Result<Option<Bytes>, ReadError> {
        let _owed = Counted::new(&self.owed_bundles);
        let chunk = stream.read_chunk(READ_BYTES, true).await?;
        let piece = chunk.map(|chunk| chunk.bytes);
        if let Some(piece) = &piece {
            self.flow.received(Instant::now(), piece.len() as u64);
        }
        Ok(piece)
    }

    async fn tell(&self, stream: u64, verdict: Result<(), Refusal>) {
        let message = match verdict {
            Ok(()) => Message::Taken { stream },
            Err(refusal) => Message::Refused { stream, refusal },
        };
        self.send(message).await;
    }

    pub(super) async fn send(&self, message: Message) {
        // The task that sends it ends only with the session.
        let _ = self.messages.send(message).await;
    }
}
