//! Custody signals that are gathered before they are sent.
//!
//! A signal is due `aggregate` after its first bundle. From then on it waits as one entry until the
//! link can take it, and goes on gathering. So a blocked return link costs a few ranges, not a
//! queue of bundles.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use underpass_handover::{HandoverError, Moment, ensure};
use underpass_work::FastMap;

use super::config::NeighbourId;
use super::handover::{CtebState, WayState, way, way_state};
use super::memory::{Numbers, pop_first};
use crate::wire::{
    ACCEPTED, Cteb, CustodyDialect, Disposition, Eid, REFUSED, Sequence, SequenceName,
};

/// The most ranges in one signal; further ones go into the next.
const RANGES_PER_SIGNAL: usize = 1024;
/// The most ranges gathered for one custodian. Beyond that nothing is signalled: the custodian
/// sends those bundles again.
const RANGES_PER_CUSTODIAN: usize = 16 * 1024;
/// The same for all custodians whose bundles come from one neighbour, which may name many and take
/// no signal.
const RANGES_PER_NEIGHBOUR: usize = 64 * 1024;
/// Custodians for which signals are gathered at one time, by the neighbour
/// whose bundles name them: a neighbour that invents custodians harms no other.
const CUSTODIANS_PER_NEIGHBOUR: usize = 1024;

/// Where bundles came from, and where their signals go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    pub from: NeighbourId,
    pub via: NeighbourId,
}

/// The custodian that a signal is for, its way and its dialect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SignalTo {
    pub custodian: Eid,
    pub way: Way,
    pub dialect: CustodyDialect,
}

#[derive(Debug, Default)]
struct Gathered {
    accepted: BTreeMap<u64, Numbers>,
    refused: BTreeMap<u64, Numbers>,
    ranges: usize,
}

/// Numbers by sequence: each range's first and last.
type NumbersState = Vec<(u64, Vec<(u64, u64)>)>;

/// A [`SignalTo`], to be handed over: a CTEB of its custodian, and its way.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SignalToState(CtebState, WayState);

/// [`Signals`], to be handed over: the bundles accepted and refused, and when the signal is due, if
/// it is not yet.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SignalsState(Vec<(SignalToState, NumbersState, NumbersState, Option<Moment>)>);

impl From<&SignalTo> for SignalToState {
    fn from(to: &SignalTo) -> SignalToState {
        let cteb = Cteb {
            number: 0,
            sequence: 0,
            custodian: to.custodian.clone(),
            dialect: to.dialect,
        };
        SignalToState((&cteb).into(), way_state(to.way))
    }
}

impl SignalToState {
    pub fn to(self) -> Result<SignalTo, HandoverError> {
        let cteb = self.0.cteb()?;
        Ok(SignalTo {
            custodian: cteb.custodian,
            way: way(self.1),
            dialect: cteb.dialect,
        })
    }
}

fn numbers_state(by_sequence: BTreeMap<u64, Numbers>) -> NumbersState {
    let numbers = |numbers: Numbers| numbers.into_iter().map(|range| range.into_inner());
    let by_sequence = by_sequence.into_iter();
    by_sequence
        .map(|(sequence, of)| (sequence, numbers(of).collect()))
        .collect()
}

fn numbers_of(state: NumbersState) -> Result<BTreeMap<u64, Numbers>, HandoverError> {
    let mut by_sequence = BTreeMap::new();
    for (sequence, ranges) in state {
        let forward = ranges.iter().all(|(first, last)| first <= last);
        ensure(forward, "a signal runs backwards")?;
        let ranges = ranges.into_iter().map(|(first, last)| first..=last);
        by_sequence.insert(sequence, ranges.collect());
    }
    Ok(by_sequence)
}

/// The signals gathered for bundles of one neighbour.
#[derive(Debug, Default)]
struct OfNeighbour {
    custodians: usize,
    ranges: usize,
}

/// All signals that are gathered.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    gathered: HashMap<SignalTo, Gathered>,
    neighbours: FastMap<NeighbourId, OfNeighbour>,
    /// In order of time, since all are gathered for the same time.
    due: VecDeque<(Instant, SignalTo)>,
}

