//! One socket's beacons: where they are sent, and which received ones count.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::delay::{Delays, KNOWN};
use crate::key::Key;
use crate::timing::Timing;
use crate::wire::{BEACON_BYTES, Beacon, KeyId, Kind, Late, Sequence};

/// Most keys of one peer. Each session brings one, and a peer may still use the key of a session
/// that has ended here.
const KEYS_PER_PEER: usize = 64;

/// A returned beacon counts only if it is not older than this, ms.
const RECENT_MS: u32 = 600_000;

/// Most beacons with unknown keys that are returned each second, for all senders together.
const GIVEN_BACK_PER_S: u32 = 100;

/// A key is kept at least this long: the peer may get it a little later than this node.
const KEY_GRACE: Duration = Duration::from_secs(2);

/// The low bits of the incarnation in beacons count how often the milliseconds of a run have
/// passed 2^32, which takes 8,900 years: so no run gets a number of the next one.
const CARRY_BITS: u32 = 16;

/// Names a peer for its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u64);

/// A peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerConfig {
    /// Its ipn node number.
    pub node: u32,
    /// Round-trip time without load.
    pub rtt: Duration,
    /// Its address; none if that is learned from its beacons, as is necessary if addresses are
    /// translated on the way.
    pub address: Option<SocketAddr>,
    /// How long it may be silent before beacons to it become rarer and rarer. If it sends beacons
    /// by itself, this delays nothing at its return.
    pub patience: Duration,
}

/// What the convergence layer has heard of a peer and sent to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Bytes or acknowledgements came last.
    pub heard: Option<Instant>,
    /// Anything left last.
    pub sent: Option<Instant>,
}

/// How long queues delay packets between this node and a peer: how much later than the least the
/// beacons come. A lying peer can report any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delayed {
    /// Packets from the peer: the largest recent delay.
    pub from_peer: Option<Duration>,
    /// Packets to the peer, as its last beacon has reported.
    pub to_peer: Option<Duration>,
    /// How old `to_peer` may be beyond a round trip: the interval of beacons in both directions.
    pub told_each: Duration,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An authentic beacon came.
    Heard(PeerId),
    /// The same, and it says that the peer hears nothing of this end: nothing at all for a round
    /// trip, and no beacon for a second.
    Deaf(PeerId),
    /// An authentic beacon came by which the peer lets the link rest.
    Resting(PeerId),
    /// The peer runs but does not know the key: it has lost all sessions.
    KeyUnknown(PeerId),
}

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// The datagram.
    pub datagram: [u8; BEACON_BYTES],
}

/// Datagrams in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Beacons sent.
    pub sent: u64,
    /// Authentic and new.
    pub heard: u64,
    /// No datagrams of this protocol.
    pub malformed: u64,
    /// With a key that is not known here.
    pub unknown_key: u64,
    /// With a tag that is not of their key.
    pub forged: u64,
    /// Authentic and not later than one before.
    pub replayed: u64,
}

#[derive(Debug)]
struct Peer {
    config: PeerConfig,
    timing: Timing,
    /// The least number that the next beacon to it may have.
    sequence: Sequence,
    /// How long its own are on their way.
    delays: Delays,
    /// How late this end's last beacon was, as the peer's last one has reported.
    told: Option<(Instant, Late)>,
    /// Whether it reports on this end's beacons; if not, it has heard none lately.
    tells: bool,
    /// Where beacons go.
    address: Option<SocketAddr>,
    /// What they are sealed with.
    key: Option<KeyId>,
    /// Since when.
    key_since: Instant,
    /// Known keys, the oldest first.
    keys: VecDeque<KeyId>,
    /// The key that the peer was said not to know.
    lost: Option<KeyId>,
    /// As listed in the endpoint's deadlines.
    due: Option<Instant>,
    /// Beacons sent to it and heard of it.
    moved: u64,
}

impl Peer {
    /// Whether a beacon, if it was sent from here, has a recent number.
    fn sent_lately(&self, beacon: &Beacon) -> bool {
        let Sequence {
            incarnation,
            counter,
        } = self.sequence;
        let recent = counter.saturating_sub(RECENT_MS)..counter;
        beacon.sequence.incarnation == incarnation && recent.contains(&beacon.sequence.counter)
    }
}

/// A key with the highest number that came under it.
#[derive(Debug)]
struct Known {
    peer: PeerId,
    key: Key,
    highest: Option<Sequence>,
}

