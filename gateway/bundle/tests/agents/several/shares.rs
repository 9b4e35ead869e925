//! A neighbour that is away takes nothing from the others' shares.

use std::time::Duration;

use underpass_bundle::{
    Amount, Config, DeleteReason, Event, Limits, NeighbourFigures, NeighbourId, Send, SendError,
    largest_bundle_bytes,
};

use super::disk::Disk;
use super::hub::{Hub, by, direct, to_send};
use super::terminals::{HUB, Star, ends, hub_config, numbers};
use crate::net::node;

/// The bytes that a bundle counts for beside its payload.
const BESIDE: u64 = 1024;
/// The bytes of one send in these tests.
const BYTES: usize = 3_000;
const EACH: u64 = BYTES as u64 + BESIDE;

fn sent(hub: &mut Hub, to: u64, bytes: usize) -> Result<(), SendError> {
    let now = hub.now;
    let outcome = hub.of(to).send(now, to_send(to, &vec![7; bytes]));
    outcome.map(drop)
}

/// Sends to a neighbour until there is no room.
fn fill(hub: &mut Hub, to: u64, bytes: usize) -> u64 {
    (0..).take_while(|_| sent(hub, to, bytes).is_ok()).count() as u64
}

fn figures(hub: &mut Hub, of: u64) -> NeighbourFigures {
    let all = hub.of(of).custody_by_neighbour();
    all.get(&NeighbourId(of)).copied().unwrap_or_default()
}

fn hub_of(neighbours: &[u64], shards: usize, bytes: u64, bundles: usize) -> Hub {
    let mut config = node(HUB);
    config.routes = direct(neighbours);
    config.store_bytes = bytes;
    config.store_bundles = bundles;
    Hub::new(config, shards, None, neighbours)
}

#[test]
fn whoever_takes_all_it_can_leaves_each_other_its_guaranteed_share() {
    let neighbours: Vec<u64> = (10..30).collect();
    for shards in [1, 2, 4] {
        // Either bytes or bundles are scarce.
        for (bytes, bundles) in [(400 * EACH, 1 << 20), (1 << 40, 400)] {
            let mut hub = hub_of(&neighbours, shards, bytes, bundles);
            let taken = fill(&mut hub, 10, BYTES);
            // The neighbour gets its own share, and half of the pool.
            assert!((109..=110).contains(&taken), "{taken}");
            for other in &neighbours[1..] {
                for _ in 0..10 {
                    sent(&mut hub, *other, BYTES).unwrap();
                }
                assert!(
                    sent(&mut hub, *other, BYTES).is_ok(),
                    "some of the pool is left"
                );
            }
            assert!(hub.common.quota().stored().bundles <= 400);
        }
    }
}

#[test]
fn many_that_take_all_they_can_leave_the_last_its_guaranteed_share() {
    let neighbours: Vec<u64> = (10..30).collect();
    let mut hub = hub_of(&neighbours, 3, 400 * EACH, 1 << 20);
    for other in &neighbours[..19] {
        fill(&mut hub, *other, BYTES);
    }
    assert!(fill(&mut hub, 29, BYTES) >= 10);
    let stored = hub.common.quota().stored();
    assert!(stored.bytes <= 400 * EACH, "{stored:?}");
    for neighbour in &neighbours {
        let NeighbourFigures { used, guaranteed } = figures(&mut hub, *neighbour);
        assert!(used.bytes >= guaranteed.bytes, "{neighbour}: {used:?}");
        assert_eq!(guaranteed.bytes, 10 * EACH);
    }
}

#[test]
fn a_lone_neighbour_has_the_whole_quota() {
    let mut hub = hub_of(&[10], 1, 400 * EACH, 1 << 20);
    assert_eq!(fill(&mut hub, 10, BYTES), 400);
}

