//! The segments of the log, with the figures over all of them: sums, which are needless, and which
//! has the least to move. No call looks at all segments or bundles.

use std::collections::{BTreeMap, BTreeSet};

use underpass_work::count;

use crate::segment::{Location, Segment};

/// The segments by number.
#[derive(Debug, Default)]
pub struct Segments {
    all: BTreeMap<u64, Segment>,
    bytes: u64,
    live_bytes: u64,
    needed_bytes: u64,
    /// Closed segments of which nothing is needed.
    needless: BTreeSet<u64>,
    /// The other closed ones, by the part of them that is needed.
    by_part: BTreeSet<(u8, u64)>,
    /// Those of the closed ones that the disk cannot read.
    failing: BTreeSet<u64>,
    failed: u64,
}

impl Segments {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Segments {
            all,
            bytes: _,
            live_bytes: _,
            needed_bytes: _,
            needless,
            by_part,
            failing,
            failed: _,
        } = self;
        tell("segments", all.len());
        for segment in all.values() {
            let Segment {
                nonce: _,
                length: _,
                live,
                live_bytes: _,
                needed_bytes: _,
                ids,
                voids,
                void_count,
                voided_by,
                closed: _,
                failing: _,
                resting: _,
            } = segment;
            tell("bundles in segments", *live);
            tell("ids in segments", ids.len());
            tell("segments voided", voids.len());
            tell("records voided", *void_count);
            tell("segments that void", voided_by.len());
        }
        tell("needless segments", needless.len());
        tell("segments by part", by_part.len());
        tell("failing segments", failing.len());
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Bytes of all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the records of bundles that are kept.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// What keeping these bundles takes, bytes.
    pub fn needed_bytes(&self) -> u64 {
        self.needed_bytes
    }

    /// Segments that the disk could not read, since the start.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    pub fn get(&self, number: u64) -> Option<&Segment> {
        self.all.get(&number)
    }

    pub fn contains(&self, number: u64) -> bool {
        self.all.contains_key(&number)
    }

    pub fn nonce(&self, number: u64) -> u64 {
        self.all.get(&number).map_or(0, |segment| segment.nonce)
    }

    pub fn length(&self, number: u64) -> u64 {
        self.all.get(&number).map_or(0, |segment| segment.length)
    }

    /// Adds a segment, to be written.
    pub fn insert(&mut self, number: u64, nonce: u64, length: u64) {
        let segment = Segment {
            nonce,
            length,
            ..Segment::default()
        };
        self.bytes += length;
        self.all.insert(number, segment);
    }

    /// Changes a segment, and updates the figures over all.
    fn change(&mut self, number: u64, change: impl FnOnce(&mut Segment)) {
        let Some(segment) = self.all.get_mut(&number) else {
            return;
        };
        count();
        let (part, needless) = (segment.part(), segment.is_needless());
        let (length, live) = (segment.length, segment.live_bytes);
        let needed = segment.needed_bytes;
        change(segment);
        self.bytes = self.bytes - length + segment.length;
        self.live_bytes = self.live_bytes - live + segment.live_bytes;
        self.needed_bytes = self.needed_bytes - needed + segment.needed_bytes;
        if segment.part() != part {
            if let Some(part) = part {
                self.by_part.remove(&(part, number));
                self.failing.remove(&number);
            }
            if let Some(part) = segment.part() {
                self.by_part.insert((part, number));
                if segment.failing {
                    self.failing.insert(number);
                }
            }
        }
        match (needless, segment.is_needless()) {
            (false, true) => drop(self.needless.insert(number)),
            (true, false) => drop(self.needless.remove(&number)),
            _ => {}
        }
    }

    pub fn set_length(&mut self, number: u64, length: u64) {
        self.change(number, |segment| segment.length = length);
    }

    /// Closes a segment: nothing more is written to it.
    pub fn close(&mut self, number: u64) {
        self.change(number, |segment| {
            segment.closed = true;
            segment.ids.shrink_to_fit();
        });
    }

    /// Notes that the disk cannot read all of a closed segment, so that it is emptied. Returns
    /// whether that is new.
    pub fn fail(&mut self, number: u64) -> bool {
        let known = self.get(number).is_none_or(|segment| segment.failing);
        if !known {
            self.failed += 1;
            self.change(number, |segment| segment.failing = true);
            let segment = self.get(number);
            if segment.is_some_and(|segment| segment.part().is_some()) {
                self.failing.insert(number);
            }
        }
        !known
    }

    /// Sets whether a segment rests: what is left in it waits until it can be read or is given up.
    pub fn rest(&mut self, number: u64, resting: bool) {
        if self.get(number).is_some_and(|s| s.resting != resting) {
            self.change(number, |segment| segment.resting = resting);
        }
    }

    /// Notes that a bundle's record is in a segment.
    pub fn gain(&mut self, id: u64, location: &Location) {
        self.change(location.segment, |segment| {
            segment.live += 1;
            segment.live_bytes += location.length();
            segment.needed_bytes += location.needed();
            segment.ids.push(id);
        });
    }

    /// Notes that a bundle's record is void.
    pub fn lose(&mut self, location: &Location) {
        self.change(location.segment, |segment| {
            segment.live -= 1;
            segment.live_bytes -= location.length();
            segment.needed_bytes -= location.needed();
        });
    }

    /// Notes that segment `by` voids a bundle's record in segment `target`.
    pub fn void(&mut self, by: u64, target: u64, id: u64) {
        if by == target || !self.contains(target) {
            return;
        }
        self.change(by, |segment| {
            segment.voids.entry(target).or_default().push(id);
            segment.void_count += 1;
        });
        self.change(target, |segment| {
            segment.voided_by.insert(by);
        });
    }

    /// Takes what a segment voids, by segment: others void it from now on.
    pub fn take_voids(&mut self, number: u64) -> BTreeMap<u64, Vec<u64>> {
        let mut voids = BTreeMap::new();
        self.change(number, |segment| {
            voids = std::mem::take(&mut segment.voids);
            segment.void_count = 0;
        });
        for target in voids.keys() {
            self.change(*target, |segment| {
                segment.voided_by.remove(&number);
            });
        }
        voids
    }

    /// Removes a segment that is gone, even after a loss of power.
    pub fn remove(&mut self, number: u64) {
        self.take_voids(number);
        // First out of the figures over all.
        self.change(number, |segment| {
            *segment = Segment {
                voided_by: std::mem::take(&mut segment.voided_by),
                ..Segment::default()
            };
        });
        let Some(segment) = self.all.remove(&number) else {
            return;
        };
        for by in segment.voided_by {
            self.change(by, |segment| {
                let gone = segment.voids.remove(&number);
                segment.void_count -= gone.map_or(0, |ids| ids.len());
            });
        }
    }

    /// Takes a segment of which nothing is needed; the caller deletes it.
    pub fn take_needless(&mut self) -> Option<u64> {
        self.needless.pop_first()
    }

    /// A segment that could not be deleted is still needless.
    pub fn put_back_needless(&mut self, number: u64) {
        self.needless.insert(number);
    }

    /// The first of those that the disk cannot read.
    pub fn first_failing(&self) -> Option<u64> {
        self.failing.first().copied()
    }

    /// The closed segment of which the smallest part is needed, if that is at most `most`.
    pub fn sparsest(&self, most: u8) -> Option<u64> {
        let (part, number) = self.by_part.first()?;
        (*part <= most).then_some(*number)
    }
}
