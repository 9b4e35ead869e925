//! A disk in memory that loses bytes as real disks do when power fails.

mod content;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use nix::errno::Errno;

use crate::disk::Disk;
use content::Content;

/// The unit that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed: what was written is there.
    Kill,
    /// Power fails: of what was not made durable, a prefix is there.
    PowerInOrder,
    /// Power fails: of what was not made durable, any sectors are there.
    PowerInAnyOrder,
}

/// An operation that the disk can be made to fail at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A segment is made, but the call fails.
    Create,
    /// A write stops in the middle.
    Write,
    /// Data written since the last success may be lost: the next sync does not try again.
    Sync,
    /// The same for segments that were made or deleted.
    SyncNames,
    /// Nothing is cut.
    Truncate,
    /// Nothing is deleted.
    Delete,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// As the process sees it.
    written: Content,
    /// As it is after a loss of power.
    durable: Content,
    /// Up to where both are the same, except for forgotten sectors.
    clean: usize,
    /// Sectors that a failed sync has left unwritten.
    forgotten: BTreeSet<usize>,
    /// Sectors that cannot be read.
    unreadable: BTreeSet<usize>,
}

/// What a crash has undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Part of a write is on the disk, and part is not.
    pub torn: bool,
    /// Sectors written and not synced that are as before.
    pub sectors: u64,
    /// Of these, those before one that was kept.
    pub overtaken_sectors: u64,
    /// Files made or deleted whose change is undone.
    pub names: u64,
}

#[derive(Debug, Default)]
struct Media {
    files: BTreeMap<u64, File>,
    /// Files whose creation a loss of power may undo.
    made: BTreeSet<u64>,
    /// Files whose deletion a loss of power may undo.
    deleted: BTreeMap<u64, File>,
    /// Whether a sync of the names has something to do.
    names_changed: bool,
    capacity: Option<u64>,
    /// Writes and syncs fail.
    broken: bool,
    writes: u64,
    /// After so many bytes written, the process dies.
    dies_after: Option<u64>,
    /// A write has ended in the middle by that.
    torn: bool,
    faults: HashMap<Fault, u64>,
    operations: u64,
}

/// A simulated disk; its clones are the same disk, so that it outlives the
/// store over it.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<Media>>);

impl SimulatedDisk {
    fn media(&self) -> MutexGuard<'_, Media> {
        self.0.lock().unwrap()
    }

    /// Another disk with the same content.
    pub fn copy(&self) -> SimulatedDisk {
        let files = self.media().files.clone();
        let media = Media {
            files,
            ..Media::default()
        };
        SimulatedDisk(Arc::new(Mutex::new(media)))
    }

    /// Bounds what the disk holds, bytes.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.media().capacity = bytes;
    }

    /// Lets writes and syncs fail, or succeed again.
    pub fn set_broken(&self, broken: bool) {
        self.media().broken = broken;
    }

    /// Lets the next `times` of what the fault concerns fail.
    pub fn fail(&self, fault: Fault, times: u64) {
        self.media().faults.insert(fault, times);
    }

    /// The segments, each with its sectors.
    pub fn sectors(&self) -> Vec<(u64, usize)> {
        let media = self.media();
        let files = media.files.iter();
        files
            .map(|(number, file)| (*number, file.written.len().div_ceil(SECTOR)))
            .collect()
    }

    /// Makes a sector unreadable until it is written again.
    pub fn spoil(&self, segment: u64, sector: usize) {
        if let Some(file) = self.media().files.get_mut(&segment) {
            file.unreadable.insert(sector);
        }
    }

    /// Makes the first sector that has these bytes unreadable. Returns its segment.
    pub fn spoil_in(&self, bytes: &[u8]) -> Option<u64> {
        self.media().files.iter_mut().find_map(|(number, file)| {
            let at = file.written.find(bytes)?;
            file.unreadable.insert(at / SECTOR);
            Some(*number)
        })
    }

    /// Lets all be read again.
    pub fn mend(&self) {
        let mut media = self.media();
        let files = media.files.values_mut();
        files.for_each(|file| file.unreadable.clear());
    }

    /// Calls so far.
    pub fn operations(&self) -> u64 {
        self.media().operations
    }

    /// Lets writes end in the middle once so many more bytes are written; everything after that
    /// fails until [`SimulatedDisk::crash`].
    pub fn die_after(&self, bytes: u64) {
        self.media().dies_after = Some(bytes);
    }

    /// Whether [`SimulatedDisk::die_after`] is set or has taken effect.
    pub fn is_dying(&self) -> bool {
        self.media().dies_after.is_some()
    }

    /// Bytes on the disk.
    pub fn used_bytes(&self) -> u64 {
        self.media().used()
    }

    /// Bytes of memory that the contents take.
    pub fn memory_bytes(&self) -> u64 {
        let media = self.media();
        let files = media.files.values().chain(media.deleted.values());
        let memory = files.map(|file| file.written.memory() + file.durable.memory());
        memory.sum::<usize>() as u64
    }

    /// Bytes written in all.
    pub fn written_bytes(&self) -> u64 {
        self.media().writes
    }

    /// Ends the node: the disk keeps what the crash leaves.
    pub fn crash(&self, how: Crash, seed: u64) -> Losses {
        let mut media = self.media();
        let mut losses = Losses {
            torn: std::mem::take(&mut media.torn),
            ..Losses::default()
        };
        media.dies_after = None;
        media.faults.clear();
        let mut dice = seed;
        let (made, deleted) = (
            std::mem::take(&mut media.made),
            std::mem::take(&mut media.deleted),
        );
        if how != Crash::Kill {
            for number in made {
                if roll(&mut dice).is_multiple_of(2) {
                    media.files.remove(&number);
                    losses.names += 1;
                }
            }
            for (number, file) in deleted {
                if roll(&mut dice).is_multiple_of(2) {
                    media.files.entry(number).or_insert(file);
                    losses.names += 1;
                }
            }
        }
        for file in media.files.values_mut() {
            if how != Crash::Kill {
                file.lose_power(how == Crash::PowerInOrder, &mut dice, &mut losses);
            }
            file.make_durable();
        }
        losses
    }

    /// Flips a bit of the first place that has these bytes; false if none has.
    pub fn flip_in(&self, bytes: &[u8]) -> bool {
        for file in self.media().files.values_mut() {
            if let Some(at) = file.written.find(bytes) {
                file.written.flip(at, 1);
                file.make_durable();
                return true;
            }
        }
        false
    }

    /// Flips one bit somewhere; false if there is nothing on the disk.
    pub fn flip(&self, seed: u64) -> bool {
        let mut media = self.media();
        let mut dice = seed;
        let total: u64 = media.files.values().map(|f| f.written.len() as u64).sum();
        if total == 0 {
            return false;
        }
        let mut at = roll(&mut dice) % total;
        for file in media.files.values_mut() {
            let length = file.written.len() as u64;
            if at < length {
                let bit = 1 << (roll(&mut dice) % 8);
                file.written.flip(at as usize, bit);
                file.make_durable();
                return true;
            }
            at -= length;
        }
        false
    }
}

