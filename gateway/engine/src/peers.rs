//! The edge nodes that streams lead to: their streams, which of them have
//! something to seal and whose turn it is, and when each is to be looked at.
//!
//! Streams are changed by [`Peers::change`] and [`Peers::seal`], which then bring all the rest up
//! to date, so that no caller has to remember it. Changes by [`Peers::open`] are looked at a moment
//! later. A call costs only what the peer's own streams need, and looks at no other peer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant};

use underpass_cla::Class;
use underpass_streams::{Event, OpenError, Peer, class_of, lane, lanes};
use underpass_work::FastMap;

use crate::engine::Action;
use crate::leaves::{Places, places_in};
use crate::streams::StreamKey;

/// How long a request to open waits for the first bytes.
const OPEN_PAUSE: Duration = Duration::from_millis(2);

/// An edge node, and what was noted of its streams after their last change.
struct Known {
    streams: Peer,
    /// The neighbour that leads to it.
    neighbour: u64,
    /// In which classes it waits.
    waits: Places,
    /// When its streams are to be looked at for what has expired.
    due: Option<Instant>,
}

/// In which classes a node waits behind its neighbour.
struct Waits {
    neighbour: u64,
    before: Places,
    after: Places,
}

/// Edge nodes with something to seal in one class behind one neighbour.
#[derive(Default)]
struct Turns {
    waiting: BTreeSet<u64>,
    /// The one whose bytes were sealed last.
    last: Option<u64>,
    /// A bundle that was sealed before has just left: it is the turn of a light stream.
    light_next: bool,
}

/// All edge nodes that streams lead to.
pub(crate) struct Peers {
    classes: Vec<Class>,
    /// Those and their lanes; places never change.
    queues: Vec<Class>,
    /// For streams of classes that are not configured here.
    default_class: Class,
    known: FastMap<u64, Known>,
    /// Their dues, in order.
    times: BTreeSet<(Instant, u64)>,
    /// By neighbour and class.
    turns: FastMap<(u64, Class), Turns>,
    /// Those with requests to open that wait for their first bytes.
    opened: BTreeSet<u64>,
    flush_at: Option<Instant>,
    /// Neighbours that lead to nodes whose streams have changed, and in which
    /// classes these wait, or did before.
    changed: Vec<(u64, Places)>,
    /// Streams that have ended with bytes left to seal.
    ended: Vec<StreamKey>,
    /// Streams of which nobody wants what is withheld.
    unwanted: Vec<StreamKey>,
}

impl Peers {
    /// Without any. There are at most 16 classes.
    pub fn new(classes: Vec<Class>, default_class: Class) -> Peers {
        Peers {
            queues: classes.clone(),
            classes,
            default_class,
            known: FastMap::default(),
            times: BTreeSet::new(),
            turns: FastMap::default(),
            opened: BTreeSet::new(),
            flush_at: None,
            changed: Vec::new(),
            ended: Vec::new(),
            unwanted: Vec::new(),
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Peers {
            classes: _,
            queues: _,
            default_class: _,
            known,
            times,
            turns,
            opened,
            flush_at: _,
            changed,
            ended,
            unwanted,
        } = self;
        tell("peers", known.len());
        known
            .values()
            .for_each(|known| known.streams.footprint(tell));
        tell("peers by time", times.len());
        tell("neighbours and classes", turns.len());
        let waiting = turns.values().map(|turns| turns.waiting.len());
        tell("peers with something to seal", waiting.sum());
        tell("peers with streams to open", opened.len());
        tell("neighbours with changed streams", changed.len());
        tell("streams ended ahead", ended.len());
        tell("streams unwanted ahead", unwanted.len());
    }

    /// The streams with each node, to be handed over.
    pub fn into_streams(self) -> BTreeMap<u64, Peer> {
        let known = self.known.into_iter();
        known.map(|(peer, known)| (peer, known.streams)).collect()
    }

    /// Sets the class of streams whose own is not configured here.
    pub fn set_default_class(&mut self, class: Class) {
        self.default_class = class;
    }

    /// Adds a node by way of `neighbour`. What its streams have to say at once
    /// waits for their first change.
    pub fn insert(&mut self, peer: u64, neighbour: u64, streams: Peer) {
        let known = Known {
            streams,
            neighbour,
            waits: 0,
            due: None,
        };
        self.known.insert(peer, known);
    }

    /// Whether there are streams with a node, or have been.
    pub fn contains(&self, peer: u64) -> bool {
        self.known.contains_key(&peer)
    }

    /// The streams with a node.
    pub fn get(&self, peer: u64) -> Option<&Peer> {
        self.known.get(&peer).map(|known| &known.streams)
    }

    /// Limits the written data that waits, bytes, for one stream with a node and for all, to what
    /// suits the present rate. What is to be sealed stays as it is.
    pub fn set_present_buffers(&mut self, peer: u64, stream_bytes: usize, total_bytes: usize) {
        if let Some(known) = self.known.get_mut(&peer) {
            let streams = known.streams.current();
            streams.set_present_buffers(stream_bytes, total_bytes);
        }
    }

    /// All nodes, by number.
    pub fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.known.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// The streams with each node, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Peer)> {
        let known = self.known.iter();
        known.map(|(peer, known)| (*peer, &known.streams))
    }

