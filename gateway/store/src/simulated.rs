//! A disk in memory that does to its bytes what disks do when power fails.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::disk::Disk;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// How a node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed: what was written is there.
    Kill,
    /// Power fails: of what was not made durable, a part is there that begins
    /// at its beginning.
    PowerInOrder,
    /// Power fails: of what was not made durable, any sectors are there.
    PowerInAnyOrder,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// As the process sees it.
    written: Vec<u8>,
    /// As it is after a loss of power.
    durable: Vec<u8>,
}

#[derive(Debug, Default)]
struct Media {
    files: BTreeMap<u64, File>,
    capacity: Option<u64>,
    /// Writes and syncs fail.
    broken: bool,
    writes: u64,
    /// After so many bytes written, the process is no more.
    dies_after: Option<u64>,
}

/// A simulated disk; its clones are the same disk, so that it outlives the
/// store over it.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<Media>>);

impl SimulatedDisk {
    fn media(&self) -> MutexGuard<'_, Media> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Lets writes end in their midst once so many more bytes are written; all
    /// that comes after fails until [`SimulatedDisk::crash`].
    pub fn die_after(&self, bytes: u64) {
        self.media().dies_after = Some(bytes);
    }

    /// Bytes on the disk.
    pub fn used_bytes(&self) -> u64 {
        self.media().used()
    }

    /// Bytes written in all.
    pub fn written_bytes(&self) -> u64 {
        self.media().writes
    }

    /// The node ends, and what is on the disk is what the crash leaves.
    pub fn crash(&self, how: Crash, seed: u64) {
        let mut media = self.media();
        media.dies_after = None;
        let mut dice = seed;
        for file in media.files.values_mut() {
            if how != Crash::Kill {
                file.lose_power(how == Crash::PowerInOrder, &mut dice);
            }
            file.durable = file.written.clone();
        }
    }

    /// Flips a bit of the first place that has these bytes; false if none has.
    pub fn flip_in(&self, bytes: &[u8]) -> bool {
        for file in self.media().files.values_mut() {
            let mut windows = file.written.windows(bytes.len());
            if let Some(at) = windows.position(|window| window == bytes) {
                file.written[at] ^= 1;
                file.durable = file.written.clone();
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
                file.written[at as usize] ^= bit;
                file.durable = file.written.clone();
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
    /// Leaves of what differs from the durable state some sectors, and a
    /// length between both.
    fn lose_power(&mut self, in_order: bool, dice: &mut u64) {
        let sectors = self.written.len().max(self.durable.len()).div_ceil(SECTOR);
        let changed: Vec<usize> = (0..sectors)
            .filter(|sector| piece(&self.written, *sector) != piece(&self.durable, *sector))
            .collect();
        let kept = roll(dice) % (changed.len() as u64 + 1);
        let mut after = self.durable.clone();
        for (place, sector) in changed.into_iter().enumerate() {
            let survives = match in_order {
                true => (place as u64) < kept,
                false => roll(dice).is_multiple_of(2),
            };
            let new = piece(&self.written, sector);
            if survives && !new.is_empty() {
                let start = sector * SECTOR;
                if after.len() < start + new.len() {
                    after.resize(start + new.len(), 0);
                }
                after[start..start + new.len()].copy_from_slice(new);
            }
        }
        self.written = after;
    }
}

fn piece(bytes: &[u8], sector: usize) -> &[u8] {
    let start = (sector * SECTOR).min(bytes.len());
    &bytes[start..(start + SECTOR).min(bytes.len())]
}

impl Media {
    fn used(&self) -> u64 {
        self.files.values().map(|f| f.written.len() as u64).sum()
    }

    fn check(&self) -> io::Result<()> {
        match self.broken || self.dies_after == Some(0) {
            true => Err(io::Error::other("the disk fails")),
            false => Ok(()),
        }
    }

    fn file(&mut self, segment: u64) -> io::Result<&mut File> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        self.files.get_mut(&segment).ok_or_else(missing)
    }
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
        match media.files.contains_key(&segment) {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => {
                media.files.insert(segment, File::default());
                Ok(())
            }
        }
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
            fits = left;
            error = Some(io::Error::other("the process is no more"));
        }
        bytes.truncate(fits as usize);
        media.writes += fits;
        if let Some(left) = &mut media.dies_after {
            *left -= fits;
        }
        let file = media.file(segment)?;
        let (start, end) = (at as usize, at as usize + bytes.len());
        if file.written.len() < end {
            file.written.resize(end, 0);
        }
        file.written[start..end].copy_from_slice(&bytes);
        error.map_or(Ok(()), Err)
    }

    fn sync(&mut self, segment: u64) -> io::Result<()> {
        let mut media = self.media();
        media.check()?;
        let file = media.file(segment)?;
        file.durable = file.written.clone();
        Ok(())
    }

    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()> {
        let mut media = self.media();
        media.check()?;
        media.file(segment)?.written.truncate(length as usize);
        Ok(())
    }

    fn read(&mut self, segment: u64, at: u64, length: usize) -> io::Result<Bytes> {
        let mut media = self.media();
        let file = media.file(segment)?;
        let start = usize::try_from(at)
            .unwrap_or(usize::MAX)
            .min(file.written.len());
        let end = start.saturating_add(length).min(file.written.len());
        Ok(Bytes::copy_from_slice(&file.written[start..end]))
    }

    fn delete(&mut self, segment: u64) -> io::Result<()> {
        let mut media = self.media();
        media.check()?;
        media.files.remove(&segment);
        Ok(())
    }
}
