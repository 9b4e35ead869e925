//! Divides the quota among the neighbours: each has a guaranteed share, and beyond it a part of a
//! common pool.
//!
//! Bundles count for the neighbour that they wait for. Room within a neighbour's share never
//! depends on the others. Room beyond it comes from the pool, of which no neighbour takes more than
//! it leaves free (Choudhury and Hahne 1998, dynamic queue length thresholds). So some of the pool
//! is always free, whichever neighbours are switched off. Together shares and pool are the quota.
//!
//! A neighbour belongs to one agent, but others reserve room for bundles that they pass there. So
//! each account has a lock, for which at most those two contend; the pool consists of counters
//! without a lock.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::NeighbourId;
use super::figures::NeighbourFigures;
use super::quota::Amount;

/// See [`Amount::beyond`].
const FEW_BUNDLES: u64 = 8;
const BEYOND_PART: u64 = 8;

/// The counters guard nothing but themselves, so no order among them is needed.
const ORDER: Ordering = Ordering::Relaxed;

impl Amount {
    /// One bundle.
    pub(super) fn of(bytes: u64) -> Amount {
        Amount { bytes, bundles: 1 }
    }

    pub(super) fn plus(self, other: Amount) -> Amount {
        Amount {
            bytes: self.bytes.saturating_add(other.bytes),
            bundles: self.bundles.saturating_add(other.bundles),
        }
    }

    /// The difference to another amount, at least zero.
    pub(super) fn less(self, other: Amount) -> Amount {
        Amount {
            bytes: self.bytes.saturating_sub(other.bytes),
            bundles: self.bundles.saturating_sub(other.bundles),
        }
    }

    pub(super) fn all_at_most(self, most: Amount) -> bool {
        self.bytes <= most.bytes && self.bundles <= most.bundles
    }

    /// An n-th of it.
    pub(super) fn part(self, n: u64) -> Amount {
        Amount {
            bytes: self.bytes / n,
            bundles: self.bundles / n,
        }
    }

    /// Hundredths of it.
    fn percent(self, percent: u8) -> Amount {
        let hundredths = |all: u64| (u128::from(all) * u128::from(percent.min(100)) / 100) as u64;
        Amount {
            bytes: hundredths(self.bytes),
            bundles: hundredths(self.bundles),
        }
    }

    /// By how much a limit of this amount may be exceeded: an eighth, and a few bundles.
    fn beyond(self) -> Amount {
        let eighth = self.part(BEYOND_PART);
        Amount {
            bundles: eighth.bundles + FEW_BUNDLES,
            ..eighth
        }
    }
}

/// What may be stored, and how it is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// All together.
    pub most: Amount,
    /// This part is guaranteed, in equal shares.
    pub guaranteed_percent: u8,
}

impl Division {
    fn guaranteed(self) -> Amount {
        self.most.percent(self.guaranteed_percent)
    }

    /// What a neighbour with a share can have for one bundle, however many neighbours there are,
    /// once nothing else is stored.
    pub fn most_for_one(self) -> Amount {
        let pool = self.most.less(self.guaranteed());
        let shared = pool.plus(self.most.beyond());
        // A lone neighbour has all, and no more.
        Amount {
            bytes: shared.bytes.min(self.most.bytes),
            bundles: shared.bundles.min(self.most.bundles),
        }
    }
}

/// The purpose for which room is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Anything.
    Bundle,
    /// Bundles that help to empty full stores.
    Emptying,
    /// A bundle that is stored already or cannot be refused.
    There,
}

/// Counters that many threads change.
#[derive(Debug, Default)]
pub(super) struct Counters {
    bytes: AtomicU64,
    bundles: AtomicU64,
}

impl Counters {
    pub fn amount(&self) -> Amount {
        Amount {
            bytes: self.bytes.load(ORDER),
            bundles: self.bundles.load(ORDER),
        }
    }

    pub fn add(&self, amount: Amount) {
        self.bytes.fetch_add(amount.bytes, ORDER);
        self.bundles.fetch_add(amount.bundles, ORDER);
    }

