//! Limits how much the agents of a node store together.
//!
//! Room is reserved before a bundle is taken, and a [`Reservation`] that is not used gives it back
//! when it is dropped. So agents in many threads together never exceed the limits, and a bundle
//! that is dropped on its way costs no room.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use underpass_work::FastMap;

use super::accounts::{Account, Accounts, Counters, Division, Pool, Purpose};
use super::config::NeighbourId;
use super::figures::NeighbourFigures;
use super::stored::quota_bytes;

/// Of the room for what waits for services, this part is for whole bundles alone.
const WHOLE_PART: u64 = 8;

/// Bytes and bundles that all agents of a node have stored, and, apart from
/// these, those that wait for its services; with their limits.
#[derive(Debug)]
pub struct Quota {
    stored: Counters,
    undelivered: Counters,
    /// The part of the stored bundles that exceeds the shares of their neighbours.
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
    /// Bytes: payloads and the data kept beside them.
    pub bytes: u64,
    /// Bundles.
    pub bundles: u64,
}

/// The largest bundle that has room for each neighbour that routes lead to, however many these are,
/// once nothing else is stored for it and little enough for the others, bytes. A node that
/// announces no larger ones can sooner or later take each that it is sent.
pub fn largest_bundle_bytes(store_bytes: u64, guaranteed_percent: u8) -> u64 {
    let most = Amount {
        bytes: store_bytes,
        bundles: 1,
    };
    let division = Division {
        most,
        guaranteed_percent,
    };
    // A bundle counts for its own bytes at most, and for what an empty payload counts for.
    let most = division.most_for_one().bytes;
    most.saturating_sub(quota_bytes(0))
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

    /// Changes the limits, if they differ.
    fn change(&self, change: impl FnOnce(&mut Limits)) -> Arc<Accounts> {
        // No code that holds the lock can panic half-way.
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

    /// What is stored, including bundles on their way from one agent to another.
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
    /// The account of the neighbour that the bundle waits for; `None` if it waits for a service.
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

    /// Counts what is stored with the accounts to which it belongs now.
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

    /// The most bytes that can be stored for a neighbour while others keep what they have.
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

    /// Whether [`Usage::reserve`] could find room for a bundle if nothing else were stored.
    pub fn could_reserve(&self, neighbour: NeighbourId, payload_bytes: u64) -> bool {
        // The shares and the pool are changed together.
        let _limits = self
            .quota
            .limits
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let amount = Amount::of(quota_bytes(payload_bytes));
        let account = self.accounts.of(neighbour);
        account.could_take(&self.quota.pool, amount)
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

    /// Reserves room for a bundle that is stored already or cannot be refused.
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
        self.reserve_undelivered_of(payload_bytes, self.quota.most.amount())
    }

    /// The same for a fragment whose bundle is not whole. An eighth stays free for whole
    /// bundles, which are delivered at once: those of streams are among them.
    pub fn reserve_fragment(&self, payload_bytes: u64) -> Option<Reservation> {
        let most = self.quota.most.amount();
        self.reserve_undelivered_of(payload_bytes, most.less(most.part(WHOLE_PART)))
    }

    fn reserve_undelivered_of(&self, payload_bytes: u64, most: Amount) -> Option<Reservation> {
        let amount = Amount::of(quota_bytes(payload_bytes));
        let added = self.quota.undelivered.add_up_to(amount, most);
        added.then(|| Reservation {
            quota: Arc::clone(&self.quota),
            account: None,
            amount,
        })
    }

    /// Turns a reservation into room for a bundle that waits for a neighbour, until that is freed.
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

    /// Turns a reservation into room for a delivery, until that is freed.
    pub fn keep_undelivered(&mut self, mut reservation: Reservation) {
        let amount = mem::take(&mut reservation.amount);
        self.undelivered = self.undelivered.plus(amount);
    }

    /// Frees the room of a payload of so many bytes that was stored for a neighbour.
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

    /// Frees the room of a payload of so many bytes that its service has.
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
mod tests;
