//! A payload, wherever it is.

use std::io;

use bytes::Bytes;
use underpass_payloads::PayloadFile;

/// The content of a block.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// In memory, in pieces.
    Here(&'a [Bytes]),
    /// A payload on disk.
    OnDisk(&'a PayloadFile),
}

impl Content<'_> {
    /// Its length, bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Content::Here(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
            Content::OnDisk(file) => file.len(),
        }
    }

    /// Passes it to `take` in order, piece by piece. Waits for the disk if it is there.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn each_piece(&self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        match self {
            Content::Here(pieces) => {
                pieces.iter().for_each(|piece| take(piece));
                Ok(())
            }
            Content::OnDisk(file) => file.each_piece(take),
        }
    }
}