    /// Adds, if the sum is then at most `most`.
    pub fn add_up_to(&self, amount: Amount, most: Amount) -> bool {
        let add = |counter: &AtomicU64, more: u64, most: u64| {
            let added = |before: u64| before.checked_add(more).filter(|after| *after <= most);
            more == 0 || counter.fetch_update(ORDER, ORDER, added).is_ok()
        };
        if !add(&self.bundles, amount.bundles, most.bundles) {
            return false;
        }
        let added = add(&self.bytes, amount.bytes, most.bytes);
        if !added {
            self.bundles.fetch_sub(amount.bundles, ORDER);
        }
        added
    }

    /// Whether [`Counters::add_up_to`] would add.
    pub fn has_room(&self, amount: Amount, most: Amount) -> bool {
        let now = self.amount();
        let fits = |more: u64, now: u64, most: u64| more == 0 || more <= most.saturating_sub(now);
        fits(amount.bytes, now.bytes, most.bytes) && fits(amount.bundles, now.bundles, most.bundles)
    }

    pub fn subtract(&self, amount: Amount) {
        self.bytes.fetch_sub(amount.bytes, ORDER);
        self.bundles.fetch_sub(amount.bundles, ORDER);
    }

    pub fn set(&self, amount: Amount) {
        self.bytes.store(amount.bytes, ORDER);
        self.bundles.store(amount.bundles, ORDER);
    }
}

/// The part of the quota beyond the shares.
#[derive(Debug, Default)]
pub(super) struct Pool {
    used: Counters,
    size: Counters,
    /// By how much it may be exceeded.
    beyond: Counters,
    /// Neighbours that have a share.
    neighbours: AtomicU64,
}

impl Pool {
    /// Whether several neighbours share the pool, so that some has to be left to others.
    fn is_shared(&self) -> bool {
        self.neighbours.load(ORDER) > 1
    }

    /// The most of the pool that may be in use once a neighbour has `own` of it. `first`: the
    /// neighbour had nothing stored before.
    fn most(&self, own: Amount, first: bool) -> Amount {
        let size = self.size.amount();
        match self.is_shared() {
            false => size,
            // A neighbour with nothing stored gets one bundle, even if that is larger than a share.
            true if first => size.plus(self.beyond.amount()),
            true => size.less(own),
        }
    }

    #[cfg(test)]
    pub fn used(&self) -> Amount {
        self.used.amount()
    }

    fn most_beyond(&self) -> Amount {
        self.size.amount().plus(self.beyond.amount())
    }

    /// How much a neighbour that has `own` of the pool may still take.
    fn free(&self, own: Amount, first: bool) -> Amount {
        let free = self.most(own, first).less(self.used.amount());
        match self.is_shared() && !first {
            true => free.part(2),
            false => free,
        }
    }
}

/// The account of one neighbour.
#[derive(Debug, Default)]
pub(super) struct Account {
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    used: Amount,
    share: Amount,
}

impl State {
    /// The part of the pool that it uses: all that exceeds the share.
    fn pooled(&self) -> Amount {
        self.used.less(self.share)
    }

    fn has_nothing(&self) -> bool {
        self.used.bundles == 0
    }

    fn with(&self, amount: Amount) -> State {
        State {
            used: self.used.plus(amount),
            ..*self
        }
    }

    /// The most that may be in use of the pool once `amount` more is stored, if
    /// it depends on that.
    fn most_of_pool(&self, pool: &Pool, amount: Amount, purpose: Purpose) -> Option<Amount> {
        let after = self.with(amount);
        let within = self.share.plus(self.share.beyond());
        match purpose {
            Purpose::Bundle => Some(pool.most(after.pooled(), self.has_nothing())),
            Purpose::Emptying if after.used.all_at_most(within) => None,
            Purpose::Emptying => Some(pool.most_beyond()),
            Purpose::There => None,
        }
    }
}

impl Account {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn figures(&self) -> NeighbourFigures {
        let State { used, share } = *self.lock();
        NeighbourFigures {
            used,
            guaranteed: share,
        }
    }

