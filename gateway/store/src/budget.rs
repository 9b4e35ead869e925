//! A memory limit that the stores of all shards share.
//!
//! A limit holds for the sum over all stores, and each store counts what it adds to the sum. A
//! quarter of a limit is reserved in equal parts, one for each store; the rest goes to whoever
//! comes first. So a lone busy store has three quarters and its own part, and a blocked store with
//! much in memory leaves each of the others its part. With equal parts of the whole a lone busy
//! store would have only 1/n; with a sum alone one store could take all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The part (1/n) of a limit that is reserved, if there are several stores.
const APART: u64 = 4;

/// A sum over all stores.
#[derive(Debug)]
pub struct Sum {
    total: AtomicU64,
    stores: u64,
}

impl Sum {
    /// A sum over so many stores.
    pub fn new(stores: usize) -> Arc<Sum> {
        Arc::new(Sum {
            total: AtomicU64::new(0),
            stores: stores as u64,
        })
    }

    pub fn total(&self) -> u64 {
        // Ordered with the flags of stores that wait for room: see
        // `Shared::await_room`.
        self.total.load(Ordering::SeqCst)
    }

    /// The part of a limit that is reserved for each store.
    fn apart(&self, limit: u64) -> u64 {
        match self.stores {
            1 => 0,
            stores => limit / APART / stores,
        }
    }

    /// An equal part of a limit for each store.
    pub fn equal_part(&self, limit: u64) -> u64 {
        limit / self.stores
    }

    /// The rest of a limit, for whoever comes first.
    pub fn common(&self, limit: u64) -> u64 {
        limit - self.apart(limit) * self.stores
    }
}

/// What one store has added to a sum.
#[derive(Debug)]
pub struct Share {
    own: u64,
    sum: Arc<Sum>,
}

impl Share {
    /// Nothing, yet.
    pub fn of(sum: &Arc<Sum>) -> Share {
        Share {
            own: 0,
            sum: sum.clone(),
        }
    }

    pub fn own(&self) -> u64 {
        self.own
    }

    pub fn sum(&self) -> &Sum {
        &self.sum
    }

    pub fn add(&mut self, bytes: u64) {
        self.own += bytes;
        self.sum.total.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Returns the sum before.
    pub fn subtract(&mut self, bytes: u64) -> u64 {
        self.own -= bytes;
        self.sum.total.fetch_sub(bytes, Ordering::SeqCst)
    }

    /// The most that this store may have now, so that all together have at most `limit` if each
    /// keeps to it. Stores that add at the same moment may exceed the limit by what each adds
    /// before it asks again.
    pub fn most(&self, limit: u64) -> u64 {
        let others = self.sum.total().saturating_sub(self.own);
        let common = self.sum.common(limit).saturating_sub(others);
        common.max(self.sum.apart(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1200;

    fn shares(stores: usize) -> Vec<Share> {
        let sum = Sum::new(stores);
        (0..stores).map(|_| Share::of(&sum)).collect()
    }

    fn fill(share: &mut Share) {
        let left = share.most(LIMIT).saturating_sub(share.own());
        share.add(left);
    }

    #[test]
    fn a_lone_store_has_all() {
        let mut shares = shares(1);
        assert_eq!(shares[0].most(LIMIT), LIMIT);
        fill(&mut shares[0]);
        assert_eq!(shares[0].most(LIMIT), LIMIT);
    }

    #[test]
    fn a_store_that_takes_all_it_can_leaves_the_others_their_parts() {
        let mut shares = shares(3);
        fill(&mut shares[0]);
        assert_eq!(shares[0].own(), 900);
        for other in &mut shares[1..] {
            assert_eq!(other.most(LIMIT), 100);
            fill(other);
        }
        assert_eq!(shares[0].sum().total(), 1100);
        // Room that the first shard gives back is available to all.
        assert_eq!(shares[0].subtract(850), 1100);
        assert_eq!(shares[1].most(LIMIT), 900 - 50 - 100);
    }

    #[test]
    fn whatever_the_order_the_limit_holds_for_all() {
        let mut shares = shares(4);
        let mut dice = 1u64;
        for _ in 0..10_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let share = &mut shares[(dice >> 33) as usize % 4];
            let wanted = (dice >> 40) % 300;
            if share.own() + wanted <= share.most(LIMIT) {
                share.add(wanted);
            } else {
                share.subtract(share.own() / 2);
            }
            let total: u64 = shares.iter().map(Share::own).sum();
            assert_eq!(total, shares[0].sum().total());
            assert!(total <= LIMIT, "{total}");
        }
    }
}