    /// Changes the streams with a node. What then happens to them is added to `actions`, and
    /// [`Peers::pop_changed`] names the node's neighbour.
    pub fn change<R>(
        &mut self,
        actions: &mut VecDeque<Action>,
        peer: u64,
        call: impl FnOnce(&mut Peer) -> R,
    ) -> Option<R> {
        let (result, waits) = self.apply(actions, peer, call)?;
        self.name(waits.neighbour, waits.before | waits.after);
        Some(result)
    }

    /// As [`Peers::change`], but the neighbour is named only for classes in which the node begins
    /// to wait: the caller who seals for it knows what is left in the others, and what has no room
    /// now waits for room.
    pub fn seal<R>(
        &mut self,
        actions: &mut VecDeque<Action>,
        peer: u64,
        call: impl FnOnce(&mut Peer) -> R,
    ) -> Option<R> {
        let (result, waits) = self.apply(actions, peer, call)?;
        let begins = waits.after & !waits.before;
        if begins != 0 {
            self.name(waits.neighbour, begins);
        }
        Some(result)
    }

    /// Changes the streams with a node, and updates what is noted of them.
    fn apply<R>(
        &mut self,
        actions: &mut VecDeque<Action>,
        peer: u64,
        call: impl FnOnce(&mut Peer) -> R,
    ) -> Option<(R, Waits)> {
        let known = self.known.get_mut(&peer)?;
        let result = call(&mut known.streams);
        while let Some((epoch, mut event)) = known.streams.poll_event() {
            if let Event::Opened { id, open } = &mut event
                && (open.class == Class::SIGNALLING || !self.classes.contains(&open.class))
            {
                // The peer has named this class; what is sent from here needs a class of this node.
                // Streams may not use signalling's, which leaves before all else, has its own room
                // in the store, and goes by metered paths whose budget is spent.
                open.class = self.default_class;
                if let Some(mux) = known.streams.streams_of(epoch, *id) {
                    // A stream that is gone already sends nothing, so an error does not matter.
                    let _ = mux.set_class(*id, self.default_class);
                }
            }
            actions.push_back(Action::Stream { peer, epoch, event });
        }
        while let Some((epoch, id)) = known.streams.poll_unwanted() {
            self.unwanted.push(StreamKey { peer, epoch, id });
        }
        while let Some((epoch, id)) = known.streams.poll_ended() {
            self.ended.push(StreamKey { peer, epoch, id });
        }
        let queues = self.queues.iter().enumerate();
        let waits = queues.filter(|(_, class)| known.streams.has_pending(**class));
        let waits = waits.fold(0, |waits, (place, _)| waits | 1 << place);
        let before = std::mem::replace(&mut known.waits, waits);
        let due = known.streams.next_timeout();
        let was_due = std::mem::replace(&mut known.due, due);
        if was_due != due {
            was_due.map(|at| self.times.remove(&(at, peer)));
            due.map(|at| self.times.insert((at, peer)));
        }
        let neighbour = known.neighbour;
        self.queue(neighbour, peer, before & !waits, false);
        self.queue(neighbour, peer, waits & !before, true);
        let waits = Waits {
            neighbour,
            before,
            after: waits,
        };
        Some((result, waits))
    }

