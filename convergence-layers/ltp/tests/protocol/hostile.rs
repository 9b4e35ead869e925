//! A peer that breaks the protocol.

use std::time::Duration;

use underpass_ltp::segment::{Body, Checkpoint, Data, Report, Segment};
use underpass_ltp::{Event, Reason, SessionId};

use crate::world::{Link, NUMBERS, World, block};

const S: fn(u64) -> Duration = Duration::from_secs;

pub fn bytes(session: SessionId, body: Body<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Segment { session, body }.put(&mut out);
    out
}

pub fn peers(number: u64) -> SessionId {
    SessionId {
        originator: NUMBERS[1],
        number,
    }
}

pub fn red(offset: u64, bytes: &[u8]) -> Data<'_> {
    Data {
        service: 1,
        offset,
        bytes,
        red: true,
        checkpoint: None,
        ends_red: false,
        ends_block: false,
    }
}

/// Makes the first end send all that it has; all of it is lost. Returns the serial number
/// of its last checkpoint.
pub fn send_all(world: &mut World) -> u64 {
    let (now, mut out, mut last) = (world.instant(), Vec::new(), 0);
    while world.ends[0].span.poll_transmit(now, &mut out) {
        if let Ok(Segment {
            body: Body::Data(data),
            ..
        }) = Segment::take(&mut &out[..])
        {
            last = data.checkpoint.map_or(last, |asked| asked.serial);
        }
        out.clear();
    }
    last
}

/// Acknowledges the next report of the first end, and returns its serial number.
fn acknowledge(world: &mut World, session: SessionId) -> u64 {
    let (now, mut out) = (world.instant(), Vec::new());
    assert!(world.ends[0].span.poll_transmit(now, &mut out));
    let Ok(Segment {
        body: Body::Report(report),
        ..
    }) = Segment::take(&mut &out[..])
    else {
        panic!("a report is sent");
    };
    world.inject(0, bytes(session, Body::ReportAck(report.serial)));
    report.serial
}

/// The same data as the last of a block that is all red, with a checkpoint of this serial number.
pub fn end(data: Data<'_>, serial: u64) -> Data<'_> {
    Data {
        checkpoint: Some(Checkpoint { serial, report: 0 }),
        ends_red: true,
        ends_block: true,
        ..data
    }
}

#[test]
fn sessions_of_others_are_refused_without_a_trace() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let foreign = SessionId {
        originator: 5,
        number: 1,
    };
    let own = SessionId {
        originator: NUMBERS[0],
        number: 1,
    };
    world.inject(0, bytes(foreign, Body::Data(red(0, b"x"))));
    world.inject(0, bytes(own, Body::Data(red(0, b"x"))));
    world.inject(0, bytes(foreign, Body::ReportAck(1)));
    world.inject(0, bytes(foreign, Body::CancelByReceiver(Reason::Client)));
    world.inject(0, bytes(peers(1), Body::CancelByReceiver(Reason::Client)));
    assert_eq!(world.ends[0].span.refused().foreign, 5);
    world.run(S(10));
    assert_eq!(world.log, []);
    world.assert_idle();
}