/// Steele, Lea and Flood 2014, SplitMix64.
fn roll(dice: &mut u64) -> u64 {
    *dice = dice.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *dice;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl File {
    /// Makes all that was written durable.
    fn make_durable(&mut self) {
        self.durable = self.written.clone();
        self.clean = self.written.len();
        self.forgotten.clear();
    }

    /// Sectors that may differ from the durable state, forgotten ones not counted.
    fn dirty(&self) -> impl Iterator<Item = usize> + use<> {
        let length = self.written.len().max(self.durable.len());
        self.clean / SECTOR..length.div_ceil(SECTOR)
    }

    fn sync(&mut self) {
        if self.forgotten.is_empty() {
            let clean = self.clean.min(self.durable.len());
            self.durable.follow(&self.written, clean);
        } else {
            let mut durable = self.written.clone();
            for sector in &self.forgotten {
                let old = self.durable.sector(*sector);
                let mut kept = vec![0; self.written.sector(*sector).len()];
                let known = old.len().min(kept.len());
                kept[..known].copy_from_slice(&old[..known]);
                durable.write((sector * SECTOR).min(durable.len()), &kept);
            }
            self.durable = durable;
        }
        self.clean = self.written.len();
    }

    fn fail_to_sync(&mut self) {
        let dirty = self.dirty();
        self.forgotten.extend(dirty);
        self.clean = self.written.len();
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        self.written.write(at, bytes);
        self.clean = self.clean.min(at / SECTOR * SECTOR);
        if !bytes.is_empty() {
            for sector in at / SECTOR..=(end - 1) / SECTOR {
                self.forgotten.remove(&sector);
                // A disk replaces a bad sector when it is written again.
                self.unreadable.remove(&sector);
            }
        }
    }

    fn truncate(&mut self, length: usize) {
        self.written.truncate(length);
        self.clean = self.clean.min(length);
    }
    /// Keeps some of the sectors that differ from the durable state, and a length between both
    /// states.
    fn lose_power(&mut self, in_order: bool, dice: &mut u64, losses: &mut Losses) {
        let sectors = self.written.len().max(self.durable.len()).div_ceil(SECTOR);
        let changed: Vec<usize> = (0..sectors)
            .filter(|sector| self.written.sector(*sector) != self.durable.sector(*sector))
            .collect();
        let kept = roll(dice) % (changed.len() as u64 + 1);
        let mut after = self.durable.clone();
        let mut lost = 0;
        for (place, sector) in changed.into_iter().enumerate() {
            let survives = match in_order {
                true => (place as u64) < kept,
                false => roll(dice).is_multiple_of(2),
            };
            match survives {
                true => losses.overtaken_sectors += std::mem::take(&mut lost),
                false => {
                    losses.sectors += 1;
                    lost += 1;
                }
            }
            let new = self.written.sector(sector);
            if survives && !new.is_empty() {
                after.write(sector * SECTOR, new);
            }
        }
        self.written = after;
    }
}

impl Media {
    fn used(&self) -> u64 {
        self.files.values().map(|f| f.written.len() as u64).sum()
    }

    fn check(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.broken || self.dies_after == Some(0) {
            true => Err(io::Error::other("the disk fails")),
            false => Ok(()),
        }
    }

    fn fails_at(&mut self, fault: Fault) -> bool {
        let Some(left) = self.faults.get_mut(&fault).filter(|left| **left > 0) else {
            return false;
        };
        *left -= 1;
        true
    }

    fn file(&mut self, segment: u64) -> io::Result<&mut File> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        self.files.get_mut(&segment).ok_or_else(missing)
    }
}

