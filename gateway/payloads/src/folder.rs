//! The folder of payloads, and how much of it each neighbour uses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate, open};
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;
use thiserror::Error;

use crate::assembly::{Assembly, Job};
use crate::file::PayloadFile;
use crate::writer::Writer;

/// Upper limit of payloads: each is an open file.
const MOST_PAYLOADS: usize = 256;
/// Upper limit of incomplete payloads: each has a thread and some pieces in memory.
const MOST_INCOMPLETE: usize = 64;
/// Upper limit of incomplete payloads whose parts come in any order. They may stay
/// incomplete for long, and transfers need the other places.
const MOST_ASSEMBLIES: usize = 16;
/// The spools of one sender have at most this part (1/n) of the quota: once the content
/// of a spool is known it takes as much room again, and others need as much.
const SPOOLED_PART: u64 = 3;

/// The limits of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All payloads together, bytes.
    pub quota_bytes: u64,
    /// One payload, bytes.
    pub payload_bytes: u64,
    /// Bytes of the disk that always stay free.
    pub leave_free_bytes: u64,
}

/// Why a payload is refused.
#[derive(Debug, Error)]
pub enum Refused {
    /// It is longer than a payload may be.
    #[error("{bytes} bytes are above {most}, the longest payload (payloads.max_payload_bytes)")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// The quota, the owner's share of it, or the number of payloads is used up.
    #[error("no room: the quota of payloads on disk is used up at present (payloads.quota_bytes)")]
    Quota,
    /// The disk has no room, or fails.
    #[error("the disk does not take the payload: {0}")]
    Disk(#[from] io::Error),
}

/// A folder of payloads.
#[derive(Debug)]
pub struct Payloads {
    pub(crate) folder: PathBuf,
    pub(crate) limits: Limits,
    taken: Mutex<Taken>,
    /// Payloads of this run that have a name.
    named: Mutex<HashMap<String, Weak<PayloadFile>>>,
    /// Jobs for the thread that assembles payloads; unset until there is such a thread.
    pub(crate) jobs: OnceLock<mpsc::Sender<Job>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: Held,
    of: HashMap<u64, Held>,
}

/// What an owner, or all owners together, use.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    payloads: usize,
    /// Of these, the incomplete ones.
    incomplete: usize,
    /// Of the incomplete ones, those whose parts come in any order.
    assemblies: usize,
    bytes: u64,
    /// Of the bytes, those in spools.
    spooled: u64,
}

impl Held {
    fn add(&mut self, bytes: u64, complete: bool) {
        self.payloads += 1;
        self.incomplete += usize::from(!complete);
        self.bytes += bytes;
    }

    fn subtract(&mut self, bytes: u64, complete: bool) {
        self.payloads -= 1;
        self.incomplete -= usize::from(!complete);
        self.bytes -= bytes;
    }
}

impl Payloads {
    /// Opens or creates a folder.
    ///
    /// # Errors
    /// When that fails, or the file system does not support unnamed files.
    pub fn open(folder: &Path, limits: Limits) -> io::Result<Arc<Payloads>> {
        std::fs::create_dir_all(folder)?;
        let payloads = Payloads {
            folder: folder.to_owned(),
            limits,
            taken: Mutex::default(),
            named: Mutex::default(),
            jobs: OnceLock::new(),
        };
        payloads.nameless()?;
        Ok(Arc::new(payloads))
    }

    /// The longest payload, bytes.
    pub fn max_payload_bytes(&self) -> u64 {
        self.limits.payload_bytes
    }

    /// The most bytes of all payloads together.
    pub fn quota_bytes(&self) -> u64 {
        self.limits.quota_bytes
    }

    /// The number of payloads in the folder, and their bytes.
    pub fn used(&self) -> (usize, u64) {
        let taken = self.lock();
        (taken.all.payloads, taken.all.bytes)
    }

    /// Reserves room for a payload of up to `bytes`; does not wait for the disk. `owner`
    /// answers for it: the number of the node that sends it here.
    ///
    /// # Errors
    /// When it is too long, or the owner has no room for it.
    pub fn reserve(self: &Arc<Self>, owner: u64, bytes: u64) -> Result<Room, Refused> {
        let most = self.limits.payload_bytes;
        if bytes > most {
            return Err(Refused::TooLong { bytes, most });
        }
        self.take_room(owner, bytes, false).ok_or(Refused::Quota)
    }

