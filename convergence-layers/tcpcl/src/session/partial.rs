//! What was received of transfers whose session broke, until they go on.
//!
//! Every bound is per peer first: the oldest part gives way to a newer one of
//! the same peer. Where all peers together have too much, it is the peer with
//! the most bytes that loses its oldest part (Suter et al. 1998, longest queue
//! drop): so each peer always has room for an equal part of the whole, and nobody
//! pushes out what a peer with less has. Nothing is lost by that but line time:
//! the sender then begins anew.
//!
//! Most parts are never asked for: a sender goes on only behind bytes that were
//! acknowledged to it, and where a bundle takes less line time than a round
//! trip, nothing of it was when the link broke. The receiver cannot tell which
//! these are, but senders go on with what broke before they send anything new.
//! So a part is forgotten when enough other transfers have completed.

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
    /// For how long a part is stored: as long as connections are held in a
    /// blockage.
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

/// Names of completed transfers that are remembered per peer: of those that
/// were acknowledged in part when their session broke, one per session.
const COMPLETED_PER_PEER: usize = 64;

/// Transfers of a peer that complete until a part is forgotten: more than a
/// round trip has of full size, which may all go again before the one whose part
/// it is.
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

    /// A session of `peer` is up. If its incarnation is greater, parts of
    /// earlier ones are forgotten, since the names of their transfers begin
    /// anew.
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

    /// Drops what others have more of, until so many bytes of a peer fit.
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

    /// Notes that all of a transfer is here, and forgets parts of others that
    /// would have gone on before it.
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
