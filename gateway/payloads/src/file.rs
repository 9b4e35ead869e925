//! A payload that is complete.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::linkat;

use crate::folder::Room;

/// A payload in a file, to be passed on instead of its bytes. Without a name it
/// is gone with its last handle.
#[derive(Debug)]
pub struct PayloadFile {
    file: Arc<File>,
    /// Where it begins in the file.
    start: u64,
    bytes: u64,
    crc32c: u32,
    /// The name that it has, or gets once it is saved; none for a part.
    name: String,
    named: Mutex<Named>,
    room: Arc<Room>,
}

/// Whether a payload has its name, and for whom.
#[derive(Debug, Default)]
struct Named {
    linked: bool,
    records: BTreeSet<u64>,
}

impl PayloadFile {
    pub(crate) fn nameless(file: File, bytes: u64, room: Room, crc32c: u32) -> Arc<PayloadFile> {
        Arc::new(PayloadFile {
            file: Arc::new(file),
            start: 0,
            bytes,
            crc32c,
            name: format!("{:016x}", fastrand::u64(..)),
            named: Mutex::default(),
            room: Arc::new(room),
        })
    }

    pub(crate) fn saved(file: File, bytes: u64, room: Room, name: &str) -> Arc<PayloadFile> {
        Arc::new(PayloadFile {
            file: Arc::new(file),
            start: 0,
            bytes,
            crc32c: 0,
            name: name.to_owned(),
            named: Mutex::new(Named {
                linked: true,
                records: BTreeSet::new(),
            }),
            room: Arc::new(room),
        })
    }

    /// A part of it, to be passed on by itself: so many bytes from `offset` on. It has
    /// no name and gets none. The file is there until its last part is gone.
    pub fn part(&self, offset: u64, bytes: u64) -> Arc<PayloadFile> {
        debug_assert!(offset + bytes <= self.bytes, "the part is not in it");
        Arc::new(PayloadFile {
            file: Arc::clone(&self.file),
            start: self.start + offset,
            bytes,
            crc32c: 0,
            name: String::new(),
            named: Mutex::default(),
            room: Arc::clone(&self.room),
        })
    }

    /// The name that it has in its folder, or gets by [`PayloadFile::save`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its length, bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it has no byte at all.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The CRC-32C of all of it, of one that this run has written as a whole.
    pub fn crc32c(&self) -> u32 {
        self.crc32c
    }

    /// Reads the bytes behind `offset` until the buffer is full. Waits for the
    /// disk.
    ///
    /// # Errors
    /// When the payload ends before, or the disk fails.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read_exact_at(buffer, self.start + offset)
    }

    /// Gives it its name in its folder, durably, for the record of this number:
    /// by the name a later run takes it up. The same again changes nothing.
    /// Waits for the disk.
    ///
    /// # Errors
    /// When the disk fails, or for a part.
    pub fn save(self: &Arc<Self>, record: u64) -> io::Result<()> {
        if self.name.is_empty() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut named = self.named();
        let payloads = &self.room.payloads;
        if !named.linked {
            // open(2), O_TMPFILE: this is how a file without a name gets one.
            let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let (path, follow) = (payloads.folder.join(&self.name), AtFlags::AT_SYMLINK_FOLLOW);
            linkat(AT_FDCWD, itself.as_str(), AT_FDCWD, &path, follow)?;
            named.linked = true;
            payloads.note(self);
        }
        named.records.insert(record);
        // Also where an earlier call has failed here.
        File::open(&payloads.folder)?.sync_all()
    }

    /// A record that an earlier run has left refers to it.
    pub(crate) fn kept_for(&self, record: u64) {
        self.named().records.insert(record);
    }

    /// The record of this number is gone. With the last one it loses its name:
    /// it is gone with its last handle, and cannot be saved again. Waits for the
    /// disk.
    ///
    /// # Errors
    /// When the disk fails; the same may be tried again.
    pub fn delete(&self, record: u64) -> io::Result<()> {
        let mut named = self.named();
        named.records.remove(&record);
        if !named.linked || !named.records.is_empty() {
            return Ok(());
        }
        match std::fs::remove_file(self.room.payloads.folder.join(&self.name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => named.linked = false,
        }
        Ok(())
    }

    fn named(&self) -> MutexGuard<'_, Named> {
        // Nothing that runs with the lock can panic half-way.
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
