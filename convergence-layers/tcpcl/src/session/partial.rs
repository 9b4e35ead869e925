//! The received parts of transfers whose session broke, until they continue.
//!
//! Every bound is per peer first: the oldest part gives way to a newer one of the same peer. If all
//! peers together have too much, the peer with the most bytes loses its oldest part (Suter et al.
//! 1998, longest queue drop). So each peer always has room for an equal share, and none displaces
//! the parts of a peer with less. This costs only line time: the sender then begins again.
//!
//! Most parts are never needed: a sender continues only after acknowledged bytes, and of a bundle
//! with less line time than a round trip, none were acknowledged when the link broke. The receiver
//! cannot know which parts these are, but senders continue broken transfers before they send
//! anything new. So a part is forgotten once enough other transfers have completed.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::BytesMut;

/// Bounds of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialLimits {
    /// Parts of one peer.
    pub parts_per_peer: usize,
    /// Bytes of one peer's parts.
    pub bytes_per_peer: usize,
    /// Bytes of all parts.
    pub bytes: usize,
    /// Peers.
    pub peers: usize,
    /// How long a part is stored: as long as connections are kept during a blockage.
    pub time: Duration,
}

impl Default for PartialLimits {
    fn default() -> Self {
        Self {
            parts_per_peer: 32,
            bytes_per_peer: 16 << 20,
            bytes: 128 << 20,
            peers: 4096,
            time: Duration::from_secs(3600),
        }
    }
}

/// Names of completed transfers that are remembered per peer: these may have been acknowledged only
/// in part when their session broke, one per session.
const COMPLETED_PER_PEER: usize = 64;

/// How many transfers of a peer complete before a part is forgotten: more than fit into a round
/// trip at full size, all of which may be sent again before the one of this part.
const COMPLETED_PER_PART: u64 = 64;

/// What is here of a transfer.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Its first bytes.
    Part(BytesMut),
    /// All of it: the acknowledgement was lost.
    Completed,
    /// Nothing.
    Nothing,
}

/// The parts of all peers.
#[derive(Debug)]
pub struct PartialTransfers {
    limits: PartialLimits,
    peers: HashMap<String, Peer>,
    bytes: usize,
    /// Peers with parts, by the bytes of these.
    by_bytes: BTreeSet<(usize, String)>,
    /// All parts, by their age: since when, whose, which.
    by_age: BTreeSet<(Instant, String, u64)>,
}

#[derive(Debug)]
struct Peer {
    incarnation: u64,
    entered: Instant,
    /// Oldest first.
    parts: VecDeque<Part>,
    bytes: usize,
    completed: VecDeque<u64>,
    /// How many transfers have completed.
    completions: u64,
}

#[derive(Debug)]
struct Part {
    key: u64,
    since: Instant,
    /// [`Peer::completions`] then.
    completions: u64,
    received: BytesMut,
}

impl PartialTransfers {
    /// Nothing yet.
    pub fn new(limits: PartialLimits) -> Self {
        Self {
            limits,
            peers: HashMap::new(),
            bytes: 0,
            by_bytes: BTreeSet::new(),
            by_age: BTreeSet::new(),
        }
    }

    /// Bytes stored in all.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A session of `peer` is up. If its incarnation is greater, parts of earlier ones are
    /// forgotten, since names of transfers begin again.
    pub fn enter(&mut self, now: Instant, peer: &str, incarnation: u64) {
        self.forget_old(now);
        if let Some(known) = self.peers.get_mut(peer) {
            known.entered = now;
            if known.incarnation >= incarnation {
                return;
            }
            self.forget(peer);
        } else if self.peers.len() >= self.limits.peers {
            let longest = self.peers.iter().min_by_key(|(_, peer)| peer.entered);
            if let Some(name) = longest.map(|(name, _)| name.clone()) {
                self.forget(&name);
            }
        }
        let peer_state = Peer {
            incarnation,
            entered: now,
            parts: VecDeque::new(),
            bytes: 0,
            completed: VecDeque::new(),
            completions: 0,
        };
        self.peers.insert(peer.to_owned(), peer_state);
    }

    fn forget(&mut self, peer: &str) {
        while self.remove(peer, 0).is_some() {}
        self.peers.remove(peer);
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some((since, peer, key)) = self.by_age.first()
            && now.saturating_duration_since(*since) > self.limits.time
        {
            let (peer, key) = (peer.clone(), *key);
            self.remove_key(&peer, key);
        }
    }

