//! Room for the bundles that a peer has under way, on all of its sessions
//! together.
//!
//! A bundle's room is taken by the length that its sender announces, before
//! any memory is; the memory follows the bytes that come.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// The rooms of all peers, by their node ids: there are as many as neighbours.
#[derive(Debug, Default)]
pub struct PeerRooms(Mutex<HashMap<String, Arc<Room>>>);

impl PeerRooms {
    /// The room of a peer, which all of its sessions share. Where its paths
    /// differ in what they need, the largest counts.
    pub(crate) fn of(&self, peer: &str, most: u64) -> Arc<Room> {
        let mut rooms = self.0.lock().unwrap();
        let room = rooms.entry(peer.to_owned()).or_default();
        room.most.fetch_max(most, Relaxed);
        room.clone()
    }
}

/// The room of one peer.
#[derive(Debug, Default)]
pub(crate) struct Room {
    most: AtomicU64,
    used: AtomicU64,
}

/// A part of it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    /// A place for nothing yet.
    pub(crate) fn begin(self: &Arc<Self>) -> Place {
        Place {
            room: self.clone(),
            bytes: 0,
        }
    }

    /// Room for so many bytes, if there is any.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Place> {
        let mut place = self.begin();
        place.grow(bytes).then_some(place)
    }
}

impl Place {
    /// Takes so many bytes more; false if there is no room for them.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let most = self.room.most.load(Relaxed);
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= most);
        let grown = self.room.used.fetch_update(Relaxed, Relaxed, more).is_ok();
        if grown {
            self.bytes += bytes;
        }
        grown
    }

    /// Gives back all but so many bytes.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.room.used.fetch_sub(less, Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_and_comes_back() {
        let room = PeerRooms::default().of("ipn:10.0", 100);
        let first = room.take(60);
        assert!(first.is_some() && room.take(41).is_none() && room.take(u64::MAX).is_none());
        let second = room.take(40);
        assert!(second.is_some() && room.take(1).is_none());
        drop(first);
        assert!(room.take(60).is_some());
    }

    #[test]
    fn a_place_grows_within_the_room_and_shrinks() {
        let room = PeerRooms::default().of("ipn:10.0", 100);
        let mut place = room.begin();
        assert!(place.grow(60) && !place.grow(41) && place.grow(40));
        place.shrink(30);
        place.shrink(50);
        assert!(room.take(71).is_none() && room.take(70).is_some());
        drop(place);
        assert!(room.take(100).is_some());
    }

    #[test]
    fn sessions_of_a_peer_share_its_room_and_other_peers_have_their_own() {
        let rooms = PeerRooms::default();
        let (first, second) = (rooms.of("ipn:10.0", 100), rooms.of("ipn:10.0", 80));
        let all = first.take(100);
        assert!(all.is_some() && second.take(1).is_none());
        assert!(rooms.of("ipn:11.0", 100).take(100).is_some());
        drop(all);
        assert!(second.take(100).is_some(), "the largest path's counts");
        assert!(rooms.of("ipn:10.0", 200).take(200).is_some());
    }
}
