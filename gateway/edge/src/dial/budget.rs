//! Bounds the look-ups and dials at the same time, per party and in all.
//!
//! Each party has a guaranteed share, and there is a common pool above. A party
//! that has used up both waits for one of its own dials to end. Nobody queues
//! for the pool, so a party with many waiting dials takes it from nobody.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use underpass_customer::customer;

use crate::stream::{Failure, FailureCode};

/// On whose behalf an origin is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// The node of this ipn number, for its clients.
    Peer(u64),
    /// A client of this node: all addresses of one [`customer`].
    Client(IpAddr),
}

/// Above this number of parties, those without a dial are forgotten.
const SWEPT_ABOVE: usize = 64;

#[derive(Debug)]
pub(super) struct Budget {
    guaranteed: usize,
    common: Arc<Semaphore>,
    parties: Mutex<Parties>,
}

#[derive(Debug)]
struct Parties {
    shares: HashMap<Party, Arc<Share>>,
    sweep_at: usize,
}

#[derive(Debug)]
struct Share {
    guaranteed: Arc<Semaphore>,
    /// What it has of the common pool.
    common: AtomicUsize,
}

/// A dial that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    _permit: OwnedSemaphorePermit,
    share: Arc<Share>,
    is_common: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_common {
            self.share.common.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Budget {
    /// A budget of `guaranteed` dials for each party and `common` ones above.
    pub fn new(guaranteed: usize, common: usize) -> Budget {
        let bounded = |count: usize| count.min(Semaphore::MAX_PERMITS);
        Budget {
            guaranteed: bounded(guaranteed),
            common: Arc::new(Semaphore::new(bounded(common))),
            parties: Mutex::new(Parties {
                shares: HashMap::new(),
                sweep_at: SWEPT_ABOVE,
            }),
        }
    }

    /// Waits until `party` may have one more dial.
    ///
    /// # Errors
    /// [`FailureCode::Exhausted`] if the deadline passes first.
    pub async fn acquire(&self, party: Party, deadline: Instant) -> Result<Permit, Failure> {
        let share = self.share(party);
        if let Ok(permit) = share.guaranteed.clone().try_acquire_owned() {
            return Ok(Permit::new(permit, share, false));
        }
        if share.common.load(Ordering::Relaxed) < self.common.available_permits()
            && let Ok(permit) = self.common.clone().try_acquire_owned()
        {
            return Ok(Permit::new(permit, share, true));
        }
        let waited = timeout_at(deadline, share.guaranteed.clone().acquire_owned()).await;
        match waited {
            Ok(Ok(permit)) => Ok(Permit::new(permit, share, false)),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Failure::new(
                FailureCode::Exhausted,
                match party {
                    Party::Peer(node) => format!("too many dials at once for node {node}"),
                    Party::Client(client) => format!("too many dials at once for {client}"),
                },
            )),
        }
    }

    fn share(&self, party: Party) -> Arc<Share> {
        let party = match party {
            Party::Client(address) => Party::Client(customer(address)),
            peer @ Party::Peer(_) => peer,
        };
        let mut parties = self.parties.lock().unwrap();
        if !parties.shares.contains_key(&party) && parties.shares.len() >= parties.sweep_at {
            // A share that nobody else holds has no dial, and none waits.
            parties
                .shares
                .retain(|_, share| Arc::strong_count(share) > 1);
            parties.sweep_at = (2 * parties.shares.len()).max(SWEPT_ABOVE);
        }
        let share = parties.shares.entry(party);
        let share = share.or_insert_with(|| {
            Arc::new(Share {
                guaranteed: Arc::new(Semaphore::new(self.guaranteed)),
                common: AtomicUsize::new(0),
            })
        });
        share.clone()
    }
}

impl Permit {
    fn new(permit: OwnedSemaphorePermit, share: Arc<Share>, is_common: bool) -> Permit {
        if is_common {
            share.common.fetch_add(1, Ordering::Relaxed);
        }
        Permit {
            _permit: permit,
            share,
            is_common,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GREEDY: Party = Party::Peer(10);
    const OTHER: Party = Party::Peer(11);

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    async fn take_all(budget: &Budget, party: Party) -> Vec<Permit> {
        let mut permits = Vec::new();
        while let Ok(permit) = budget.acquire(party, soon()).await {
            permits.push(permit);
        }
        permits
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_all_it_can_leaves_others_their_share_and_half_of_the_pool() {
        let budget = Budget::new(4, 16);
        let greedy = take_all(&budget, GREEDY).await;
        assert_eq!(greedy.len(), 4 + 8);
        let other = take_all(&budget, OTHER).await;
        assert_eq!(other.len(), 4 + 4);
        let refused = budget.acquire(GREEDY, soon()).await.unwrap_err();
        assert_eq!(refused.code, FailureCode::Exhausted);
        assert!(refused.text.contains("node 10"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_exceeds_its_share_waits_for_its_own_dials_and_is_passed_by_nobodys() {
        let budget = Arc::new(Budget::new(1, 0));
        let first = budget.acquire(GREEDY, soon()).await.unwrap();
        let waiting = tokio::spawn({
            let budget = budget.clone();
            async move { budget.acquire(GREEDY, soon()).await.map(drop) }
        });
        tokio::task::yield_now().await;
        // The end of another party's dial does not help.
        drop(budget.acquire(OTHER, soon()).await.unwrap());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_one_share_for_all_addresses_of_its_network() {
        let budget = Budget::new(1, 0);
        let client = |text: &str| Party::Client(text.parse().unwrap());
        let _held = budget.acquire(client("2001:db8::1"), soon()).await.unwrap();
        let neighbour = budget.acquire(client("2001:db8::2"), soon()).await;
        assert_eq!(neighbour.unwrap_err().code, FailureCode::Exhausted);
        let other = budget.acquire(client("2001:db8:0:1::1"), soon()).await;
        assert!(other.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn parties_without_dials_are_forgotten() {
        let budget = Budget::new(1, 1);
        let kept = budget.acquire(GREEDY, soon()).await.unwrap();
        for number in 0..10_000u32 {
            let client = Party::Client(IpAddr::from(number.to_be_bytes()));
            drop(budget.acquire(client, soon()).await.unwrap());
        }
        assert!(budget.parties.lock().unwrap().shares.len() <= SWEPT_ABOVE);
        let common = budget.acquire(GREEDY, soon()).await.unwrap();
        assert!(!kept.is_common && common.is_common);
        assert!(budget.acquire(GREEDY, soon()).await.is_err());
    }
}
