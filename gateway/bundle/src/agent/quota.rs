//! How much a node stores, whichever of its agents does.
//!
//! Room is reserved before a bundle is taken, and a [`Reservation`] that comes
//! to nothing gives it back by itself: so agents in many threads together never
//! exceed the limits, and nothing that is dropped on its way costs room.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::stored::quota_bytes;

/// See [`Quota::reserve_beyond`].
const FEW_BUNDLES: u64 = 8;

/// Bytes and bundles that all agents of a node have stored, and, apart from
/// these, those that wait for its services; with their limits.
#[derive(Debug)]
pub struct Quota {
    stored: Account,
    undelivered: Account,
    max_bytes: AtomicU64,
    max_bundles: AtomicUsize,
}

/// Bundles, and their bytes as the quota counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes: payloads and what is kept beside them.
    pub bytes: u64,
    /// Bundles.
    pub bundles: u64,
}

/// The counters guard nothing but themselves, so no order among them is needed.
const ORDER: Ordering = Ordering::Relaxed;

#[derive(Debug, Default)]
struct Account {
    bytes: AtomicU64,
    bundles: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stored,
    Undelivered,
}

impl Account {
    fn amount(&self) -> Amount {
        Amount {
            bytes: self.bytes.load(ORDER),
            bundles: self.bundles.load(ORDER),
        }
    }

    /// Adds one bundle, if there is no more than `most` before.
    fn add(&self, bytes: u64, most: Amount) -> bool {
        let add = |counter: &AtomicU64, most: u64, more: u64| {
            let added = |before: u64| before.checked_add(more).filter(|_| before <= most);
            counter.fetch_update(ORDER, ORDER, added).is_ok()
        };
        if !add(&self.bundles, most.bundles, 1) {
            return false;
        }
        let added = add(&self.bytes, most.bytes, bytes);
        if !added {
            self.bundles.fetch_sub(1, ORDER);
        }
        added
    }

    fn subtract(&self, amount: Amount) {
        self.bytes.fetch_sub(amount.bytes, ORDER);
        self.bundles.fetch_sub(amount.bundles, ORDER);
    }
}

impl Quota {
    pub(super) fn new(max_bytes: u64, max_bundles: usize) -> Quota {
        Quota {
            stored: Account::default(),
            undelivered: Account::default(),
            max_bytes: max_bytes.into(),
            max_bundles: max_bundles.into(),
        }
    }

    pub(super) fn set_limits(&self, max_bytes: u64, max_bundles: usize) {
        self.max_bytes.store(max_bytes, ORDER);
        self.max_bundles.store(max_bundles, ORDER);
    }

    /// What is stored, with what is on its way from one agent to another.
    pub fn stored(&self) -> Amount {
        self.stored.amount()
    }

    /// What waits for services.
    pub fn undelivered(&self) -> Amount {
        self.undelivered.amount()
    }

    fn account(&self, kind: Kind) -> &Account {
        match kind {
            Kind::Stored => &self.stored,
            Kind::Undelivered => &self.undelivered,
        }
    }

    /// What there may be before a payload of so many bytes is added.
    fn most_before(&self, payload_bytes: u64) -> Option<Amount> {
        let max_bundles = self.max_bundles.load(ORDER) as u64;
        let max_bytes = self.max_bytes.load(ORDER);
        Some(Amount {
            bytes: max_bytes.checked_sub(quota_bytes(payload_bytes))?,
            bundles: max_bundles.checked_sub(1)?,
        })
    }

    /// As [`Quota::most_before`], for what may exceed the limits by an eighth
    /// and a few bundles.
    fn most_before_beyond(&self) -> Amount {
        let max_bundles = self.max_bundles.load(ORDER) as u64;
        let max_bytes = self.max_bytes.load(ORDER);
        Amount {
            bytes: max_bytes.saturating_add(max_bytes / 8),
            bundles: max_bundles.saturating_add(max_bundles / 8 + FEW_BUNDLES),
        }
    }

    fn allows(&self, kind: Kind, most: Option<Amount>) -> bool {
        let amount = self.account(kind).amount();
        most.is_some_and(|most| amount.bytes <= most.bytes && amount.bundles <= most.bundles)
    }

    /// Whether a payload of so many bytes has room.
    pub(super) fn has_room(&self, payload_bytes: u64) -> bool {
        self.allows(Kind::Stored, self.most_before(payload_bytes))
    }

    /// Whether [`Quota::reserve_beyond`] has room.
    pub(super) fn has_room_beyond(&self) -> bool {
        self.allows(Kind::Stored, Some(self.most_before_beyond()))
    }

    /// Whether a payload of so many bytes can wait for its service.
    pub(super) fn has_room_undelivered(&self, payload_bytes: u64) -> bool {
        self.allows(Kind::Undelivered, self.most_before(payload_bytes))
    }

    /// The largest payload that has room, bytes.
    pub(super) fn free_bytes(&self) -> u64 {
        let most = self.most_before(0);
        let stored = self.stored();
        most.filter(|most| stored.bundles <= most.bundles)
            .map_or(0, |most| most.bytes.saturating_sub(stored.bytes))
    }

    fn reserved(
        self: &Arc<Self>,
        kind: Kind,
        payload_bytes: u64,
        most: Option<Amount>,
    ) -> Option<Reservation> {
        let bytes = quota_bytes(payload_bytes);
        self.account(kind).add(bytes, most?).then(|| Reservation {
            quota: Arc::clone(self),
            kind,
            amount: Amount { bytes, bundles: 1 },
        })
    }

    /// Room in the store.
    pub(super) fn reserve(self: &Arc<Self>, payload_bytes: u64) -> Option<Reservation> {
        self.reserved(Kind::Stored, payload_bytes, self.most_before(payload_bytes))
    }

