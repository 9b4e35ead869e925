//! Services of this node that belong to applications, and how much may wait
//! for them.
//!
//! An application may be absent for long: its bundles are kept meanwhile. Room is taken here before
//! a bundle is accepted, so that the custodian before this node learns at once if there is none.
//! The code that keeps the bundles gives the room back when one is gone.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::own_names::{is_named_service, named_service};
use super::quota::Amount;

/// What a bundle costs in addition to its payload, bytes.
const BESIDE_PAYLOAD_BYTES: u64 = 512;

/// The most bytes that wait in memory to be stored on the disk, at most half of them from one node:
/// if the disk is slower than the link, no more is taken in.
const MOST_UNSTORED_BYTES: u64 = 64 << 20;

/// The name of an echo in the dtn scheme.
pub const ECHO_NAME: &str = "echo";

/// The services that belong to applications, and the amounts that wait for them. All agents of a
/// node share this; it is locked once for each bundle of an application, and for no others.
#[derive(Debug)]
pub struct Applications {
    endpoints: Vec<RangeInclusive<u64>>,
    reserved: BTreeSet<u64>,
    echo: Option<u64>,
    most: Amount,
    waiting: Mutex<Waiting>,
}

/// What waits, in total, and by service and source.
#[derive(Debug, Default)]
struct Waiting {
    all: Amount,
    /// Of this, what is not on the disk yet, bytes.
    unstored_bytes: u64,
    /// The same by source node.
    unstored: HashMap<u64, u64>,
    /// By service.
    to: HashMap<u64, Amount>,
    /// By source node, or by the neighbour if the source has no number.
    from: HashMap<u64, Amount>,
}

impl Applications {
    /// Applications may have these services except the reserved ones; at most `most` waits for all
    /// of them. Bundles for `echo` are delivered and do not wait.
    pub fn new(
        endpoints: Vec<RangeInclusive<u64>>,
        reserved: BTreeSet<u64>,
        echo: Option<u64>,
        most: Amount,
    ) -> Applications {
        Applications {
            endpoints,
            reserved,
            echo,
            most,
            waiting: Mutex::default(),
        }
    }

    /// Whether bundles for a service are an application's or the echo's.
    pub fn serves(&self, service: u64) -> bool {
        self.echoes(service) || self.keeps(service)
    }

    /// Whether a service is the echo, by its number or its name.
    pub fn echoes(&self, service: u64) -> bool {
        let by_name = || service == named_service(ECHO_NAME);
        self.echo.is_some_and(|echo| echo == service || by_name())
    }

    /// Whether an application may have a service.
    pub fn keeps(&self, service: u64) -> bool {
        let taken = self.echoes(service) || self.reserved.contains(&service);
        !taken && self.endpoints.iter().any(|range| range.contains(&service))
    }

    /// The services that applications may have by their numbers, highest first.
    pub fn highest_first(&self) -> impl Iterator<Item = u64> + '_ {
        let each = self.endpoints.iter().flat_map(|range| range.clone().rev());
        each.filter(|service| !is_named_service(*service) && self.keeps(*service))
    }

    /// Takes room for a payload from a node to a service. Neither a service nor a node may have
    /// more waiting than it leaves free, so one that floods or is flooded leaves room for the
    /// others.
    pub fn reserve(&self, service: u64, node: u64, bytes: u64) -> bool {
        let mut waiting = self.lock();
        let more = needed_by(bytes);
        let room = self.fits(&waiting, service, node, more);
        if room {
            waiting.add(service, node, more);
            waiting.unstored_bytes += more.bytes;
            *waiting.unstored.entry(node).or_default() += more.bytes;
        }
        room
    }

    /// Whether [`Applications::reserve`] would find room.
    pub fn has_room(&self, service: u64, node: u64, bytes: u64) -> bool {
        self.fits(&self.lock(), service, node, needed_by(bytes))
    }

    fn fits(&self, waiting: &Waiting, service: u64, node: u64, more: Amount) -> bool {
        let free = Amount {
            bytes: self.most.bytes.saturating_sub(waiting.all.bytes),
            bundles: self.most.bundles.saturating_sub(waiting.all.bundles),
        };
        let fits = |own: Option<&Amount>| {
            let own = own.copied().unwrap_or_default();
            own.bytes.saturating_add(more.bytes) <= free.bytes
                && own.bundles + more.bundles <= free.bundles
        };
        let unstored = waiting.unstored.get(&node).copied().unwrap_or(0);
        let unstored = unstored.saturating_add(more.bytes);
        let free = MOST_UNSTORED_BYTES.saturating_sub(waiting.unstored_bytes);
        unstored <= free.min(MOST_UNSTORED_BYTES / 2)
            && fits(waiting.to.get(&service))
            && fits(waiting.from.get(&node))
    }

    /// Counts what an earlier run has left, whether or not there is room.
    pub fn restore(&self, service: u64, node: u64, bytes: u64) {
        self.lock().add(service, node, needed_by(bytes));
    }

    /// Notes that a bundle of a node for which room was reserved is on the disk, or never will be.
    pub fn stored(&self, node: u64, bytes: u64) {
        let mut waiting = self.lock();
        let stored = bytes.saturating_add(BESIDE_PAYLOAD_BYTES);
        waiting.unstored_bytes = waiting.unstored_bytes.saturating_sub(stored);
        if let Some(unstored) = waiting.unstored.get_mut(&node) {
            *unstored = unstored.saturating_sub(stored);
            if *unstored == 0 {
                waiting.unstored.remove(&node);
            }
        }
    }

    /// Gives the room of one bundle back.
    pub fn free(&self, service: u64, node: u64, bytes: u64) {
        let mut waiting = self.lock();
        let Waiting { all, to, from, .. } = &mut *waiting;
        let bytes = bytes.saturating_add(BESIDE_PAYLOAD_BYTES);
        subtract(all, bytes);
        for (amounts, key) in [(to, service), (from, node)] {
            if let Some(amount) = amounts.get_mut(&key) {
                subtract(amount, bytes);
                if amount.bundles == 0 {
                    amounts.remove(&key);
                }
            }
        }
    }

    /// The total amount that waits.
    pub fn waiting(&self) -> Amount {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing that runs with the lock can panic half-way.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add(&mut self, service: u64, node: u64, more: Amount) {
        let to = self.to.entry(service).or_default();
        let from = self.from.entry(node).or_default();
        for amount in [&mut self.all, to, from] {
            amount.bytes = amount.bytes.saturating_add(more.bytes);
            amount.bundles += more.bundles;
        }
    }
}

