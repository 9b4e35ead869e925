//! Sessions that are cancelled, by either side.

use std::time::Duration;

use underpass_ltp::segment::{Body, Report};
use underpass_ltp::{Reason, Span};

use crate::hostile::{bytes, end, peers, red, send_all};
use crate::world::{Link, World, block};

const S: fn(u64) -> Duration = Duration::from_secs;

#[test]
fn the_sender_cancels_and_both_sides_know() {
    let mut link = Link::clean();
    link.loss = 0.3;
    for seed in 0..50 {
        let mut world = World::new(link.clone(), seed, |_| {});
        let session = world.send(0, 1, &block(1, 1_000_000), None);
        world.run(Duration::from_millis(350));
        world.ends[0].span.cancel(session);
        world.run(S(10_000));
        assert_eq!(world.ends[0].cancelled, [(1, Reason::Client, false)]);
        assert_eq!(
            world.ends[1].lost,
            [(session, Reason::Client)],
            "seed {seed}"
        );
        assert!(world.ends[1].received.is_empty());
        assert_eq!(world.ends[0].span.figures().cancelled_sent, 1);
        assert_eq!(world.ends[1].span.figures().cancelled_received, 1);
        world.assert_idle();
    }
}

#[test]
fn the_client_is_told_once_of_a_block_that_both_sides_cancel() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let session = peers(1);
    let whole = end(red(10, &[7; 10]), 1);
    world.inject(0, bytes(session, Body::Data(whole)));
    // Behind the block's end.
    world.inject(0, bytes(session, Body::Data(red(20, &[7; 10]))));
    for _ in 0..3 {
        let cancel = Body::CancelBySender(Reason::Client);
        world.inject(0, bytes(session, cancel));
    }
    world.run(S(10));
    assert_eq!(world.ends[0].lost, [(session, Reason::Miscolored)]);
    assert_eq!(world.ends[0].span.figures().cancelled_received, 1);
}

#[test]
fn what_has_not_left_is_cancelled_without_a_word() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let session = world.send(0, 1, &block(1, 1_000), None);
    world.ends[0].span.cancel(session);
    world.run(S(100));
    assert_eq!(world.log, []);
    assert_eq!(world.ends[0].cancelled, [(1, Reason::Client, false)]);
    world.assert_idle();
}

#[test]
fn a_client_that_does_not_take_a_block_cancels_it_and_the_sender_never_hears_that_it_arrived() {
    let mut link = Link::clean();
    link.loss = 0.2;
    for seed in 0..50 {
        let mut world = World::new(link.clone(), seed, |_| {});
        world.ends[1].verdict = Err(Reason::System);
        world.send(0, 1, &block(1, 100_000), None);
        world.run(S(10_000));
        assert!(world.ends[0].sent.is_empty(), "seed {seed}");
        assert_eq!(world.ends[0].cancelled, [(1, Reason::System, true)]);
        world.assert_idle();
    }
}

#[test]
fn a_service_that_is_not_there_is_told() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let sent = world.ends[0].span.send(1, 7, vec![block(1, 100)], None);
    sent.expect("it is sent");
    world.run(S(100));
    assert_eq!(world.ends[0].cancelled, [(1, Reason::Unreachable, true)]);
    world.assert_idle();
}

#[test]
fn a_peer_that_is_gone_for_good_ends_each_session_in_the_end() {
    let mut link = Link::clean();
    link.loss = 1.0;
    let mut world = World::new(link, 1, |config| config.tries = 4);
    world.send(0, 1, &block(1, 100_000), None);
    world.run(S(100_000));
    assert_eq!(
        world.ends[0].cancelled,
        [(1, Reason::Retransmissions, false)]
    );
    world.assert_idle();
    let checkpoints = world.log.iter().filter(|(.., code)| *code == 3);
    assert_eq!(checkpoints.count(), 5);
}