    /// Takes room, if there is any for this purpose.
    pub fn take(&self, pool: &Pool, amount: Amount, purpose: Purpose) -> bool {
        let mut state = self.lock();
        let after = state.with(amount);
        let more = after.pooled().less(state.pooled());
        let taken = match state.most_of_pool(pool, amount, purpose) {
            Some(most) => pool.used.add_up_to(more, most),
            None => {
                pool.used.add(more);
                true
            }
        };
        if taken {
            *state = after;
        }
        taken
    }

    /// Whether [`Account::take`] would find room.
    pub fn has_room(&self, pool: &Pool, amount: Amount, purpose: Purpose) -> bool {
        let state = *self.lock();
        let more = state.with(amount).pooled().less(state.pooled());
        let most = state.most_of_pool(pool, amount, purpose);
        most.is_none_or(|most| pool.used.has_room(more, most))
    }

    /// Whether [`Account::take`] would find room for a bundle if nothing else were stored, for this
    /// neighbour or another. If not, no room that others give back is ever enough.
    pub fn could_take(&self, pool: &Pool, amount: Amount) -> bool {
        let pooled = amount.less(self.lock().share);
        pooled.all_at_most(pool.most(pooled, true))
    }

    pub fn give_back(&self, pool: &Pool, amount: Amount) {
        let mut state = self.lock();
        let before = state.pooled();
        state.used.bytes -= amount.bytes;
        state.used.bundles -= amount.bundles;
        pool.used.subtract(before.less(state.pooled()));
    }

    fn set_share(&self, pool: &Pool, share: Amount) {
        let mut state = self.lock();
        let before = state.pooled();
        state.share = share;
        pool.used.add(state.pooled());
        pool.used.subtract(before);
    }

    /// The most bytes that one more bundle may have.
    pub fn free_bytes(&self, pool: &Pool) -> u64 {
        let state = *self.lock();
        let common = pool.free(state.pooled(), state.has_nothing());
        let free = state.share.less(state.used).plus(common);
        match free.bundles {
            0 => 0,
            _ => free.bytes,
        }
    }

    /// The most bytes that can be stored for the neighbour while others keep what they have.
    pub fn most_bytes(&self, pool: &Pool) -> u64 {
        let state = *self.lock();
        let common = pool.free(state.pooled(), false);
        let free = state.share.less(state.used).plus(common);
        state.used.plus(free).bytes
    }
}

/// The accounts of the configured neighbours; all others share one account without a share.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    of_neighbours: HashMap<NeighbourId, Arc<Account>>,
    others: Arc<Account>,
}

impl Accounts {
    pub fn of(&self, neighbour: NeighbourId) -> &Arc<Account> {
        self.of_neighbours.get(&neighbour).unwrap_or(&self.others)
    }

    pub fn iter(&self) -> impl Iterator<Item = (NeighbourId, &Account)> {
        let accounts = self.of_neighbours.iter();
        accounts.map(|(neighbour, account)| (*neighbour, &**account))
    }

    /// Divides the quota among these neighbours; those that stay keep their
    /// accounts.
    pub fn divided(
        &self,
        pool: &Pool,
        division: Division,
        neighbours: &BTreeSet<NeighbourId>,
    ) -> Accounts {
        let account = |neighbour: &NeighbourId| {
            let known = self.of_neighbours.get(neighbour);
            (*neighbour, known.cloned().unwrap_or_default())
        };
        let of_neighbours: HashMap<_, _> = neighbours.iter().map(account).collect();
        let count = of_neighbours.len() as u64;
        let share = division.guaranteed().part(count.max(1));
        let shares = Amount {
            bytes: share.bytes * count,
            bundles: share.bundles * count,
        };
        pool.neighbours.store(count, ORDER);
        pool.size.set(division.most.less(shares));
        pool.beyond.set(division.most.beyond());
        for (neighbour, account) in &self.of_neighbours {
            if !of_neighbours.contains_key(neighbour) {
                account.set_share(pool, Amount::default());
            }
        }
        for account in of_neighbours.values() {
            account.set_share(pool, share);
        }
        Accounts {
            of_neighbours,
            others: Arc::clone(&self.others),
        }
    }
}
