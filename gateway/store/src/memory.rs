//! Payloads in memory that are on the disk too: which of them go first when
//! memory is short.

use std::collections::BTreeMap;

/// Why a payload is still in memory, in the order in which they go.
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

/// The order in which payloads leave memory.
#[derive(Debug, Default)]
pub struct Residents {
    order: BTreeMap<Place, (u64, u64)>,
    bytes: u64,
    tick: u64,
}

impl Residents {
    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Residents {
            order,
            bytes: _,
            tick: _,
        } = self;
        tell("resident payloads", order.len());
    }

    /// Adds a payload; its place is where to find it again.
    pub fn insert(&mut self, id: u64, bytes: u64, why: Use) -> Place {
        self.tick += 1;
        let place = match why {
            Use::Waiting => (why, u64::MAX - id),
            Use::Sent | Use::Loaded => (why, self.tick),
        };
        self.order.insert(place, (id, bytes));
        self.bytes += bytes;
        place
    }

    /// Takes a payload out.
    pub fn remove(&mut self, place: Place) {
        if let Some((_, bytes)) = self.order.remove(&place) {
            self.bytes -= bytes;
        }
    }

    /// The payload that goes first, if there are more than `most` bytes. The
    /// last one stays: it may have come just now, to be sent.
    pub fn evict(&mut self, most: u64) -> Option<u64> {
        if self.bytes <= most || self.order.len() == 1 {
            return None;
        }
        let (_, (id, bytes)) = self.order.pop_first()?;
        self.bytes -= bytes;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_goes_first_and_what_is_about_to_be_sent_last() {
        let mut residents = Residents::default();
        residents.insert(1, 10, Use::Loaded);
        residents.insert(2, 10, Use::Waiting);
        residents.insert(3, 10, Use::Waiting);
        let sent = residents.insert(4, 10, Use::Sent);
        residents.insert(5, 10, Use::Sent);
        residents.remove(sent);
        let gone: Vec<_> = std::iter::from_fn(|| residents.evict(0)).collect();
        assert_eq!(gone, [5, 3, 2]);
        assert_eq!(residents.bytes(), 10);
    }
}
