//! The bundles that wait for one neighbour, and its state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use underpass_cla::Class;
use underpass_work::IdSet;

use super::beyond::Beyond;
use super::config::CustodyTimer;
use super::event::BundleId;
use super::signals::SignalTo;

/// The most bundles of signals that wait for one neighbour.
const MOST_SEALED: usize = 256;

/// The waiting bundles of one class, oldest first. Bundles that were in transmission before go
/// first, and so do fragments of a bundle whose turn had come. Of these, the ones that have
/// probably arrived go last, since a signal may still come. Bundles left by earlier runs of the
/// node take turns with all others.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub again: IdSet<BundleId>,
    pub unanswered: IdSet<BundleId>,
    pub fresh: IdSet<BundleId>,
    /// Bundles of earlier runs, which take turns with the others, whether they were in transmission
    /// or not.
    pub restored: IdSet<BundleId>,
    /// How many bytes others may send before it is the turn of those of earlier runs.
    turn_bytes: i64,
    /// Bundles that a session could not take, whole or in fragments: they wait for a session that
    /// takes more, and delay none of the others.
    aside: IdSet<BundleId>,
    /// A lower bound on the length of those aside, bytes as sent.
    least_aside: u64,
    pub bytes: u64,
    /// The next one, while the store reads its payload.
    pub loading: Option<BundleId>,
    /// Bundles that may be fetched before more are to be read ahead.
    pub read_ahead: usize,
    /// Its session cannot resume a bundle in the middle.
    pub begins_anew: bool,
    /// Whether the session takes payloads that are on disk.
    pub takes_files: bool,
    /// The longest bundle with such a payload that a session by another path takes, bytes.
    pub taken_elsewhere_bytes: u64,
}

impl Queue {
    /// Whether there is one that can be offered now.
    pub fn is_offerable(&self) -> bool {
        let waits = || self.in_order().next().is_some() || !self.aside.is_empty();
        self.loading.is_none() && waits()
    }

    /// The bundles in the order in which they are offered, without those aside.
    pub fn in_order(&self) -> impl Iterator<Item = BundleId> + '_ {
        let (left, is_behind) = (&self.restored, self.is_turn_of_others());
        let restored = move |first: bool| {
            let here = (first != is_behind).then_some(left);
            here.into_iter().flat_map(IdSet::iter)
        };
        let sent = self.again.iter().chain(self.unanswered.iter());
        let others = sent.chain(self.fresh.iter());
        restored(true).chain(others).chain(restored(false))
    }

    /// Lets a waiting bundle take turns with all that are not of earlier runs.
    pub fn set_restored(&mut self, id: BundleId) {
        if self.again.remove(id) || self.fresh.remove(id) {
            self.restored.insert(id);
        }
    }

    fn is_turn_of_others(&self) -> bool {
        self.turn_bytes > 0
    }

    /// Whether only bundles of earlier runs wait, and it is the turn of others.
    pub fn yields(&self) -> bool {
        let waits = [&self.again, &self.unanswered, &self.fresh];
        let others = waits.iter().any(|ids| !ids.is_empty());
        !self.restored.is_empty() && self.is_turn_of_others() && !others
    }

    /// Counts bytes that were sent of a bundle, `restored` if it takes turns as one of an earlier
    /// run. Each side has half of the bytes while both have something.
    pub fn turn_taken(&mut self, restored: bool, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.turn_bytes = match restored {
            // The unused part of the others' turn is not saved.
            true => self.turn_bytes.saturating_add(bytes).min(bytes),
            false if self.restored.is_empty() => self.turn_bytes,
            false => self.turn_bytes.saturating_sub(bytes),
        };
    }

    /// Puts a waiting bundle before those that were not sent.
    pub fn put_first(&mut self, id: BundleId) {
        if self.fresh.remove(id) {
            self.again.insert(id);
        }
    }

    /// Puts a bundle of so many bytes aside.
    pub fn put_aside(&mut self, id: BundleId, bytes: u64) {
        if self.leave_order(id) {
            let none = self.aside.is_empty();
            self.least_aside = if none {
                bytes
            } else {
                bytes.min(self.least_aside)
            };
            self.aside.insert(id);
        }
    }

    /// The bundles aside, for a session that takes `max_bytes`; none if all are longer.
    pub fn aside(&self, max_bytes: u64) -> impl Iterator<Item = BundleId> + '_ {
        let any = self.least_aside <= max_bytes;
        self.aside.iter().take_while(move |_| any)
    }

    /// Puts the bundles aside back into the order, before those that were not sent.
    fn end_aside(&mut self) {
        for id in std::mem::take(&mut self.aside).iter() {
            self.again.insert(id);
        }
    }

    fn leave_order(&mut self, id: BundleId) -> bool {
        let others = self.again.remove(id) || self.unanswered.remove(id) || self.fresh.remove(id);
        others || self.restored.remove(id)
    }

    pub fn remove(&mut self, id: BundleId, bytes: u64) {
        if self.leave_order(id) || self.aside.remove(id) {
            self.bytes -= bytes;
        }
        if self.loading == Some(id) {
            self.loading = None;
        }
    }
}

/// Which bundles a neighbour may have no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Size {
    /// Any but those of signalling.
    Any,
    /// Long ones alone: the neighbour has separate room for these.
    Long,
}