impl Signals {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Signals {
            gathered,
            neighbours,
            due,
        } = self;
        tell("gathered signals", gathered.len());
        tell("custodians to signal to", neighbours.len());
        tell("signals by time", due.len());
    }

    pub fn hand_over(self, now: Instant) -> SignalsState {
        let Signals {
            mut gathered,
            neighbours: _,
            due,
        } = self;
        let state = |to: SignalTo, gathered: Gathered, due: Option<Moment>| {
            let (accepted, refused) = (gathered.accepted, gathered.refused);
            let numbers = (numbers_state(accepted), numbers_state(refused));
            ((&to).into(), numbers.0, numbers.1, due)
        };
        let in_order = due.into_iter().filter_map(|(at, to)| {
            let of = gathered.remove(&to)?;
            Some(state(to, of, Some(Moment::of(at, now))))
        });
        let mut all: Vec<_> = in_order.collect();
        // Their neighbours have them in order.
        all.extend(gathered.into_iter().map(|(to, of)| state(to, of, None)));
        SignalsState(all)
    }

    /// Takes over what was gathered; nothing may be gathered here yet.
    pub fn take_over(&mut self, now: Instant, state: SignalsState) -> Result<(), HandoverError> {
        for (to, accepted, refused, due) in state.0 {
            let (to, accepted, refused) = (to.to()?, numbers_of(accepted)?, numbers_of(refused)?);
            let ranges = |of: &BTreeMap<u64, Numbers>| of.values().map(Numbers::len).sum::<usize>();
            let gathered = Gathered {
                ranges: ranges(&accepted) + ranges(&refused),
                accepted,
                refused,
            };
            if let Some(at) = due {
                let at = at.instant(now);
                let later = self.due.back().is_none_or(|(last, _)| *last <= at);
                ensure(later, "signals are not in order of time")?;
                self.due.push_back((at, to.clone()));
            }
            let of_neighbour = self.neighbours.entry(to.way.from).or_default();
            of_neighbour.custodians += 1;
            of_neighbour.ranges += gathered.ranges;
            let known = self.gathered.insert(to, gathered).is_some();
            ensure(!known, "a signal is there twice")?;
        }
        Ok(())
    }

    /// Adds one bundle's signal.
    pub fn add(
        &mut self,
        now: Instant,
        aggregate: Duration,
        way: Way,
        cteb: &Cteb,
        accepted: bool,
    ) {
        // ION sends a refused bundle again at once: without a signal it waits until its deadline.
        if cteb.dialect == CustodyDialect::Bibe && !accepted {
            return;
        }
        let to = SignalTo {
            custodian: cteb.custodian.clone(),
            way,
            dialect: cteb.dialect,
        };
        let of_neighbour = self.neighbours.entry(way.from).or_default();
        if of_neighbour.ranges >= RANGES_PER_NEIGHBOUR {
            return;
        }
        if !self.gathered.contains_key(&to) {
            if of_neighbour.custodians >= CUSTODIANS_PER_NEIGHBOUR {
                return;
            }
            of_neighbour.custodians += 1;
            self.due.push_back((now + aggregate, to.clone()));
        }
        let gathered = self.gathered.entry(to).or_default();
        if gathered.ranges >= RANGES_PER_CUSTODIAN {
            return;
        }
        let by_sequence = match accepted {
            true => &mut gathered.accepted,
            false => &mut gathered.refused,
        };
        let ranges = by_sequence.entry(cteb.sequence).or_default();
        let before = ranges.len();
        ranges.insert(cteb.number..=cteb.number);
        gathered.ranges = gathered.ranges + ranges.len() - before;
        of_neighbour.ranges = of_neighbour.ranges + ranges.len() - before;
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }

    /// The next signal whose time has come.
    pub fn pop_due(&mut self, now: Instant) -> Option<SignalTo> {
        match self.due.front() {
            Some((at, _)) if *at <= now => self.due.pop_front().map(|(_, to)| to),
            _ => None,
        }
    }

    /// Takes what was gathered, up to the size of one signal; the flag says
    /// whether more is left.
    pub fn take(&mut self, to: &SignalTo) -> (Vec<Disposition>, bool) {
        let Some(gathered) = self.gathered.get_mut(to) else {
            return (Vec::new(), false);
        };
        let mut budget = RANGES_PER_SIGNAL;
        let mut dispositions = Vec::new();
        let parts = [
            (ACCEPTED, &mut gathered.accepted),
            (REFUSED, &mut gathered.refused),
        ];
        for (code, by_sequence) in parts {
            let sequences = take_sequences(by_sequence, to, &mut budget);
            if !sequences.is_empty() {
                dispositions.push(Disposition { code, sequences });
            }
        }
        let taken = RANGES_PER_SIGNAL - budget;
        gathered.ranges -= taken;
        let more = gathered.ranges > 0;
        if let Some(of_neighbour) = self.neighbours.get_mut(&to.way.from) {
            of_neighbour.ranges -= taken;
        }
        if !more {
            self.forget(to);
        }
        (dispositions, more)
    }

    /// Forgets what was gathered for a signal whose time had come.
    pub fn forget(&mut self, to: &SignalTo) {
        let Some(gathered) = self.gathered.remove(to) else {
            return;
        };
        if let Some(of_neighbour) = self.neighbours.get_mut(&to.way.from) {
            of_neighbour.ranges -= gathered.ranges;
            of_neighbour.custodians -= 1;
        }
    }
}

