//! A payload that is complete.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::linkat;

use crate::assembly::Job;
use crate::folder::{Refused, Room};
use crate::writer::{SYNC_BYTES, WriteError};

/// Bytes that are read or written at once.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// A payload in a file, passed on instead of its bytes. A file without a name is deleted
/// with its last handle.
#[derive(Debug)]
pub struct PayloadFile {
    file: Arc<File>,
    /// The offset in the file at which it begins.
    start: u64,
    bytes: u64,
    crc32c: u32,
    /// Its name, now or once it is saved; empty for a part.
    name: String,
    named: Mutex<Named>,
    room: Arc<Room>,
}

/// Whether the file has its name, and for which records.
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

    /// A part of it to pass on by itself: `bytes` from `offset` on. A part never has a
    /// name. The file exists until its last part is dropped.
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

    /// The name that it has in its folder, or gets from [`PayloadFile::save`].
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

    /// The CRC-32C of the whole payload, if this run has written it in order; otherwise
    /// 0.
    pub fn crc32c(&self) -> u32 {
        self.crc32c
    }

    /// Reads the bytes from `offset` on until the buffer is full. Waits for the disk.
    ///
    /// # Errors
    /// When the payload ends before that, or the disk fails.
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

    /// Passes all bytes to `take` in order, piece by piece. Waits for the disk.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn each_piece(&self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        self.each_mut_piece(self.bytes, |piece, _| {
            take(piece);
            Ok(())
        })
    }

    /// Writes another payload of the same length and owner: these bytes, changed piece by piece by
    /// `change`. It needs room of its own. Waits for the disk.
    ///
    /// # Errors
    /// When there is no room for it, or the disk fails.
    pub fn changed_copy(&self, mut change: impl FnMut(&mut [u8])) -> io::Result<Arc<PayloadFile>> {
        let no_room = |refused: Refused| match refused {
            Refused::Disk(error) => error,
            other => io::Error::new(io::ErrorKind::QuotaExceeded, other),
        };
        let unwritten = |error: WriteError| match error {
            WriteError::Disk(error) => error,
            other => io::Error::other(other),
        };
        let room = self.room.another(self.bytes).map_err(no_room)?;
        let mut writer = room.begin(self.bytes).map_err(no_room)?;
        self.each_mut_piece(self.bytes, |piece, _| {
            change(piece);
            writer.write(piece).map_err(unwritten)
        })?;
        writer.finish().map_err(unwritten)
    }

    /// Changes the first `bytes` in place, piece by piece by `change`, and gives the room of the
    /// others back. This has to be the only handle of a payload that has not been saved. It is then
    /// on stable storage. Waits for the disk.
    ///
    /// # Errors
    /// When it is shorter, has another handle, a part or a name, or the disk fails. The payload is
    /// gone then, unless it has another handle.
    pub fn changed(
        self: Arc<Self>,
        bytes: u64,
        mut change: impl FnMut(&mut [u8]),
    ) -> io::Result<Arc<PayloadFile>> {
        let in_use = || io::Error::from(io::ErrorKind::ResourceBusy);
        let mut own = Arc::try_unwrap(self).map_err(|_| in_use())?;
        let is_saved_or_part = own.name.is_empty() || own.named().linked;
        // Its parts have the room, too.
        if is_saved_or_part || Arc::get_mut(&mut own.room).is_none() {
            return Err(in_use());
        }
        let (mut crc32c, mut unsynced) = (0, 0);
        own.each_mut_piece(bytes, |piece, at| {
            change(piece);
            own.file.write_all_at(piece, at)?;
            crc32c = crc32c::crc32c_append(crc32c, piece);
            unsynced += piece.len() as u64;
            if unsynced >= SYNC_BYTES {
                own.file.sync_data()?;
                unsynced = 0;
            }
            Ok(())
        })?;
        own.file.set_len(bytes)?;
        own.file.sync_all()?;
        if let Some(room) = Arc::get_mut(&mut own.room) {
            room.trim(bytes);
        }
        (own.bytes, own.crc32c) = (bytes, crc32c);
        Ok(Arc::new(own))
    }

    /// Passes the first `bytes` to `take` in order, piece by piece, each with its offset.
    fn each_mut_piece(
        &self,
        bytes: u64,
        mut take: impl FnMut(&mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut buffer = Vec::new();
        let mut at = 0;
        while at < bytes {
            let left = usize::try_from(bytes - at).unwrap_or(usize::MAX);
            buffer.resize(left.min(PIECE_BYTES), 0);
            self.read_at(&mut buffer, at)?;
            take(&mut buffer, at)?;
            at += buffer.len() as u64;
        }
        Ok(())
    }

    /// Gives the file its name in the folder, durably, for this record; a later run finds
    /// it by that name. A second call for the record changes nothing. Waits for the disk.
    ///
    /// # Errors
    /// When the disk fails, or it is a part.
    pub fn save(self: &Arc<Self>, record: u64) -> io::Result<()> {
        if self.name.is_empty() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut named = self.named();
        let payloads = &self.room.payloads;
        if !named.linked {
            // open(2), O_TMPFILE: how an unnamed file gets a name.
            let itself = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let (path, follow) = (payloads.folder.join(&self.name), AtFlags::AT_SYMLINK_FOLLOW);
            linkat(AT_FDCWD, itself.as_str(), AT_FDCWD, &path, follow)?;
            named.linked = true;
            payloads.note(self);
        }
        named.records.insert(record);
        // Needed too where an earlier call has failed here.
        File::open(&payloads.folder)?.sync_all()
    }

    /// Drops this handle on the folder's thread: if it is the last one, the disk takes a while to
    /// free the file.
    pub fn forget(self: Arc<Self>) {
        let payloads = Arc::clone(&self.room.payloads);
        // If there is no thread, the handle is dropped here.
        payloads.ask(Job::Close(self));
    }

    /// Notes that a record of an earlier run refers to it.
    pub(crate) fn kept_for(&self, record: u64) {
        self.named().records.insert(record);
    }

    /// Notes that this record is gone. Without any record the file loses its name: it is
    /// deleted with its last handle. Waits for the disk.
    ///
    /// # Errors
    /// When the disk fails; the call may be repeated.
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
        // No code that holds the lock can panic half-way.
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