#[test]
fn a_bundle_larger_than_a_share_passes_a_full_pool_alone() {
    let neighbours: Vec<u64> = (10..30).collect();
    let mut hub = hub_of(&neighbours, 1, 400 * EACH, 1 << 20);
    for other in &neighbours[..19] {
        fill(&mut hub, *other, BYTES);
    }
    let large = 20 * EACH as usize;
    sent(&mut hub, 29, large).unwrap();
    assert_eq!(sent(&mut hub, 29, large), Err(SendError::NoRoom));
}

#[test]
fn relayed_bundles_for_a_neighbour_that_is_away_stop_no_others() {
    let [near, far] = numbers(2);
    let mut config = hub_config();
    config.store_bytes = 80 * EACH;
    let mut star = Star::new(config, Some(Disk::default()));
    for _ in 0..80 {
        star.send(near[0], far[0], &[1; BYTES]);
        // Once some bundles are refused, others wait unsent.
        star.up_if_any(near[0]).transpose().unwrap();
        star.hub.work();
        star.signalled(near[0]);
    }
    let stored = star.hub.common.quota().stored().bundles;
    assert!((20..=40).contains(&stored), "{stored}");
    // To each other neighbour, of the same agent and of another; also back to where the
    // other bundles come from.
    for (from, to) in [(near[0], far[1]), (far[1], near[0]), (far[1], near[1])] {
        for _ in 0..10 {
            star.send(from, to, &[2; BYTES]);
            star.up(from).unwrap();
            star.hub.work();
        }
    }
    for _ in 0..40 {
        star.drain();
    }
    let delivered = [far[0], far[1], near[0], near[1]].map(|at| star.delivered(at).len());
    assert_eq!(delivered, [80, 10, 10, 10]);
    star.hub.assert_settled();
}

#[test]
fn a_relayed_bundle_of_the_largest_size_finds_room_whichever_neighbour_it_is_for() {
    const STORE: u64 = 128 << 10;
    let [near, far] = numbers(2);
    for percent in [0, 50, 100] {
        let mut config = hub_config();
        config.store_bytes = STORE;
        config.guaranteed_percent = percent;
        let mut star = Star::new(config, None);
        let bytes = vec![1; largest_bundle_bytes(STORE, percent) as usize];
        for to in [near[1], far[0], far[1]] {
            star.send(near[0], to, &bytes);
        }
        for _ in 0..5 {
            star.drain();
        }
        for to in [near[1], far[0], far[1]] {
            assert_eq!(star.delivered(to).len(), 1, "{percent} %");
        }
        star.hub.assert_settled();
    }
}

#[test]
fn a_relayed_bundle_that_never_finds_room_is_deleted_and_its_custodian_told() {
    let [near, far] = numbers(2);
    for (percent, custody) in [(50, true), (50, false), (100, true), (100, false)] {
        for to in [near[1], far[0]] {
            let mut config = hub_config();
            config.store_bytes = 20 * EACH;
            config.guaranteed_percent = percent;
            let mut star = Star::new(config, None);
            let send = Send {
                custody,
                ..to_send(to, &[1; 19 * EACH as usize])
            };
            let now = star.hub.now;
            star.terminal(near[0]).send(now, send).unwrap();
            assert_eq!(star.up(near[0]), Ok(()), "no room is waited for");
            star.hub.carry_all();
            let deleted = |event: &Event| {
                let reason = DeleteReason::DepletedStorage;
                matches!(event, Event::Deleted { reason: why, .. } if *why == reason)
            };
            assert!(star.hub.events.iter().any(deleted), "{percent} %");
            star.hub.assert_settled();
            assert_eq!(star.signalled(near[0]), usize::from(custody));
            assert_eq!(star.released(near[0]).is_empty(), custody);
        }
    }
}