fn take_sequences(
    by_sequence: &mut BTreeMap<u64, Numbers>,
    to: &SignalTo,
    budget: &mut usize,
) -> Vec<Sequence> {
    let mut sequences = Vec::new();
    while *budget > 0
        && let Some(mut entry) = by_sequence.first_entry()
    {
        // A sequence 0 has no identifier of its own: the custodian's endpoint
        // names it.
        let name = match *entry.key() {
            0 => SequenceName::Endpoint(to.custodian.clone()),
            id => SequenceName::Id(id),
        };
        sequences.extend(take_runs(name, entry.get_mut(), budget));
        if entry.get().is_empty() {
            entry.remove();
        }
    }
    sequences
}

fn take_runs(name: SequenceName, numbers: &mut Numbers, budget: &mut usize) -> Option<Sequence> {
    let (first, mut last) = pop_first(numbers)?;
    *budget -= 1;
    let mut runs = vec![(last - first).saturating_add(1)];
    while *budget > 0
        && let Some((from, to)) = pop_first(numbers)
    {
        *budget -= 1;
        runs.push(from - last - 1);
        runs.push(to - from + 1);
        last = to;
    }
    Some(Sequence { name, first, runs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ipn;

    const WAY: Way = Way {
        from: NeighbourId(1),
        via: NeighbourId(1),
    };

    fn cteb(number: u64, sequence: u64) -> Cteb {
        Cteb {
            number,
            sequence,
            custodian: ipn(1, 0),
            dialect: CustodyDialect::Ion,
        }
    }

    #[test]
    fn thousands_of_bundles_make_one_sequence() {
        let now = Instant::now();
        let aggregate = Duration::from_millis(100);
        let mut signals = Signals::default();
        for number in 0..5000 {
            signals.add(now, aggregate, WAY, &cteb(number, 3), true);
        }
        assert_eq!(signals.pop_due(now), None);
        let to = signals.pop_due(now + aggregate).unwrap();
        let (dispositions, more) = signals.take(&to);
        assert!(!more);
        assert_eq!(dispositions[0].sequences[0].runs, [5000]);
        assert_eq!(signals.next_timeout(), None);
    }

    #[test]
    fn gaps_are_runs_and_a_full_signal_leaves_the_rest() {
        let now = Instant::now();
        let mut signals = Signals::default();
        for number in 0..3000 {
            signals.add(now, Duration::ZERO, WAY, &cteb(number * 2, 3), true);
        }
        let to = signals.pop_due(now).unwrap();
        let mut numbers = Vec::new();
        loop {
            let (dispositions, more) = signals.take(&to);
            let ranges = dispositions[0].sequences[0].ranges();
            numbers.extend(ranges.map(|(from, to)| (from == to).then_some(from)));
            if !more {
                break;
            }
        }
        let expected: Vec<_> = (0..3000).map(|n| Some(n * 2)).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn a_neighbour_that_invents_custodians_harms_no_other() {
        let now = Instant::now();
        let mut signals = Signals::default();
        for number in 0..5000 {
            let mut cteb = cteb(0, 1);
            cteb.custodian = ipn(number + 10, 0);
            signals.add(now, Duration::ZERO, WAY, &cteb, true);
        }
        assert_eq!(signals.gathered.len(), CUSTODIANS_PER_NEIGHBOUR);
        let other = Way {
            from: NeighbourId(2),
            via: NeighbourId(2),
        };
        signals.add(now, Duration::ZERO, other, &cteb(0, 1), true);
        let mut sent = 0;
        while let Some(to) = signals.pop_due(now) {
            sent += signals.take(&to).0.len();
        }
        assert_eq!(sent, CUSTODIANS_PER_NEIGHBOUR + 1);
        signals.add(now, Duration::ZERO, WAY, &cteb(0, 1), true);
        assert!(signals.pop_due(now).is_some());
    }

    #[test]
    fn a_neighbour_that_takes_no_signal_costs_a_bounded_memory() {
        let now = Instant::now();
        let mut signals = Signals::default();
        let cteb = |custodian: u64, number: u64| Cteb {
            custodian: ipn(1, custodian),
            ..cteb(2 * number, 3)
        };
        for custodian in 0..10 {
            for number in 0..10_000 {
                signals.add(now, Duration::ZERO, WAY, &cteb(custodian, number), true);
            }
        }
        let ranges = |signals: &Signals| {
            let of_each = signals.gathered.values().map(|of| of.ranges);
            of_each.sum::<usize>()
        };
        assert_eq!(ranges(&signals), RANGES_PER_NEIGHBOUR);
        // Once the neighbour takes signals, as many are gathered again.
        while let Some(to) = signals.pop_due(now) {
            while signals.take(&to).1 {}
        }
        assert_eq!(ranges(&signals), 0);
        for number in 0..10_000 {
            signals.add(now, Duration::ZERO, WAY, &cteb(0, number), false);
        }
        assert_eq!(ranges(&signals), 10_000);
    }
}
