//! What resources a peer may use up.

use std::time::Duration;

use bytes::Bytes;
use underpass_ltp::segment::{Body, Checkpoint, Data, Report, Segment};
use underpass_ltp::{CommonMemory, Event, Reason, SendError};

use crate::hostile::{bytes, end, peers, red, send_all};
use crate::world::{Link, World, block};

const S: fn(u64) -> Duration = Duration::from_secs;

#[test]
fn no_more_sessions_than_allowed_and_they_make_room_when_they_stand_still() {
    let mut world = World::new(Link::clean(), 1, |config| config.received_sessions = 10);
    for number in 1..=1_000 {
        world.inject(0, bytes(peers(number), Body::Data(red(0, b"x"))));
    }
    assert_eq!(world.ends[0].span.sessions().1, 10);
    assert_eq!(world.ends[0].span.refused().no_room, 990);
    world.now += S(601);
    let now = world.instant();
    world.ends[0].span.handle_timeout(now);
    assert_eq!(world.ends[0].span.sessions().1, 0);
    world.inject(0, bytes(peers(5_000), Body::Data(red(0, b"x"))));
    assert_eq!(world.ends[0].span.sessions().1, 1);
}

#[test]
fn a_far_offset_takes_no_memory_for_what_is_not_there() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    for number in 1..=1_000 {
        world.inject(
            0,
            bytes(peers(number), Body::Data(red(15 << 20, &[1; 100]))),
        );
    }
    let used = world.ends[0].span.receive_bytes();
    assert!(used <= 1_000 * 4_200, "{used}");
}

/// All but the last tenth of a block of 100,000 bytes arrives.
fn send_most(world: &mut World, number: u64, block: &[u8]) {
    for offset in (0..90_000).step_by(1_000) {
        let data = red(offset, &block[offset as usize..][..1_000]);
        world.inject(0, bytes(peers(number), Body::Data(data)));
    }
}

/// The rest of that block arrives.
fn send_rest(world: &mut World, number: u64, block: &[u8]) {
    let rest = end(red(90_000, &block[90_000..]), 1);
    world.inject(0, bytes(peers(number), Body::Data(rest)));
}

#[test]
fn when_memory_is_short_the_oldest_block_comes_through() {
    let mut world = World::new(Link::clean(), 1, |config| config.receive_bytes = 500_000);
    let blocks: Vec<_> = (0..20).map(|key| block(key, 100_000)).collect();
    // All blocks arrive in part, none is whole.
    for (number, block) in (1..).zip(&blocks) {
        send_most(&mut world, number, block);
        assert!(world.ends[0].span.receive_bytes() <= 500_000);
    }
    send_rest(&mut world, 1, &blocks[0]);
    let received = &world.ends[0].received;
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].0, blocks[0]);
    let lost = &world.ends[0].lost;
    assert!(lost.iter().all(|(_, reason)| *reason == Reason::System));
    assert!(!lost.is_empty());
}

/// A whole block of 100,000 bytes arrives, but the client does not take it.
fn send_unseen(world: &mut World, number: u64, block: &[u8]) {
    let now = world.instant();
    for offset in (0..100_000).step_by(1_000) {
        let last = offset == 99_000;
        let data = Data {
            checkpoint: last.then_some(Checkpoint {
                serial: 1,
                report: 0,
            }),
            ends_red: last,
            ends_block: last,
            ..red(offset, &block[offset as usize..][..1_000])
        };
        let segment = bytes(peers(number), Body::Data(data));
        world.ends[0].span.handle_input(now, &segment);
    }
}

/// The whole blocks that the client was told of.
fn told(world: &mut World) -> Vec<Bytes> {
    let told = std::iter::from_fn(|| world.ends[0].span.poll_event());
    let blocks = told.map(|event| match event {
        Event::Received { block, .. } => block,
        other => panic!("{other:?}"),
    });
    blocks.collect()
}

#[test]
fn a_whole_block_has_its_memory_until_the_client_has_answered_for_it() {
    let mut world = World::new(Link::clean(), 1, |config| config.receive_bytes = 250_000);
    let now = world.instant();
    let blocks: Vec<_> = (0..4).map(|key| block(key, 100_000)).collect();
    send_unseen(&mut world, 1, &blocks[0]);
    send_unseen(&mut world, 2, &blocks[1]);
    assert_eq!(world.ends[0].span.receive_bytes(), 200_000);
    // There is no room for all of the third block; that does not cancel it.
    send_unseen(&mut world, 3, &blocks[2]);
    assert!(world.ends[0].span.receive_bytes() <= 250_000);
    assert!(world.ends[0].span.refused().no_room > 0);
    assert_eq!(told(&mut world), blocks[..2]);
    world.ends[0].span.answer(now, peers(1), Ok(()));
    // The lost part is sent again.
    send_unseen(&mut world, 3, &blocks[2]);
    assert_eq!(told(&mut world), blocks[2..3]);
    assert_eq!(world.ends[0].span.receive_bytes(), 200_000);
    // The client still gets a block whose session the peer then ends.
    let cancel = bytes(peers(2), Body::CancelBySender(Reason::Client));
    world.ends[0].span.handle_input(now, &cancel);
    assert_eq!(world.ends[0].span.receive_bytes(), 200_000);
    for number in [2, 3] {
        let verdict = Err(Reason::System);
        world.ends[0].span.answer(now, peers(number), verdict);
    }
    assert_eq!(world.ends[0].span.receive_bytes(), 0);
}

