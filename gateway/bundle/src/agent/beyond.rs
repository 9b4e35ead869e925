//! What a neighbour has no room for, while it may have some for the rest.
//!
//! A neighbour that refuses a bundle for want of room does not say whether its store is
//! full, or only the part that it has for the next hop or for a service of its own. Were
//! all that goes by it to wait, one source whose bundles go to a node that is switched
//! off would hold up everything else. So bundles with the same aim wait alone, but for
//! one at a time that asks whether there is room again: if there is none for anything,
//! this costs few bundles for each aim.
//!
//! Bundles under custody are refused by a signal, which does not say why: no other
//! bundle may be concerned. So of these only those wait for each other that one node has
//! sent to one service of another. As their signals take a round trip, one that is taken
//! lets two more go, and so on: what goes in vain is no more than a part of what is
//! taken, and what is under way when the room ends.
//!
//! What is for a service of the neighbour that this node has, too, such as its streams,
//! is not looked at here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use underpass_cla::Class;
use underpass_work::{IdSet, each};

use super::Agent;
use super::config::{CustodyTimer, NeighbourId};
use super::custody::spread;
use super::deliver::source_node;
use super::event::BundleId;
use super::forward::LOOK_AHEAD;
use super::stored::{Phase, StoredBundle};
use crate::wire::ipn_parts;

/// Aims with custody, or without, that are known to have no room at once. Where there
/// are more without custody, the neighbour's whole store is taken to be full; with
/// custody, their bundles do not wait for each other.
const MOST: usize = 64;
/// Bundles that may go without an answer when one has been taken, without custody and
/// with it.
const MORE: u32 = 256;
const MORE_IN_CUSTODY: u32 = 2;
/// If so many may go, there is room again.
const ROOM: u32 = 64;

/// Where bundles go that are refused together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Aim {
    /// To a node behind the neighbour, without custody.
    Node(u64),
    /// To a service of the neighbour, without custody.
    Service(u64),
    /// From a node to a service of another, under custody.
    Custody {
        source: u64,
        node: u64,
        service: u64,
    },
}

impl Aim {
    fn is_in_custody(self) -> bool {
        matches!(self, Aim::Custody { .. })
    }
}

/// The aims for which one neighbour had no room when it was last asked.
#[derive(Debug, Default)]
pub(crate) struct Beyond {
    full: BTreeMap<Aim, Full>,
}

/// One of these aims.
#[derive(Debug)]
struct Full {
    /// Nothing is sent there until then, but for `more`.
    until: Instant,
    /// How often in a row it was asked in vain.
    refused: u32,
    /// Whether a bundle is under way that asks.
    asks: bool,
    /// The one that asked last: of those that wait, the next one does so next.
    asked: Option<BundleId>,
    /// Bundles that may go without an answer, since others were taken.
    more: u32,
    /// Those that wait, unsent.
    waiting: IdSet<BundleId>,
}

impl Full {
    fn new(now: Instant) -> Full {
        Full {
            until: now,
            refused: 0,
            asks: false,
            asked: None,
            more: 0,
            waiting: IdSet::default(),
        }
    }

    fn is_shut(&self, now: Instant) -> bool {
        self.more == 0 && self.until > now
    }

    /// Until when what is made would only wait, too. Those that wait already go first:
    /// whether any does is to be looked at again after a `pause`.
    fn shut_until(&self, now: Instant, pause: Duration) -> Option<Instant> {
        if self.is_shut(now) {
            return Some(self.until);
        }
        (!self.waiting.is_empty()).then(|| now + pause)
    }

    /// There is no room: the wait begins, longer each time. Of several bundles that were
    /// under way together the first one counts.
    fn refused(&mut self, now: Instant, timer: &CustodyTimer) {
        self.more = 0;
        if self.asks || self.until <= now {
            self.until = now + timer.backed_off(timer.min / 4, self.refused);
            self.refused += 1;
            self.asks = false;
        }
    }