/// The beacons of one socket, without the socket.
#[derive(Debug)]
pub struct Endpoint {
    node: u32,
    /// In beacons: that of the run, above the bits of its carries.
    incarnation: u64,
    peers: HashMap<PeerId, Peer>,
    /// Those whose address is configured.
    dialled: Vec<PeerId>,
    /// By key id and the node that uses it: several nodes may share one configured key.
    keys: HashMap<(KeyId, u32), Known>,
    deadlines: BTreeSet<(Instant, PeerId)>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
    counters: Counters,
    /// The second in which beacons were last returned, and how many.
    given_back: Option<(Instant, u32)>,
    started: Instant,
}

impl Endpoint {
    /// An endpoint of node `node` in its run `incarnation`, which began at `started` and has a
    /// greater number than every earlier run. The numbers of beacons are milliseconds since
    /// `started`, for every endpoint of the run. So an endpoint that is made again is still
    /// believed, and peers can measure how long its beacons take.
    pub fn new(node: u32, incarnation: u64, started: Instant) -> Endpoint {
        Endpoint {
            node,
            incarnation: incarnation.min(u64::MAX >> CARRY_BITS) << CARRY_BITS,
            peers: HashMap::new(),
            dialled: Vec::new(),
            keys: HashMap::new(),
            deadlines: BTreeSet::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            given_back: None,
            started,
        }
    }

    /// Adds a peer. Its beacons begin when its key and its address are known.
    pub fn add_peer(&mut self, now: Instant, id: PeerId, config: PeerConfig) {
        if config.address.is_some() {
            self.dialled.push(id);
        }
        let peer = Peer {
            timing: Timing::new(now, config.rtt, config.patience),
            sequence: self.number(now),
            delays: Delays::new(now),
            told: None,
            tells: false,
            address: config.address,
            config,
            key: None,
            key_since: now,
            keys: VecDeque::new(),
            lost: None,
            due: None,
            moved: 0,
        };
        self.peers.insert(id, peer);
    }

    /// The number of a beacon that is sent at `now`: milliseconds of this run.
    fn number(&self, now: Instant) -> Sequence {
        let run = now.saturating_duration_since(self.started);
        let run_ms = u64::try_from(run.as_millis()).unwrap_or(u64::MAX);
        Sequence {
            incarnation: self.incarnation | (run_ms >> 32).min((1 << CARRY_BITS) - 1),
            counter: run_ms as u32,
        }
    }

    /// Forgets a peer with its keys.
    pub fn remove_peer(&mut self, id: PeerId) {
        let Some(peer) = self.peers.remove(&id) else {
            return;
        };
        for key in &peer.keys {
            self.keys.remove(&(*key, peer.config.node));
        }
        self.dialled.retain(|dialled| *dialled != id);
        if let Some(at) = peer.due {
            self.deadlines.remove(&(at, id));
        }
    }