    /// Names a neighbour, for [`Peers::pop_changed`].
    fn name(&mut self, neighbour: u64, places: Places) {
        let places = self.leaves_of(places);
        match self.changed.last_mut() {
            Some((last, named)) if *last == neighbour => *named |= places,
            _ => self.changed.push((neighbour, places)),
        }
    }

    /// Adds a node to those that wait for their turn in classes, or removes it.
    fn queue(&mut self, neighbour: u64, peer: u64, places: Places, waits: bool) {
        for place in places_in(places) {
            let class = self.queues[place];
            let turns = self.turns.entry((neighbour, class)).or_default();
            match waits {
                true => turns.waiting.insert(peer),
                false => turns.waiting.remove(&peer),
            };
        }
    }

    /// Whether a node behind a neighbour has something to seal.
    pub fn waits(&self, neighbour: u64, class: Class) -> bool {
        let turns = self.turns.get(&(neighbour, class));
        turns.is_some_and(|turns| !turns.waiting.is_empty())
    }

    /// Whether the node whose turn it is has a light stream: one that begins or sends seldom, and
    /// sends little of all.
    pub fn has_light(&self, neighbour: u64, class: Class) -> bool {
        let of = |queue: Class| {
            let peer = self.next(neighbour, queue).and_then(|peer| self.get(peer));
            peer.is_some_and(|streams| streams.has_light(queue))
        };
        of(class) || self.has_lanes(class) && lanes(class).any(of)
    }

    /// Adds lanes to a class: its flows may wait in them from now on.
    pub fn add_lanes(&mut self, class: Class) {
        if !self.has_lanes(class) {
            self.queues.extend(lanes(class));
        }
    }

    /// Whether flows of a class may wait in lanes.
    pub fn has_lanes(&self, class: Class) -> bool {
        self.queues.len() > self.classes.len()
            && lane(class, 0).is_some_and(|first| self.queues.contains(&first))
    }

    /// The places of the classes whose queues these are.
    fn leaves_of(&self, places: Places) -> Places {
        let of_classes = places & ((1 << self.classes.len()) - 1);
        places_in(places & !of_classes).fold(of_classes, |leaves, place| {
            let class = class_of(self.queues[place]);
            let place = self.classes.iter().position(|known| *known == class);
            leaves | place.map_or(0, |place| 1 << place)
        })
    }

    /// The node behind a neighbour whose turn it is.
    pub fn next(&self, neighbour: u64, class: Class) -> Option<u64> {
        let Turns { waiting, last, .. } = self.turns.get(&(neighbour, class))?;
        let behind = last.and_then(|last| waiting.range((Excluded(last), Unbounded)).next());
        behind.or_else(|| waiting.first()).copied()
    }

    /// Notes that a bundle that was sealed before has left for a neighbour.
    pub fn bundle_has_gone(&mut self, neighbour: u64, class: Class) {
        if let Some(turns) = self.turns.get_mut(&(neighbour, class)) {
            turns.light_next = true;
        }
    }

    /// Whether such a bundle has left since the last turn of a light stream; if so, that turn is
    /// taken now.
    pub fn take_light_turn(&mut self, neighbour: u64, class: Class) -> bool {
        let turns = self.turns.get_mut(&(neighbour, class));
        turns.is_some_and(|turns| std::mem::take(&mut turns.light_next))
    }

    /// Notes that a node has had its turn.
    pub fn had_its_turn(&mut self, neighbour: u64, class: Class, peer: u64) {
        self.turns.entry((neighbour, class)).or_default().last = Some(peer);
    }

    /// Passes a node over in a class until its streams change: it has nothing to seal there, or
    /// there is no room for it.
    pub fn pass_over(&mut self, peer: u64, class: Class) {
        let place = self.queues.iter().position(|known| *known == class);
        if let (Some(place), Some(known)) = (place, self.known.get_mut(&peer)) {
            let bit = known.waits & 1 << place;
            known.waits &= !bit;
            let neighbour = known.neighbour;
            self.queue(neighbour, peer, bit, false);
        }
    }

    /// Notes that another neighbour leads to a node.
    pub fn reroute(&mut self, peer: u64, neighbour: u64) {
        let Some(known) = self.known.get_mut(&peer) else {
            return;
        };
        let waits = known.waits;
        let before = std::mem::replace(&mut known.neighbour, neighbour);
        if before != neighbour {
            self.queue(before, peer, waits, false);
            self.queue(neighbour, peer, waits, true);
            self.name(before, waits);
            self.name(neighbour, waits);
        }
    }