/// The amount that a bundle with so many bytes of payload takes.
fn needed_by(bytes: u64) -> Amount {
    Amount {
        bytes: bytes.saturating_add(BESIDE_PAYLOAD_BYTES),
        bundles: 1,
    }
}

fn subtract(amount: &mut Amount, bytes: u64) {
    amount.bytes = amount.bytes.saturating_sub(bytes);
    amount.bundles = amount.bundles.saturating_sub(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applications(bytes: u64, bundles: u64) -> Applications {
        let reserved = BTreeSet::from([80]);
        let most = Amount { bytes, bundles };
        Applications::new(vec![1..=127], reserved, Some(7), most)
    }

    #[test]
    fn reserved_services_and_the_echo_are_no_applications() {
        let applications = applications(1 << 20, 100);
        assert!(applications.keeps(1) && applications.keeps(127));
        for service in [0, 7, 80, 128] {
            assert!(!applications.keeps(service), "{service}");
        }
        assert!(applications.serves(7));
        assert!(applications.echoes(named_service("echo")));
        assert_eq!(applications.highest_first().count(), 125);
    }

    #[test]
    fn a_flooded_service_leaves_room_for_the_others() {
        let applications = applications(u64::MAX, 1_000);
        let mut taken = 0;
        while applications.reserve(1, 10, 1_000) {
            taken += 1;
        }
        assert_eq!(taken, 500);
        // The same node has already used its share, whatever the service.
        assert!(!applications.reserve(2, 10, 1_000));
        assert!(applications.reserve(2, 11, 1_000));
    }

    #[test]
    fn what_is_not_on_the_disk_yet_is_bounded_apart() {
        let applications = applications(1 << 40, 100);
        let half = MOST_UNSTORED_BYTES / 2 - BESIDE_PAYLOAD_BYTES;
        assert!(!applications.reserve(1, 10, half + 1));
        assert!(applications.reserve(1, 10, half));
        assert!(applications.reserve(2, 11, half));
        assert!(!applications.reserve(3, 12, 1));
        applications.stored(10, half);
        assert!(applications.reserve(3, 12, 1));
    }

    #[test]
    fn a_node_that_is_faster_than_the_disk_leaves_room_for_the_others() {
        let applications = applications(1 << 40, 100_000);
        let mut taken = 0;
        while applications.reserve(1, 10, 1_000) {
            taken += 1;
        }
        assert_eq!(
            taken,
            MOST_UNSTORED_BYTES / 2 / (1_000 + BESIDE_PAYLOAD_BYTES)
        );
        assert!(applications.reserve(2, 11, 1_000));
        applications.stored(10, 1_000);
        assert!(applications.reserve(1, 10, 1_000));
        assert!(!applications.reserve(1, 10, 1_000));
    }

    #[test]
    fn what_is_freed_can_be_taken_again() {
        let applications = applications(1 << 20, 100);
        assert!(!applications.reserve(1, 10, 1 << 20));
        assert!(!applications.reserve(1, 10, u64::MAX));
        assert!(applications.reserve(1, 10, 400_000));
        assert!(!applications.reserve(1, 10, 400_000));
        applications.free(1, 10, 400_000);
        assert_eq!(applications.waiting(), Amount::default());
        assert!(applications.reserve(1, 10, 400_000));
    }
}