    /// Begins a payload of `bytes` whose parts come in any order. Only the bytes that
    /// have come count against the quota. Does not wait for the disk. `owner` is as in
    /// [`Payloads::reserve`].
    ///
    /// # Errors
    /// When it is too long, or the owner has too many of these already.
    pub fn assemble(self: &Arc<Self>, owner: u64, bytes: u64) -> Result<Assembly, Refused> {
        self.assemble_if(owner, bytes, Room::begin_assembly)
    }

    /// As [`Payloads::assemble`], but takes the place of `given_up`, a payload of the
    /// same owner, however many others have begun.
    ///
    /// # Errors
    /// As [`Payloads::assemble`].
    pub fn assemble_instead(
        self: &Arc<Self>,
        owner: u64,
        bytes: u64,
        given_up: Assembly,
    ) -> Result<Assembly, Refused> {
        let has_place = |room: &mut Room| given_up.give_place(room) || room.begin_assembly();
        let assembly = self.assemble_if(owner, bytes, has_place);
        drop(given_up);
        assembly
    }

    fn assemble_if(
        self: &Arc<Self>,
        owner: u64,
        bytes: u64,
        has_place: impl FnOnce(&mut Room) -> bool,
    ) -> Result<Assembly, Refused> {
        let most = self.limits.payload_bytes;
        if bytes > most {
            return Err(Refused::TooLong { bytes, most });
        }
        let mut room = self.reserve(owner, 0)?;
        match has_place(&mut room) {
            true => Ok(Assembly::new(room, bytes)),
            false => Err(Refused::Quota),
        }
    }

    /// How many more payloads whose parts come in any order an owner may begin.
    pub fn places_left(&self, owner: u64) -> usize {
        self.lock().places_left(owner)
    }