    /// A bundle is sent; an answer comes within this time. Whether it asks.
    fn sent(&mut self, now: Instant, answer: Duration, id: BundleId) -> bool {
        if self.more > 0 {
            self.more -= 1;
            return false;
        }
        let asks = self.until <= now;
        if asks {
            self.until = now + answer;
            self.asks = true;
            self.asked = Some(id);
        }
        asks
    }

    /// The one that asks next, of those that wait. Each has its turn: the neighbour may
    /// have taken one of them before, and have only its signal lost.
    fn next_to_ask(&self) -> Option<BundleId> {
        let behind = self.asked.map(|asked| BundleId(asked.0 + 1));
        let next = behind.and_then(|behind| self.waiting.iter_from(behind).next());
        next.or_else(|| self.waiting.first())
    }

    /// One was taken, so as many more may go. Those that waited and may go now.
    fn taken(&mut self, more: u32) -> Vec<BundleId> {
        self.refused = 0;
        self.asks = false;
        self.more = self.more.saturating_add(more);
        let first = each(self.waiting.iter()).take(more as usize);
        let first: Vec<BundleId> = first.collect();
        for id in &first {
            self.waiting.remove(*id);
        }
        first
    }
}

impl Beyond {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Beyond { full } = self;
        tell("aims without room", full.len());
        let waiting = full.values().map(|full| full.waiting.len());
        tell("bundles that wait for room", waiting.sum());
    }

    /// A bundle was refused; whether that can be remembered.
    fn refused(&mut self, now: Instant, aim: Aim, timer: &CustodyTimer) -> bool {
        if !self.full.contains_key(&aim) && !self.make_place(now, aim) {
            return false;
        }
        let full = self.full.entry(aim).or_insert_with(|| Full::new(now));
        full.refused(now, timer);
        true
    }

    /// Whether one more aim can be remembered, once those are forgotten that may be asked
    /// again.
    fn make_place(&mut self, now: Instant, aim: Aim) -> bool {
        let in_custody = aim.is_in_custody();
        let count = |full: &BTreeMap<Aim, Full>| {
            let same = each(full.keys()).filter(|of| of.is_in_custody() == in_custody);
            same.count()
        };
        if count(&self.full) >= MOST {
            self.full
                .retain(|of, full| of.is_in_custody() != in_custody || full.until > now);
        }
        count(&self.full) < MOST
    }

    /// All bundles that wait.
    pub fn into_waiting(self) -> Vec<BundleId> {
        let mut all = Vec::new();
        for full in self.full.into_values() {
            all.extend(each(full.waiting.iter()));
        }
        all
    }
}

impl Agent {
    /// The aim of a bundle, if others with the same one may be refused as it is.
    fn aim(&self, stored: &StoredBundle) -> Option<Aim> {
        // Another node's custody is signalled to that.
        let anothers = stored.passed_cteb.is_some();
        if anothers || stored.class == Class::SIGNALLING || stored.is_long() {
            return None;
        }
        let primary = stored.primary();
        let (node, service) = ipn_parts(&primary.destination)?;
        let is_here = NeighbourId(node) == stored.neighbour;
        if is_here && self.config.services.contains(&service) {
            return None;
        }
        match stored.custody {
            // These are refused for what they are.
            true if primary.has_fragmentation() => None,
            true => Some(Aim::Custody {
                source: source_node(&primary.source),
                node,
                service,
            }),
            false if is_here => Some(Aim::Service(service)),
            false => Some(Aim::Node(node)),
        }
    }

    /// Takes note that a neighbour has refused a bundle; whether only those with the same
    /// aim are to wait.
    pub(super) fn refused_beyond(&mut self, now: Instant, id: BundleId) -> bool {
        // Who is refused waits for a time of its own.
        self.leave_waiting(id);
        let Some(stored) = self.bundles.get(id) else {
            return false;
        };
        let via = stored.neighbour;
        let Some(aim) = self.aim(stored) else {
            return false;
        };
        let timer = self.config.custody_timer;
        let is_known = self.neighbour(via).beyond.refused(now, aim, &timer);
        self.have_next_ask(via, aim);
        is_known
    }

