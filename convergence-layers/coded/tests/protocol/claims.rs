//! What coding achieves.

use std::time::Duration;

use underpass_cla::Refusal;
use underpass_coded::Protection;

use crate::link::{Link, SATELLITE, World};

const ONE_WAY: Duration = Duration::from_millis(300);
/// The size of a bundle that a node makes for this link.
const BUNDLE: usize = 500_000;

fn bursts(seed: u64) -> Link {
    Link {
        loss: 0.01,
        burst: 20.0,
        seed,
        ..SATELLITE
    }
}

fn single_losses(seed: u64) -> Link {
    Link {
        loss: 0.0005,
        seed,
        ..SATELLITE
    }
}

/// The fraction of all bytes that are repair or repetitions.
fn repair_part(world: &World) -> f64 {
    let figures = world.figures();
    figures.repair_bytes as f64 / figures.bytes as f64
}

/// Sends an object in bundles as fast as the line carries them.
fn flow(world: &mut World, bytes: usize) {
    let mut left = bytes;
    while left > 0 {
        let bundle = left.min(BUNDLE);
        world.run_until_room(bundle as u64);
        world.offer(bundle);
        left -= bundle;
        // The node offers the next bundle before this one has left.
        world.run_for(Duration::from_micros(85) * 300);
    }
}

/// Sends objects of 1 MB one after the other on a path with known losses; returns the
/// time of each beyond that of a lossless one, and the fraction of repair.
fn objects(link: Link, count: u32) -> (Vec<Duration>, f64) {
    let mut world = World::new(link, Protection::Always);
    flow(&mut world, 40_000_000);
    world.run();
    let before = world.figures();
    let mut late = Vec::new();
    for _ in 0..count {
        let first = world.fates.len() as u64;
        let begun = world.now;
        world.offer(BUNDLE);
        world.offer(BUNDLE);
        world.run();
        let last = world.fates[&(first + 1)]
            .arrived
            .max(world.fates[&first].arrived);
        let took = last.expect("it has arrived") - begun;
        let lossless = ONE_WAY + Duration::from_micros(85) * 717;
        late.push(took.saturating_sub(lossless));
        world.run_for(Duration::from_secs(1));
    }
    late.sort();
    let after = world.figures();
    let bytes = (after.bytes - before.bytes) as f64;
    (
        late,
        (after.repair_bytes - before.repair_bytes) as f64 / bytes,
    )
}

#[test]
fn a_clean_link_has_no_repair_and_no_requests() {
    let mut world = World::new(SATELLITE, Protection::Always);
    flow(&mut world, 20_000_000);
    world.run();
    let figures = world.figures();
    assert_eq!((figures.repair_symbols, figures.asked_symbols), (0, 0));
    assert_eq!(figures.repair_bytes, 0);
}

#[test]
fn single_losses_cost_an_object_no_round_trip_and_little_repair() {
    let (late, repair) = objects(single_losses(3), 200);
    let p99 = late[late.len() * 99 / 100];
    assert!(p99 < Duration::from_millis(20), "{p99:?}");
    assert!(repair < 0.012, "{repair}");
}

#[test]
fn bursts_cost_an_object_no_round_trip_and_bounded_repair() {
    let (late, repair) = objects(bursts(5), 200);
    let p98 = late[late.len() * 98 / 100];
    assert!(p98 < Duration::from_millis(40), "{p98:?}");
    assert!(repair < 0.15, "{repair}");
    // Without repair, a third of the objects would be late by a round trip.
}

#[test]
fn a_long_flow_has_little_repair() {
    let mb = 1_000_000;
    for (link, size, most) in [
        (single_losses(7), 60 * mb, 0.006),
        (bursts(8), 200 * mb, 0.04),
    ] {
        for protection in [Protection::Always, Protection::Tail] {
            let mut world = World::new(link, protection);
            flow(&mut world, size);
            world.run();
            let part = repair_part(&world);
            assert!(part < most, "{protection:?}: {part}");
        }
    }
}

