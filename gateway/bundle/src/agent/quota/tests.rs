use super::*;
use proptest::prelude::*;
use std::thread;

const BULK: Purpose = Purpose::Bundle;

fn quota(bytes: u64, bundles: u64, neighbours: u64) -> Arc<Quota> {
    quota_of(bytes, bundles, neighbours, 50)
}

fn quota_of(bytes: u64, bundles: u64, neighbours: u64, guaranteed_percent: u8) -> Arc<Quota> {
    let division = Division {
        most: Amount { bytes, bundles },
        guaranteed_percent,
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
    // Its own share, and half of the pool; then the rest and the eighth.
    let bulk = fill(0, BULK);
    let records = fill(0, Purpose::Emptying);
    assert_eq!((bulk.len(), records.len()), (80, 40 + 20));
    // The other one still has its share, and an eighth of the quota above that.
    let bulk = fill(1, BULK);
    let records = fill(1, Purpose::Emptying);
    assert_eq!((bulk.len(), records.len()), (40, 5));
}

#[test]
fn a_bundle_of_the_largest_size_has_room_for_each_neighbour_that_has_nothing_stored() {
    const STORE: u64 = 128 << 10;
    for percent in [0, 10, 50, 87, 100] {
        let largest = largest_bundle_bytes(STORE, percent);
        for neighbours in [1, 2, 3, 9, 100] {
            let usage = Usage::new(quota_of(STORE, 1_000, neighbours, percent));
            let case = format!("{percent} %, {neighbours} neighbours");
            for to in (0..neighbours).map(NeighbourId) {
                assert!(usage.could_reserve(to, largest), "{case}");
                assert!(usage.reserve(to, largest, BULK).is_some(), "{case}");
            }
        }
    }
    assert_eq!(largest_bundle_bytes(STORE, 0), STORE - quota_bytes(0));
    assert_eq!(largest_bundle_bytes(STORE, 100), STORE / 8 - quota_bytes(0));
}

#[test]
fn what_never_has_room_is_known_to_have_none() {
    const STORE: u64 = 128 << 10;
    for percent in [0, 50, 100] {
        for neighbours in [1, 2, 3, 9] {
            let quota = quota_of(STORE, 1_000, neighbours, percent);
            let usage = Usage::new(Arc::clone(&quota));
            let to = NeighbourId(0);
            let fits = |bytes: &u64| usage.reserve(to, *bytes, BULK).is_some();
            let sizes: Vec<u64> = (0..2 * STORE).step_by(1_000).collect();
            let most = sizes.iter().copied().take_while(fits).last().unwrap();
            let case = format!("{percent} %, {neighbours} neighbours: {most}");
            assert!(usage.could_reserve(to, most), "{case}");
            assert!(!usage.could_reserve(to, most + 1_000), "{case}");
            // What others have stored changes nothing about that.
            let others = (1..neighbours).map(NeighbourId);
            let others: Vec<_> = others.map(|to| usage.reserve(to, 10_000, BULK)).collect();
            let own = usage.reserve(to, 10, BULK);
            assert!(usage.could_reserve(to, most), "{case}");
            assert!(quota.stored().bytes <= STORE + STORE / 8);
            drop((others, own));
        }
    }
}

#[test]
fn what_an_agent_has_ends_with_it() {
    let quota = quota(1 << 20, 10, 1);
    let mut usage = Usage::new(Arc::clone(&quota));
    // One neighbour with a share, and one without.
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
    /// Whatever is taken, freed, moved and redistributed, the pool's use is what exceeds
    /// the shares, and in the end it is zero.
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
                    // The agents hear of it one after the other.
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