    /// Has one of those that wait for room ask as soon as one may: whoever asked before may
    /// never do so again.
    fn have_next_ask(&mut self, via: NeighbourId, aim: Aim) {
        let neighbour = self.neighbours.get(&via);
        let full = neighbour.and_then(|neighbour| neighbour.beyond.full.get(&aim));
        let next = full.and_then(|full| Some((full.until, full.next_to_ask()?)));
        if let Some((until, id)) = next {
            self.wait_until(until, id);
        }
    }

    /// A bundle is sent: if there was no room for those with its aim, they wait for what
    /// becomes of it.
    pub(super) fn ask_beyond(&mut self, now: Instant, id: BundleId) {
        let timer = self.config.custody_timer;
        let Some((via, aim)) = self.known_beyond(id) else {
            return;
        };
        let neighbour = self.neighbour(via);
        let answer = neighbour.signal_timeout(&timer, 0);
        let full = neighbour.beyond.full.get_mut(&aim);
        if full.is_some_and(|full| full.sent(now, answer, id)) {
            self.have_next_ask(via, aim);
        }
    }

    /// The next node has taken a bundle, and so may it others with the same aim.
    pub(super) fn taken_beyond(&mut self, id: BundleId) {
        let Some((via, aim)) = self.known_beyond(id) else {
            return;
        };
        let beyond = &mut self.neighbour(via).beyond;
        let Some(full) = beyond.full.get_mut(&aim) else {
            return;
        };
        let more = match aim.is_in_custody() {
            true => MORE_IN_CUSTODY,
            false => MORE,
        };
        let released = full.taken(more);
        let none_waits = full.waiting.is_empty();
        if none_waits && full.more >= ROOM {
            beyond.full.remove(&aim);
        }
        for id in released {
            self.end_wait(id);
        }
        if none_waits {
            // Others may be made.
            self.woken.insert((via, None));
        }
    }

    /// Until when a bundle under custody for a service of another node would only wait
    /// here, since the neighbour that it goes by has no room for it; none if it may be
    /// sent. [`Event::Woken`](super::Event::Woken) follows where that changes sooner since
    /// the neighbour has taken others.
    pub fn without_room_until(
        &self,
        now: Instant,
        via: NeighbourId,
        (node, service): (u64, u64),
    ) -> Option<Instant> {
        let full = &self.neighbours.get(&via)?.beyond.full;
        let aim = Aim::Custody {
            source: self.config.node,
            node,
            service,
        };
        let pause = self.config.custody_timer.min;
        full.get(&aim)?.shut_until(now, pause)
    }

    /// Whether a bundle waits since there was no room for those with its aim.
    pub(super) fn waits_beyond(&self, now: Instant, id: BundleId) -> bool {
        self.known_beyond(id).is_some_and(|(via, aim)| {
            let neighbour = self.neighbours.get(&via);
            let full = neighbour.and_then(|neighbour| neighbour.beyond.full.get(&aim));
            full.is_some_and(|full| full.is_shut(now)) && !self.awaits_answer(id)
        })
    }

    /// Whether the neighbour has got a bundle and has not refused it since. It may have
    /// custody of it, and only its signal be lost: then it needs no room.
    fn awaits_answer(&self, id: BundleId) -> bool {
        let stored = self.bundles.get(id);
        let number = stored.and_then(|stored| Some((stored.neighbour, stored.number?)));
        number.is_some_and(|(via, number)| {
            let neighbour = self.neighbours.get(&via);
            neighbour.is_some_and(|neighbour| neighbour.answerable.contains(&number))
        })
    }