    /// Opens a payload that an earlier run has saved for this record, even if the quota
    /// is used up. Two records may share one payload.
    ///
    /// # Errors
    /// When it does not exist or has another length.
    pub fn take_up(
        self: &Arc<Self>,
        name: &str,
        owner: u64,
        bytes: u64,
        record: u64,
    ) -> io::Result<Arc<PayloadFile>> {
        let known = self.named().get(name).and_then(Weak::upgrade);
        let file = match known {
            Some(file) => file,
            None => self.open_saved(name, owner)?,
        };
        if file.len() != bytes {
            let lies = format!("{name} has {} bytes and not {bytes}", file.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, lies));
        }
        file.kept_for(record);
        self.note(&file);
        Ok(file)
    }

    fn open_saved(self: &Arc<Self>, name: &str, owner: u64) -> io::Result<Arc<PayloadFile>> {
        // Names come from records: a path in a name would lead out of the folder.
        if !is_name(name) {
            let lies = format!("{name:?} is no name of a payload");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, lies));
        }
        let file = File::open(self.folder.join(name))?;
        let bytes = file.metadata()?.len();
        let room = self.take_room(owner, bytes, true);
        let room = room.ok_or(io::ErrorKind::QuotaExceeded)?;
        Ok(PayloadFile::saved(file, bytes, room, name))
    }

    pub(crate) fn note(&self, file: &Arc<PayloadFile>) {
        let mut named = self.named();
        named.retain(|_, file| file.strong_count() > 0);
        named.insert(file.name().to_owned(), Arc::downgrade(file));
    }

    fn named(&self) -> MutexGuard<'_, HashMap<String, Weak<PayloadFile>>> {
        // No code that holds the lock can panic half-way.
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes all saved files of the folder except those with these names and those
    /// named in this run. Call it once all records have taken up their payloads.
    ///
    /// # Errors
    /// When the folder cannot be read or a file cannot be deleted.
    pub fn keep_only(&self, names: &BTreeSet<String>) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let named = self.named();
            let of_this_run = |name: &str| named.get(name).is_some_and(|f| f.strong_count() > 0);
            let known = entry
                .file_name()
                .to_str()
                .is_some_and(|name| names.contains(name) || of_this_run(name));
            // Folders are not ours.
            if !known && !entry.file_type()?.is_dir() {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    pub(crate) fn nameless(&self) -> io::Result<File> {
        let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let opened = open(&self.folder, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        opened.map(File::from).map_err(|errno| {
            let folder = self.folder.display();
            let why = match errno {
                Errno::EOPNOTSUPP | Errno::EISDIR => {
                    "its file system has no unnamed files (O_TMPFILE)"
                }
                other => other.desc(),
            };
            io::Error::new(io::Error::from(errno).kind(), format!("{folder}: {why}"))
        })
    }

    /// Reserves room for a payload; a complete one always gets it.
    fn take_room(self: &Arc<Self>, owner: u64, bytes: u64, complete: bool) -> Option<Room> {
        let mut taken = self.lock();
        let own = taken.of.get(&owner).copied().unwrap_or_default();
        let free = Held {
            payloads: MOST_PAYLOADS.saturating_sub(taken.all.payloads),
            incomplete: MOST_INCOMPLETE.saturating_sub(taken.all.incomplete),
            assemblies: 0,
            bytes: self.limits.quota_bytes.saturating_sub(taken.all.bytes),
            spooled: 0,
        };
        let fits = own.bytes.saturating_add(bytes) <= free.bytes
            && own.payloads < free.payloads
            && own.incomplete < free.incomplete;
        if !fits && !complete {
            return None;
        }
        taken.all.bytes.checked_add(bytes)?;
        taken.all.add(bytes, complete);
        taken.of.entry(owner).or_default().add(bytes, complete);
        Some(Room {
            payloads: self.clone(),
            owner,
            bytes,
            others: BTreeMap::new(),
            spooled: 0,
            complete,
            assembly: false,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // No code that holds the lock can panic half-way.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `name` has the form of a payload's name: 64 bits as hexadecimal digits.
fn is_name(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Checks that a file may take `bytes` more of the disk: at most half of what is free
/// beyond the part that is left to custody, so that other users of the disk can go on.
pub(crate) fn check_disk(file: &File, bytes: u64, leave_free: u64) -> io::Result<()> {
    let disk = fstatvfs(file)?;
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    let free = free.saturating_sub(leave_free);
    if bytes > free / 2 {
        let short = format!(
            "{bytes} bytes are more than half of the {free} that are free beside the \
             {leave_free} left to custody"
        );
        return Err(io::Error::new(io::ErrorKind::StorageFull, short));
    }
    Ok(())
}

/// Reserves room on the disk for a whole file.
fn reserve(file: &File, bytes: u64, leave_free: u64) -> io::Result<()> {
    check_disk(file, bytes, leave_free)?;
    let length = i64::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    if length == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
        Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Room in a folder for one payload; dropping it gives the room back.
#[derive(Debug)]
pub struct Room {
    pub(crate) payloads: Arc<Payloads>,
    owner: u64,
    bytes: u64,
    /// Of a payload that is assembled: the bytes that nodes other than the owner have
    /// sent, by sender.
    others: BTreeMap<u64, u64>,
    /// Of the bytes, those of a spool.
    spooled: u64,
    complete: bool,
    /// Whether it counts as one that is assembled.
    assembly: bool,
}

impl Room {
    /// Reserves room for another payload of the same owner.
    ///
    /// # Errors
    /// As [`Payloads::reserve`].
    pub(crate) fn another(&self, bytes: u64) -> Result<Room, Refused> {
        self.payloads.reserve(self.owner, bytes)
    }

    /// Begins a payload of `bytes`. Waits for the disk.
    ///
    /// # Errors
    /// When that is more than was reserved, or the disk has no room for it.
    pub fn begin(self, bytes: u64) -> Result<Writer, Refused> {
        if bytes > self.bytes {
            let most = self.bytes;
            return Err(Refused::TooLong { bytes, most });
        }
        let file = self.payloads.nameless()?;
        reserve(&file, bytes, self.payloads.limits.leave_free_bytes)?;
        Ok(Writer::new(file, bytes, self))
    }

    /// Counts the payload as one that is assembled from parts; false if its owner may not
    /// have one more of these.
    fn begin_assembly(&mut self) -> bool {
        let mut taken = self.payloads.lock();
        let begins = taken.places_left(self.owner) > 0;
        if begins {
            taken.of.entry(self.owner).or_default().assemblies += 1;
            taken.all.assemblies += 1;
        }
        drop(taken);
        self.assembly = begins;
        begins
    }

    /// No longer counts the payload as one that is assembled, so another one can have its
    /// place. Its bytes count until they are gone from the disk.
    pub(crate) fn end_assembly(&mut self) {
        if !std::mem::take(&mut self.assembly) {
            return;
        }
        let mut taken = self.payloads.lock();
        let Taken { all, of } = &mut *taken;
        for held in [Some(all), of.get_mut(&self.owner)].into_iter().flatten() {
            held.assemblies -= 1;
        }
    }

    /// Gives its place as an assembled payload to another payload of its owner; false if
    /// it had none or the owners differ.
    pub(crate) fn give_place(&mut self, to: &mut Room) -> bool {
        to.assembly = self.owner == to.owner && std::mem::take(&mut self.assembly);
        to.assembly
    }

    /// Reserves room for bytes that `sender` has sent; false if the sender has none left.
    pub(crate) fn grow(&mut self, sender: u64, more: u64) -> bool {
        self.take(sender, more, 0)
    }

    /// Reserves room for bytes of a spool; false if its owner has none left.
    pub(crate) fn grow_spool(&mut self, more: u64) -> bool {
        self.take(self.owner, more, more)
    }

    /// Reserves room for `more` bytes that `sender` has sent, `spooled` of them in a
    /// spool.
    fn take(&mut self, sender: u64, more: u64, spooled: u64) -> bool {
        let mut taken = self.payloads.lock();
        let quota = self.payloads.limits.quota_bytes;
        let free = quota.saturating_sub(taken.all.bytes);
        let own = taken.of.get(&sender).copied().unwrap_or_default();
        let spools = own.spooled.saturating_add(spooled);
        if own.bytes.saturating_add(more) > free || spools > quota / SPOOLED_PART {
            return false;
        }
        taken.all.bytes += more;
        let own = taken.of.entry(sender).or_default();
        own.bytes += more;
        own.spooled = spools;
        drop(taken);
        self.spooled += spooled;
        match sender == self.owner {
            true => self.bytes += more,
            false => *self.others.entry(sender).or_default() += more,
        }
        true
    }

    /// Gives back what [`Room::grow`] has reserved in excess.
    pub(crate) fn shrink(&mut self, sender: u64, less: u64) {
        let mut taken = self.payloads.lock();
        taken.give_back(sender, less);
        drop(taken);
        match sender == self.owner {
            true => self.bytes -= less,
            false => {
                if let Some(bytes) = self.others.get_mut(&sender) {
                    *bytes -= less;
                }
            }
        }
    }

    /// Its bytes, from all senders.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.others.values().sum::<u64>()
    }

    /// Gives back the room above `bytes`.
    pub(crate) fn trim(&mut self, bytes: u64) {
        let mut surplus = self.bytes().saturating_sub(bytes);
        let own = (self.owner, self.bytes);
        let senders = self.others.iter().map(|(sender, bytes)| (*sender, *bytes));
        let senders: Vec<(u64, u64)> = [own].into_iter().chain(senders).collect();
        for (sender, bytes) in senders {
            let less = bytes.min(surplus);
            self.shrink(sender, less);
            surplus -= less;
        }
    }

    /// Marks the payload as complete.
    pub(crate) fn complete(mut self) -> Room {
        self.end_assembly();
        let mut taken = self.payloads.lock();
        let Taken { all, of } = &mut *taken;
        for held in [Some(all), of.get_mut(&self.owner)].into_iter().flatten() {
            held.incomplete -= 1;
        }
        drop(taken);
        self.complete = true;
        self
    }
}

impl Taken {
    /// How many more payloads an owner may assemble: the owner with the most leaves the
    /// others at least as many.
    fn places_left(&self, owner: u64) -> usize {
        let own = self.of.get(&owner).map_or(0, |own| own.assemblies);
        let free = MOST_ASSEMBLIES.saturating_sub(self.all.assemblies);
        // Each one that it begins adds one to its own and takes one from the free ones.
        free.saturating_sub(own).div_ceil(2)
    }

    /// Subtracts bytes from an owner's use.
    fn give_back(&mut self, owner: u64, bytes: u64) {
        self.all.bytes -= bytes;
        if let Some(own) = self.of.get_mut(&owner) {
            own.bytes -= bytes;
            if own.payloads == 0 && own.bytes == 0 {
                self.of.remove(&owner);
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.end_assembly();
        let mut taken = self.payloads.lock();
        let Taken { all, of } = &mut *taken;
        for held in [Some(all), of.get_mut(&self.owner)].into_iter().flatten() {
            held.subtract(0, self.complete);
        }
        if let Some(own) = of.get_mut(&self.owner) {
            own.spooled -= self.spooled;
        }
        for (sender, bytes) in &self.others {
            taken.give_back(*sender, *bytes);
        }
        taken.give_back(self.owner, self.bytes);
    }
}

#[cfg(test)]
mod tests;
