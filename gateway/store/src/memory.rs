//! Payloads in memory that are on the disk too, and which of them are dropped first when memory is
//! short.

use std::collections::BTreeMap;

use crate::budget::Share;

/// Why a payload is still in memory, in the order in which payloads are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// It was given to a session: its next use is a repetition.
    Sent,
    /// It has not been sent; the newest waits longest.
    Waiting,
    /// It was read because it is to be sent soon.
    Loaded,
}

/// A payload's place in the order.
pub type Place = (Use, u64);

/// The order in which payloads are dropped from memory.
#[derive(Debug)]
pub struct Residents {
    order: BTreeMap<Place, (u64, u64)>,
    bytes: Share,
    tick: u64,
}

impl Residents {
    pub fn new(bytes: Share) -> Residents {
        Residents {
            order: BTreeMap::new(),
            bytes,
            tick: 0,
        }
    }

    /// The most bytes that these payloads may have now, so that those of all stores have at most
    /// `limit`.
    pub fn most(&self, limit: u64) -> u64 {
        self.bytes.most(limit)
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Residents {
            order,
            bytes: _,
            tick: _,
        } = self;
        tell("resident payloads", order.len());
    }

    /// Adds a payload. Returns its place, by which it is found again.
    pub fn insert(&mut self, id: u64, bytes: u64, why: Use) -> Place {
        self.tick += 1;
        let place = match why {
            Use::Waiting => (why, u64::MAX - id),
            Use::Sent | Use::Loaded => (why, self.tick),
        };
        self.order.insert(place, (id, bytes));
        self.bytes.add(bytes);
        place
    }

    /// Takes a payload out.
    pub fn remove(&mut self, place: Place) {
        if let Some((_, bytes)) = self.order.remove(&place) {
            self.bytes.subtract(bytes);
        }
    }

    /// Takes out the payload that is dropped first, if there are more than [`Residents::most`]
    /// bytes. The last one stays: it may just have been read to be sent.
    pub fn evict(&mut self, limit: u64) -> Option<u64> {
        if self.bytes.own() <= self.most(limit) || self.order.len() == 1 {
            return None;
        }
        let (_, (id, bytes)) = self.order.pop_first()?;
        self.bytes.subtract(bytes);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Sum;

    #[test]
    fn what_was_sent_goes_first_and_what_is_about_to_be_sent_last() {
        let mut residents = Residents::new(Share::of(&Sum::new(1)));
        residents.insert(1, 10, Use::Loaded);
        residents.insert(2, 10, Use::Waiting);
        residents.insert(3, 10, Use::Waiting);
        let sent = residents.insert(4, 10, Use::Sent);
        residents.insert(5, 10, Use::Sent);
        residents.remove(sent);
        let gone: Vec<_> = std::iter::from_fn(|| residents.evict(0)).collect();
        assert_eq!(gone, [5, 3, 2]);
        assert_eq!(residents.bytes.own(), 10);
    }
}