    /// Room for what helps to empty full stores: administrative records,
    /// custody signals among them, and this node's short messages in the
    /// signalling class, which ask for what it waits for. They may exceed the
    /// store by an eighth and a few bundles.
    pub(super) fn reserve_beyond(self: &Arc<Self>, payload_bytes: u64) -> Option<Reservation> {
        let most = Some(self.most_before_beyond());
        self.reserved(Kind::Stored, payload_bytes, most)
    }

    /// Room in the store for what is there already or cannot be refused.
    pub(super) fn reserve_anyway(self: &Arc<Self>, payload_bytes: u64) -> Reservation {
        let amount = Amount {
            bytes: quota_bytes(payload_bytes),
            bundles: 1,
        };
        self.stored.bytes.fetch_add(amount.bytes, ORDER);
        self.stored.bundles.fetch_add(amount.bundles, ORDER);
        Reservation {
            quota: Arc::clone(self),
            kind: Kind::Stored,
            amount,
        }
    }

    /// Room to wait for a service.
    pub(super) fn reserve_undelivered(self: &Arc<Self>, payload_bytes: u64) -> Option<Reservation> {
        self.reserved(
            Kind::Undelivered,
            payload_bytes,
            self.most_before(payload_bytes),
        )
    }
}

/// Room for one bundle, until [`Share::keep`] or its end.
#[derive(Debug)]
pub(super) struct Reservation {
    quota: Arc<Quota>,
    kind: Kind,
    amount: Amount,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.quota.account(self.kind).subtract(self.amount);
    }
}

/// What one agent uses of the quota. It ends with the agent.
#[derive(Debug)]
pub(super) struct Share {
    quota: Arc<Quota>,
    stored: Amount,
    undelivered: Amount,
}

impl Share {
    pub fn new(quota: Arc<Quota>) -> Share {
        Share {
            quota,
            stored: Amount::default(),
            undelivered: Amount::default(),
        }
    }

    pub fn stored(&self) -> Amount {
        self.stored
    }

    pub fn undelivered(&self) -> Amount {
        self.undelivered
    }

    fn part(&mut self, kind: Kind) -> &mut Amount {
        match kind {
            Kind::Stored => &mut self.stored,
            Kind::Undelivered => &mut self.undelivered,
        }
    }

    /// Takes what was reserved, until it is freed.
    pub fn keep(&mut self, mut reservation: Reservation) {
        let amount = mem::take(&mut reservation.amount);
        let part = self.part(reservation.kind);
        part.bytes += amount.bytes;
        part.bundles += amount.bundles;
    }

    /// A payload of so many bytes is stored no more.
    pub fn free(&mut self, payload_bytes: u64) {
        self.give_back(Kind::Stored, payload_bytes);
    }

    /// A payload of so many bytes is with its service.
    pub fn free_undelivered(&mut self, payload_bytes: u64) {
        self.give_back(Kind::Undelivered, payload_bytes);
    }

    fn give_back(&mut self, kind: Kind, payload_bytes: u64) {
        let bytes = quota_bytes(payload_bytes);
        let part = self.part(kind);
        part.bytes -= bytes;
        part.bundles -= 1;
        let amount = Amount { bytes, bundles: 1 };
        self.quota.account(kind).subtract(amount);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.quota.stored.subtract(self.stored);
        self.quota.undelivered.subtract(self.undelivered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn quota(max_bytes: u64, max_bundles: usize) -> Arc<Quota> {
        Arc::new(Quota::new(max_bytes, max_bundles))
    }

    #[test]
    fn threads_that_take_at_once_never_exceed_the_limits() {
        let bytes = quota_bytes(1_000);
        for (quota, fits) in [
            (quota(100 * bytes + 1, 1_000), 100),
            (quota(1_000 * bytes, 90), 90),
        ] {
            let take = || -> Vec<Reservation> {
                let reserved = (0..1_000).filter_map(|_| {
                    let room = quota.reserve(1_000);
                    assert!(quota.stored().bytes <= fits * bytes);
                    room
                });
                reserved.collect()
            };
            let taken: Vec<Vec<Reservation>> = thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            let all: usize = taken.iter().map(Vec::len).sum();
            // What another thread gives back in the same moment is missed.
            assert!(all as u64 <= fits && quota.stored().bundles == all as u64);
            drop(taken);
            assert_eq!(quota.stored(), Amount::default());
        }
    }

    #[test]
    fn records_may_exceed_the_store_by_an_eighth() {
        let quota = quota(16 * quota_bytes(0), 1_000);
        let mut taken: Vec<Reservation> = (0..16).map_while(|_| quota.reserve(0)).collect();
        assert!(taken.len() == 16 && !quota.has_room(0) && quota.free_bytes() == 0);
        while let Some(room) = quota.reserve_beyond(0) {
            taken.push(room);
        }
        assert_eq!(taken.len(), 16 + 3);
    }

    #[test]
    fn what_an_agent_has_ends_with_it() {
        let quota = quota(1 << 20, 10);
        let mut share = Share::new(Arc::clone(&quota));
        for _ in 0..3 {
            share.keep(quota.reserve(500).unwrap());
            share.keep(quota.reserve_undelivered(5).unwrap());
        }
        share.free(500);
        assert_eq!(share.stored().bundles, 2);
        assert_eq!(quota.stored(), share.stored());
        assert_eq!(quota.undelivered().bytes, 3 * quota_bytes(5));
        drop(share);
        let nothing = Amount::default();
        assert_eq!((quota.stored(), quota.undelivered()), (nothing, nothing));
    }
}
