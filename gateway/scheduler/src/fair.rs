//! Start-time fair queueing over weighted flows.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use underpass_work::count;

/// Virtual time per byte at weight 1. A weight may be a rate in bit/s, below
/// 2³⁷: rounding errs by less than 2⁻¹⁹ byte for each charge, and u128 does
/// not wrap in any lifetime.
const SCALE: u128 = 1 << 56;

/// A flow in an order: by rank, then by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranked<T> {
    pub rank: T,
    pub flow: usize,
}

impl<T: Ord> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        count();
        (&self.rank, self.flow).cmp(&(&other.rank, other.flow))
    }
}

impl<T: Ord> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Debug)]
struct Flow {
    weight: u64,
    /// Virtual time at which its next bundle starts.
    tag: u128,
    queued: bool,
}

/// Picks, among the queued flows, the one whose next bundle starts first in virtual time. A flow's
/// bytes advance its virtual time by bytes / weight. A flow that comes back starts at the present
/// virtual time: silence earns nothing.
///
/// Several queues share like a single queue of all their flows if the one whose first flow starts
/// first is served and each is told of the others' pace ([`FairQueue::follow`]).
#[derive(Clone, Debug)]
pub(crate) struct FairQueue {
    flows: Vec<Flow>,
    order: BTreeSet<Ranked<u128>>,
    /// Sum of the weights of queued flows.
    weight: u128,
    /// The start of the bundle in service; never goes back.
    now: u128,
    /// Queued flows whose tag is lower start here.
    floor: u128,
    /// Virtual time stays behind this as long as other queues are.
    horizon: u128,
}

/// The common virtual time of several queues, as one of them is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub now: u128,
    pub floor: u128,
    pub horizon: u128,
}

/// How far `bytes` take flows of this weight in virtual time.
pub(crate) fn virtual_time(bytes: u64, weight: u128) -> u128 {
    u128::from(bytes).saturating_mul(SCALE) / weight.max(1)
}

impl Default for FairQueue {
    fn default() -> Self {
        FairQueue {
            flows: Vec::new(),
            order: BTreeSet::new(),
            weight: 0,
            now: 0,
            floor: 0,
            horizon: u128::MAX,
        }
    }
}

