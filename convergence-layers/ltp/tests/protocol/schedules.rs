//! Many seeded schedules of loss, duplicates, reordering and blockages.

use std::time::Duration;

use crate::world::{Link, World, block};

const S: fn(u64) -> Duration = Duration::from_secs;

fn random_link(random: &mut fastrand::Rng) -> Link {
    let mut blockages = Vec::new();
    let mut at = random.f64() * 3.0;
    for _ in 0..random.usize(0..4) {
        let length = 0.05 + random.f64() * if random.bool() { 1.0 } else { 60.0 };
        // A blockage that the spans are not told of is short enough for the retries to
        // outlast it.
        let times = [at, at + length].map(Duration::from_secs_f64);
        blockages.push((times[0], times[1], random.f64() < 0.7));
        at += length + random.f64() * 5.0;
    }
    Link {
        loss: [0.0, 0.01, 0.1, 0.3][random.usize(0..4)],
        duplicates: [0.0, 0.05, 0.3][random.usize(0..3)],
        jitter: Duration::from_millis([0, 5, 400][random.usize(0..3)]),
        blockages,
        ..Link::clean()
    }
}

#[test]
fn whatever_the_link_does_each_red_block_arrives_once_and_both_ends_are_idle() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let link = random_link(&mut random);
        let mut world = World::new(link.clone(), seed, |config| {
            config.claims = 1 + seed as usize % 7;
            config.segment_bytes = [128, 1_000, 1_472][seed as usize % 3];
        });
        let mut expected = [Vec::new(), Vec::new()];
        for key in 0..random.u64(1..12) {
            let end = random.usize(0..2);
            let block = block(seed * 100 + key, random.usize(1..60_000));
            world.send(end, key, &block, None);
            expected[1 - end].push(block);
        }
        world.run(S(100_000));
        for (end, expected) in expected.iter_mut().enumerate() {
            let received = &world.ends[end].received;
            let mut received: Vec<_> = received.iter().map(|(block, _)| block.clone()).collect();
            received.sort();
            expected.sort();
            assert!(received == *expected, "seed {seed}, end {end}, {link:?}");
            assert_eq!(
                world.ends[1 - end].sent.len(),
                expected.len(),
                "seed {seed}"
            );
            assert_eq!(world.ends[end].cancelled, [], "seed {seed}");
        }
        world.assert_idle();
    }
}

#[test]
fn green_parts_arrive_whole_or_not_at_all_and_the_red_part_is_known_to_be_there() {
    let mut arrived = 0;
    for seed in 0..100 {
        let link = Link {
            loss: 0.01,
            ..Link::clean()
        };
        let mut world = World::new(link, seed, |_| {});
        let blocks: Vec<_> = (0..10).map(|key| block(seed * 10 + key, 20_000)).collect();
        for (key, block) in (0..).zip(&blocks) {
            world.send(0, key, block, Some(key * 2_000));
        }
        world.run(S(100_000));
        assert_eq!(world.ends[0].sent.len(), 10, "seed {seed}");
        for (received, red) in &world.ends[1].received {
            let key = (red / 2_000) as usize;
            assert_eq!(received, &blocks[key]);
            arrived += 1;
        }
        world.assert_idle();
    }
    assert!((600..1_000).contains(&arrived), "{arrived}");
}

#[test]
fn nothing_is_sent_in_a_blockage_and_sessions_outlive_it_by_far() {
    let mut link = Link::clean();
    let hours = (S(1), S(20_000), true);
    link.blockages.push(hours);
    let mut world = World::new(link, 5, |config| config.tries = 2);
    for key in 0..200 {
        world.send(0, key, &block(key, 100_000), None);
    }
    world.run(S(30_000));
    let silent = world
        .log
        .iter()
        .filter(|(at, ..)| (S(1)..S(20_000)).contains(at));
    assert_eq!(silent.count(), 0);
    assert_eq!(world.ends[1].received.len(), 200);
    world.assert_idle();
}

#[test]
fn after_a_blockage_each_session_asks_once_and_only_what_was_lost_is_sent_again() {
    let mut link = Link::clean();
    link.blockages.push((S(1), S(600), true));
    let mut world = World::new(link, 6, |_| {});
    for key in 0..300 {
        world.send(0, key, &block(key, 14_000), None);
    }
    world.run(S(10_000));
    assert_eq!(world.ends[1].received.len(), 300);
    let figures = world.ends[0].span.figures();
    // Segments that left in the second before it are sent again only once (those of one
    // one-way delay were lost), with a checkpoint for each session.
    let checkpoints = 300 * 1_472;
    assert!(
        figures.resent_bytes <= 300 * 14_000 + checkpoints,
        "{figures:?}"
    );
    let soon = world.log.iter().filter(|(at, end, _)| {
        *end == 0 && (S(600)..S(600) + Duration::from_millis(100)).contains(at)
    });
    // The line carries a segment each 100 us, however much is due.
    assert!(soon.count() <= 1_001);
    world.assert_idle();
}

#[test]
fn a_silence_that_nobody_told_of_costs_few_segments_and_little_time_after_it() {
    let mut link = Link::clean();
    link.blockages.push((S(1), S(300), false));
    let mut world = World::new(link, 7, |_| {});
    for key in 0..50 {
        world.send(0, key, &block(key, 14_000), None);
    }
    // A segment tells the sender that the peer is there again.
    world.run(S(301));
    let inside = world
        .log
        .iter()
        .filter(|(at, ..)| (S(2)..S(300)).contains(at));
    let inside = inside.count();
    assert!(inside <= 50 * 2 * 12, "{inside}");
    world.send(1, 99, &block(99, 100), None);
    world.run(S(304));
    assert_eq!(world.ends[1].received.len(), 50);
    world.run(S(1_000));
    world.assert_idle();
}
