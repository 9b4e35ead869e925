//! What was received of transfers whose session broke, until they go on.
//!
//! Every bound is per peer first, so that no peer can push out what another
//! one needs: the oldest part gives way to a newer one of the same peer, and
//! what does not fit beside other peers' parts is dropped at once. Nothing is
//! lost by that but line time: the sender then begins anew.
//!
//! Most parts are never asked for: a sender goes on only behind bytes that were
//! acknowledged to it, and where a bundle takes less line time than a round
//! trip, nothing of it was when the link broke. The receiver cannot tell which
//! these are, but senders go on with what broke before they send anything new.
//! So a part is forgotten when enough other transfers have completed.

use std::collections::{HashMap, VecDeque};
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
        if let Some(peer) = self.peers.remove(peer) {
            self.bytes -= peer.bytes;
        }
    }

    fn forget_old(&mut self, now: Instant) {
        let time = self.limits.time;
        for peer in self.peers.values_mut() {
            let old = |part: &Part| now.saturating_duration_since(part.since) > time;
            while peer.parts.front().is_some_and(old) {
                self.bytes -= peer.drop_oldest();
            }
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
        let (limits, total) = (self.limits, self.bytes);
        let Some(peer) = self.current(peer, incarnation) else {
            return;
        };
        // Room was made for the whole transfer.
        let received = match received.capacity() > received.len() + received.len() / 8 {
            true => BytesMut::from(&received[..]),
            false => received,
        };
        let size = received.capacity();
        if received.is_empty() || size > limits.bytes_per_peer {
            return;
        }
        let before = peer.bytes;
        peer.take(key);
        while peer.parts.len() >= limits.parts_per_peer || peer.bytes + size > limits.bytes_per_peer
        {
            peer.drop_oldest();
        }
        let others = total - before;
        if others + peer.bytes + size <= limits.bytes {
            peer.bytes += size;
            peer.parts.push_back(Part {
                key,
                since: now,
                completions: peer.completions,
                received,
            });
        }
        self.bytes = others + peer.bytes;
    }

    /// Notes that all of a transfer is here, and forgets parts of others that
    /// would have gone on before it.
    pub fn complete(&mut self, peer: &str, incarnation: u64, key: u64) {
        let Some(peer) = self.current(peer, incarnation) else {
            return;
        };
        if peer.completed.len() == COMPLETED_PER_PEER {
            peer.completed.pop_front();
        }
        peer.completed.push_back(key);
        peer.completions += 1;
        let completions = peer.completions;
        let unwanted = |part: &Part| completions - part.completions >= COMPLETED_PER_PART;
        let mut freed = 0;
        while peer.parts.front().is_some_and(unwanted) {
            freed += peer.drop_oldest();
        }
        self.bytes -= freed;
    }

    /// Takes what is here of a transfer.
    pub fn take(&mut self, now: Instant, peer: &str, incarnation: u64, key: u64) -> Found {
        self.forget_old(now);
        let Some(peer) = self.current(peer, incarnation) else {
            return Found::Nothing;
        };
        if peer.completed.contains(&key) {
            return Found::Completed;
        }
        match peer.take(key) {
            Some(part) => {
                self.bytes -= part.received.capacity();
                Found::Part(part.received)
            }
            None => Found::Nothing,
        }
    }

    fn current(&mut self, peer: &str, incarnation: u64) -> Option<&mut Peer> {
        let peer = self.peers.get_mut(peer);
        peer.filter(|peer| peer.incarnation == incarnation)
    }
}

impl Peer {
    fn take(&mut self, key: u64) -> Option<Part> {
        let place = self.parts.iter().position(|part| part.key == key)?;
        let part = self.parts.remove(place)?;
        self.bytes -= part.received.capacity();
        Some(part)
    }

    /// Drops the oldest part and says how many bytes that frees.
    fn drop_oldest(&mut self) -> usize {
        let freed = self.parts.pop_front().map_or(0, |p| p.received.capacity());
        self.bytes -= freed;
        freed
    }
}