    /// Opens a stream. Its request waits: the client's first bytes are mostly
    /// written within the pause, and then leave with it.
    ///
    /// # Errors
    /// When the streams refuse.
    pub fn open<R>(
        &mut self,
        now: Instant,
        peer: u64,
        call: impl FnOnce(&mut Peer) -> Result<R, OpenError>,
    ) -> Result<R, OpenError> {
        let known = self.known.get_mut(&peer);
        let opened = call(&mut known.ok_or(OpenError::TooManyStreams)?.streams)?;
        self.opened.insert(peer);
        self.flush_at.get_or_insert(now + OPEN_PAUSE);
        Ok(opened)
    }

    /// When [`Peers::pop_due`] has one.
    pub fn next_timeout(&self) -> Option<Instant> {
        let due = self.times.first().map(|(at, _)| *at);
        due.into_iter().chain(self.flush_at).min()
    }

    /// A node whose streams are to be looked at by `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<u64> {
        if self.flush_at.is_some_and(|at| at <= now) {
            if let Some(peer) = self.opened.pop_first() {
                return Some(peer);
            }
            self.flush_at = None;
        }
        let (_, peer) = self.times.first().copied().filter(|(at, _)| *at <= now)?;
        self.times.pop_first();
        if let Some(known) = self.known.get_mut(&peer) {
            known.due = None;
        }
        Some(peer)
    }

    /// A neighbour that leads to nodes whose streams have changed, and classes
    /// in which they may have begun or ceased to wait.
    pub fn pop_changed(&mut self) -> Option<(u64, Places)> {
        self.changed.pop()
    }

    /// Streams that have ended with bytes left to seal.
    pub fn take_ended(&mut self) -> Vec<StreamKey> {
        std::mem::take(&mut self.ended)
    }

    /// Streams of which nobody wants what is withheld.
    pub fn take_unwanted(&mut self) -> Vec<StreamKey> {
        std::mem::take(&mut self.unwanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use underpass_streams::{Config, Open, ResetCode, Sealed, Side, StreamId, Target};

    /// A class that a peer announces must not put its streams in a lane.
    #[test]
    fn a_class_of_a_peer_that_is_not_configured_is_the_default_one() {
        let now = Instant::now();
        for named in [3, 63, 64, 72, 75, 127, 255].map(Class) {
            let mut peers = Peers::new(CLASSES.to_vec(), Class(1));
            peers.add_lanes(Class(2));
            peers.insert(10, 10, Peer::new(Config::default(), Side::Lower, 1));
            let mut there = Peer::new(Config::default(), Side::Higher, 1);
            let open = Open::new(
                named,
                Target::Name {
                    host: "origin.example".to_owned(),
                    port: 80,
                },
            );
            let (_, id) = there.open(now, open).expect("it opens");
            let Some(Sealed::Payload { parts, .. }) = there.poll_payload(now, named, 4096) else {
                panic!("an OPEN waits");
            };
            let payload = Bytes::from(parts.concat());
            let mut actions = VecDeque::new();
            let taken = peers.change(&mut actions, 10, |streams| {
                streams.handle_payload(now, named, payload)
            });
            assert!(taken.is_some_and(|taken| taken.is_ok()));
            let queue = peers.change(&mut actions, 10, |streams| streams.current().queue_of(id));
            assert_eq!(queue.flatten(), Some(Class(1)), "{named}");
        }
    }

    const CLASSES: [Class; 3] = [Class(0), Class(1), Class(2)];
    const NEIGHBOURS: u64 = 3;
    const PEERS: u64 = 7;

    /// Checks the totals over all peers against their streams.
    fn check(peers: &Peers, behind: impl Fn(u64) -> u64) {
        let dues = peers.known.iter();
        let dues = dues.filter_map(|(peer, known)| Some((known.due?, *peer)));
        assert_eq!(peers.times, dues.collect());
        for neighbour in 0..NEIGHBOURS {
            for class in CLASSES {
                let waits = |(peer, streams): &(u64, &Peer)| {
                    behind(*peer) == neighbour && streams.has_pending(class)
                };
                let expected: BTreeSet<u64> =
                    peers.iter().filter(waits).map(|(peer, _)| peer).collect();
                let turns = peers.turns.get(&(neighbour, class));
                let waiting = turns.map(|turns| turns.waiting.clone());
                assert_eq!(waiting.unwrap_or_default(), expected);
                assert_eq!(peers.waits(neighbour, class), !expected.is_empty());
                let next = peers.next(neighbour, class);
                assert!(next.map_or(expected.is_empty(), |peer| expected.contains(&peer)));
            }
        }
    }

    #[test]
    fn whoever_seals_in_one_class_names_the_others_in_which_a_node_begins_to_wait() {
        let now = Instant::now();
        let mut peers = Peers::new(CLASSES.to_vec(), Class(2));
        let mut actions = VecDeque::new();
        peers.insert(6, 2, Peer::new(Config::default(), Side::of(100, 6), 1));
        peers.seal(&mut actions, 6, |_| ());
        while peers.pop_changed().is_some() {}
        peers.seal(&mut actions, 6, |streams| {
            while streams.poll_payload(now, Class(0), 4096).is_some() {}
        });
        assert_eq!(peers.pop_changed(), None);
        peers.seal(&mut actions, 6, |streams| {
            streams.peer_announced(now, 1, None);
        });
        assert_eq!(peers.pop_changed(), Some((2, 1)));
        assert!(peers.waits(2, Class(0)));
    }

    #[test]
    fn all_that_is_noted_agrees_with_the_streams_after_every_change() {
        let mut now = Instant::now();
        let mut peers = Peers::new(CLASSES.to_vec(), Class(2));
        let mut actions = VecDeque::new();
        let mut ways: Vec<u64> = (0..PEERS).map(|peer| peer % NEIGHBOURS).collect();
        for peer in 0..PEERS {
            let streams = Peer::new(Config::default(), Side::of(100, peer), 1);
            peers.insert(peer, ways[peer as usize], streams);
            peers.change(&mut actions, peer, |_| ());
        }
        let mut dice = 1u64;
        let mut roll = |sides: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 33) % sides
        };
        let mut open: Vec<(u64, StreamId)> = Vec::new();
        let (mut sealed, mut flushed) = (0, 0);
        for _ in 0..5_000 {
            let peer = roll(PEERS);
            let class = CLASSES[roll(3) as usize];
            match roll(6) {
                0 if open.len() < 50 => {
                    let target = Target::Name {
                        host: "origin.example".to_owned(),
                        port: 80,
                    };
                    let request = Open::new(CLASSES[1 + roll(2) as usize], target);
                    let opened = peers.open(now, peer, |streams| streams.open(now, request));
                    open.push((peer, opened.unwrap().1));
                }
                1 | 2 if !open.is_empty() => {
                    let (peer, id) = open[roll(open.len() as u64) as usize];
                    let data = Bytes::from(vec![0; 100]);
                    peers.change(&mut actions, peer, |streams| {
                        let mux = streams.current();
                        if mux.send_capacity(id) >= data.len() {
                            mux.write(id, data).unwrap();
                        }
                    });
                }
                3 if !open.is_empty() => {
                    let (peer, id) = open.swap_remove(roll(open.len() as u64) as usize);
                    peers.change(&mut actions, peer, |streams| {
                        let mux = streams.current();
                        mux.reset(id, ResetCode::Cancelled, "").unwrap();
                    });
                }
                4 => {
                    let neighbour = roll(NEIGHBOURS);
                    if let Some(peer) = peers.next(neighbour, class) {
                        let payload = peers.seal(&mut actions, peer, |streams| {
                            streams.poll_payload(now, class, 4096)
                        });
                        sealed += usize::from(payload.flatten().is_some());
                        peers.had_its_turn(neighbour, class, peer);
                    }
                }
                _ => {
                    let neighbour = roll(NEIGHBOURS);
                    ways[peer as usize] = neighbour;
                    peers.reroute(peer, neighbour);
                    now += Duration::from_millis(roll(3));
                }
            }
            while let Some(peer) = peers.pop_due(now) {
                peers.change(&mut actions, peer, |streams| streams.handle_timeout(now));
                flushed += 1;
            }
            // A stream that was just opened waits for its first bytes.
            if peers.opened.is_empty() {
                check(&peers, |peer| ways[peer as usize]);
            }
        }
        assert!(sealed > 100 && flushed > 100, "{sealed} {flushed}");
    }
}
