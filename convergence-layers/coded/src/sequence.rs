//! Numbers that go as their low bits.

use std::collections::BTreeSet;

use crate::{Violation, WINDOW};

/// The number with these low `bits` bits that is nearest to `near`.
pub(crate) fn expand(low: u64, bits: u32, near: u64) -> u64 {
    let span = 1u64 << bits;
    let candidate = (near & !(span - 1)) | low;
    if candidate > near && candidate - near > span / 2 && candidate >= span {
        candidate - span
    } else if candidate < near && near - candidate > span / 2 {
        candidate.checked_add(span).unwrap_or(candidate)
    } else {
        candidate
    }
}

/// Records which numbers from 0 on are done. They may be done in any order; those that are not done
/// lie within a window.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// All below are done.
    floor: u64,
    above: BTreeSet<u64>,
}

impl Done {
    /// Whether a number is done; an error if it lies beyond the window.
    pub(crate) fn contains(&self, number: u64) -> Result<bool, Violation> {
        if number >= self.floor.saturating_add(WINDOW) {
            return Err(Violation::Window);
        }
        Ok(number < self.floor || self.above.contains(&number))
    }

    /// A number is done.
    pub(crate) fn insert(&mut self, number: u64) {
        if number >= self.floor {
            self.above.insert(number);
        }
        while self.above.remove(&self.floor) {
            self.floor += 1;
        }
    }

    /// The least number that is not done.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_comes_back_from_its_low_bits(near in 0u64..1 << 40, step in -30_000i64..30_000) {
            let number = near.saturating_add_signed(step);
            prop_assert_eq!(expand(number & 0xffff, 16, near), number);
        }
    }

    #[test]
    fn numbers_are_done_in_any_order_and_within_the_window() {
        let mut done = Done::default();
        done.insert(1);
        assert_eq!((done.contains(0), done.contains(1)), (Ok(false), Ok(true)));
        assert_eq!(done.floor(), 0);
        assert_eq!(done.contains(WINDOW), Err(Violation::Window));
        done.insert(0);
        assert_eq!((done.floor(), done.contains(0)), (2, Ok(true)));
        assert_eq!(done.contains(WINDOW), Ok(false));
    }
}
