//! The interface that the log needs of a disk.

use std::io;

use bytes::Bytes;

/// Numbered segments of bytes. A call returns when it is done; only
/// [`crate::Worker`] waits for it.
pub trait Disk {
    /// All segments with their lengths, bytes.
    ///
    /// # Errors
    /// When the disk cannot be read.
    fn segments(&mut self) -> io::Result<Vec<(u64, u64)>>;

    /// Makes an empty segment.
    ///
    /// # Errors
    /// When there is no room, or one of that number.
    fn create(&mut self, segment: u64) -> io::Result<()>;

    /// Extends an empty segment with zeros, so that the disk has this room set
    /// aside until the segment is deleted.
    ///
    /// # Errors
    /// When there is no room or the disk fails; any part may be there then.
    fn reserve(&mut self, segment: u64, bytes: u64) -> io::Result<()>;

    /// Writes pieces one behind the other.
    ///
    /// # Errors
    /// When there is no room or the disk fails; any part may be written then.
    fn write(&mut self, segment: u64, at: u64, pieces: &[Bytes]) -> io::Result<()>;

    /// Returns when all that was written to the segment is on stable storage.
    ///
    /// # Errors
    /// When the disk fails. Then it is unknown what was written since the last success, and another
    /// call may succeed without writing it.
    fn sync(&mut self, segment: u64) -> io::Result<()>;

    /// Returns when all segments that were made are there after a loss of
    /// power, and all that were deleted are not.
    ///
    /// # Errors
    /// When the disk fails. Then it is unknown what was made or deleted since the last success, and
    /// another call may succeed without effect unless a segment is made or deleted before it.
    fn sync_names(&mut self) -> io::Result<()>;

    /// Cuts a segment.
    ///
    /// # Errors
    /// When the disk fails.
    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()>;

    /// Reads `length` bytes, or fewer where the segment ends.
    ///
    /// # Errors
    /// When there is no such segment or the disk fails, be it at one sector.
    fn read(&mut self, segment: u64, at: u64, length: usize) -> io::Result<Bytes>;

    /// Deletes a segment; one that is not there is no error.
    ///
    /// # Errors
    /// When the disk fails.
    fn delete(&mut self, segment: u64) -> io::Result<()>;
}
