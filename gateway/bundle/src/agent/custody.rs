//! Custody of what this node has sent: signals, timers, neighbours that come
//! and go.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bp7::administrative_record::FORWARDED_BUNDLE;
use underpass_work::each;

use super::Agent;
use super::config::NeighbourId;
use super::event::BundleId;
use super::neighbour::Size;
use super::passing::Message;
use super::stored::Phase;
use crate::wire::{ACCEPTED, CodePoints, CustodyDialect, Disposition, REFUSED, SequenceName};

/// The code points for signals to a custodian of a dialect.
pub(super) fn codes_for(own: &CodePoints, dialect: CustodyDialect) -> CodePoints {
    match own.dialect == dialect {
        true => *own,
        false => CodePoints::of(dialect),
    }
}

impl Agent {
    /// Takes a compressed custody signal that came from a neighbour. It counts only for bundles
    /// that were sent to that neighbour, or to the one that wrote it, if the way back is another
    /// one: no other node may release them. That the neighbour may forward it was checked before.
    pub(super) fn signal_came(
        &mut self,
        now: Instant,
        from: NeighbourId,
        source: Option<u64>,
        dispositions: Vec<Disposition>,
    ) {
        self.take_signal(now, from, &dispositions);
        let Some(source) = source.map(NeighbourId).filter(|source| *source != from) else {
            return;
        };
        let shard = self.sharding.shard_of(source);
        match shard == self.sharding.own {
            true => self.take_signal(now, source, &dispositions),
            false => self.pass(shard, Message::Signal(source, dispositions)),
        }
    }

    /// Takes a compressed custody signal on bundles that were sent to a
    /// neighbour.
    pub(super) fn take_signal(
        &mut self,
        now: Instant,
        from: NeighbourId,
        dispositions: &[Disposition],
    ) {
        for code in [ACCEPTED, REFUSED] {
            let of_code = dispositions.iter().filter(|d| d.code == code);
            for sequence in of_code.flat_map(|d| &d.sequences) {
                let SequenceName::Id(name) = sequence.name else {
                    continue;
                };
                if self.sequences.get(&name) != Some(&from) {
                    continue;
                }
                for (first, last) in each(sequence.ranges()) {
                    match code {
                        ACCEPTED => self.range_accepted(now, from, first..=last),
                        _ => self.range_refused(now, from, first..=last),
                    }
                }
            }
        }
    }

    pub(super) fn range_accepted(
        &mut self,
        now: Instant,
        from: NeighbourId,
        range: RangeInclusive<u64>,
    ) {
        let unsignalled = &self.neighbour(from).unsignalled;
        let ids = each(unsignalled.range(range)).map(|(_, id)| *id);
        for id in ids.collect::<Vec<BundleId>>() {
            self.custody_accepted(now, id);
        }
    }

    pub(super) fn range_refused(
        &mut self,
        now: Instant,
        from: NeighbourId,
        range: RangeInclusive<u64>,
    ) {
        let neighbour = self.neighbour(from);
        let numbers = each(neighbour.answerable.range(range)).copied();
        for number in numbers.collect::<Vec<u64>>() {
            let neighbour = self.neighbour(from);
            neighbour.answerable.remove(&number);
            if let Some(id) = neighbour.unsignalled.get(&number).copied() {
                self.custody_refused(now, id);
            }
        }
    }

    /// Notes that the next custodian has the bundle, which is released here.
    fn custody_accepted(&mut self, now: Instant, id: BundleId) {
        self.taken_beyond(id);
        self.note_forwarded(id);
        let Some(stored) = self.remove(now, id) else {
            return;
        };
        // As in Karn's rule for round-trip times: only for a bundle sent once is it known which
        // transfer the signal answers.
        if stored.transmissions == 1
            && let Some(at) = stored.acknowledged
        {
            let sample = now.saturating_duration_since(at);
            self.neighbour(stored.neighbour).measure_delay(sample);
        }
        self.report_on(now, &stored, FORWARDED_BUNDLE, 0);
        self.tell_released(id, &stored);
    }