    /// Stores the first bytes of a transfer whose session broke.
    pub fn store(
        &mut self,
        now: Instant,
        peer: &str,
        incarnation: u64,
        key: u64,
        received: BytesMut,
    ) {
        self.forget_old(now);
        if !self.is_current(peer, incarnation) {
            return;
        }
        // Room was made for the whole transfer.
        let received = match received.capacity() > received.len() + received.len() / 8 {
            true => BytesMut::from(&received[..]),
            false => received,
        };
        let size = received.capacity();
        if received.is_empty() || size > self.limits.bytes_per_peer {
            return;
        }
        self.remove_key(peer, key);
        while let Some(known) = self.peers.get(peer)
            && (known.parts.len() >= self.limits.parts_per_peer
                || known.bytes + size > self.limits.bytes_per_peer)
        {
            self.remove(peer, 0);
        }
        if self.make_room(peer, size) {
            let completions = self.peers.get(peer).map_or(0, |peer| peer.completions);
            self.insert(
                peer,
                Part {
                    key,
                    since: now,
                    completions,
                    received,
                },
            );
        }
    }

    /// Drops parts of peers that have more, until `size` bytes of this peer fit.
    fn make_room(&mut self, peer: &str, size: usize) -> bool {
        let own = self.peers.get(peer).map_or(0, |peer| peer.bytes);
        while self.bytes + size > self.limits.bytes {
            match self.by_bytes.last() {
                Some((most, other)) if *most > own + size => {
                    let other = other.clone();
                    self.remove(&other, 0);
                }
                _ => return false,
            }
        }
        true
    }

    /// Notes that a transfer is complete, and forgets parts of others that would have continued
    /// before it.
    pub fn complete(&mut self, peer: &str, incarnation: u64, key: u64) {
        let known = self.peers.get_mut(peer);
        let Some(known) = known.filter(|known| known.incarnation == incarnation) else {
            return;
        };
        if known.completed.len() == COMPLETED_PER_PEER {
            known.completed.pop_front();
        }
        known.completed.push_back(key);
        known.completions += 1;
        let completions = known.completions;
        let unwanted = |part: &&Part| completions - part.completions >= COMPLETED_PER_PART;
        let count = known.parts.iter().take_while(unwanted).count();
        for _ in 0..count {
            self.remove(peer, 0);
        }
    }

    /// Takes what is here of a transfer.
    pub fn take(&mut self, now: Instant, peer: &str, incarnation: u64, key: u64) -> Found {
        self.forget_old(now);
        if !self.is_current(peer, incarnation) {
            return Found::Nothing;
        }
        let completed = self.peers.get(peer).map(|peer| &peer.completed);
        if completed.is_some_and(|completed| completed.contains(&key)) {
            return Found::Completed;
        }
        match self.remove_key(peer, key) {
            Some(part) => Found::Part(part.received),
            None => Found::Nothing,
        }
    }

    fn is_current(&self, peer: &str, incarnation: u64) -> bool {
        let peer = self.peers.get(peer);
        peer.is_some_and(|peer| peer.incarnation == incarnation)
    }

    fn insert(&mut self, name: &str, part: Part) {
        let Some(peer) = self.peers.get_mut(name) else {
            return;
        };
        let bytes = peer.bytes + part.received.capacity();
        self.by_age.insert((part.since, name.to_owned(), part.key));
        peer.parts.push_back(part);
        self.counted(name, bytes);
    }

    fn remove_key(&mut self, name: &str, key: u64) -> Option<Part> {
        let parts = &self.peers.get(name)?.parts;
        let place = parts.iter().position(|part| part.key == key)?;
        self.remove(name, place)
    }

    fn remove(&mut self, name: &str, place: usize) -> Option<Part> {
        let peer = self.peers.get_mut(name)?;
        let part = peer.parts.remove(place)?;
        let bytes = peer.bytes - part.received.capacity();
        self.by_age.remove(&(part.since, name.to_owned(), part.key));
        self.counted(name, bytes);
        Some(part)
    }

    /// Notes how many bytes a peer has now.
    fn counted(&mut self, name: &str, bytes: usize) {
        if let Some(peer) = self.peers.get_mut(name) {
            let before = std::mem::replace(&mut peer.bytes, bytes);
            self.bytes = self.bytes - before + bytes;
            self.by_bytes.remove(&(before, name.to_owned()));
            if bytes > 0 {
                self.by_bytes.insert((bytes, name.to_owned()));
            }
        }
    }
}
