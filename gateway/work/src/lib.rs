//! Counts what loops visit, so that tests can bound the cost of a message without a clock.
//!
//! The work that a message causes must cost no more than the message's bytes, and work for one
//! stream, bundle or neighbour must not visit all others. So loops over streams, bundles,
//! neighbours or hops in the protocol's state machines go over [`each`], and tests compare the
//! count of [`of`] for the same message in a small node and in a large one. Only tests count:
//! without the feature `counted`, `each` is just the loop.
//!
//! [`FastMap`] is for what is looked up with every bundle, [`IdMap`] and [`IdSet`]
//! for bundles that wait, of which there may be a million.

mod ids;

#[cfg(feature = "counted")]
use std::cell::Cell;
use std::collections::HashMap;

pub use ids::{IdMap, IdSet};

/// A map by numbers that this node itself has given or that its operator has configured. Its hashes
/// are fast but predictable: keys that others choose belong in a [`HashMap`].
pub type FastMap<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

#[cfg(feature = "counted")]
thread_local!(static VISITED: Cell<u64> = const { Cell::new(0) });

/// The items, each counted when it is visited.
pub fn each<I: IntoIterator>(items: I) -> impl Iterator<Item = I::Item> {
    items.into_iter().inspect(|_| count())
}

/// Counts one step of work.
#[inline]
pub fn count() {
    count_all(1);
}

/// Counts many steps at once, such as bytes that are read to check them.
#[inline]
pub fn count_all(steps: usize) {
    #[cfg(feature = "counted")]
    VISITED.with(|visited| visited.set(visited.get() + steps as u64));
    #[cfg(not(feature = "counted"))]
    let _ = steps;
}

/// What a call costs: 1, and 1 for each item that this thread visits in it.
#[cfg(feature = "counted")]
pub fn of(call: impl FnOnce()) -> u64 {
    VISITED.with(Cell::take);
    call();
    1 + VISITED.with(Cell::take)
}

/// Asserts that what costs `few` in a small node costs no more than 1.5 times
/// that, `many`, in a large one.
///
/// # Panics
/// When it costs more.
#[cfg(feature = "counted")]
pub fn assert_bounded(what: &str, few: u64, many: u64) {
    assert!(
        2 * many <= 3 * few,
        "{what}: {many} steps in a large node, {few} in a small one"
    );
}

#[cfg(all(test, feature = "counted"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_visited_is_counted_and_what_is_not_is_not() {
        assert_eq!(of(|| {}), 1);
        assert_eq!(of(|| assert_eq!(each(0..10).take(3).sum::<u32>(), 3)), 4);
    }
}
