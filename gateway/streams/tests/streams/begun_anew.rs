//! Which streams begin anew with the next run of a peer, though some of their bytes had
//! left for the run before.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_streams::{Config, Event, Flow, Open, Peer, ResetCode, Sealed, Side, StreamId, lane};

use crate::pair::{self, CLASS, Pair, deliver, events, open, payloads, write};
use crate::restarts::{ask, read, withhold};

const TICK: Duration = Duration::from_millis(1);

/// Everything that a peer has to send in the class leaves; nobody acknowledges it.
/// Returns the streams to name at an acknowledgement.
fn leave(peer: &mut Peer, now: Instant) -> Vec<StreamId> {
    let sealed = || match peer.poll_payload(now, CLASS, 4096)? {
        Sealed::Payload { streams, .. } => Some(streams),
        Sealed::Withheld(Flow::Stream(id)) => Some(vec![id]),
        Sealed::Withheld(flow) => panic!("{flow:?} is of no former run"),
    };
    std::iter::from_fn(sealed).flatten().collect()
}

/// The streams that the hub's next run was asked to open.
fn opened(pair: &mut Pair, run: u64) -> Vec<StreamId> {
    pair.hub = Peer::new(Config::default(), Side::Higher, run);
    pair.exchange();
    let told = events(&mut pair.hub).into_iter();
    let opened = told.filter_map(|event| match event {
        Event::Opened { id, .. } => Some(id),
        _ => None,
    });
    let mut opened: Vec<StreamId> = opened.collect();
    opened.sort_unstable();
    opened
}

#[test]
fn what_left_when_the_run_was_over_begins_anew_with_the_next_one() {
    let mut pair = Pair::acquainted(Config::default());
    let over = pair.now;
    let heard = ask(&mut pair.terminal, pair.now, "heard").1;
    leave(&mut pair.terminal, over);
    let whole = ask(&mut pair.terminal, pair.now, "whole").1;
    let (epoch, id) = pair.terminal.open(pair.now, open()).unwrap();
    write(&mut pair.terminal, id, "one, ");
    let ahead = pair.terminal.open(pair.now, open()).unwrap().1;
    for piece in ["some ", "more"] {
        write(&mut pair.terminal, ahead, piece);
        assert_eq!(withhold(&mut pair.terminal, ahead), 1);
    }
    let mut left = leave(&mut pair.terminal, over + TICK);
    left.sort_unstable();
    assert_eq!(left, [whole, id, ahead, ahead]);
    // The rest of it is sealed ahead, or not at all.
    write(&mut pair.terminal, id, "two, ");
    assert_eq!(withhold(&mut pair.terminal, id), 1);
    write(&mut pair.terminal, id, "three");

    let later = over + Duration::from_secs(1);
    pair.terminal.peer_announced(later, 201, Some(over));
    let unwanted: Vec<_> = std::iter::from_fn(|| pair.terminal.poll_unwanted()).collect();
    assert_eq!(unwanted, [(epoch, id)], "the others have nothing withheld");
    let opened = opened(&mut pair, 201);
    assert_eq!(opened, [whole, id, ahead]);
    let told = events(&mut pair.terminal);
    assert_eq!(pair::codes(&told), [(heard, ResetCode::Restarted)]);
    assert_eq!(pair::read_all(&mut pair.hub, whole), b"whole");
    assert_eq!(pair::read_all(&mut pair.hub, id), b"one, two, three");
    assert_eq!(pair::read_all(&mut pair.hub, ahead), b"some more");
    pair.hub.current().write(id, "answer".into()).unwrap();
    pair.exchange();
    assert_eq!(read(&mut pair.terminal, epoch, id), b"answer");
}

#[test]
fn what_a_run_may_have_heard_does_not_begin_anew() {
    let over = Instant::now() + TICK;
    let later = over + TICK;
    // When the stream left, the next run, and the reported end of the run before that.
    let cases = [
        (over - TICK, 201, Some(over)),
        (over, 201, Some(over)),
        (later, 201, None),
        (later, 201, Some(later + TICK)),
        // Nothing is known of the run between.
        (later, 202, Some(over)),
    ];
    for (left, run, over_by) in cases {
        let mut pair = Pair::acquainted(Config::default());
        let id = ask(&mut pair.terminal, pair.now, "whole").1;
        leave(&mut pair.terminal, left);
        pair.terminal.peer_announced(later + TICK, run, over_by);
        assert_eq!(opened(&mut pair, run), []);
        let told = events(&mut pair.terminal);
        assert_eq!(pair::codes(&told), [(id, ResetCode::Restarted)], "{run}");
    }
}

#[test]
fn a_stream_that_began_to_leave_too_early_does_not_begin_anew_for_what_left_later() {
    let mut pair = Pair::acquainted(Config::default());
    let over = pair.now + TICK;
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    for left in [over, over + TICK] {
        write(&mut pair.terminal, id, "more");
        assert_eq!(leave(&mut pair.terminal, left), [id]);
    }
    pair.terminal.peer_announced(over + TICK, 201, Some(over));
    assert_eq!(opened(&mut pair, 201), []);
}