#[test]
fn a_peer_that_takes_all_common_memory_leaves_others_their_own_part() {
    let common = CommonMemory::new(300_000);
    let sharing = || {
        World::new(Link::clean(), 1, |config| {
            config.receive_bytes = 500_000;
            config.common = Some((150_000, common.clone()));
        })
    };
    let (mut greedy, mut other) = (sharing(), sharing());
    for number in 1..=200 {
        greedy.inject(0, bytes(peers(number), Body::Data(red(0, &[1; 1_000]))));
    }
    let blocks: Vec<_> = (0..10).map(|key| block(key, 100_000)).collect();
    for (number, block) in (1..).zip(&blocks) {
        send_most(&mut other, number, block);
    }
    let used = |world: &World| world.ends[0].span.receive_bytes();
    assert!((440_000..=450_000).contains(&used(&greedy)));
    assert!((90_000..=150_000).contains(&used(&other)));
    send_rest(&mut other, 1, &blocks[0]);
    assert_eq!(other.ends[0].received[0].0, blocks[0]);
    drop(greedy);
    assert_eq!(common.used_bytes(), 0);
}

#[test]
fn gaps_are_bounded_and_what_is_not_taken_for_them_is_sent_again() {
    let mut link = Link::clean();
    link.loss = 0.2;
    let mut world = World::new(link, 3, |config| config.gaps = 32);
    let block = block(1, 500_000);
    world.send(0, 1, &block, None);
    world.run(S(100_000));
    assert!(world.ends[1].span.refused().no_room > 0);
    let received = &world.ends[1].received;
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].0, block);
    world.assert_idle();
}

#[test]
fn a_checkpoint_that_finds_no_room_is_answered_without_a_claim() {
    let mut world = World::new(Link::clean(), 1, |config| config.gaps = 1);
    for (serial, offset) in [(1, 0), (2, 20)] {
        let data = Data {
            checkpoint: Some(Checkpoint { serial, report: 0 }),
            ..red(offset, b"0123456789")
        };
        world.inject(0, bytes(peers(1), Body::Data(data)));
    }
    assert_eq!(world.ends[0].span.refused().no_room, 1);
    let (mut out, mut told) = (Vec::new(), Vec::new());
    while world.ends[0].span.poll_transmit(world.instant(), &mut out) {
        if let Ok(Segment {
            body: Body::Report(report),
            ..
        }) = Segment::take(&mut &out[..])
        {
            told.push((report.lower, report.upper, report.claims));
        }
        out.clear();
    }
    assert_eq!(told, [(0, 10, vec![(0, 10)]), (10, 30, vec![])]);
}

#[test]
fn checkpoints_without_end_are_answered_a_bounded_number_of_times() {
    let mut world = World::new(Link::clean(), 1, |config| config.reports = 20);
    for serial in 1..=100 {
        let data = Data {
            checkpoint: Some(Checkpoint { serial, report: 0 }),
            ..red(0, b"x")
        };
        world.inject(0, bytes(peers(1), Body::Data(data)));
    }
    assert_eq!(world.ends[0].lost, [(peers(1), Reason::Retransmissions)]);
    let mut out = Vec::new();
    let mut count = 0;
    while world.ends[0].span.poll_transmit(world.instant(), &mut out) {
        count += 1;
    }
    assert!(count <= 21, "{count}");
}

/// Every other byte of a block, so that no two ranges touch.
fn apart(world: &mut World, number: u64, count: u64) {
    for at in 0..count {
        world.inject(0, bytes(peers(number), Body::Data(red(2 * at, b"x"))));
    }
}

#[test]
fn the_gaps_of_all_blocks_together_are_bounded() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    for number in 1..=200 {
        apart(&mut world, number, 1_000);
    }
    let refused = world.ends[0].span.refused().no_room;
    assert_eq!(refused, 200_000 - (1 << 17));
    // Sessions without progress make room.
    world.now += S(601);
    let now = world.instant();
    world.ends[0].span.handle_timeout(now);
    apart(&mut world, 300, 1_000);
    assert_eq!(world.ends[0].span.refused().no_room, refused);
}

#[test]
fn the_claims_of_reports_on_all_blocks_together_are_bounded() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    for number in 1..=50 {
        apart(&mut world, number, 100);
        // Each of them asks about the whole block.
        for serial in 1..=100 {
            let data = Data {
                checkpoint: Some(Checkpoint { serial, report: 0 }),
                ..red(198, b"x")
            };
            world.inject(0, bytes(peers(number), Body::Data(data)));
        }
    }
    let lost = &world.ends[0].lost;
    assert!(lost.contains(&(peers(50), Reason::Retransmissions)));
    assert!(!lost.contains(&(peers(1), Reason::Retransmissions)));
}

