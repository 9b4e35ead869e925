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

/// Picks, among the queued flows, the one whose next bundle starts first in
/// virtual time, which a flow's bytes advance by bytes / weight. A flow that
/// comes back starts at the present virtual time: silence earns nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct FairQueue {
    flows: Vec<Flow>,
    order: BTreeSet<Ranked<u128>>,
    /// The start of the bundle in service; never goes back.
    now: u128,
}

impl FairQueue {
    /// `flows` is what it was told of at once at most.
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let FairQueue {
            flows,
            order,
            now: _,
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
        entry.weight = weight;
        if entry.queued {
            self.order.remove(&old);
            self.order.insert(self.ranked(flow));
        }
    }

    pub fn set_queued(&mut self, flow: usize, queued: bool) {
        if self.flows[flow].queued == queued {
            return;
        }
        if queued {
            self.flows[flow].tag = self.flows[flow].tag.max(self.now);
            self.order.insert(self.ranked(flow));
        } else {
            self.advance(flow);
            self.order.remove(&self.ranked(flow));
        }
        self.flows[flow].queued = queued;
    }

    pub fn first(&self) -> Option<usize> {
        self.order.first().map(|ranked| ranked.flow)
    }

    /// Counts `bytes` against `flow`, whether it was picked or not.
    pub fn charge(&mut self, flow: usize, bytes: u64) {
        self.advance(flow);
        let old = self.ranked(flow);
        let entry = &mut self.flows[flow];
        entry.tag += u128::from(bytes) * SCALE / u128::from(entry.weight);
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
    /// `flow` if it is alone.
    fn advance(&mut self, flow: usize) {
        let first = self
            .order
            .first()
            .map_or(self.flows[flow].tag, |first| first.rank);
        self.now = self.now.max(first);
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

    #[test]
    fn bytes_follow_weights() {
        let mut queue = queue(&[1, 3]);
        let mut sent = [0; 2];
        for _ in 0..400 {
            let flow = queue.first().unwrap();
            sent[flow] += 1_000;
            queue.charge(flow, 1_000);
        }
        assert_eq!(sent, [100_000, 300_000]);
    }

    #[test]
    fn weight_that_rises_counts_at_once() {
        let mut queue = queue(&[1, 1_000]);
        // At weight 1 this is worth a million bytes of the other.
        queue.charge(0, 1_000);
        assert_eq!(queue.first(), Some(1));
        queue.set_weight(0, 1_000);
        let mut sent = [0; 2];
        for _ in 0..100 {
            let flow = queue.first().unwrap();
            sent[flow] += 1_000;
            queue.charge(flow, 1_000);
        }
        assert!(sent[0] >= 49_000, "{sent:?}");
    }

    #[test]
    fn silence_earns_nothing() {
        let mut queue = queue(&[1, 1]);
        queue.set_queued(1, false);
        for _ in 0..100 {
            queue.charge(0, 1_000);
        }
        queue.set_queued(1, true);
        let mut sent = [0; 2];
        for _ in 0..100 {
            let flow = queue.first().unwrap();
            sent[flow] += 1;
            queue.charge(flow, 1_000);
        }
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
            let mut sent = [0; 2];
            for _ in 0..100 {
                let flow = queue.first().unwrap();
                sent[flow] += 1;
                queue.charge(flow, 1_000);
            }
            assert!(sent[0] >= 49, "{sent:?}");
        }
    }
}