#[test]
fn the_tail_of_an_object_is_repaired_without_a_round_trip() {
    let mut world = World::new(single_losses(11), Protection::Tail);
    flow(&mut world, 40_000_000);
    world.run();
    let mut late = 0;
    for _ in 0..40 {
        let begun = world.now;
        let first = world.fates.len() as u64;
        // The whole object fits in one round trip.
        flow(&mut world, 4_000_000);
        world.run();
        let last = world.fates.range(first..).map(|(_, fate)| fate.arrived);
        let took = last.max().flatten().expect("it has arrived") - begun;
        late += u32::from(took > ONE_WAY + Duration::from_micros(85) * 3_000);
        world.run_for(Duration::from_secs(1));
    }
    // Each object has 1.4 losses on average: without repair three of four would be late.
    assert!(late <= 2, "{late} of 40");
}

#[test]
fn what_is_lost_of_long_flows_is_sent_again_by_symbol() {
    let mut world = World::new(bursts(13), Protection::Tail);
    flow(&mut world, 30_000_000);
    world.run();
    let figures = world.figures();
    let lost = figures.symbols as f64 * 0.01;
    let again = figures.asked_symbols as f64;
    assert!(
        again > lost * 0.3 && again < lost * 3.5,
        "{again} for {lost}"
    );
}

#[test]
fn every_bundle_arrives_once_or_is_reported_whatever_the_link_does() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let link = Link {
            loss: [0.0, 0.001, 0.05, 0.3][random.usize(..4)],
            burst: [1.0, 5.0, 40.0][random.usize(..3)],
            jitter: Duration::from_millis(random.u64(..40)),
            duplicated: [0.0, 0.2][random.usize(..2)],
            datagram_bytes: random.usize(200..1414),
            room_bytes: 4 << 20,
            seed,
            ..SATELLITE
        };
        let protection = [Protection::Always, Protection::Tail][random.usize(..2)];
        let mut world = World::new(link, protection);
        world.sender.set_block_symbols(random.u16(1..1024));
        world.refuses = |length| (length % 7 == 0).then_some(Refusal::NoResources);
        for _ in 0..60 {
            let length = [random.usize(1..3_000), random.usize(1..200_000)][random.usize(..2)];
            world.run_until_room(length as u64);
            world.offer(length);
            world.run_for(Duration::from_millis(random.u64(..30)));
        }
        world.run();
        for fate in world.fates.values() {
            let refused = fate.length % 7 == 0;
            assert_eq!(
                fate.judged == Some(Ok(())),
                !refused,
                "seed {seed}: {fate:?}"
            );
            assert_eq!(fate.arrived.is_some(), !refused);
        }
    }
}

#[test]
fn a_smaller_path_mtu_has_what_is_under_way_cut_anew() {
    for seed in 0..10 {
        let mut world = World::new(bursts(seed), Protection::Always);
        world.offer(800_000);
        world.run_for(Duration::from_millis(20));
        world.shrink(1_100);
        world.offer(300_000);
        world.run_for(Duration::from_millis(310));
        world.shrink(700);
        world.run();
        assert!(world.fates.values().all(|fate| fate.judged == Some(Ok(()))));
    }
}

#[test]
fn a_bundle_does_not_wait_for_those_before_it() {
    let mut world = World::new(SATELLITE, Protection::Tail);
    world.shrink(1_400);
    let large = world.offer(900_000);
    let small = world.offer(1_000);
    world.run();
    let [large, small] = [large, small].map(|number| world.fates[&number].took());
    assert!(small >= large, "in the order of the offers, without loss");
    // With every fifth datagram lost, some small bundle overtakes a large one.
    let mut overtaken = false;
    for seed in 0..10 {
        let mut world = World::new(
            Link {
                loss: 0.05,
                seed,
                ..SATELLITE
            },
            Protection::Tail,
        );
        let large = world.offer(900_000);
        let small = world.offer(1_000);
        world.run();
        overtaken |= world.fates[&small].arrived < world.fates[&large].arrived;
    }
    assert!(overtaken);
}
