//! A payload that is being written.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use thiserror::Error;

use crate::file::PayloadFile;
use crate::folder::Room;

/// Unsynced bytes that may wait in the page cache; bounded so that the last ones do not
/// have to wait for all of them.
pub(crate) const SYNC_BYTES: u64 = 64 << 20;

/// Why a payload does not become complete.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Its length differs from the announced one.
    #[error("a payload of {announced} bytes was announced and {come} have come")]
    Length {
        /// The bytes announced.
        announced: u64,
        /// The bytes that came.
        come: u64,
    },
    /// The disk is full or fails.
    #[error("the disk does not take the payload: {0}")]
    Disk(#[from] io::Error),
}

/// A payload that comes in order, piece by piece. Dropping it deletes its bytes.
#[derive(Debug)]
pub struct Writer {
    file: File,
    bytes: u64,
    written: u64,
    synced: u64,
    crc32c: u32,
    room: Room,
}

impl Writer {
    pub(crate) fn new(file: File, bytes: u64, room: Room) -> Writer {
        Writer {
            file,
            bytes,
            written: 0,
            synced: 0,
            crc32c: 0,
            room,
        }
    }

    /// Bytes that are still to come.
    pub fn left(&self) -> u64 {
        self.bytes - self.written
    }

    /// Appends a piece. Waits for the disk.
    ///
    /// # Errors
    /// When more bytes come than were announced, or the disk does not take them.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), WriteError> {
        let more = piece.len() as u64;
        if more > self.left() {
            return Err(WriteError::Length {
                announced: self.bytes,
                come: self.written.saturating_add(more),
            });
        }
        self.file.write_all(piece)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, piece);
        self.written += more;
        if self.written - self.synced >= SYNC_BYTES {
            self.file.sync_data()?;
            self.synced = self.written;
        }
        Ok(())
    }

    /// Completes the payload: it is then on stable storage. Waits for the disk.
    ///
    /// # Errors
    /// When fewer bytes have come than were announced, or the disk fails.
    pub fn finish(self) -> Result<Arc<PayloadFile>, WriteError> {
        if self.left() > 0 {
            return Err(WriteError::Length {
                announced: self.bytes,
                come: self.written,
            });
        }
        self.file.sync_all()?;
        let file = PayloadFile::nameless(self.file, self.bytes, self.room.complete(), self.crc32c);
        Ok(file)
    }
}