    /// Notes that the next node refuses custody; it is asked again later.
    fn custody_refused(&mut self, now: Instant, id: BundleId) {
        let phase = self.bundles.get(id).map(|stored| stored.phase);
        if matches!(phase, Some(Phase::Waiting(_) | Phase::Suspended)) {
            self.refused_beyond(now, id);
            self.try_later(now, id);
        }
    }

    /// Starts the custody timer of a bundle that the CL has finished.
    pub(super) fn wait_for_signal(&mut self, now: Instant, id: BundleId) {
        let Some(stored) = self.bundles.get(id) else {
            return;
        };
        let (via, number, unanswered) = (stored.neighbour, stored.number, stored.unanswered);
        let timer = self.config.custody_timer;
        let neighbour = self.neighbour(via);
        neighbour.answerable.extend(number);
        let timeout = neighbour.signal_timeout(&timer, unanswered);
        self.wait_until(now + timeout, id);
    }

    /// Lets a refused bundle wait, twice as long each time. When the wait ends, the attempt counts
    /// as one without an answer, as after a wait for a signal. The waits of bundles refused
    /// together differ, since there will not be room for all of them at once.
    pub(super) fn try_later(&mut self, now: Instant, id: BundleId) {
        let timer = self.config.custody_timer;
        if let Some(stored) = self.bundles.get(id) {
            let delay = timer.backed_off(timer.min, stored.unanswered);
            let delay = spread(delay, id.0 ^ u64::from(stored.unanswered) << 32);
            self.wait_until(now + delay, id);
        }
    }

    pub(super) fn wait_until(&mut self, until: Instant, id: BundleId) {
        let Some(stored) = self.bundles.get_mut(id) else {
            return;
        };
        if let Phase::Waiting(before) = stored.phase {
            self.custody_timers.remove(&(before, id));
        }
        // Only custody timers stop: other bundles, and those that were never sent, do not wait for
        // a signal.
        let neighbour = self.neighbours.get(&stored.neighbour);
        let sent = stored.custody && stored.number.is_some();
        let down = sent && neighbour.is_some_and(|neighbour| neighbour.down);
        stored.phase = match down {
            true => Phase::Suspended,
            false => Phase::Waiting(until),
        };
        if !down {
            self.custody_timers.insert((until, id));
        }
    }

    pub(super) fn custody_timer_fired(&mut self, now: Instant, id: BundleId) {
        let waited = self.leave_waiting(id);
        if let Some(stored) = self.bundles.get_mut(id) {
            // A bundle that waited for room was not sent in vain.
            stored.unanswered += u32::from(!waited);
            self.enqueue(id);
            self.try_another_way(now, id);
        }
    }

    /// Notes that the neighbour is reached again: custody timers start anew, and what waits is
    /// announced.
    pub fn neighbour_up(&mut self, now: Instant, via: NeighbourId) {
        let neighbour = self.neighbour(via);
        neighbour.down = false;
        neighbour.routed = true;
        let without_room = std::mem::take(&mut neighbour.beyond).into_waiting();
        let waiting: Vec<BundleId> = each(neighbour.unsignalled.values()).copied().collect();
        for id in without_room {
            self.end_wait(id);
        }
        for id in waiting {
            if let Some(stored) = self.bundles.get_mut(id)
                && stored.phase == Phase::Suspended
            {
                stored.unanswered = 0;
                self.wait_for_signal(now, id);
            }
        }
        self.end_pause(via, Size::Any);
        self.end_pause(via, Size::Long);
    }

    /// Notes that the neighbour is out of reach: its custody timers stop, since no signal can come.
    pub fn neighbour_down(&mut self, _now: Instant, via: NeighbourId) {
        let neighbour = self.neighbour(via);
        neighbour.down = true;
        let waiting: Vec<BundleId> = each(neighbour.unsignalled.values()).copied().collect();
        for id in waiting {
            let Some(stored) = self.bundles.get_mut(id) else {
                continue;
            };
            if let Phase::Waiting(until) = stored.phase {
                self.custody_timers.remove(&(until, id));
                stored.phase = Phase::Suspended;
            }
        }
    }
}

/// Three to five quarters of `delay`, by a hash of `seed` (Fibonacci hashing).
pub(super) fn spread(delay: Duration, seed: u64) -> Duration {
    let hash = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    delay * (384 + hash as u32) / 512
}