    /// Sets a peer's round trip, which determines the interval of its beacons.
    pub fn set_rtt(&mut self, id: PeerId, rtt: Duration) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.config.rtt = rtt;
            peer.timing.set_rtt(rtt);
        }
        self.reschedule(id);
    }

    /// Adds a key that the peer knows too, or is about to. The side that knows the other's address
    /// uses it at once; the other side follows.
    pub fn add_key(&mut self, now: Instant, id: PeerId, key: Key) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let name = (key.id(), peer.config.node);
        if peer.config.address.is_some() {
            peer.key = Some(name.0);
            peer.key_since = now;
            peer.timing.restart(now);
        }
        // A known key keeps its number; otherwise old beacons would count again.
        self.keys.entry(name).or_insert_with(|| {
            peer.keys.push_back(name.0);
            Known {
                peer: id,
                key,
                highest: None,
            }
        });
        if peer.keys.len() > KEYS_PER_PEER
            && let Some(oldest) = peer.keys.pop_front()
        {
            self.keys.remove(&(oldest, name.1));
        }
        self.reschedule(id);
    }

    /// Sends a peer no more beacons until one of its own arrives here: it now uses another endpoint
    /// of this node.
    pub fn leave(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.address = peer.config.address;
            if peer.config.address.is_none() {
                peer.key = None;
            }
        }
        self.reschedule(id);
    }

    /// Asks the peer for beacons beside its other traffic, for the next two seconds, so that
    /// [`Endpoint::delayed`] is known.
    pub fn want(&mut self, now: Instant, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.timing.want(now);
        }
        self.reschedule(id);
    }

    /// Lets the link to a peer rest, since there is nothing to send and its bytes are expensive, or
    /// wakes it. Beacons become rare only if the peer lets it rest, too.
    pub fn let_rest(&mut self, now: Instant, id: PeerId, may: bool) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.timing.let_rest(now, may);
        }
        self.reschedule(id);
    }

    /// Sets the interval of beacons that probe a peer, and of those that answer its own probes; at
    /// most [`crate::INTERVAL`].
    pub fn set_probe_interval(&mut self, id: PeerId, interval: Duration) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.timing.set_probe_interval(interval);
        }
        self.reschedule(id);
    }

    /// The peer owes an answer of the convergence layer: probes it until it is heard, at most for
    /// `lasting`.
    pub fn probe(&mut self, now: Instant, id: PeerId, lasting: Duration) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.timing.probe(now + lasting);
        }
        self.reschedule(id);
    }

    /// Sets the interval of beacons to a peer according to this end's rate. It applies if the peer
    /// wants them beside other traffic. On an idle link it also applies, up to what the time allows
    /// after which silence is a blockage.
    pub fn set_pace(&mut self, id: PeerId, pace: Duration) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.timing.set_pace(pace);
        }
        self.reschedule(id);
    }

    /// Beacons sent to a peer and heard of it.
    pub fn moved(&self, id: PeerId) -> u64 {
        self.peers.get(&id).map_or(0, |peer| peer.moved)
    }

    /// How long queues delay packets between this node and a peer.
    pub fn delayed(&self, now: Instant, id: PeerId) -> Delayed {
        let Some(peer) = self.peers.get(&id) else {
            return Delayed::default();
        };
        let told = peer.told.filter(|(at, _)| now < *at + KNOWN);
        Delayed {
            from_peer: peer.delays.late(now),
            to_peer: told.map(|(_, late)| late.get()),
            told_each: peer.timing.pause(now) + peer.delays.pause(),
        }
    }

    /// Notes what the convergence layer has heard and sent.
    pub fn note(&mut self, id: PeerId, signs: Signs) {
        if let Some(peer) = self.peers.get_mut(&id) {
            if let Some(at) = signs.heard {
                peer.timing.heard(at);
            }
            if let Some(at) = signs.sent {
                peer.timing.sent(at);
            }
        }
        self.reschedule(id);
    }

    /// Peers whose beacon is due, unless [`Endpoint::note`] postpones it.
    pub fn due(&self, now: Instant) -> Vec<PeerId> {
        let due = self.deadlines.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, id)| *id).collect()
    }

    /// When [`Endpoint::handle_timeout`] must be called at the latest.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Sends what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        for id in self.due(now) {
            self.send(now, id);
            self.reschedule(id);
        }
    }

    /// A datagram came at `now`, its time of arrival, which may be a little before the `now` of
    /// earlier calls.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        match Beacon::parse(datagram) {
            None => self.counters.malformed += 1,
            Some((Kind::Beacon, beacon)) => self.receive(now, from, &beacon, datagram),
            Some((Kind::KeyUnknown, beacon)) => self.take_back(now, &beacon, datagram),
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How many peers there are.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Datagrams in numbers.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, beacon: &Beacon, datagram: &[u8]) {
        let Some(known) = self.keys.get_mut(&(beacon.key, beacon.node)) else {
            self.counters.unknown_key += 1;
            self.give_back(now, from, datagram);
            return;
        };
        if !known.key.is_authentic(datagram) {
            self.counters.forged += 1;
            return;
        }
        // An older beacon that was overtaken brings no news either.
        if known.highest >= Some(beacon.sequence) {
            self.counters.replayed += 1;
            return;
        }
        known.highest = Some(beacon.sequence);
        let id = known.peer;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        self.counters.heard += 1;
        peer.moved += 1;
        if peer.config.address.is_none() {
            peer.address = Some(from);
            peer.key = Some(beacon.key);
        }
        peer.timing.heard(now);
        let run = beacon.sequence.incarnation;
        let hears_nothing = beacon.deaf && beacon.late.is_none() && peer.tells;
        peer.timing
            .peer_rests(now, run, beacon.rests, hears_nothing);
        peer.delays.see(now, beacon.sequence);
        peer.told = beacon.late.map(|late| (now, late));
        peer.tells |= beacon.late.is_some();
        if beacon.deaf {
            peer.timing.ask();
        }
        if beacon.wants {
            peer.timing.wanted(now);
        }
        // On a resting link the peer reports nothing, and nothing is sent that could be lost.
        self.events.push_back(match beacon.rests {
            _ if hears_nothing && !peer.timing.rests() => Event::Deaf(id),
            true => Event::Resting(id),
            false => Event::Heard(id),
        });
        self.reschedule(id);
    }

    /// Tells a sender that its key is unknown here, by returning its own datagram. So only a node
    /// that has seen the beacon can say this, and no more bytes go back than came.
    fn give_back(&mut self, now: Instant, to: SocketAddr, datagram: &[u8]) {
        let (begun, count) = self
            .given_back
            .filter(|(begun, _)| now.saturating_duration_since(*begun).as_secs() < 1)
            .unwrap_or((now, 0));
        if count >= GIVEN_BACK_PER_S {
            return;
        }
        self.given_back = Some((begun, count + 1));
        if let Ok(mut datagram) = <[u8; BEACON_BYTES]>::try_from(datagram) {
            datagram[0] = Kind::KeyUnknown.byte();
            self.transmits.push_back(Transmit { to, datagram });
        }
    }

    /// One of this node's beacons came back, or a forgery of one. Only the dialling side needs to
    /// know: the other side waits for sessions.
    fn take_back(&mut self, now: Instant, beacon: &Beacon, datagram: &[u8]) {
        let peers = &self.peers;
        let sealed = |id: &&PeerId| {
            let peer = peers.get(id);
            peer.is_some_and(|peer| peer.key == Some(beacon.key) && peer.sent_lately(beacon))
        };
        let found = self.dialled.iter().find(sealed).copied();
        let found = found.filter(|_| beacon.node == self.node);
        let Some((id, peer)) = found.and_then(|id| Some((id, self.peers.get_mut(&id)?))) else {
            self.counters.malformed += 1;
            return;
        };
        let known = self.keys.get(&(beacon.key, peer.config.node));
        if !known.is_some_and(|known| known.key.is_authentic(datagram)) {
            self.counters.forged += 1;
            return;
        }
        let settled = now.saturating_duration_since(peer.key_since) >= KEY_GRACE;
        if settled && peer.lost != Some(beacon.key) {
            peer.lost = Some(beacon.key);
            self.events.push_back(Event::KeyUnknown(id));
        }
    }

    fn send(&mut self, now: Instant, id: PeerId) {
        let number = self.number(now);
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let sealed_with = peer.key.map(|key| (key, peer.config.node));
        let known = sealed_with.and_then(|name| self.keys.get(&name));
        let (Some(to), Some(known)) = (peer.address, known) else {
            return;
        };
        let beacon = Beacon {
            deaf: peer.timing.is_deaf(now),
            wants: peer.timing.wants(now),
            rests: peer.timing.tells_rest(),
            late: peer.delays.last(now).map(Late::of),
            key: known.key.id(),
            node: self.node,
            sequence: number.max(peer.sequence),
        };
        // A peer of an older build drops beacons that it does not understand.
        let rests = !beacon.rests && peer.timing.offers(now);
        let sequence = beacon.sequence.next();
        let offer = rests.then_some(Beacon {
            rests,
            sequence,
            ..beacon
        });
        for beacon in [Some(beacon), offer].into_iter().flatten() {
            let datagram = known.key.seal(&beacon);
            self.transmits.push_back(Transmit { to, datagram });
            peer.sequence = beacon.sequence.next();
            self.counters.sent += 1;
            peer.moved += 1;
        }
        peer.timing.beaconed(now);
    }

    /// Lists a peer under its next deadline.
    fn reschedule(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let able = peer.address.is_some() && peer.key.is_some();
        let due = able.then(|| peer.timing.due());
        if due != peer.due {
            if let Some(before) = peer.due {
                self.deadlines.remove(&(before, id));
            }
            if let Some(at) = due {
                self.deadlines.insert((at, id));
            }
            peer.due = due;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_at_its_end_goes_on() {
        let now = Instant::now();
        let address = SocketAddr::from(([192, 0, 2, 1], 4556));
        let config = |node, address| PeerConfig {
            node,
            rtt: Duration::from_millis(560),
            address,
            patience: Duration::MAX,
        };
        let id = PeerId(7);
        let (mut terminal, mut hub) = (Endpoint::new(2, 1, now), Endpoint::new(1, 1, now));
        terminal.add_peer(now, id, config(1, Some(address)));
        hub.add_peer(now, id, config(2, None));
        for end in [&mut terminal, &mut hub] {
            end.add_key(now, id, Key::new(&[1; 32]));
        }
        let peer = terminal.peers.get_mut(&id).expect("it was added");
        peer.sequence.counter = u32::MAX - 3;
        for beacon in 0..10 {
            let at = now + Duration::from_secs(beacon);
            terminal.handle_timeout(at);
            let sent = terminal.poll_transmit().expect("it is due");
            hub.handle_datagram(at, address, &sent.datagram);
            assert_eq!(hub.poll_event(), Some(Event::Heard(id)), "beacon {beacon}");
        }
    }
}
