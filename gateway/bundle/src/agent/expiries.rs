//! When the lifetimes of stored bundles end.
//!
//! Only those that end soon are in order. The others are in spans, each for bundles whose lifetimes
//! end within a few seconds of each other, and are ordered when their span begins. So a bundle that
//! waits long costs one bit instead of a point in time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use underpass_work::{IdSet, each};

use super::event::BundleId;

/// A span's length, s.
const SPAN_S: u64 = 4;

/// The moments at which stored bundles expire.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    /// When the first span begins.
    epoch: Option<Instant>,
    near: BTreeSet<(Instant, BundleId)>,
    /// The spans that have not begun.
    far: BTreeMap<u64, IdSet<BundleId>>,
    /// The first span that may be among them.
    next: u64,
}

impl Expiries {
    pub fn len(&self) -> usize {
        self.near.len() + self.far.values().map(IdSet::len).sum::<usize>()
    }

    /// The span of a moment; `None` if the moment is before all spans.
    fn span(&self, expires: Instant) -> Option<u64> {
        let since = expires.checked_duration_since(self.epoch?)?;
        Some(since.as_secs() / SPAN_S)
    }

    fn begin(&self, span: u64) -> Option<Instant> {
        let since = Duration::from_secs(span * SPAN_S);
        Some(self.epoch? + since)
    }

    /// Adds a bundle that was stored at `since`.
    pub fn insert(&mut self, since: Instant, expires: Instant, id: BundleId) {
        self.epoch.get_or_insert(since);
        match self.span(expires).filter(|span| *span >= self.next) {
            Some(span) => drop(self.far.entry(span).or_default().insert(id)),
            None => drop(self.near.insert((expires, id))),
        }
    }

    pub fn remove(&mut self, expires: Instant, id: BundleId) {
        let span = self.span(expires).filter(|span| *span >= self.next);
        let Some(span) = span else {
            self.near.remove(&(expires, id));
            return;
        };
        if let Some(ids) = self.far.get_mut(&span) {
            ids.remove(id);
            if ids.is_empty() {
                self.far.remove(&span);
            }
        }
    }

    /// When there is something to do: a bundle expires, or a span begins.
    pub fn next_timeout(&self) -> Option<Instant> {
        let near = self.near.first().map(|(expires, _)| *expires);
        let far = self.far.first_key_value();
        let far = far.and_then(|(span, _)| self.begin(*span));
        near.into_iter().chain(far).min()
    }

    /// The next bundle that has expired; `expires` says when each does.
    pub fn pop_due(
        &mut self,
        now: Instant,
        expires: impl Fn(BundleId) -> Option<Instant>,
    ) -> Option<BundleId> {
        while let Some((span, _)) = self.far.first_key_value()
            && self.begin(*span).is_some_and(|begin| begin <= now)
            && let Some((span, ids)) = self.far.pop_first()
        {
            self.next = span + 1;
            let moments = each(ids.iter()).filter_map(|id| Some((expires(id)?, id)));
            self.near.extend(moments);
        }
        match self.near.first() {
            Some((expires, _)) if *expires <= now => self.near.pop_first().map(|(_, id)| id),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each bundle expires at its time, in order, unless it is removed before.
        #[test]
        fn bundles_expire_in_order_at_their_moments(
            lifetimes in prop::collection::vec((0u64..60_000, 0u64..30_000, any::<bool>()), 1..100),
        ) {
            let start = Instant::now() + Duration::from_secs(3600);
            let mut expiries = Expiries::default();
            let mut all: BTreeMap<BundleId, Instant> = BTreeMap::new();
            let mut now = start;
            let mut steps = 0;
            for (number, (lifetime, pause, leaves)) in (0u64..).zip(&lifetimes) {
                let id = BundleId(number);
                // A restored bundle may have expired long ago.
                let expires = now + Duration::from_millis(*lifetime) - Duration::from_secs(5);
                expiries.insert(now, expires, id);
                all.insert(id, expires);
                if *leaves {
                    let gone = BundleId(number / 2);
                    if let Some(expires) = all.remove(&gone) {
                        expiries.remove(expires, gone);
                    }
                }
                let until = now + Duration::from_millis(*pause);
                while let Some(due) = expiries.next_timeout().filter(|due| *due <= until) {
                    now = now.max(due);
                    while let Some(id) = expiries.pop_due(now, |id| all.get(&id).copied()) {
                        let first = all.iter().map(|(id, expires)| (*expires, *id)).min();
                        let expires = all.remove(&id);
                        prop_assert_eq!(first, expires.map(|expires| (expires, id)));
                        prop_assert!(expires.is_some_and(|expires| expires <= now));
                    }
                    steps += 1;
                    prop_assert!(steps < 500, "it wakes for nothing");
                }
                now = until;
                prop_assert!(all.values().all(|expires| *expires > now));
                prop_assert_eq!(expiries.len(), all.len());
            }
        }
    }
}