#[test]
fn what_is_recovered_counts_and_leaves_the_others_their_shares() {
    let (near, far) = ends();
    let mut star = Star::with_disk();
    for _ in 0..30 {
        star.send(near, far, &[1; BYTES]);
        star.up(near).unwrap();
    }
    star.hub.work();
    star.hub.restart(2);
    assert_eq!(figures(&mut star.hub, far).used.bundles, 30);
    // The stored bundles exceed the new quota by far.
    limit(&mut star.hub, 8 * EACH, 1 << 20);
    assert_eq!(sent(&mut star.hub, far, BYTES), Err(SendError::NoRoom));
    for other in numbers(2).concat() {
        if other != far {
            sent(&mut star.hub, other, BYTES).unwrap();
        }
    }
    star.drain();
    star.hub.assert_settled();
}

fn limit(hub: &mut Hub, store_bytes: u64, store_bundles: usize) {
    for agent in &mut hub.agents {
        agent.set_limits(Limits {
            store_bytes,
            store_bundles,
            guaranteed_percent: 50,
            foreign_lifetime: Duration::from_secs(3_600),
            hop_limit: 32,
        });
    }
}

#[test]
fn a_bundle_that_goes_another_way_takes_its_room_along() {
    let (near, far) = ends();
    let mut hub = hub_of(&[near, far], 2, 40 * EACH, 1 << 20);
    let taken = fill(&mut hub, near, BYTES);
    assert_eq!(figures(&mut hub, near).used.bytes, taken * EACH);
    for shard in 0..2 {
        hub.set_routes(shard, &[by(near, far), by(far, far), by(30, near)]);
    }
    hub.carry_all();
    assert_eq!(figures(&mut hub, near).used, Amount::default());
    assert_eq!(figures(&mut hub, far).used.bytes, taken * EACH);
    assert_eq!(hub.common.quota().stored().bundles, taken);
    assert_eq!(sent(&mut hub, far, BYTES), Err(SendError::NoRoom));
    // The pool is in use, but the other neighbour's share is not.
    let now = hub.now;
    for _ in 0..10 {
        let send = to_send(30, &[7; BYTES]);
        hub.of(near).send(now, send).unwrap();
    }
}

#[test]
fn neighbours_that_come_and_go_divide_the_quota_anew() {
    let (near, far) = ends();
    let mut hub = hub_of(&[near, far], 2, 40 * EACH, 1 << 20);
    assert_eq!(fill(&mut hub, near, BYTES), 20);
    assert_eq!(figures(&mut hub, near).guaranteed.bytes, 10 * EACH);
    let more: Vec<u64> = [near, far].into_iter().chain(100..108).collect();
    for shard in 0..2 {
        hub.set_routes(shard, &direct(&more));
    }
    assert_eq!(figures(&mut hub, near).guaranteed.bytes, 2 * EACH);
    assert_eq!(sent(&mut hub, near, BYTES), Err(SendError::NoRoom));
    for newcomer in &more[1..] {
        sent(&mut hub, *newcomer, BYTES).unwrap();
        sent(&mut hub, *newcomer, BYTES).unwrap();
    }
    // The last neighbour but one goes: its bundles have no route and are deleted.
    for shard in 0..2 {
        hub.set_routes(shard, &direct(&more[..9]));
    }
    assert_eq!(hub.common.quota().stored().bundles, 20 + 8 * 2);
    for shard in 0..2 {
        hub.set_routes(shard, &[]);
    }
    hub.assert_empty();
}

fn config_of(neighbours: &[u64], percent: u8) -> Config {
    let mut config = node(HUB);
    config.routes = direct(neighbours);
    config.store_bytes = 100 * EACH;
    config.guaranteed_percent = percent;
    config
}

#[test]
fn the_guaranteed_part_is_as_configured() {
    for (percent, taken) in [(0, 50), (50, 37), (80, 30), (100, 25)] {
        let neighbours = [10, 11, 12, 13];
        let mut hub = Hub::new(config_of(&neighbours, percent), 1, None, &neighbours);
        assert_eq!(fill(&mut hub, 10, BYTES), taken, "{percent} %");
    }
}
