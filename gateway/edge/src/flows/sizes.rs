//! The sizes of earlier flows, by name and type, in a table that is bounded per owner and in all.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Owner;

/// Most owners that are remembered; the least recently used one is forgotten first.
const MOST_OWNERS: usize = 1024;
/// Names and types of each; as above.
const MOST_OF_OWNER: usize = 256;
/// A mean covers about this many flows; the latest ones weigh most.
const COUNTED_FLOWS: u32 = 8;
/// After this long without a flow, a mean weighs no more than one flow.
const FADES: Duration = Duration::from_secs(3600);
/// Larger flows count as this size, so that one of them does not distort a mean for long.
const MOST_BYTES: u64 = 1 << 32;

/// Name of the host and type of the content; both may be empty.
pub(super) type Kind = (Arc<str>, Arc<str>);

/// Sizes of flows that were.
#[derive(Debug, Default)]
pub struct Sizes {
    owners: Recent<Owner, Recent<Kind, Mean>>,
}

#[derive(Clone, Copy, Debug)]
struct Mean {
    bytes: f64,
    flows: u32,
    at: Instant,
}

impl Sizes {
    /// Notes the size of a flow that has ended.
    pub(super) fn learn(&mut self, now: Instant, owner: Owner, kind: &Kind, bytes: u64) {
        let bytes = bytes.min(MOST_BYTES) as f64;
        let kinds = self
            .owners
            .get_or_insert_with(owner, MOST_OWNERS, Recent::default);
        let fresh = || Mean {
            bytes,
            flows: 0,
            at: now,
        };
        let mean = kinds.get_or_insert_with(kind.clone(), MOST_OF_OWNER, fresh);
        if now.saturating_duration_since(mean.at) > FADES {
            mean.flows = mean.flows.min(1);
        }
        mean.flows = (mean.flows + 1).min(COUNTED_FLOWS);
        mean.bytes += (bytes - mean.bytes) / f64::from(mean.flows);
        mean.at = now;
    }

    /// The recent mean size of flows of this kind, if there were any.
    pub(super) fn expected(&mut self, owner: Owner, kind: &Kind) -> Option<u64> {
        let mean = self.owners.get(&owner)?.get(kind)?;
        Some(mean.bytes as u64)
    }

    /// Kinds that are remembered, of all owners.
    pub fn len(&self) -> usize {
        self.owners
            .values()
            .map(|kinds| kinds.values().count())
            .sum()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A map that forgets its least recently used entry.
#[derive(Debug)]
struct Recent<K, V> {
    entries: HashMap<K, (u64, V)>,
    /// By when they were last asked for.
    order: BTreeMap<u64, K>,
    next: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Recent<K, V> {
        Recent {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    fn get(&mut self, key: &K) -> Option<&mut V> {
        let (at, value) = self.entries.get_mut(key)?;
        self.order.remove(at);
        *at = self.next;
        self.order.insert(self.next, key.clone());
        self.next += 1;
        Some(value)
    }

    fn get_or_insert_with(&mut self, key: K, most: usize, value: impl FnOnce() -> V) -> &mut V {
        if !self.entries.contains_key(&key) {
            if self.entries.len() >= most
                && let Some((_, oldest)) = self.order.pop_first()
            {
                self.entries.remove(&oldest);
            }
            self.order.insert(self.next, key.clone());
            self.entries.insert(key.clone(), (self.next, value()));
            self.next += 1;
        }
        self.get(&key).expect("it was just inserted")
    }

    fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Owner = Owner::Peer(10);

    fn kind(name: &str, content: &str) -> Kind {
        (name.into(), content.into())
    }

    #[test]
    fn a_mean_follows_the_last_flows_of_its_kind() {
        let (mut sizes, now) = (Sizes::default(), Instant::now());
        let (page, video) = (
            kind("a.example", "text/html"),
            kind("a.example", "video/mp4"),
        );
        assert_eq!(sizes.expected(PEER, &page), None);
        for _ in 0..20 {
            sizes.learn(now, PEER, &page, 10_000);
            sizes.learn(now, PEER, &video, 5_000_000);
        }
        assert_eq!(sizes.expected(PEER, &page), Some(10_000));
        assert_eq!(sizes.expected(PEER, &video), Some(5_000_000));
        for _ in 0..20 {
            sizes.learn(now, PEER, &page, 20_000);
        }
        let later = sizes.expected(PEER, &page).unwrap();
        assert!((18_000..=20_000).contains(&later), "{later}");
    }

    #[test]
    fn an_old_mean_gives_way_at_once() {
        let (mut sizes, now) = (Sizes::default(), Instant::now());
        let page = kind("a.example", "text/html");
        for _ in 0..20 {
            sizes.learn(now, PEER, &page, 10_000);
        }
        sizes.learn(now + 2 * FADES, PEER, &page, 20_000);
        assert_eq!(sizes.expected(PEER, &page), Some(15_000));
    }

    #[test]
    fn a_flood_of_names_displaces_its_own_alone() {
        let (mut sizes, now) = (Sizes::default(), Instant::now());
        let page = kind("a.example", "text/html");
        sizes.learn(now, PEER, &page, 10_000);
        for number in 0..100_000 {
            let flood = kind(&format!("{number}.example"), "text/html");
            sizes.learn(now, Owner::Peer(11), &flood, 1);
        }
        assert_eq!(sizes.len(), 1 + MOST_OF_OWNER);
        assert_eq!(sizes.expected(PEER, &page), Some(10_000));
    }

    #[test]
    fn a_flood_of_clients_is_bounded() {
        let (mut sizes, now) = (Sizes::default(), Instant::now());
        let page = kind("a.example", "text/html");
        for client in 0..10_000u128 {
            let client = Owner::Client(std::net::Ipv6Addr::from(client).into());
            sizes.learn(now, client, &page, 1);
        }
        assert_eq!(sizes.len(), MOST_OWNERS);
    }

    #[test]
    fn one_size_that_lies_is_bounded() {
        let (mut sizes, now) = (Sizes::default(), Instant::now());
        let page = kind("a.example", "");
        sizes.learn(now, PEER, &page, u64::MAX);
        assert_eq!(sizes.expected(PEER, &page), Some(MOST_BYTES));
    }
}
