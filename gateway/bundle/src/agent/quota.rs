//! How much a node stores, whichever of its agents does.
//!
//! Room is reserved before a bundle is taken, and a [`Reservation`] that comes
//! to nothing gives it back by itself: so agents in many threads together never
//! exceed the limits, and nothing that is dropped on its way costs room.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use underpass_work::FastMap;

use super::accounts::{Account, Accounts, Counters, Division, Pool, Purpose};
use super::config::NeighbourId;
use super::figures::NeighbourFigures;
use super::stored::quota_bytes;

/// Bytes and bundles that all agents of a node have stored, and, apart from
/// these, those that wait for its services; with their limits.
#[derive(Debug)]
pub struct Quota {
    stored: Counters,
    undelivered: Counters,
    /// What of the stored exceeds the shares of its neighbours.
    pool: Pool,
    most: Counters,
    limits: Mutex<Limits>,
}

/// Changed together, and seldom.
#[derive(Debug)]
struct Limits {
    division: Division,
    neighbours: BTreeSet<NeighbourId>,
    accounts: Arc<Accounts>,
}

/// Bundles, and their bytes as the quota counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes: payloads and what is kept beside them.
    pub bytes: u64,
    /// Bundles.
    pub bundles: u64,
}

impl Quota {
    pub(super) fn new(division: Division, neighbours: BTreeSet<NeighbourId>) -> Quota {
        let pool = Pool::default();
        let accounts = Accounts::default().divided(&pool, division, &neighbours);
        let most = Counters::default();
        most.set(division.most);
        Quota {
            stored: Counters::default(),
            undelivered: Counters::default(),
            pool,
            most,
            limits: Mutex::new(Limits {
                division,
                neighbours,
                accounts: Arc::new(accounts),
            }),
        }
    }

    /// Has other limits hold from now on, where they differ.
    fn change(&self, change: impl FnOnce(&mut Limits)) -> Arc<Accounts> {
        // Nothing that runs with the lock can panic half-way.
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let before = (limits.division, limits.neighbours.clone());
        change(&mut limits);
        let Limits {
            division,
            neighbours,
            accounts,
        } = &*limits;
        if before != (*division, neighbours.clone()) {
            let (most, accounts) = (
                division.most,
                accounts.divided(&self.pool, *division, neighbours),
            );
            limits.accounts = Arc::new(accounts);
            self.most.set(most);
        }
        Arc::clone(&limits.accounts)
    }

    /// What is stored, with what is on its way from one agent to another.
    pub fn stored(&self) -> Amount {
        self.stored.amount()
    }

    /// What waits for services.
    pub fn undelivered(&self) -> Amount {
        self.undelivered.amount()
    }

    fn give_back(&self, account: Option<&Account>, amount: Amount) {
        match account {
            Some(account) => {
                account.give_back(&self.pool, amount);
                self.stored.subtract(amount);
            }
            None => self.undelivered.subtract(amount),
        }
    }
}

/// Room for one bundle, until [`Usage::keep`] or its end.
#[derive(Debug)]
pub(super) struct Reservation {
    quota: Arc<Quota>,
    /// Of the neighbour that it waits for; none if it waits for a service.
    account: Option<Arc<Account>>,
    amount: Amount,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.quota.give_back(self.account.as_deref(), self.amount);
    }
}

/// What one agent uses of the quota. It ends with the agent.
#[derive(Debug)]
pub(super) struct Usage {
    quota: Arc<Quota>,
    accounts: Arc<Accounts>,
    stored: Amount,
    undelivered: Amount,
    /// By neighbours for which something is stored.
    neighbours: FastMap<NeighbourId, Part>,
}

/// What an agent has stored for one neighbour, and where that is counted.
#[derive(Debug)]
struct Part {
    account: Arc<Account>,
    amount: Amount,
}

impl Usage {
    pub fn new(quota: Arc<Quota>) -> Usage {
        let accounts = quota.change(|_| {});
        Usage {
            quota,
            accounts,
            stored: Amount::default(),
            undelivered: Amount::default(),
            neighbours: FastMap::default(),
        }
    }

    pub fn stored(&self) -> Amount {
        self.stored
    }

    pub fn undelivered(&self) -> Amount {
        self.undelivered
    }