fn failed<T>() -> io::Result<T> {
    Err(Errno::EIO.into())
}

impl Disk for SimulatedDisk {
    fn segments(&mut self) -> io::Result<Vec<(u64, u64)>> {
        let media = self.media();
        let lengths = media.files.iter();
        Ok(lengths
            .map(|(n, file)| (*n, file.written.len() as u64))
            .collect())
    }

    fn create(&mut self, segment: u64) -> io::Result<()> {
        let mut media = self.media();
        media.check()?;
        if media.files.contains_key(&segment) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        media.files.insert(segment, File::default());
        media.made.insert(segment);
        media.names_changed = true;
        match media.fails_at(Fault::Create) {
            true => failed(),
            false => Ok(()),
        }
    }

    fn reserve(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        let mut media = self.media();
        media.check()?;
        let used = media.used();
        if media.capacity.is_some_and(|most| used + bytes > most) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        media.file(segment)?.written.grow(bytes as usize);
        Ok(())
    }

    fn write(&mut self, segment: u64, at: u64, pieces: &[Bytes]) -> io::Result<()> {
        let mut media = self.media();
        media.check()?;
        let mut bytes = pieces.concat();
        let used = media.used();
        let length = media.file(segment)?.written.len() as u64;
        let end = at + bytes.len() as u64;
        let mut fits = bytes.len() as u64;
        let mut error = None;
        if let Some(capacity) = media.capacity
            && used - length + end.max(length) > capacity
        {
            fits = fits.min((capacity + length).saturating_sub(used).saturating_sub(at));
            error = Some(io::ErrorKind::StorageFull.into());
        }
        if let Some(left) = media.dies_after
            && fits >= left
        {
            media.torn |= (1..fits).contains(&left);
            fits = left;
            error = Some(io::Error::other("the process is no more"));
        }
        if media.fails_at(Fault::Write) {
            fits = fits.min(bytes.len() as u64 / 2);
            error = Some(Errno::EIO.into());
        }
        bytes.truncate(fits as usize);
        media.writes += fits;
        if let Some(left) = &mut media.dies_after {
            *left -= fits;
        }
        media.file(segment)?.write(at as usize, &bytes);
        error.map_or(Ok(()), Err)
    }

    fn sync(&mut self, segment: u64) -> io::Result<()> {
        let mut media = self.media();
        media.check()?;
        let fails = media.fails_at(Fault::Sync);
        let file = media.file(segment)?;
        match fails {
            true => {
                file.fail_to_sync();
                failed()
            }
            false => {
                file.sync();
                Ok(())
            }
        }
    }

    fn sync_names(&mut self) -> io::Result<()> {
        let mut media = self.media();
        media.check()?;
        let changed = std::mem::take(&mut media.names_changed);
        if media.fails_at(Fault::SyncNames) {
            return failed();
        }
        if changed {
            media.made.clear();
            media.deleted.clear();
        }
        Ok(())
    }

    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()> {
        let mut media = self.media();
        media.check()?;
        if media.fails_at(Fault::Truncate) {
            return failed();
        }
        media.file(segment)?.truncate(length as usize);
        Ok(())
    }

    fn read(&mut self, segment: u64, at: u64, length: usize) -> io::Result<Bytes> {
        let mut media = self.media();
        media.operations += 1;
        let file = media.file(segment)?;
        let start = usize::try_from(at)
            .unwrap_or(usize::MAX)
            .min(file.written.len());
        let end = start.saturating_add(length).min(file.written.len());
        let mut unreadable = file.unreadable.range(start / SECTOR..end.div_ceil(SECTOR));
        if start < end && unreadable.next().is_some() {
            return failed();
        }
        Ok(file.written.read(start, end).into())
    }

    fn delete(&mut self, segment: u64) -> io::Result<()> {
        let mut media = self.media();
        media.check()?;
        if media.fails_at(Fault::Delete) {
            return failed();
        }
        if let Some(file) = media.files.remove(&segment) {
            media.names_changed = true;
            media.made.remove(&segment);
            media.deleted.insert(segment, file);
        }
        Ok(())
    }
}