    /// The neighbour that a bundle goes by and its aim, if there was no room for that.
    fn known_beyond(&self, id: BundleId) -> Option<(NeighbourId, Aim)> {
        let stored = self.bundles.get(id)?;
        let beyond = &self.neighbours.get(&stored.neighbour)?.beyond;
        // Seldom is there any: the primary block is not decoded for nothing.
        if beyond.full.is_empty() {
            return None;
        }
        let aim = self.aim(stored)?;
        let known = beyond.full.contains_key(&aim);
        known.then_some((stored.neighbour, aim))
    }

    fn full_for(&mut self, id: BundleId) -> Option<&mut Full> {
        let (via, aim) = self.known_beyond(id)?;
        self.neighbour(via).beyond.full.get_mut(&aim)
    }

    /// Has the first bundles of a queue wait, unsent, for whose aims the neighbour has no
    /// room, and those aside that a session takes with so many bytes; whether there were
    /// any.
    pub(super) fn pass_over_beyond(
        &mut self,
        now: Instant,
        neighbour: NeighbourId,
        class: Class,
        max_bytes: u64,
    ) -> bool {
        let waiting = self.neighbours.get(&neighbour);
        let waiting = waiting.filter(|waiting| !waiting.beyond.full.is_empty());
        let Some(queue) = waiting.and_then(|waiting| waiting.queues.get(&class)) else {
            return false;
        };
        let aside = each(queue.aside(max_bytes)).take(LOOK_AHEAD);
        let aside = aside.filter(|id| self.waits_beyond(now, *id));
        let first = each(queue.in_order()).take(LOOK_AHEAD);
        let first = first.take_while(|id| self.waits_beyond(now, *id));
        let waiting: Vec<BundleId> = aside.chain(first).collect();
        for id in &waiting {
            let bytes = self.bundles.get(*id).map_or(0, |stored| stored.bytes);
            let neighbour = self.neighbours.get_mut(&neighbour);
            if let Some(queue) = neighbour.and_then(|neighbour| neighbour.queues.get_mut(&class)) {
                queue.remove(*id, bytes);
            }
            self.wait_for_room(now, *id);
        }
        !waiting.is_empty()
    }

    /// Has a bundle wait that was not sent. One of them asks next; the others wait for those
    /// before them to be taken, and long in case none is sent any more.
    fn wait_for_room(&mut self, now: Instant, id: BundleId) {
        let mut until = now + spread(self.config.custody_timer.max, id.0);
        if let Some(full) = self.full_for(id) {
            full.waiting.insert(id);
            if full.next_to_ask() == Some(id) {
                until = full.until;
            }
        }
        self.wait_until(until, id);
    }

    /// Has all that waits for room go as soon as it can.
    pub(super) fn forget_full(&mut self) {
        let neighbours = self.neighbours.values_mut();
        let full = neighbours.map(|neighbour| std::mem::take(&mut neighbour.beyond));
        let waiting: Vec<BundleId> = full.flat_map(Beyond::into_waiting).collect();
        for id in waiting {
            self.end_wait(id);
        }
    }

    /// A bundle that was not sent for want of room is offered again.
    pub(super) fn end_wait(&mut self, id: BundleId) {
        let phase = self.bundles.get(id).map(|stored| stored.phase);
        if let Some(Phase::Waiting(until)) = phase {
            self.custody_timers.remove(&(until, id));
            self.enqueue(id);
        }
    }

    /// A bundle does not wait for room any more; whether it did.
    pub(super) fn leave_waiting(&mut self, id: BundleId) -> bool {
        let full = self.full_for(id);
        full.is_some_and(|full| full.waiting.remove(id))
    }

    /// A bundle goes elsewhere, or is gone: if it waited for room, it is not the one that
    /// asks.
    pub(super) fn never_asks(&mut self, id: BundleId) {
        if self.leave_waiting(id)
            && let Some((via, aim)) = self.known_beyond(id)
        {
            self.have_next_ask(via, aim);
        }
    }
}
