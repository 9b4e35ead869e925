//! Room for the bundles that a peer has under way.
//!
//! A bundle's room is taken by the length that its sender announces, before
//! any memory is; the memory follows the bytes that come.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Room on one session.
#[derive(Debug)]
pub(crate) struct Room {
    most: u64,
    used: AtomicU64,
}

/// Room of one bundle, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    pub(crate) fn new(most: u64) -> Arc<Room> {
        Arc::new(Room {
            most,
            used: AtomicU64::new(0),
        })
    }

    /// Room for so many bytes, if there is any.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Place> {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        self.used.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Place {
            room: self.clone(),
            bytes,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_and_comes_back() {
        let room = Room::new(100);
        let first = room.take(60);
        assert!(first.is_some() && room.take(41).is_none() && room.take(u64::MAX).is_none());
        let second = room.take(40);
        assert!(second.is_some() && room.take(1).is_none());
        drop(first);
        assert!(room.take(60).is_some());
    }
}
