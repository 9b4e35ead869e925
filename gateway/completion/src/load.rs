//! What the flows that share a path have left.

use std::collections::BTreeMap;

/// Sizes are grouped by their highest bits. A group is an eighth of an octave, so the error of a
/// sum is less than an eighth of one group's part.
const GROUP_BITS: u32 = 3;

/// Flows by what they have left. It takes memory for the groups in use, 500 at
/// most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    groups: BTreeMap<u16, Group>,
    flows: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Group {
    flows: u64,
    bytes: u128,
}

impl Load {
    /// Adds a flow that has so many bytes left.
    pub fn add(&mut self, left_bytes: u64) {
        let group = self.groups.entry(group_of(left_bytes)).or_default();
        group.flows += 1;
        group.bytes += u128::from(left_bytes);
        self.flows += 1;
    }

    /// Takes a flow out again that was added with so many bytes.
    pub fn remove(&mut self, left_bytes: u64) {
        let place = group_of(left_bytes);
        let Some(group) = self.groups.get_mut(&place) else {
            debug_assert!(false, "no flow of {left_bytes} bytes was added");
            return;
        };
        group.flows -= 1;
        group.bytes = group.bytes.saturating_sub(u128::from(left_bytes));
        if group.flows == 0 {
            self.groups.remove(&place);
        }
        self.flows -= 1;
    }

    /// How many flows there are.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// What they have left in all, bytes.
    pub fn bytes(&self) -> u64 {
        self.up_to(u64::MAX)
    }

    /// The sum, over all flows, of the lesser of what each has left and `most_bytes`, bytes.
    pub fn up_to(&self, most_bytes: u64) -> u64 {
        let of_group = |group: &Group| {
            let most = u128::from(group.flows) * u128::from(most_bytes);
            group.bytes.min(most)
        };
        let sum: u128 = self.groups.values().map(of_group).sum();
        u64::try_from(sum).unwrap_or(u64::MAX)
    }

    /// How many groups take memory.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }
}

fn group_of(bytes: u64) -> u16 {
    let bits = u64::BITS - bytes.leading_zeros();
    let shift = bits.saturating_sub(GROUP_BITS + 1);
    // Below 16 each size is a group of its own.
    let within = (bytes >> shift) as u16;
    (shift as u16) << (GROUP_BITS + 1) | within
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_added_and_removed_is_gone() {
        let mut load = Load::default();
        for left in [0, 1, 15, 16, 1_000_000, u64::MAX, u64::MAX] {
            load.add(left);
        }
        assert_eq!(load.flows(), 7);
        assert_eq!(load.bytes(), u64::MAX);
        for left in [u64::MAX, 0, 16, u64::MAX, 15, 1, 1_000_000] {
            load.remove(left);
        }
        assert_eq!(load, Load::default());
    }

    proptest! {
        #[test]
        fn a_sum_is_that_of_all_flows_but_for_one_group(
            left in proptest::collection::vec(0..100_000_000u64, 0..60),
            most in 1..100_000_000u64,
        ) {
            let mut load = Load::default();
            left.iter().for_each(|bytes| load.add(*bytes));
            let exact: u64 = left.iter().map(|bytes| (*bytes).min(most)).sum();
            let sum = load.up_to(most);
            let near = left.iter().filter(|bytes| group_of(**bytes) == group_of(most));
            let tolerance = near.count() as u64 * (most / 8 + 1);
            prop_assert!(sum >= exact && sum <= exact + tolerance, "{sum} {exact}");
            prop_assert_eq!(load.bytes(), left.iter().sum::<u64>());
            prop_assert!(load.groups() <= 500);
        }
    }
}
