//! What waits for one neighbour, and what is known of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use underpass_cla::Class;
use underpass_work::IdSet;

use super::beyond::Beyond;
use super::config::CustodyTimer;
use super::event::BundleId;
use super::signals::SignalTo;

/// Bundles of signals that wait for one neighbour at most.
const MOST_SEALED: usize = 256;

/// Bundles of one class that wait, oldest first; those that were in
/// transmission before go first, and fragments of one whose turn had come. Of
/// these, the ones that have probably arrived go last: a signal may still come.
/// Those that earlier runs of the node have left take turns with all others.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub again: IdSet<BundleId>,
    pub unanswered: IdSet<BundleId>,
    pub fresh: IdSet<BundleId>,
    /// Those of earlier runs that take turns with the others, whether they were in
    /// transmission or not.
    pub restored: IdSet<BundleId>,
    /// What others may send before it is the turn of those, bytes.
    turn_bytes: i64,
    /// Those that a session could not take, whole or in fragments: they wait for one
    /// that takes more, and hold up none of the others.
    aside: IdSet<BundleId>,
    /// No shorter one is aside, bytes as it is sent.
    least_aside: u64,
    pub bytes: u64,
    /// The next one, while the store reads its payload.
    pub loading: Option<BundleId>,
    /// Bundles that may be fetched before more are to be read ahead.
    pub read_ahead: usize,
    /// Its session cannot go on in the middle of a bundle.
    pub begins_anew: bool,
    /// Whether the session takes payloads that are on disk.
    pub takes_files: bool,
    /// The longest bundle with such a payload that one by another path takes, bytes.
    pub taken_elsewhere_bytes: u64,
}

impl Queue {
    /// Whether there is one that can be offered now.
    pub fn is_offerable(&self) -> bool {
        let waits = || self.in_order().next().is_some() || !self.aside.is_empty();
        self.loading.is_none() && waits()
    }

    /// In the order in which they are offered, but for those aside.
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

    /// Has a bundle that waits take turns with all that are not of earlier runs.
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

    /// So many bytes were sent of a bundle; `restored` if it takes turns as one of an
    /// earlier run. Each side has half of the bytes while both have something.
    pub fn turn_taken(&mut self, restored: bool, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.turn_bytes = match restored {
            // What others leave of their turn is not saved.
            true => self.turn_bytes.saturating_add(bytes).min(bytes),
            false if self.restored.is_empty() => self.turn_bytes,
            false => self.turn_bytes.saturating_sub(bytes),
        };
    }

    /// Has a bundle that waits go before those that were not sent.
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

    /// Those aside, for a session that takes so many bytes; none if they are all
    /// longer.
    pub fn aside(&self, max_bytes: u64) -> impl Iterator<Item = BundleId> + '_ {
        let any = self.least_aside <= max_bytes;
        self.aside.iter().take_while(move |_| any)
    }

    /// Has those aside wait in the order again, before those that were not sent.
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
    /// Long ones alone: for these it has other room.
    Long,
}

/// Whether a neighbour is offered nothing, since it has no room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    /// Until then.
    pub until: Option<Instant>,
    /// How often in a row it had no room.
    pub refusals: u32,
}

impl Pause {
    /// It has no room: the end of the pause that begins, longer each time; none if one
    /// has begun already.
    pub fn begin(&mut self, now: Instant, timer: &CustodyTimer) -> Option<Instant> {
        if self.until.is_some() {
            return None;
        }
        self.until = Some(now + timer.backed_off(timer.min / 4, self.refusals));
        self.refusals += 1;
        self.until
    }
}

/// One neighbour.
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
    /// Those of them that the CL has finished and no refusal has answered
    /// since: one transmission is refused once.
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

    /// Whether there is a signal to be made a bundle of. One that refuses those
    /// bundles has no more of them: further signals are gathered.
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

    /// Ends its pause for bundles of a size; when that was to end, if it was on. What was
    /// put aside meanwhile waits in the order again.
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
