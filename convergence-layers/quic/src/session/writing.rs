//! One bundle on its way into its stream.
//!
//! If the peer does not read the stream for a while, or the disk with the payload is slow, the
//! bundle is put aside: those behind it continue, and it continues beside them when it can.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn::{SendStream, WriteError};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use underpass_cla::{Down, Transfer};
use underpass_payloads::PayloadFile;

use super::Link;
use crate::code;
use crate::wire::LENGTH_BYTES;

/// What is read of a payload on disk at once.
const READ_BYTES: u64 = 256 << 10;
/// How long a bundle waits for peer or disk before others continue, and how often it checks whether
/// it still waits for these.
const PATIENCE: Duration = Duration::from_millis(100);

/// The stream of a bundle. If it were just dropped, QUIC would end it in order, as if the bundle
/// were complete; so an incomplete one is reset.
struct BundleStream {
    stream: SendStream,
    is_whole: bool,
}

impl BundleStream {
    fn new(stream: SendStream) -> Self {
        let is_whole = false;
        Self { stream, is_whole }
    }

    /// Ends the stream in order: all of the bundle is written.
    fn finish(mut self) {
        self.is_whole = true;
        // Errors of the connection are handled elsewhere.
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

/// Whether the session's other bundles wait for this one.
struct Turn {
    /// Tells them to continue; `None` once that was done.
    aside: Option<oneshot::Sender<()>>,
    /// Its place among the few bundles that may be put aside.
    _place: Option<OwnedSemaphorePermit>,
}

impl Turn {
    fn is_first(&self) -> bool {
        self.aside.is_some()
    }

    /// Waits for the peer or the disk; `left` bytes of the bundle are not with
    /// QUIC yet.
    async fn during<T>(&mut self, link: &Link, left: u64, waiting: impl Future<Output = T>) -> T {
        let mut waiting = pin!(waiting);
        while self.is_first() {
            tokio::select! {
                biased;
                done = &mut waiting => return done,
                () = sleep(PATIENCE) => self.step_aside(link, left),
            }
        }
        waiting.await
    }

    /// Lets others continue, unless this bundle waits for the path, or too many wait aside.
    fn step_aside(&mut self, link: &Link, left: u64) {
        if !link.flow.is_nearly_empty(Instant::now()) {
            return;
        }
        let Ok(place) = link.aside.clone().try_acquire_owned() else {
            return;
        };
        self._place = Some(place);
        // No bundle queues behind these bytes any more.
        link.outgoing().wrote(left);
        if let Some(aside) = self.aside.take() {
            // There is no receiver only if the session is over.
            let _ = aside.send(());
        }
        link.tell_ready();
    }
}

/// A bundle that is being written.
pub(super) struct Writing {
    link: Arc<Link>,
    stream: BundleStream,
    /// Bytes that are not with QUIC yet.
    left: u64,
    turn: Turn,
}

impl Writing {
    /// Begins a bundle of so many bytes. `aside` is told when others need not
    /// wait for its end.
    pub(super) fn new(
        link: Arc<Link>,
        stream: SendStream,
        bytes: u64,
        aside: oneshot::Sender<()>,
    ) -> Writing {
        let turn = Turn {
            aside: Some(aside),
            _place: None,
        };
        Writing {
            link,
            stream: BundleStream::new(stream),
            left: bytes,
            turn,
        }
    }

    /// Writes all of the bundle. An error ends the session.
    pub(super) async fn send(mut self, transfer: Transfer) -> Result<(), Down> {
        let mut head = BytesMut::with_capacity(LENGTH_BYTES);
        head.extend_from_slice(&self.left.to_be_bytes());
        let mut written = self.put(head.freeze()).await;
        let mut file = transfer.file;
        for chunk in transfer.chunks {
            // Missing symbols of earlier bundles must not wait for all of a long one; if a bundle
            // is aside, others take care of that.
            if self.turn.is_first() {
                self.link.send_symbols().await?;
            }
            if written.is_ok() {
                written = self.write(chunk).await;
            }
            // A payload on disk is behind the first piece.
            let Some(file) = file.take() else {
                continue;
            };
            let mut offset = 0;
            while written.is_ok() && offset < file.len() {
                if self.turn.is_first() {
                    self.link.send_symbols().await?;
                }
                let reading = read(file.clone(), offset);
                let part = self.turn.during(&self.link, self.left, reading).await;
                let part = part
                    .map_err(|error| Down::Broken(format!("a payload cannot be read: {error}")))?;
                offset += part.len() as u64;
                written = self.write(part).await;
            }
        }
        match written {
            Ok(()) => self.stream.finish(),
            // The control stream says why the peer wants no more.
            Err(WriteError::Stopped(_)) => {
                let left = self.left;
                self.wrote(left);
            }
            Err(WriteError::ConnectionLost(error)) => return Err(self.link.down(&error)),
            Err(other) => return Err(Down::Broken(other.to_string())),
        }
        Ok(())
    }

    /// Writes a piece of the bundle, as the rate allows.
    async fn write(&mut self, mut chunk: Bytes) -> Result<(), WriteError> {
        while !chunk.is_empty() {
            let piece = self.link.await_turn(&mut chunk).await;
            let bytes = piece.len() as u64;
            let written = self.put(piece).await;
            self.wrote(bytes);
            self.link.tell_ready();
            written?;
        }
        Ok(())
    }

    async fn put(&mut self, piece: Bytes) -> Result<(), WriteError> {
        let writing = self.stream.stream.write_chunk(piece);
        self.turn.during(&self.link, self.left, writing).await
    }

    /// QUIC has taken this many further bytes, or the peer does not want them.
    fn wrote(&mut self, bytes: u64) {
        self.left -= bytes;
        if self.turn.is_first() {
            self.link.outgoing().wrote(bytes);
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
