//! Sessions that are cancelled, by either side.

use std::time::Duration;

use underpass_ltp::Reason;
use underpass_ltp::segment::{Body, Checkpoint, Data, Report};

use crate::hostile::{bytes, peers, red, send_all};
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
    let whole = Data {
        checkpoint: Some(Checkpoint {
            serial: 1,
            report: 0,
        }),
        ends_red: true,
        ends_block: true,
        ..red(10, &[7; 10])
    };
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