#[test]
fn a_block_that_cannot_be_is_cancelled_with_its_reason() {
    let small = [0; 10];
    let cases: [(&[Data<'_>], Reason); 6] = [
        // The red part ends twice.
        (
            &[end(red(10, &small), 1), end(red(30, &small), 2)],
            Reason::Miscolored,
        ),
        (
            &[end(red(30, &small), 1), end(red(10, &small), 2)],
            Reason::System,
        ),
        // Red above green, green below red.
        (
            &[
                Data {
                    red: false,
                    ..red(10, &small)
                },
                red(30, &small),
            ],
            Reason::Miscolored,
        ),
        (
            &[
                red(30, &small),
                Data {
                    red: false,
                    ..red(10, &small)
                },
            ],
            Reason::Miscolored,
        ),
        // The block ends before bytes that have come.
        (
            &[
                Data {
                    red: false,
                    ..red(30, &small)
                },
                Data {
                    red: false,
                    ends_block: true,
                    ..red(10, &small)
                },
            ],
            Reason::System,
        ),
        // It is larger than any block may be.
        (&[red(0, &small), red(u64::MAX / 2, &small)], Reason::System),
    ];
    for (segments, reason) in cases {
        let mut world = World::new(Link::clean(), 1, |_| {});
        for data in segments {
            world.inject(0, bytes(peers(9), Body::Data(*data)));
        }
        assert_eq!(world.ends[0].lost, [(peers(9), reason)], "{segments:?}");
        assert_eq!(world.ends[0].span.receive_bytes(), 0);
        assert_eq!(world.ends[0].span.refused().impossible, 1);
    }
}

#[test]
fn late_segments_of_a_block_that_is_over_change_nothing() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let whole = end(red(0, b"a block"), 7);
    let datagram = bytes(peers(3), Body::Data(whole));
    world.inject(0, datagram.clone());
    assert_eq!(world.ends[0].received.len(), 1);
    let serial = acknowledge(&mut world, peers(3));
    world.assert_idle();
    for _ in 0..5 {
        world.inject(0, datagram.clone());
    }
    world.inject(0, bytes(peers(3), Body::ReportAck(serial)));
    assert_eq!(world.ends[0].span.refused().closed, 6);
    assert_eq!(world.ends[0].received.len(), 1);
    world.assert_idle();
}

#[test]
fn a_peer_that_has_restarted_may_use_the_numbers_of_blocks_that_are_over_after_a_few_waits() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let mut blocks = 0;
    for (after_ms, taken) in [(0, true), (3_199, false), (1, true)] {
        world.now += Duration::from_millis(after_ms);
        let whole = end(red(0, b"a block"), 7);
        world.inject(0, bytes(peers(3), Body::Data(whole)));
        blocks += usize::from(taken);
        assert_eq!(world.ends[0].received.len(), blocks, "{:?}", world.now);
        if taken {
            acknowledge(&mut world, peers(3));
        }
        world.assert_idle();
    }
}

#[test]
fn the_first_blocks_of_a_peer_that_restarts_at_once_are_taken_when_it_asks_again() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let numbers = 1..=20;
    for number in numbers.clone() {
        let whole = end(red(0, b"a block"), number);
        world.inject(0, bytes(peers(number), Body::Data(whole)));
        acknowledge(&mut world, peers(number));
    }
    for (after, taken) in [(S(1), false), (S(3), true)] {
        world.now += after;
        for number in numbers.clone() {
            let whole = end(red(0, b"another"), 5_000 + number);
            world.inject(0, bytes(peers(number), Body::Data(whole)));
            if taken {
                acknowledge(&mut world, peers(number));
            }
        }
        world.assert_idle();
    }
    let received = &world.ends[0].received;
    assert_eq!(received.len(), 40);
    assert!(received[20..].iter().all(|(block, _)| block == "another"));
}

#[test]
fn a_block_that_was_left_incomplete_is_not_completed_by_another_one_of_its_number() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let (old, new) = (block(1, 3_000), block(2, 3_000));
    let mut take = |data: Data<'_>| world.inject(0, bytes(peers(3), Body::Data(data)));
    // A part that comes twice changes nothing.
    take(red(0, &old[..1_000]));
    take(red(0, &old[..1_000]));
    take(end(red(2_000, &old[2_000..]), 7));
    // The peer restarts.
    take(red(0, &new[..1_000]));
    take(red(1_000, &new[1_000..2_000]));
    take(end(red(2_000, &new[2_000..]), 5_000));
    assert!(world.ends[0].received.is_empty());
    assert_eq!(world.ends[0].lost, [(peers(3), Reason::System)]);
    assert_eq!(world.ends[0].span.receive_bytes(), 0);
    // It hears of that, and sends the block under the next number.
    let mut sent = Vec::new();
    while world.ends[0].span.poll_transmit(world.instant(), &mut sent) {}
    let cancel = bytes(peers(3), Body::CancelByReceiver(Reason::System));
    assert!(sent.ends_with(&cancel));
    world.inject(0, bytes(peers(3), Body::CancelAckToReceiver));
    world.inject(0, bytes(peers(4), Body::Data(end(red(0, &new), 9))));
    assert_eq!(world.ends[0].received, [(new, 3_000)]);
    acknowledge(&mut world, peers(4));
    world.assert_idle();
}