/// A report that claims every other one of 2,000 bytes.
fn every_other(serial: u64, from: u64) -> Report {
    Report {
        serial,
        checkpoint: 0,
        lower: from,
        upper: from + 2_000,
        claims: (0..1_000)
            .map(|at| (from + 2 * at, from + 2 * at + 1))
            .collect(),
    }
}

#[test]
fn what_the_peer_claims_to_have_in_pieces_is_bounded() {
    let mut world = World::new(Link::clean(), 1, |config| config.gaps = 100);
    let block = block(1, 200_000);
    let session = world.send(0, 1, &block, None);
    send_all(&mut world);
    // Each report claims one part.
    for serial in 1..=20 {
        let from = serial * 2_000;
        let report = every_other(serial, from);
        world.inject(0, bytes(session, Body::Report(report)));
        assert!(world.ends[0].span.claimed_runs() <= 100);
    }
    // What the report claims beyond that is sent again, a bounded number of times.
    world.run(S(1_000));
    assert_eq!(world.ends[0].cancelled, [(1, Reason::Cycles, false)]);
    assert_eq!(world.ends[0].span.claimed_runs(), 0);
    world.assert_idle();
}

#[test]
fn what_is_sent_again_byte_by_byte_counts_with_the_heads_of_its_segments() {
    let mut world = World::new(Link::clean(), 1, |config| config.cycles = 2);
    let session = world.send(0, 1, &block(1, 100_000), None);
    send_all(&mut world);
    let once = world.ends[0].span.figures().sent_bytes;
    for serial in 1..=100 {
        let report = every_other(serial, 0);
        world.inject(0, bytes(session, Body::Report(report)));
        send_all(&mut world);
    }
    assert_eq!(world.ends[0].cancelled, [(1, Reason::Cycles, false)]);
    let again = world.ends[0].span.figures().sent_bytes - once;
    assert!(again <= 2 * once, "{again} after {once}");
}

#[test]
fn what_the_peer_claims_of_all_blocks_together_is_bounded() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let block = block(1, 10_000);
    let sessions: Vec<_> = (0..60)
        .map(|key| world.send(0, key, &block, None))
        .collect();
    send_all(&mut world);
    for session in &sessions {
        for serial in 1..=4 {
            let from = (serial - 1) * 2_000;
            let report = every_other(serial, from);
            world.inject(0, bytes(*session, Body::Report(report)));
        }
    }
    let claimed = world.ends[0].span.claimed_runs();
    // One for each, once there is no room any more.
    assert!((1 << 17..=(1 << 17) + 60).contains(&claimed), "{claimed}");
    world.run(S(10_000));
    assert_eq!(world.ends[0].sent.len() + world.ends[0].cancelled.len(), 60);
    world.assert_idle();
}

#[test]
fn answers_that_cannot_leave_do_not_pile_up() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let now = world.instant();
    world.ends[0].span.block_link(now, true);
    for number in 0..50_000 {
        world.inject(
            0,
            bytes(peers(number), Body::CancelBySender(Reason::Client)),
        );
    }
    world.ends[0].span.block_link(now, false);
    let (mut out, mut count) = (Vec::new(), 0);
    while world.ends[0].span.poll_transmit(now, &mut out) {
        count += 1;
    }
    assert!(count <= 4_096, "{count}");
}

#[test]
fn what_waits_for_sessions_that_are_over_does_not_pile_up() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let now = world.instant();
    world.ends[0].span.block_link(now, true);
    let asks = Data {
        checkpoint: Some(Checkpoint {
            serial: 1,
            report: 0,
        }),
        ..red(0, b"x")
    };
    for number in 1..=50_000 {
        // A report waits, and then the cancellation of the block, whose byte changes.
        world.inject(0, bytes(peers(number), Body::Data(asks)));
        world.inject(0, bytes(peers(number), Body::Data(red(0, b"y"))));
        let cancel = Body::CancelBySender(Reason::Client);
        world.inject(0, bytes(peers(number), cancel));
        assert!(world.ends[0].span.waiting_segments() <= 2 * 4_096);
    }
    assert_eq!(world.ends[0].lost.len(), 50_000);
    // What is not over is still told.
    world.inject(0, bytes(peers(60_000), Body::Data(asks)));
    world.ends[0].span.block_link(now, false);
    let (mut out, mut reports) = (Vec::new(), 0);
    while world.ends[0].span.poll_transmit(now, &mut out) {
        reports += usize::from(out[0] == 8);
        out.clear();
    }
    assert_eq!(reports, 1);
}

#[test]
fn blocks_that_cannot_be_sent_are_errors() {
    let mut world = World::new(Link::clean(), 1, |config| config.sent_sessions = 2);
    let span = &mut world.ends[0].span;
    assert_eq!(span.send(1, 1, vec![], None), Err(SendError::Empty));
    let red = span.send(1, 1, vec![block(1, 10)], Some(11));
    assert_eq!(red, Err(SendError::RedPart));
    for key in 0..2 {
        assert!(span.send(key, 1, vec![block(1, 10)], None).is_ok());
    }
    let full = span.send(3, 1, vec![block(1, 10)], None);
    assert_eq!(full, Err(SendError::Full));
}