/// A pause in offers to a neighbour that has no room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    pub until: Option<Instant>,
    /// How often in a row it had no room.
    pub refusals: u32,
}

impl Pause {
    /// Begins a pause, longer each time, since the neighbour has no room. Returns its end; `None`
    /// if one has begun already.
    pub fn begin(&mut self, now: Instant, timer: &CustodyTimer) -> Option<Instant> {
        if self.until.is_some() {
            return None;
        }
        self.until = Some(now + timer.backed_off(timer.min / 4, self.refusals));
        self.refusals += 1;
        self.until
    }
}

#[derive(Debug)]
pub(crate) struct Neighbour {
    pub queues: BTreeMap<Class, Queue>,
    /// Signals whose time has come.
    pub signals: VecDeque<SignalTo>,
    /// Bundles of signals that it has not taken.
    pub sealed: BTreeSet<BundleId>,
    /// Name of the custody sequence towards it.
    pub sequence: u64,
    pub next_number: u64,
    /// Custody that waits for a signal, by number.
    pub unsignalled: BTreeMap<u64, BundleId>,
    /// Those of them that the CL has finished and that were not refused since: one transmission is
    /// refused at most once.
    pub answerable: BTreeSet<u64>,
    pub down: bool,
    /// It is a route to itself, unless it was removed from the routes.
    pub routed: bool,
    pub pause: Pause,
    pub long_pause: Pause,
    pub beyond: Beyond,
    pub delay: Option<SignalDelay>,
}

/// Smoothed time from the CL's acknowledgement to the custody signal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalDelay {
    pub mean: Duration,
    pub deviation: Duration,
}

impl Neighbour {
    pub fn new(sequence: u64) -> Self {
        Neighbour {
            queues: BTreeMap::new(),
            signals: VecDeque::new(),
            sealed: BTreeSet::new(),
            sequence,
            next_number: 0,
            unsignalled: BTreeMap::new(),
            answerable: BTreeSet::new(),
            down: false,
            routed: true,
            pause: Pause::default(),
            long_pause: Pause::default(),
            beyond: Beyond::default(),
            delay: None,
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Neighbour {
            queues,
            signals,
            sealed,
            sequence: _,
            next_number: _,
            unsignalled,
            answerable,
            down: _,
            routed: _,
            pause: _,
            long_pause: _,
            beyond,
            delay: _,
        } = self;
        for queue in queues.values() {
            let Queue {
                again,
                unanswered,
                fresh,
                restored,
                turn_bytes: _,
                aside,
                least_aside: _,
                bytes: _,
                loading,
                read_ahead: _,
                begins_anew: _,
                takes_files: _,
                taken_elsewhere_bytes: _,
            } = queue;
            let sets = [again, unanswered, fresh, restored, aside];
            tell("queued bundles", sets.iter().map(|ids| ids.len()).sum());
            tell("bundles being read", usize::from(loading.is_some()));
        }
        tell("class queues", queues.len());
        tell("signals to send", signals.len());
        tell("signals in bundles", sealed.len());
        tell("custody without a signal", unsignalled.len());
        tell("custody to be refused", answerable.len());
        beyond.footprint(tell);
    }

    /// Whether a signal is to be made into a bundle. A neighbour that refuses such bundles gets no
    /// more of them: further signals are gathered.
    pub fn seals_signals(&self) -> bool {
        !self.signals.is_empty() && self.sealed.len() < MOST_SEALED
    }

    /// Whether there is something to offer at present.
    pub fn has_pending(&self, class: Class) -> bool {
        if class == Class::SIGNALLING && self.seals_signals() {
            return true;
        }
        let queued = self.queues.get(&class).is_some_and(Queue::is_offerable);
        queued && (self.pause.until.is_none() || class == Class::SIGNALLING)
    }

    /// Its pause for bundles of a size.
    pub fn pause_of(&mut self, size: Size) -> &mut Pause {
        match size {
            Size::Any => &mut self.pause,
            Size::Long => &mut self.long_pause,
        }
    }

    /// Ends its pause for bundles of a size. Returns when the pause was to end, if there was one.
    /// Bundles put aside meanwhile return to the order.
    pub fn end_pause(&mut self, size: Size) -> Option<Instant> {
        let until = self.pause_of(size).until.take()?;
        if size == Size::Long {
            self.queues.values_mut().for_each(Queue::end_aside);
        }
        Some(until)
    }

    /// Takes a measured delay, as TCP does its round-trip time (RFC 6298).
    pub fn measure_delay(&mut self, sample: Duration) {
        self.delay = Some(match self.delay {
            None => SignalDelay {
                mean: sample,
                deviation: sample / 2,
            },
            Some(SignalDelay { mean, deviation }) => SignalDelay {
                mean: (mean * 7 + sample) / 8,
                deviation: (deviation * 3 + mean.abs_diff(sample)) / 4,
            },
        });
    }

    /// How long to wait for a signal after so many attempts without one.
    pub fn signal_timeout(&self, timer: &CustodyTimer, unanswered: u32) -> Duration {
        let base = match self.delay {
            Some(delay) => delay.mean + delay.deviation * 4,
            None => timer.initial,
        };
        timer.backed_off(base.max(timer.min), unanswered)
    }
}
