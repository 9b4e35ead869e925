//! A payload that is complete.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::linkat;

use crate::folder::Room;

/// A payload in a file, to be passed on instead of its bytes. Without a name it
/// is gone with its last handle.
#[derive(Debug)]
pub struct PayloadFile {
    file: File,
    bytes: u64,
    crc32c: u32,
    name: Mutex<Option<String>>,
    room: Room,
}

impl PayloadFile {
    pub(crate) fn nameless(file: File, bytes: u64, room: Room, crc32c: u32) -> Arc<PayloadFile> {
        Arc::new(PayloadFile {
            file,
            bytes,
            crc32c,
            name: Mutex::default(),
            room,
        })
    }

    pub(crate) fn saved(file: File, bytes: u64, room: Room, name: &str) -> Arc<PayloadFile> {
        Arc::new(PayloadFile {
            file,
            bytes,
            crc32c: 0,
            name: Mutex::new(Some(name.to_owned())),
            room,
        })
    }

    /// Its length, bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it has no byte at all.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The CRC-32C of all of it, of one that this run has written.
    pub fn crc32c(&self) -> u32 {
        self.crc32c
    }

    /// Reads the bytes behind `offset` until the buffer is full. Waits for the
    /// disk.
    ///
    /// # Errors
    /// When the payload ends before, or the disk fails.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// Gives it a name in its folder, durably, by which a later run takes it up;
    /// the same each time. Waits for the disk.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn save(&self) -> io::Result<String> {
        let mut name = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = &self.room.payloads.folder;
        let given = match &*name {
            Some(given) => given.clone(),
            None => {
                let fresh = format!("{:016x}", fastrand::u64(..));
                // open(2), O_TMPFILE: this is how a file without a name gets one.
                let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                let (path, follow) = (folder.join(&fresh), AtFlags::AT_SYMLINK_FOLLOW);
                linkat(AT_FDCWD, itself.as_str(), AT_FDCWD, &path, follow)?;
                name.insert(fresh).clone()
            }
        };
        // Also where an earlier call has failed here.
        File::open(folder)?.sync_all()?;
        Ok(given)
    }

    /// Takes its name away again: it is gone with its last handle.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn delete(&self) -> io::Result<()> {
        let mut name = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        match name.take() {
            Some(name) => std::fs::remove_file(self.room.payloads.folder.join(name)),
            None => Ok(()),
        }
    }
}