    /// What is stored for each neighbour that has a share, by all agents.
    pub fn of_neighbours(&self) -> impl Iterator<Item = (NeighbourId, NeighbourFigures)> + '_ {
        let accounts = self.accounts.iter();
        accounts.map(|(neighbour, account)| (neighbour, account.figures()))
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        tell("neighbours with bundles", self.neighbours.len());
        tell("undelivered bundles", self.undelivered.bundles as usize);
    }

    /// Sets what all agents may store together. What is stored already stays,
    /// even if it exceeds that.
    pub fn set_limits(&mut self, division: Division) {
        self.accounts = self.quota.change(|limits| limits.division = division);
        self.count_anew();
    }

    /// Sets which neighbours have shares.
    pub fn set_neighbours(&mut self, neighbours: BTreeSet<NeighbourId>) {
        self.accounts = self.quota.change(|limits| limits.neighbours = neighbours);
        self.count_anew();
    }

    /// Counts what is stored where it belongs now.
    fn count_anew(&mut self) {
        for (neighbour, part) in &mut self.neighbours {
            let account = self.accounts.of(*neighbour);
            if !Arc::ptr_eq(account, &part.account) {
                account.take(&self.quota.pool, part.amount, Purpose::There);
                part.account.give_back(&self.quota.pool, part.amount);
                part.account = Arc::clone(account);
            }
        }
    }

    /// Whether a payload of so many bytes may find room with some neighbour.
    pub fn has_room(&self, payload_bytes: u64) -> bool {
        let stored = self
            .quota
            .stored()
            .plus(Amount::of(quota_bytes(payload_bytes)));
        stored.all_at_most(self.quota.most.amount())
    }

    /// The largest payload that has room for a neighbour, bytes.
    pub fn free_bytes(&self, neighbour: NeighbourId) -> u64 {
        let free = self.accounts.of(neighbour).free_bytes(&self.quota.pool);
        free.saturating_sub(quota_bytes(0))
    }

    /// The most bytes that there can be for a neighbour while others keep what
    /// they have.
    pub fn most_bytes(&self, neighbour: NeighbourId) -> u64 {
        self.accounts.of(neighbour).most_bytes(&self.quota.pool)
    }

    /// Whether [`Usage::reserve`] finds room for this purpose.
    pub fn has_room_for(
        &self,
        neighbour: NeighbourId,
        payload_bytes: u64,
        purpose: Purpose,
    ) -> bool {
        let amount = Amount::of(quota_bytes(payload_bytes));
        let account = self.accounts.of(neighbour);
        account.has_room(&self.quota.pool, amount, purpose)
    }

    /// Room to store a bundle for a neighbour, of this agent or another.
    pub fn reserve(
        &self,
        neighbour: NeighbourId,
        payload_bytes: u64,
        purpose: Purpose,
    ) -> Option<Reservation> {
        let amount = Amount::of(quota_bytes(payload_bytes));
        let account = self.accounts.of(neighbour);
        let taken = account.take(&self.quota.pool, amount, purpose);
        taken.then(|| self.reserved(account, amount))
    }

    /// Room for what is stored already or cannot be refused.
    pub fn reserve_anyway(&self, neighbour: NeighbourId, payload_bytes: u64) -> Reservation {
        let amount = Amount::of(quota_bytes(payload_bytes));
        let account = self.accounts.of(neighbour);
        account.take(&self.quota.pool, amount, Purpose::There);
        self.reserved(account, amount)
    }

    fn reserved(&self, account: &Arc<Account>, amount: Amount) -> Reservation {
        self.quota.stored.add(amount);
        Reservation {
            quota: Arc::clone(&self.quota),
            account: Some(Arc::clone(account)),
            amount,
        }
    }

    /// Whether a payload of so many bytes can wait for its service.
    pub fn has_room_undelivered(&self, payload_bytes: u64) -> bool {
        let amount = Amount::of(quota_bytes(payload_bytes));
        let undelivered = &self.quota.undelivered;
        undelivered.has_room(amount, self.quota.most.amount())
    }

    /// Room to wait for a service.
    pub fn reserve_undelivered(&self, payload_bytes: u64) -> Option<Reservation> {
        let amount = Amount::of(quota_bytes(payload_bytes));
        let most = self.quota.most.amount();
        let added = self.quota.undelivered.add_up_to(amount, most);
        added.then(|| Reservation {
            quota: Arc::clone(&self.quota),
            account: None,
            amount,
        })
    }

    /// Takes what was reserved for a bundle that waits for a neighbour, until it
    /// is freed.
    pub fn keep(&mut self, neighbour: NeighbourId, mut reservation: Reservation) {
        let amount = reservation.amount;
        let Some(account) = &reservation.account else {
            return;
        };
        self.stored = self.stored.plus(amount);
        let part = self.neighbours.entry(neighbour).or_insert_with(|| Part {
            account: Arc::clone(account),
            amount: Amount::default(),
        });
        part.amount = part.amount.plus(amount);
        if !Arc::ptr_eq(account, &part.account) {
            // The neighbours have changed since it was reserved.
            part.account.take(&self.quota.pool, amount, Purpose::There);
            account.give_back(&self.quota.pool, amount);
        }
        mem::take(&mut reservation.amount);
    }

    /// Takes what was reserved for a delivery, until it is freed.
    pub fn keep_undelivered(&mut self, mut reservation: Reservation) {
        let amount = mem::take(&mut reservation.amount);
        self.undelivered = self.undelivered.plus(amount);
    }

    /// A payload of so many bytes is stored for a neighbour no more.
    pub fn free(&mut self, neighbour: NeighbourId, payload_bytes: u64) {
        let amount = Amount::of(quota_bytes(payload_bytes));
        let Some(part) = self.neighbours.get_mut(&neighbour) else {
            debug_assert!(false, "nothing is stored for {neighbour}");
            return;
        };
        self.quota.give_back(Some(&part.account), amount);
        part.amount = part.amount.less(amount);
        if part.amount.bundles == 0 {
            self.neighbours.remove(&neighbour);
        }
        self.stored = self.stored.less(amount);
    }

    /// A payload of so many bytes is with its service.
    pub fn free_undelivered(&mut self, payload_bytes: u64) {
        let amount = Amount::of(quota_bytes(payload_bytes));
        self.undelivered = self.undelivered.less(amount);
        self.quota.give_back(None, amount);
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        for part in self.neighbours.values() {
            self.quota.give_back(Some(&part.account), part.amount);
        }
        self.quota.give_back(None, self.undelivered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::thread;

    const BULK: Purpose = Purpose::Bundle;

    fn quota(bytes: u64, bundles: u64, neighbours: u64) -> Arc<Quota> {
        let division = Division {
            most: Amount { bytes, bundles },
            guaranteed_percent: 50,
        };
        let neighbours = (0..neighbours).map(NeighbourId).collect();
        Arc::new(Quota::new(division, neighbours))
    }

    #[test]
    fn threads_that_take_at_once_never_exceed_the_limits() {
        let bytes = quota_bytes(1_000);
        for (quota, fits) in [
            (quota(100 * bytes + 1, 1_000, 4), 100),
            (quota(1_000 * bytes, 90, 4), 90),
        ] {
            let take = |number: u64| -> Vec<Reservation> {
                let usage = Usage::new(Arc::clone(&quota));
                // Two threads for each neighbour.
                let to = |turn| NeighbourId((turn + number / 2) % 4);
                let reserved = (0..1_000).filter_map(|turn| {
                    let room = usage.reserve(to(turn), 1_000, BULK);
                    assert!(quota.stored().bytes <= fits * bytes);
                    room
                });
                reserved.collect()
            };
            let taken: Vec<Vec<Reservation>> = thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|number| scope.spawn(move || take(number)))
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            let all: usize = taken.iter().map(Vec::len).sum();
            assert!(all as u64 <= fits && quota.stored().bundles == all as u64);
            assert!(all as u64 >= fits / 2, "{all}");
            drop(taken);
            assert_eq!(quota.stored(), Amount::default());
            assert_eq!(quota.pool.used(), Amount::default());
        }
    }

    #[test]
    fn what_empties_stores_may_exceed_them_and_each_share_by_an_eighth() {
        let each = quota_bytes(0);
        let usage = Usage::new(quota(160 * each, 1_000, 2));
        let fill = |to: u64, purpose| {
            let room = || usage.reserve(NeighbourId(to), 0, purpose);
            std::iter::from_fn(room).collect::<Vec<Reservation>>()
        };
        // Its share, and half of the pool; then the rest and the eighth.
        let bulk = fill(0, BULK);
        let records = fill(0, Purpose::Emptying);
        assert_eq!((bulk.len(), records.len()), (80, 40 + 20));
        // The other still has its share, and an eighth of it beyond.
        let bulk = fill(1, BULK);
        let records = fill(1, Purpose::Emptying);
        assert_eq!((bulk.len(), records.len()), (40, 5));
    }

    #[test]
    fn what_an_agent_has_ends_with_it() {
        let quota = quota(1 << 20, 10, 1);
        let mut usage = Usage::new(Arc::clone(&quota));
        // One that has a share, and one that has none.
        for to in [0, 0, 9] {
            let to = NeighbourId(to);
            usage.keep(to, usage.reserve(to, 500, BULK).unwrap());
            usage.keep_undelivered(usage.reserve_undelivered(5).unwrap());
        }
        usage.free(NeighbourId(0), 500);
        assert_eq!(usage.stored().bundles, 2);
        assert_eq!(quota.stored(), usage.stored());
        assert_eq!(quota.undelivered().bytes, 3 * quota_bytes(5));
        drop(usage);
        let nothing = Amount::default();
        assert_eq!((quota.stored(), quota.undelivered()), (nothing, nothing));
        assert_eq!(quota.pool.used(), nothing);
    }

    proptest! {
        /// Whatever is taken, freed, moved and divided anew, the pool has in use
        /// what exceeds the shares, and in the end nothing.
        #[test]
        fn the_accounts_agree_with_what_is_stored(
            steps in prop::collection::vec((0u64..6, 0u64..4, 0u64..3_000), 1..120),
        ) {
            let quota = quota(20_000, 12, 3);
            let mut usages = [(); 2].map(|()| Usage::new(Arc::clone(&quota)));
            let mut stored: Vec<(usize, NeighbourId, u64)> = Vec::new();
            let mut pending: Vec<(usize, NeighbourId, u64, Reservation)> = Vec::new();
            for (action, to, bytes) in steps {
                let (agent, to) = ((to % 2) as usize, NeighbourId(to));
                match action {
                    0 | 1 => {
                        let purpose = if bytes.is_multiple_of(7) { Purpose::There } else { BULK };
                        if let Some(room) = usages[agent].reserve(to, bytes, purpose) {
                            pending.push((agent, to, bytes, room));
                        }
                    }
                    2 => {
                        if let Some((agent, to, bytes, room)) = pending.pop() {
                            usages[agent].keep(to, room);
                            stored.push((agent, to, bytes));
                        }
                    }
                    3 => {
                        if let Some((agent, to, bytes)) = stored.pop() {
                            usages[agent].free(to, bytes);
                        }
                    }
                    4 => {
                        // One agent hears of it after the other.
                        let neighbours: BTreeSet<_> = (0..bytes % 5).map(NeighbourId).collect();
                        usages[agent].set_neighbours(neighbours);
                    }
                    _ => usages[agent].set_limits(Division {
                        most: Amount { bytes: bytes * 10, bundles: bytes % 20 },
                        guaranteed_percent: (bytes % 101) as u8,
                    }),
                }
                let bytes = stored.iter().map(|(.., bytes)| quota_bytes(*bytes)).sum::<u64>()
                    + pending.iter().map(|(_, _, bytes, _)| quota_bytes(*bytes)).sum::<u64>();
                prop_assert_eq!(quota.stored().bytes, bytes);
                prop_assert_eq!(quota.stored().bundles, (stored.len() + pending.len()) as u64);
            }
            pending.clear();
            for (agent, to, bytes) in stored {
                usages[agent].free(to, bytes);
            }
            prop_assert_eq!(quota.stored(), Amount::default());
            prop_assert_eq!(quota.pool.used(), Amount::default());
            for usage in usages {
                for (_, figures) in usage.of_neighbours() {
                    prop_assert_eq!(figures.used, Amount::default());
                }
            }
        }
    }
}