#[test]
fn a_peer_that_is_gone_after_one_of_its_reports_ends_the_session_in_the_end() {
    let mut link = Link::clean();
    link.loss = 1.0;
    let mut world = World::new(link, 1, |config| config.tries = 3);
    let session = world.send(0, 1, &block(1, 100_000), None);
    let checkpoint = send_all(&mut world);
    let half = Report {
        serial: 5,
        checkpoint,
        lower: 0,
        upper: 50_000,
        claims: vec![(0, 50_000)],
    };
    world.inject(0, bytes(session, Body::Report(half)));
    world.run(S(100_000));
    let gone = (1, Reason::Retransmissions, false);
    assert_eq!(world.ends[0].cancelled, [gone]);
    world.assert_idle();
}

#[test]
fn a_peer_that_restarts_forgets_its_blocks_and_takes_new_ones() {
    for restarted in 0..2 {
        let mut world = World::new(Link::clean(), 1, |config| config.tries = 3);
        for key in 0..20 {
            world.send(0, key, &block(key, 50_000), None);
        }
        world.run(Duration::from_millis(400));
        let fresh = World::new(Link::clean(), 77, |config| config.tries = 3);
        let [first, second] = fresh.ends;
        world.ends[restarted].span = if restarted == 0 {
            first.span
        } else {
            second.span
        };
        world.send(0, 100, &block(100, 50_000), None);
        world.run(S(100_000));
        let last = block(100, 50_000);
        let received = &world.ends[1].received;
        assert!(received.iter().any(|(block, _)| *block == last));
        world.assert_idle();
    }
}

/// The span of one end, as it is when its program begins.
fn begun(end: usize, seed: u64) -> Span {
    let [first, second] = World::new(Link::clean(), seed, |_| {}).ends;
    match end {
        0 => first.span,
        _ => second.span,
    }
}

#[test]
fn the_next_span_lets_no_block_count_as_arrived_of_which_the_former_had_a_part() {
    let mut link = Link::clean();
    link.loss = 0.3;
    for seed in 0..50 {
        let mut world = World::new(link.clone(), seed, |_| {});
        world.send(0, 1, &block(1, 200_000), None);
        // By now the sender may know of a part, and sends the rest.
        world.run(Duration::from_millis(700));
        let unfinished = world.ends[1].span.end();
        assert_eq!(unfinished.len(), 1, "seed {seed}");
        world.ends[1].span = begun(1, 1_000 + seed);
        world.ends[1].span.refuse(unfinished);
        world.run(S(100_000));
        assert!(world.ends[0].sent.is_empty(), "seed {seed}");
        assert_eq!(world.ends[0].cancelled, [(1, Reason::System, true)]);
        assert!(world.ends[1].received.is_empty());
        world.assert_idle();
    }
}

#[test]
fn a_span_that_ends_tells_the_peer_once_and_leaves_to_the_next_what_was_not_taken() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let session = world.send(0, 1, &block(1, 10_000_000), None);
    let back = world.send(1, 2, &block(2, 10_000_000), None);
    // Half of each has left, and nothing of the third.
    world.run(Duration::from_millis(350));
    world.send(0, 3, &block(3, 1_000), None);
    let unfinished = world.ends[0].span.end();
    assert_eq!(unfinished, [back.number]);
    // A second end changes nothing.
    assert_eq!(world.ends[0].span.end(), [back.number]);
    world.run(S(100));
    let ended = [1, 3].map(|key| (key, Reason::Client, false));
    let mut cancelled = world.ends[0].cancelled.clone();
    cancelled.sort_by_key(|(key, ..)| *key);
    assert_eq!(cancelled, ended);
    assert_eq!(world.ends[1].lost, [(session, Reason::Client)]);
    assert_eq!(world.ends[1].cancelled, [(2, Reason::System, true)]);
    world.assert_idle();
}

#[test]
fn a_block_that_the_client_has_taken_is_not_left_to_the_next_span() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let whole = end(red(0, &[7; 10]), 1);
    world.inject(0, bytes(peers(1), Body::Data(whole)));
    world.inject(0, bytes(peers(2), Body::Data(red(0, &[7; 10]))));
    assert_eq!(world.ends[0].received.len(), 1);
    assert_eq!(world.ends[0].span.end(), [2]);
}

#[test]
fn all_blocks_that_a_span_may_have_are_refused_by_the_next_and_no_more() {
    const MOST: usize = 1 << 16;
    let mut span = begun(1, 1);
    span.refuse(0..2 * MOST as u64);
    assert_eq!(span.sessions(), (0, MOST));
}
