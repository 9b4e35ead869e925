//! Reading a segment of which the disk cannot read all.

use crate::disk::Disk;

/// Bytes read at once.
const PIECE: usize = 64 << 10;
/// The unit that a disk reads as a whole or not at all.
const SECTOR: usize = 512;
/// A disk may take seconds for a read that fails: after so many failures in a segment, a piece that
/// cannot be read as a whole is skipped as a whole.
const MOST_FAILURES: usize = 256;

/// Reads all of a segment, with zeros where it cannot be read. Also returns whether there is such a
/// place.
pub fn read_around(disk: &mut impl Disk, segment: u64, length: u64) -> (Vec<u8>, bool) {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut content = Vec::new();
    let mut failures = 0;
    // The next pieces, as a stack: the first of them is last.
    let mut pieces = vec![];
    while content.len() < length {
        let at = content.len();
        let bytes = pieces.pop().unwrap_or(PIECE).min(length - at);
        match disk.read(segment, at as u64, bytes) {
            Ok(read) if read.is_empty() => break,
            Ok(read) => content.extend(read),
            Err(_) => {
                failures += 1;
                if bytes > SECTOR && failures <= MOST_FAILURES {
                    // The first half ends where a sector does.
                    let half = (at + bytes / 2).next_multiple_of(SECTOR) - at;
                    let half = half.min(bytes - 1);
                    pieces.extend([bytes - half, half]);
                } else {
                    content.resize(at + bytes, 0);
                }
            }
        }
    }
    (content, failures > 0)
}

#[cfg(all(test, feature = "simulation"))]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::simulated::SimulatedDisk;

    fn disk(bytes: usize) -> (SimulatedDisk, Vec<u8>) {
        let mut disk = SimulatedDisk::default();
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 + 1).collect();
        disk.create(0).unwrap();
        disk.write(0, 0, &[Bytes::from(content.clone())]).unwrap();
        (disk, content)
    }

    #[test]
    fn only_what_is_in_an_unreadable_sector_is_missing() {
        for sector in [0, 1, 127, 128, 300, 390] {
            let (mut disk, mut content) = disk(200_003);
            disk.spoil(0, sector);
            let end = (sector * SECTOR + SECTOR).min(content.len());
            content[sector * SECTOR..end].fill(0);
            let length = content.len() as u64;
            assert_eq!(read_around(&mut disk, 0, length), (content, true));
        }
    }

    #[test]
    fn a_segment_that_cannot_be_read_at_all_costs_few_attempts() {
        let (mut disk, content) = disk(8 << 20);
        for sector in 0..content.len() / SECTOR {
            disk.spoil(0, sector);
        }
        let before = disk.operations();
        let (read, unreadable) = read_around(&mut disk, 0, content.len() as u64);
        assert!(unreadable && read.len() == content.len());
        let pieces = (content.len() / PIECE) as u64;
        assert!(disk.operations() - before <= pieces + 4 * MOST_FAILURES as u64);
    }
}
