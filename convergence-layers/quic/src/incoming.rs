//! Room for the bundles in transfer from a peer, on all of its sessions together.
//!
//! A bundle's room is reserved by its announced length, before any memory is taken; memory follows
//! the bytes that come.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

/// The longest short bundle, bytes; bundles of streams are short.
const SHORT_BYTES: u64 = 2 << 20;
/// Room that long bundles leave to short ones, so that a peer that sends long ones can still send
/// others.
const SHORT_ROOM_BYTES: u64 = 8 << 20;

/// The rooms of all peers, by their node ids: there are as many as neighbours.
#[derive(Debug, Default)]
pub struct PeerRooms(Mutex<HashMap<String, Arc<Room>>>);

impl PeerRooms {
    /// The room of a peer, which all of its sessions share. If its paths need different sizes, the
    /// largest counts.
    pub(crate) fn of(&self, peer: &str, most: u64) -> Arc<Room> {
        let mut rooms = self.0.lock().unwrap();
        let room = rooms.entry(peer.to_owned()).or_default();
        room.widen(most);
        room.clone()
    }

    /// Gives this much room to these peers, as far as they have any; `None`: to all.
    pub(crate) fn widen(&self, peers: Option<&[String]>, most: u64) {
        let rooms = self.0.lock().unwrap();
        let widen = |room: &Arc<Room>| room.widen(most);
        match peers {
            Some(peers) => peers
                .iter()
                .filter_map(|peer| rooms.get(peer))
                .for_each(widen),
            None => rooms.values().for_each(widen),
        }
    }
}

/// The room of one peer.
#[derive(Debug, Default)]
pub(crate) struct Room {
    most: AtomicU64,
    used: AtomicU64,
    /// Notifies that room was freed. A waiting task begins to listen before it checks.
    freed: Notify,
}

/// Bytes reserved in a peer's room; dropping this gives them back.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    /// A place of no bytes, to grow later.
    pub(crate) fn begin(self: &Arc<Self>) -> Place {
        Place {
            room: self.clone(),
            bytes: 0,
        }
    }

    /// Room for a bundle of `bytes`, if there is any.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Place> {
        let mut place = self.begin();
        place.grow(bytes).then_some(place)
    }

    /// Waits for room for a bundle of `bytes`; `None` if all of the room is not enough. A waiting
    /// bundle holds none, so that those that have some can complete and free it.
    pub(crate) async fn wait(self: &Arc<Self>, bytes: u64) -> Option<Place> {
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.take(bytes) {
                return Some(place);
            }
            if bytes > self.most_for(bytes) {
                return None;
            }
            freed.await;
        }
    }

    /// What may be used in all, including a bundle of `bytes`.
    fn most_for(&self, bytes: u64) -> u64 {
        let most = self.most.load(Relaxed);
        match bytes <= SHORT_BYTES {
            true => most.saturating_add(SHORT_ROOM_BYTES),
            false => most,
        }
    }

    fn widen(&self, most: u64) {
        self.most.fetch_max(most, Relaxed);
        self.freed.notify_waiters();
    }
}

impl Place {
    /// Takes the bytes of one more bundle; false if there is no room for them.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let most = self.room.most_for(bytes);
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
        // A place without room frees none: otherwise a waiting task would wake itself.
        if less > 0 {
            self.room.freed.notify_waiters();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const MIB: u64 = 1 << 20;
    /// A time in which nothing happens.
    const A_WHILE: Duration = Duration::from_millis(50);

    #[test]
    fn room_is_bounded_and_comes_back() {
        let room = PeerRooms::default().of("ipn:10.0", 100 * MIB);
        let first = room.take(60 * MIB);
        assert!(first.is_some() && room.take(41 * MIB).is_none());
        assert!(room.take(u64::MAX).is_none());
        let second = room.take(40 * MIB);
        assert!(second.is_some() && room.take(SHORT_BYTES + 1).is_none());
        drop(first);
        assert!(room.take(60 * MIB).is_some());
    }

    #[test]
    fn long_bundles_leave_some_room_to_short_ones() {
        let room = PeerRooms::default().of("ipn:10.0", 100 * MIB);
        let long = room.take(100 * MIB);
        let short: Vec<_> = (0..5).map(|_| room.take(SHORT_BYTES)).collect();
        let taken = short.iter().filter(|place| place.is_some()).count();
        assert!(long.is_some() && taken == 4);
        assert!(room.take(1).is_none(), "that is bounded, too");
    }

    #[tokio::test]
    async fn who_waits_for_room_has_some_once_enough_of_it_is_free() {
        let room = PeerRooms::default().of("ipn:10.0", 100 * MIB);
        let mut first = room.take(80 * MIB).expect("it is empty");
        let mut waiting = pin!(room.wait(60 * MIB));
        assert!(timeout(A_WHILE, &mut waiting).await.is_err());
        // It takes no room while it waits.
        let second = room.take(20 * MIB);
        assert!(second.is_some());
        first.shrink(30 * MIB);
        assert!(timeout(A_WHILE, &mut waiting).await.is_err());
        drop(second);
        let place = timeout(A_WHILE, waiting).await.ok().flatten();
        assert!(place.is_some());
        assert!(room.take(11 * MIB).is_none() && room.take(10 * MIB).is_some());
    }

    #[tokio::test]
    async fn nobody_waits_for_more_room_than_there_is() {
        let rooms = PeerRooms::default();
        let room = rooms.of("ipn:10.0", 100 * MIB);
        let _all = room.take(100 * MIB).expect("it is empty");
        let never = timeout(A_WHILE, room.wait(101 * MIB)).await;
        assert!(never.is_ok_and(|place| place.is_none()));
        let mut waiting = pin!(room.wait(60 * MIB));
        assert!(timeout(A_WHILE, &mut waiting).await.is_err());
        rooms.widen(None, 160 * MIB);
        let place = timeout(A_WHILE, waiting).await;
        assert!(place.is_ok_and(|place| place.is_some()));
    }

    #[test]
    fn a_place_grows_within_the_room_and_shrinks() {
        let room = PeerRooms::default().of("ipn:10.0", 100 * MIB);
        let mut place = room.begin();
        assert!(place.grow(60 * MIB) && !place.grow(41 * MIB) && place.grow(40 * MIB));
        place.shrink(30 * MIB);
        place.shrink(50 * MIB);
        assert!(room.take(71 * MIB).is_none() && room.take(70 * MIB).is_some());
        drop(place);
        assert!(room.take(100 * MIB).is_some());
    }

    #[test]
    fn sessions_of_a_peer_share_its_room_and_other_peers_have_their_own() {
        let rooms = PeerRooms::default();
        let first = rooms.of("ipn:10.0", 100 * MIB);
        let second = rooms.of("ipn:10.0", 80 * MIB);
        let all = first.take(100 * MIB);
        assert!(all.is_some() && second.take(3 * MIB).is_none());
        let other = rooms.of("ipn:11.0", 100 * MIB);
        assert!(other.take(100 * MIB).is_some());
        drop(all);
        let largest = second.take(100 * MIB);
        assert!(largest.is_some(), "the largest path's counts");
        drop(largest);
        let wider = rooms.of("ipn:10.0", 200 * MIB);
        assert!(wider.take(200 * MIB).is_some());
    }
}