impl FairQueue {
    /// `flows` has as many entries as there ever were flows at once.
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let FairQueue {
            flows,
            order,
            weight: _,
            now: _,
            floor: _,
            horizon: _,
        } = self;
        tell("fair flows", flows.len());
        tell("queued fair flows", order.len());
    }

    /// Registers `flow`, not queued, in place of any earlier one of its number.
    pub fn register(&mut self, flow: usize, weight: u64) {
        let fresh = Flow {
            weight: weight.max(1),
            tag: self.now,
            queued: false,
        };
        if flow < self.flows.len() {
            self.set_queued(flow, false);
            self.flows[flow] = fresh;
        } else {
            let empty = Flow {
                weight: 1,
                tag: 0,
                queued: false,
            };
            self.flows.resize(flow, empty);
            self.flows.push(fresh);
        }
    }

    /// Changes a weight. The flow's lead over the others is converted to the new
    /// weight, so that bytes sent at a small weight do not delay it at a large
    /// one.
    pub fn set_weight(&mut self, flow: usize, weight: u64) {
        let weight = weight.max(1);
        if self.flows[flow].weight == weight {
            return;
        }
        self.advance(flow);
        let old = self.ranked(flow);
        let entry = &mut self.flows[flow];
        let ahead = entry.tag.saturating_sub(self.now);
        // Bytes × SCALE: 2⁷² of them would saturate.
        let bytes = ahead.saturating_mul(u128::from(entry.weight));
        entry.tag = entry.tag.min(self.now) + bytes / u128::from(weight);
        let before = std::mem::replace(&mut entry.weight, weight);
        if entry.queued {
            self.weight = self.weight - u128::from(before) + u128::from(weight);
            self.order.remove(&old);
            self.order.insert(self.ranked(flow));
        }
    }

    pub fn set_queued(&mut self, flow: usize, queued: bool) {
        if self.flows[flow].queued == queued {
            return;
        }
        let weight = u128::from(self.flows[flow].weight);
        if queued {
            self.flows[flow].tag = self.flows[flow].tag.max(self.now);
            self.order.insert(self.ranked(flow));
            self.weight += weight;
        } else {
            self.advance(flow);
            self.order.remove(&self.ranked(flow));
            self.weight -= weight;
        }
        self.flows[flow].queued = queued;
    }

    pub fn first(&self) -> Option<usize> {
        self.order.first().map(|ranked| ranked.flow)
    }

    /// The first of the queued flows for which `is_such` holds; costs O(n) in their number.
    pub fn first_of(&self, is_such: impl Fn(usize) -> bool) -> Option<usize> {
        let mut flows = self.order.iter().map(|ranked| ranked.flow);
        flows.find(|flow| is_such(*flow))
    }

    /// When the first flow starts.
    pub fn start(&self) -> Option<u128> {
        let first = self.order.first()?;
        Some(first.rank.max(self.floor))
    }

    /// How far a flow is ahead of virtual time.
    pub fn lead(&self, flow: usize) -> u128 {
        let tag = self.flows[flow].tag;
        tag.saturating_sub(self.start().unwrap_or(tag).max(self.now))
    }

    /// Sum of the weights of queued flows.
    pub fn weight(&self) -> u128 {
        self.weight
    }

    /// The present virtual time.
    pub fn virtual_now(&self) -> u128 {
        self.now
    }

    /// Gets in step with other queues.
    pub fn follow(&mut self, pace: Pace) {
        self.now = self.now.max(pace.now);
        self.floor = self.floor.max(pace.floor);
        self.horizon = pace.horizon;
    }

    /// Leaves the step with other queues, since there are none.
    pub fn run_free(&mut self) {
        self.horizon = u128::MAX;
    }

    /// Counts `bytes` against `flow`, whether it was picked or not.
    pub fn charge(&mut self, flow: usize, bytes: u64) {
        self.advance(flow);
        let old = self.ranked(flow);
        let entry = &mut self.flows[flow];
        if entry.queued {
            entry.tag = entry.tag.max(self.floor);
        }
        entry.tag += virtual_time(bytes, entry.weight.into());
        if entry.queued {
            self.order.remove(&old);
            self.order.insert(self.ranked(flow));
        }
    }

    fn ranked(&self, flow: usize) -> Ranked<u128> {
        Ranked {
            rank: self.flows[flow].tag,
            flow,
        }
    }

    /// Moves virtual time to the first bundle in the queue, or to that of
    /// `flow` if it is alone; not beyond the horizon.
    fn advance(&mut self, flow: usize) {
        let first = self
            .order
            .first()
            .map_or(self.flows[flow].tag, |first| first.rank);
        self.now = self.now.max(first.min(self.horizon));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(weights: &[u64]) -> FairQueue {
        let mut queue = FairQueue::default();
        for (flow, &weight) in weights.iter().enumerate() {
            queue.register(flow, weight);
            queue.set_queued(flow, true);
        }
        queue
    }

    /// Of `bundles` bundles of 1,000 bytes, the number of each of two flows.
    fn served(queue: &mut FairQueue, bundles: usize) -> [usize; 2] {
        let mut sent = [0; 2];
        for _ in 0..bundles {
            let flow = queue.first().unwrap();
            sent[flow] += 1;
            queue.charge(flow, 1_000);
        }
        sent
    }

    #[test]
    fn bytes_follow_weights() {
        let mut queue = queue(&[1, 3]);
        let sent = served(&mut queue, 400);
        assert_eq!(sent, [100, 300]);
    }

    #[test]
    fn weight_that_rises_counts_at_once() {
        let mut queue = queue(&[1, 1_000]);
        // At weight 1 this counts like a million bytes of the other.
        queue.charge(0, 1_000);
        assert_eq!(queue.first(), Some(1));
        queue.set_weight(0, 1_000);
        let sent = served(&mut queue, 100);
        assert!(sent[0] >= 49, "{sent:?}");
    }

    #[test]
    fn silence_earns_nothing() {
        let mut queue = queue(&[1, 1]);
        queue.set_queued(1, false);
        for _ in 0..100 {
            queue.charge(0, 1_000);
        }
        queue.set_queued(1, true);
        let sent = served(&mut queue, 100);
        assert!(sent[0] >= 49, "{sent:?}");
    }

    #[test]
    fn flow_that_ran_alone_owes_a_newcomer_no_more_than_one_bundle() {
        for leaves_before_its_charge in [false, true] {
            let mut queue = queue(&[1, 1]);
            queue.set_queued(1, false);
            for _ in 0..100 {
                if leaves_before_its_charge {
                    queue.set_queued(0, false);
                }
                queue.charge(0, 1_000);
                queue.set_queued(0, true);
            }
            queue.set_queued(1, true);
            let sent = served(&mut queue, 100);
            assert!(sent[0] >= 49, "{sent:?}");
        }
    }
}