#[test]
fn what_was_reported_of_a_block_says_nothing_of_another_one_of_its_number() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    // No report is acknowledged before the peer restarts. Another block is told by its serial
    // numbers, or by its length.
    let blocks = [
        (&b"a block"[..], 7),
        (&b"another"[..], 5_000),
        (&b"a longer block"[..], 5_001),
    ];
    for (whole, serial) in blocks {
        // A checkpoint that is repeated changes nothing.
        for _ in 0..2 {
            let data = end(red(0, whole), serial);
            world.inject(0, bytes(peers(3), Body::Data(data)));
        }
    }
    let received: Vec<_> = world.ends[0].received.iter().map(|(b, _)| &b[..]).collect();
    assert_eq!(received, blocks.map(|(whole, _)| whole));
    assert_eq!(world.ends[0].span.sessions().1, 1);
    acknowledge(&mut world, peers(3));
    world.assert_idle();
}

#[test]
fn another_block_of_a_number_waits_until_the_client_has_answered_for_the_first() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let now = world.instant();
    let first = bytes(peers(3), Body::Data(end(red(0, b"a block"), 7)));
    let another = block(2, 7);
    let other = bytes(peers(3), Body::Data(end(red(0, &another), 5_000)));
    let span = &mut world.ends[0].span;
    span.handle_input(now, &first);
    let event = span.poll_event();
    assert!(matches!(&event, Some(Event::Received { block, .. }) if block == "a block"));
    // The peer restarts before the client has answered.
    span.handle_input(now, &other);
    span.answer(now, peers(3), Ok(()));
    let mut out = Vec::new();
    assert!(span.poll_transmit(now, &mut out));
    let Ok(Segment {
        body: Body::Report(report),
        ..
    }) = Segment::take(&mut &out[..])
    else {
        panic!("a report is sent");
    };
    assert_eq!(report.checkpoint, 7);
    assert!(!span.has_output(), "nothing is said about the other block");

    world.inject(0, other);
    assert_eq!(world.ends[0].received, [(another, 7)]);
    acknowledge(&mut world, peers(3));
    world.assert_idle();
}

#[test]
fn reports_of_what_was_not_sent_release_nothing() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let session = world.send(0, 1, &block(1, 100_000), None);
    let report = |upper, serial| Report {
        serial,
        checkpoint: 0,
        lower: 0,
        upper,
        claims: vec![(0, upper)],
    };
    world.inject(0, bytes(session, Body::Report(report(100_000, 1))));
    world.inject(0, bytes(session, Body::Report(report(1 << 40, 2))));
    assert_eq!(world.ends[0].span.refused().impossible, 2);
    assert!(world.ends[0].sent.is_empty());
    world.run(S(100));
    assert_eq!(world.ends[1].received.len(), 1);
    world.assert_idle();
}

#[test]
fn a_report_of_what_was_not_sent_answers_no_checkpoint() {
    let mut world = World::new(Link::clean(), 1, |_| {});
    let session = world.send(0, 1, &block(1, 100_000), None);
    let checkpoint = send_all(&mut world);
    let lie = Report {
        serial: 5,
        checkpoint,
        lower: 0,
        upper: 1 << 40,
        claims: vec![(0, 1 << 40)],
    };
    world.inject(0, bytes(session, Body::Report(lie)));
    world.run(S(100));
    assert_eq!(world.ends[0].sent, [1]);
    assert_eq!(world.ends[1].received.len(), 1);
    world.assert_idle();
}

#[test]
fn a_report_that_came_before_answers_no_other_checkpoint() {
    let mut link = Link::clean();
    link.loss = 1.0;
    let mut world = World::new(link, 1, |config| config.tries = 10);
    let session = world.send(0, 1, &block(1, 100_000), None);
    let first = send_all(&mut world);
    for round in 1..=200 {
        // The peer repeats one report on a half, whatever checkpoint asks for the rest.
        for checkpoint in first..=first + round {
            let half = Report {
                serial: 5,
                checkpoint,
                lower: 0,
                upper: 50_000,
                claims: vec![(0, 50_000)],
            };
            world.inject(0, bytes(session, Body::Report(half)));
        }
        world.run(S(3 * round));
    }
    let gone = (1, Reason::Retransmissions, false);
    assert_eq!(world.ends[0].cancelled, [gone]);
}

