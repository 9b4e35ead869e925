//! Bundles for which a neighbour has no room, though it may have room for others.
//!
//! A neighbour that refuses a bundle for want of room does not say whether its whole store is full,
//! or only its part for the next hop or for one of its services. If all bundles by way of it had to
//! wait, one source that sends to a node which is switched off would delay everything else. So only
//! bundles with the same aim wait, and one of them at a time asks whether there is room again. If
//! there is no room for anything, this costs few bundles for each aim.
//!
//! Bundles under custody are refused by a signal, which gives no reason: the refusal may concern no
//! other bundle. So of these only bundles from one node to one service of another wait for each
//! other. As their signals take a round trip, each one that is taken lets two more go, and so on.
//! So the bundles sent in vain are at most a part of those taken, and those under way when the room
//! ends.
//!
//! Bundles for a service of the neighbour that this node has, too, such as streams, are not handled
//! here.

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

/// The most aims without room that are remembered, with custody and without. If there are more
/// without custody, the neighbour's whole store counts as full; with custody, their bundles do not
/// wait for each other.
const MOST: usize = 64;
/// Bundles that may go without an answer when one has been taken, without custody and
/// with it.
const MORE: u32 = 256;
const MORE_IN_CUSTODY: u32 = 2;
/// When so many may go, there is room again.
const ROOM: u32 = 64;

/// The common aim of bundles that are refused together.
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
    /// Nothing is sent there until then, except `more`.
    until: Instant,
    /// How often in a row it was asked in vain.
    refused: u32,
    /// Whether a bundle is under way that asks.
    asks: bool,
    /// The bundle that asked last: of those that wait, the one after it asks next.
    asked: Option<BundleId>,
    /// How many bundles may go without waiting for an answer, since others were taken.
    more: u32,
    /// Bundles that wait, unsent.
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

    /// Until when a new bundle would only wait, too. Bundles that wait already go first, so that is
    /// to be checked again after a `pause`.
    fn shut_until(&self, now: Instant, pause: Duration) -> Option<Instant> {
        if self.is_shut(now) {
            return Some(self.until);
        }
        (!self.waiting.is_empty()).then(|| now + pause)
    }

    /// Begins a wait, longer each time, since there is no room. Of several bundles that were under
    /// way together only the first refusal counts.
    fn refused(&mut self, now: Instant, timer: &CustodyTimer) {
        self.more = 0;
        if self.asks || self.until <= now {
            self.until = now + timer.backed_off(timer.min / 4, self.refused);
            self.refused += 1;
            self.asks = false;
        }
    }

    /// Notes that a bundle is sent, whose answer comes within `answer`. Returns whether it is the
    /// one that asks.
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

    /// The waiting bundle that asks next. Each has its turn: the neighbour may have taken one of
    /// them before, and only its signal may have been lost.
    fn next_to_ask(&self) -> Option<BundleId> {
        let behind = self.asked.map(|asked| BundleId(asked.0 + 1));
        let next = behind.and_then(|behind| self.waiting.iter_from(behind).next());
        next.or_else(|| self.waiting.first())
    }

    /// Notes that one was taken, so that `more` more may go. Returns the waiting ones that may go
    /// now.
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

    /// Notes that a bundle was refused. Returns whether that can be remembered.
    fn refused(&mut self, now: Instant, aim: Aim, timer: &CustodyTimer) -> bool {
        if !self.full.contains_key(&aim) && !self.make_place(now, aim) {
            return false;
        }
        let full = self.full.entry(aim).or_insert_with(|| Full::new(now));
        full.refused(now, timer);
        true
    }

    /// Forgets aims that may be asked again, if the memory is full. Returns whether one more aim
    /// can be remembered.
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
    /// The aim of a bundle, if others with the same aim may be refused for the same reason.
    fn aim(&self, stored: &StoredBundle) -> Option<Aim> {
        // If another node has custody, the signal goes to that node.
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
            // Fragments are refused because they are fragments.
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

    /// Notes that a neighbour has refused a bundle. Returns whether only bundles with the same aim
    /// have to wait.
    pub(super) fn refused_beyond(&mut self, now: Instant, id: BundleId) -> bool {
        // The refused bundle waits for a time of its own.
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

    /// Lets one of the bundles that wait for room ask as soon as one may: the one that asked before
    /// may never do so again.
    fn have_next_ask(&mut self, via: NeighbourId, aim: Aim) {
        let neighbour = self.neighbours.get(&via);
        let full = neighbour.and_then(|neighbour| neighbour.beyond.full.get(&aim));
        let next = full.and_then(|full| Some((full.until, full.next_to_ask()?)));
        if let Some((until, id)) = next {
            self.wait_until(until, id);
        }
    }

    /// Notes that a bundle is sent: if there was no room for its aim, others with it wait for the
    /// outcome.
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

    /// Notes that the next node has taken a bundle, so that it may take others with the same aim.
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
            // Others may be created now.
            self.woken.insert((via, None));
        }
    }

    /// Until when a bundle under custody for a service of another node would only wait here, since
    /// its neighbour has no room for it; `None` if it may be sent.
    /// [`Event::Woken`](super::Event::Woken) follows if that changes sooner because the neighbour
    /// has taken others.
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

    /// Whether a bundle waits because there was no room for its aim.
    pub(super) fn waits_beyond(&self, now: Instant, id: BundleId) -> bool {
        self.known_beyond(id).is_some_and(|(via, aim)| {
            let neighbour = self.neighbours.get(&via);
            let full = neighbour.and_then(|neighbour| neighbour.beyond.full.get(&aim));
            full.is_some_and(|full| full.is_shut(now)) && !self.awaits_answer(id)
        })
    }

    /// Whether the neighbour has received a bundle and has not refused it since. It may have
    /// custody of it, and only its signal may be lost: then it needs no room.
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
        // There are seldom any, so the primary block is not decoded for nothing.
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

    /// Makes bundles for whose aims the neighbour has no room wait, unsent: the first of a queue,
    /// and those aside that a session with `max_bytes` takes. Returns whether there were any.
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

    /// Makes a bundle wait that was not sent. One of these asks next; the others wait until those
    /// before them are taken, and for a long time in case none is sent any more.
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

    /// Lets all bundles that wait for room go as soon as they can.
    pub(super) fn forget_full(&mut self) {
        let neighbours = self.neighbours.values_mut();
        let full = neighbours.map(|neighbour| std::mem::take(&mut neighbour.beyond));
        let waiting: Vec<BundleId> = full.flat_map(Beyond::into_waiting).collect();
        for id in waiting {
            self.end_wait(id);
        }
    }

    /// Offers a bundle again that was not sent for want of room.
    pub(super) fn end_wait(&mut self, id: BundleId) {
        let phase = self.bundles.get(id).map(|stored| stored.phase);
        if let Some(Phase::Waiting(until)) = phase {
            self.custody_timers.remove(&(until, id));
            self.enqueue(id);
        }
    }

    /// Takes a bundle out of those that wait for room. Returns whether it was one.
    pub(super) fn leave_waiting(&mut self, id: BundleId) -> bool {
        let full = self.full_for(id);
        full.is_some_and(|full| full.waiting.remove(id))
    }

    /// Notes that a bundle goes elsewhere, or is gone: if it waited for room, it will not ask.
    pub(super) fn never_asks(&mut self, id: BundleId) {
        if self.leave_waiting(id)
            && let Some((via, aim)) = self.known_beyond(id)
        {
            self.have_next_ask(via, aim);
        }
    }
}