#[test]
fn what_somebody_has_does_not_begin_anew() {
    // A custodian has its payload.
    let mut pair = Pair::acquainted(Config::default());
    let over = pair.now;
    ask(&mut pair.terminal, pair.now, "whole");
    let epoch = pair.terminal.epoch();
    let left = leave(&mut pair.terminal, over + TICK);
    pair.terminal.acknowledged(epoch, &left);
    pair.terminal.peer_announced(over + TICK, 201, Some(over));
    assert_eq!(opened(&mut pair, 201), []);

    // The peer has sent a frame about it, whatever it says of its run.
    let mut pair = Pair::acquainted(Config::default());
    let request = Open {
        report_connected: true,
        ..open()
    };
    let id = pair.terminal.open(pair.now, request).unwrap().1;
    let sealed = pair.terminal.poll_payload(over + TICK, CLASS, 4096);
    let Some(Sealed::Payload { parts, .. }) = sealed else {
        panic!("an OPEN waits");
    };
    deliver(&mut pair.hub, pair.now, &[(CLASS, pair::joined(parts))]);
    pair.hub.current().connected(id).unwrap();
    let answer = payloads(&mut pair.hub, 4096);
    deliver(&mut pair.terminal, pair.now, &answer);
    assert_eq!(events(&mut pair.terminal), [Event::Connected(id)]);
    pair.terminal.peer_announced(over + TICK, 201, Some(over));
    assert_eq!(opened(&mut pair, 201), []);
}

#[test]
fn news_of_what_a_former_run_was_sent_is_none_of_what_begins_anew() {
    let mut pair = Pair::acquainted(Config::default());
    let over = pair.now;
    let id = ask(&mut pair.terminal, pair.now, "whole").1;
    let former = pair.terminal.epoch();
    let left = leave(&mut pair.terminal, over + TICK);
    pair.terminal.peer_announced(over + TICK, 201, Some(over));
    // The stream leaves again, and is lost with that run too.
    assert_eq!(leave(&mut pair.terminal, over + 3 * TICK), [id]);
    pair.terminal.acknowledged(former, &left);
    let over = over + 2 * TICK;
    pair.terminal
        .peer_announced(over + 2 * TICK, 202, Some(over));
    assert_eq!(opened(&mut pair, 202), [id]);
    assert_eq!(pair::read_all(&mut pair.hub, id), b"whole");
}

#[test]
fn what_begins_anew_has_all_of_its_flow_left() {
    let mut pair = Pair::acquainted(Config::default());
    let over = pair.now;
    let lane = lane(CLASS, 0).unwrap();
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    let mux = pair.terminal.current();
    mux.begin_flow(id, lane, 30_000).unwrap();
    mux.write(id, Bytes::from(vec![1; 10_000])).unwrap();
    let left = pair.terminal.poll_payload(over + TICK, lane, 1 << 20);
    assert!(matches!(left, Some(Sealed::Payload { .. })), "{left:?}");
    pair.terminal.peer_announced(over + TICK, 201, Some(over));
    let load = pair.terminal.load(lane).unwrap();
    assert_eq!((load.flows(), load.bytes()), (1, 30_000));
}

#[test]
fn only_the_first_word_on_a_run_counts() {
    let mut pair = Pair::acquainted(Config::default());
    let over = pair.now;
    let before = ask(&mut pair.terminal, pair.now, "for the run before").1;
    leave(&mut pair.terminal, over + TICK);
    pair.terminal.peer_announced(over + TICK, 201, None);
    ask(&mut pair.terminal, pair.now, "for this one");
    leave(&mut pair.terminal, over + 2 * TICK);
    // Whatever the run later says about the time before it.
    for run in [200, 201] {
        pair.terminal
            .peer_announced(over + 3 * TICK, run, Some(over));
    }
    assert_eq!(opened(&mut pair, 201), []);
    let told = events(&mut pair.terminal);
    assert_eq!(pair::codes(&told), [(before, ResetCode::Restarted)]);
}

#[test]
fn copies_of_what_has_left_are_bounded_and_end_with_its_acknowledgement() {
    let config = Config {
        send_buffer_bytes: 80_000,
        send_buffer_total_bytes: 160_000,
        ..Config::default()
    };
    let mut pair = Pair::acquainted(config);
    let over = pair.now;
    let epoch = pair.terminal.epoch();
    let send = |pair: &mut Pair, bytes: usize| {
        let id = pair.terminal.open(pair.now, open()).unwrap().1;
        write(&mut pair.terminal, id, Bytes::from(vec![1; bytes]));
        let left = leave(&mut pair.terminal, over + TICK);
        (id, left, pair.terminal.current().send_capacity(id))
    };
    // A quarter of a stream's buffer, and a quarter of the buffer for all streams.
    let large = send(&mut pair, 20_001);
    let acknowledged = send(&mut pair, 15_000);
    let [one, other, beyond] = [(); 3].map(|()| send(&mut pair, 15_000));
    assert_eq!(large.2, 80_000);
    assert_eq!(acknowledged.2, 65_000);
    assert_eq!(beyond.2, 80_000);
    pair.terminal.acknowledged(epoch, &acknowledged.1);
    let capacity = pair.terminal.current().send_capacity(acknowledged.0);
    assert_eq!(capacity, 80_000);
    let more = send(&mut pair, 9_000);
    assert_eq!(more.2, 71_000, "in its place");

    pair.terminal.peer_announced(over + TICK, 201, Some(over));
    assert_eq!(opened(&mut pair, 201), [one.0, more.0]);
    assert_eq!(other.2, 80_000);
}