#[test]
fn claims_that_do_not_fit_their_report_are_malformed() {
    let session = SessionId {
        originator: NUMBERS[0],
        number: 1,
    };
    let report = |claims: &[(u64, u64)]| {
        bytes(
            session,
            Body::Report(Report {
                serial: 1,
                checkpoint: 1,
                lower: 100,
                upper: 200,
                claims: claims.to_vec(),
            }),
        )
    };
    let mut world = World::new(Link::clean(), 1, |_| {});
    world.inject(0, report(&[(100, 150), (140, 160)]));
    world.inject(0, report(&[(150, 160), (100, 110)]));
    world.inject(0, report(&[(100, 201)]));
    world.inject(0, report(&[(100, 100)]));
    // The report announces more claims than it has bytes for.
    let mut lies = report(&[]);
    let count = lies.len() - 1;
    lies.splice(count.., [0xff, 0xff, 0xff, 0x7f]);
    world.inject(0, lies);
    assert_eq!(world.ends[0].span.refused().malformed, 5);
}

#[test]
fn a_peer_that_reports_loss_without_end_is_served_a_bounded_number_of_times() {
    let mut world = World::new(Link::clean(), 1, |config| config.cycles = 3);
    let session = world.send(0, 1, &block(1, 100_000), None);
    let mut sink = Vec::new();
    while world.ends[0].span.poll_transmit(world.instant(), &mut sink) {}
    for serial in 1..1_000 {
        let report = Report {
            serial,
            checkpoint: 0,
            lower: 0,
            upper: 100_000,
            claims: vec![(50_000, 50_001)],
        };
        world.inject(0, bytes(session, Body::Report(report)));
        while world.ends[0].span.poll_transmit(world.instant(), &mut sink) {}
    }
    assert_eq!(world.ends[0].cancelled, [(1, Reason::Cycles, false)]);
    let resent = world.ends[0].span.figures().resent_bytes;
    assert!(resent <= 300_000, "{resent}");
}

#[test]
fn random_bytes_and_changed_segments_never_break_a_span() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new(Link::clean(), seed, |config| {
            config.receive_bytes = 200_000;
            config.block_bytes = 100_000;
            config.received_sessions = 8;
            config.reports = 16;
            config.gaps = 16;
        });
        world.send(0, 1, &block(seed, 30_000), None);
        let mut sent = Vec::new();
        for _ in 0..400 {
            let mut out = Vec::new();
            if world.ends[0].span.poll_transmit(world.instant(), &mut out) {
                sent.push(out);
            }
            let mut datagram = match random.u8(0..4) {
                0 => (0..random.usize(0..60)).map(|_| random.u8(..)).collect(),
                1 if !sent.is_empty() => sent[random.usize(..sent.len())].clone(),
                _ => {
                    let data = Data {
                        red: random.bool(),
                        ends_block: random.bool(),
                        ..red(random.u64(0..120_000), &[7; 50])
                    };
                    let data = if random.u8(0..4) == 0 {
                        end(red(data.offset, data.bytes), random.u64(1..9))
                    } else {
                        data
                    };
                    bytes(peers(random.u64(1..12)), Body::Data(data))
                }
            };
            for _ in 0..random.usize(0..3) {
                if !datagram.is_empty() {
                    let at = random.usize(..datagram.len());
                    datagram[at] = random.u8(..);
                }
            }
            world.inject(0, datagram);
            world.now += Duration::from_millis(random.u64(0..500));
            let now = world.instant();
            world.ends[0].span.handle_timeout(now);
            let (sending, receiving) = world.ends[0].span.sessions();
            assert!(sending <= 1 && receiving <= 8 + 8, "{sending} {receiving}");
            assert!(world.ends[0].span.receive_bytes() <= 200_000);
        }
    }
}
