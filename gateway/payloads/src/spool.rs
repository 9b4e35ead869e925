//! Bytes that come in any order and whose total number is not known yet.
//!
//! A spool takes only as much of the disk and of the quota as has come. Once all bytes
//! have come, they are read in place to find out what they are.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::folder::{Payloads, Refused, Room, check_disk};

/// Bytes at their offsets in a file. Dropping it deletes them.
#[derive(Debug)]
pub struct Spool {
    file: File,
    room: Mutex<Room>,
}

impl Payloads {
    /// Begins a spool of bytes that `owner` sends, as in [`Payloads::reserve`]. All of an
    /// owner's spools together have at most a third of the quota. Waits for the disk.
    ///
    /// # Errors
    /// When the owner has too many payloads, or the disk fails.
    pub fn spool(self: &Arc<Self>, owner: u64) -> Result<Spool, Refused> {
        let room = self.reserve(owner, 0)?;
        Ok(Spool {
            file: self.nameless()?,
            room: Mutex::new(room),
        })
    }
}

impl Spool {
    /// Writes a piece at its offset; each piece takes room, even one that overlaps
    /// another. Waits for the disk.
    ///
    /// # Errors
    /// When the owner has no room for it, or the disk has none or fails.
    pub fn write_at(&self, piece: &[u8], offset: u64) -> Result<(), Refused> {
        let bytes = piece.len() as u64;
        let leave_free = {
            // No code that holds the lock can panic half-way.
            let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
            if !room.grow_spool(bytes) {
                return Err(Refused::Quota);
            }
            room.payloads.limits.leave_free_bytes
        };
        check_disk(&self.file, bytes, leave_free)?;
        self.file.write_all_at(piece, offset)?;
        Ok(())
    }

    /// Reads the bytes from `offset` on until the buffer is full; gaps read as zero.
    /// Waits for the disk.
    ///
    /// # Errors
    /// When nothing was written as far as the end of that range, or the disk fails.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Limits;

    fn payloads(quota_bytes: u64) -> (tempfile::TempDir, Arc<Payloads>) {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            quota_bytes,
            payload_bytes: quota_bytes,
            leave_free_bytes: 0,
        };
        let payloads = Payloads::open(&folder.path().join("payloads"), limits).unwrap();
        (folder, payloads)
    }

    #[test]
    fn pieces_are_where_they_were_written_and_take_room_for_their_bytes_alone() {
        let (folder, payloads) = payloads(1_000);
        let spool = payloads.spool(1).unwrap();
        assert_eq!(payloads.used(), (1, 0));
        spool.write_at(b"the end", 1 << 30).unwrap();
        spool.write_at(b"begin", 0).unwrap();
        let mut buffer = [1; 7];
        spool.read_at(&mut buffer, 1 << 30).unwrap();
        assert_eq!(&buffer, b"the end");
        spool.read_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"begin\0\0");
        assert!(spool.read_at(&mut buffer, (1 << 30) + 1).is_err());
        assert_eq!(payloads.used(), (1, 12));
        drop(spool);
        assert_eq!(payloads.used(), (0, 0));
        let names = std::fs::read_dir(folder.path().join("payloads")).unwrap();
        assert_eq!(names.count(), 0);
    }

    #[test]
    fn who_spools_leaves_room_for_what_becomes_of_it_and_as_much_to_others() {
        let (_folder, payloads) = payloads(1_000);
        let greedy = [payloads.spool(1).unwrap(), payloads.spool(1).unwrap()];
        greedy[0].write_at(&[7; 300], 0).unwrap();
        greedy[1].write_at(&[7; 33], 0).unwrap();
        for spool in &greedy {
            let refused = spool.write_at(&[7; 1], 500);
            assert!(matches!(refused, Err(Refused::Quota)));
        }
        drop(payloads.reserve(1, 333).unwrap());
        let other = payloads.spool(2).unwrap();
        other.write_at(&[7; 333], 0).unwrap();
        assert!(other.write_at(&[7; 1], 333).is_err());
        // It leaves the others as much as it has.
        let third = payloads.spool(3).unwrap();
        third.write_at(&[7; 167], 0).unwrap();
        assert!(third.write_at(&[7; 1], 167).is_err());
        drop(greedy);
        third.write_at(&[7; 166], 167).unwrap();
        assert_eq!(payloads.used(), (2, 666));
    }
}
