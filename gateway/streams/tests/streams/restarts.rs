//! What happens to streams when a node at one of their ends restarts.

use std::time::{Duration, Instant};

use crate::pair::{self, CLASS, CONTROL, Pair, deliver, events, open, payloads, sealed, write};
use bytes::Bytes;
use underpass_cla::Class;
use underpass_streams::{
    Config, Epoch, Event, Open, Peer, ResetCode, Sealed, Side, StreamId, Windows,
};

type Custody = Vec<(Class, Bytes)>;

/// The hub has sealed `answer` on a stream of the terminal and is then killed; returns
/// its bundles in custody, and the stream at the terminal.
fn killed_hub(pair: &mut Pair, answer: &'static str, finished: bool) -> (Custody, StreamId) {
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.exchange();
    events(&mut pair.hub);
    pair.hub.current().write(id, answer.into()).unwrap();
    if finished {
        pair.hub.current().finish(id).unwrap();
    }
    let custody = payloads(&mut pair.hub, 1 << 20);
    pair.hub = Peer::new(Config::default(), Side::Higher, 201);
    pair.exchange_without_settling();
    assert_eq!(pair.terminal.peer_incarnation(), Some(201));
    events(&mut pair.terminal);
    (custody, id)
}

pub fn read(peer: &mut Peer, epoch: Epoch, id: StreamId) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(data) = peer
        .streams_of(epoch, id)
        .and_then(|mux| mux.read(id, usize::MAX))
    {
        bytes.extend(data);
    }
    bytes
}

fn reset(id: StreamId) -> Event {
    Event::Reset {
        id,
        code: ResetCode::Restarted,
        reason: "the peer node restarted".to_owned(),
    }
}

#[test]
fn what_a_killed_node_had_in_custody_arrives_and_then_the_stream_is_reset() {
    let mut pair = Pair::acquainted(Config::default());
    let (custody, id) = killed_hub(&mut pair, "half an answer", false);
    let former = Epoch(0);
    assert_eq!(events(&mut pair.terminal), []);
    deliver(&mut pair.terminal, pair.now, &custody);
    assert_eq!(events(&mut pair.terminal), [Event::Readable(id)]);
    let settled = payloads(&mut pair.hub, 4096);
    deliver(&mut pair.terminal, pair.now, &settled);
    assert_eq!(events(&mut pair.terminal), [], "the bytes come first");
    assert_eq!(
        read(&mut pair.terminal, former, id),
        b"half an answer".to_vec()
    );
    assert_eq!(events(&mut pair.terminal), [reset(id)]);
    assert!(pair.terminal.streams_of(former, id).is_none());
}

#[test]
fn an_end_that_was_in_custody_ends_the_stream_in_order() {
    let (mut pair, id) = Pair::opened(Config::default());
    pair.terminal.current().finish(id).unwrap();
    pair.exchange();
    events(&mut pair.hub);
    pair.hub.current().write(id, "all of it".into()).unwrap();
    pair.hub.current().finish(id).unwrap();
    let custody = payloads(&mut pair.hub, 1 << 20);
    pair.hub = Peer::new(Config::default(), Side::Higher, 201);
    pair.exchange_without_settling();
    events(&mut pair.terminal);
    deliver(&mut pair.terminal, pair.now, &custody);
    assert_eq!(read(&mut pair.terminal, Epoch(0), id), b"all of it");
    assert_eq!(
        events(&mut pair.terminal)[1..],
        [Event::PeerFinished(id), Event::Closed(id)]
    );
}

#[test]
fn an_end_in_custody_is_told_before_the_rest_of_the_stream_is_reset() {
    let mut pair = Pair::acquainted(Config::default());
    let (custody, id) = killed_hub(&mut pair, "the answer", true);
    deliver(&mut pair.terminal, pair.now, &custody);
    assert_eq!(read(&mut pair.terminal, Epoch(0), id), b"the answer");
    assert_eq!(
        events(&mut pair.terminal)[1..],
        [Event::PeerFinished(id), reset(id)]
    );
}

#[test]
fn custody_of_a_former_run_touches_no_new_stream_of_the_same_id() {
    let mut pair = Pair::acquainted(Config::default());
    let old = pair.hub.open(pair.now, open()).unwrap().1;
    pair.hub.current().write(old, "old".into()).unwrap();
    let custody = payloads(&mut pair.hub, 1 << 20);
    pair.hub = Peer::new(Config::default(), Side::Higher, 201);
    let new = pair.hub.open(pair.now, open()).unwrap().1;
    assert_eq!(new, old, "ids begin anew");
    pair.hub.current().write(new, "new".into()).unwrap();
    pair.exchange_without_settling();
    deliver(&mut pair.terminal, pair.now, &custody);
    let present = pair.terminal.epoch();
    let others: Vec<Epoch> = pair.terminal.streams().map(|(epoch, _)| epoch).collect();
    let former = *others.iter().find(|epoch| **epoch != present).unwrap();
    assert_eq!(read(&mut pair.terminal, present, new), b"new");
    assert_eq!(read(&mut pair.terminal, former, old), b"old");
    // A duplicate opens nothing again, neither before nor after the end.
    pair.exchange();
    events(&mut pair.terminal);
    deliver(&mut pair.terminal, pair.now, &custody);
    assert_eq!(events(&mut pair.terminal), []);
    assert_eq!(pair.terminal.streams().count(), 1);
}

#[test]
fn an_upload_in_custody_is_delivered_to_a_hub_that_never_heard_the_run() {
    let mut pair = Pair::acquainted(Config::default());
    let hub = Peer::new(Config::default(), Side::Higher, 300);
    pair.hub = hub;
    // A run of the terminal that is never heard.
    let mut first = Peer::new(Config::default(), Side::Lower, 101);
    let id = first.open(pair.now, open()).unwrap().1;
    first.current().write(id, "measured".into()).unwrap();
    first.current().finish(id).unwrap();
    let custody = payloads(&mut first, 1 << 20);
    pair.terminal = Peer::new(Config::default(), Side::Lower, 102);
    pair.exchange_without_settling();
    events(&mut pair.hub);
    deliver(&mut pair.hub, pair.now, &custody);
    let epoch = pair.hub.streams().next().unwrap().0;
    assert_eq!(read(&mut pair.hub, epoch, id), b"measured");
    assert_eq!(
        events(&mut pair.hub),
        [
            Event::Opened { id, open: open() },
            Event::Readable(id),
            Event::PeerFinished(id),
            reset(id)
        ]
    );
}

#[test]
fn a_former_run_ends_when_its_bundles_have_expired() {
    let config = Config {
        bundle_lifetime: Duration::from_secs(60),
        ..Config::default()
    };
    let mut pair = Pair::acquainted(config);
    let (_lost, id) = killed_hub(&mut pair, "never seen", false);
    let due = pair.terminal.next_timeout().unwrap();
    assert_eq!(due, pair.now + Duration::from_secs(60));
    pair.terminal
        .handle_timeout(pair.now + Duration::from_secs(59));
    assert_eq!(events(&mut pair.terminal), []);
    pair.terminal.handle_timeout(due);
    assert_eq!(events(&mut pair.terminal), [reset(id)]);
    assert_eq!(pair.terminal.next_timeout(), None);
}

#[test]
fn restarts_without_end_cost_a_bounded_number_of_former_runs() {
    let mut pair = Pair::acquainted(Config::default());
    for run in 201..250 {
        pair.terminal.open(pair.now, open()).unwrap();
        payloads(&mut pair.terminal, 1 << 20);
        pair.terminal.peer_announced(pair.now, run, None);
        events(&mut pair.terminal);
        assert!(pair.terminal.streams().count() <= 8);
    }
}

#[test]
fn a_session_names_the_peers_run_before_any_payload() {
    let mut pair = Pair::new(Config::default());
    pair.terminal.peer_announced(pair.now, 200, None);
    pair.terminal.open(pair.now, open()).unwrap();
    let sealed = payloads(&mut pair.terminal, 1 << 20);
    // The hub of the session has restarted meanwhile.
    pair.hub = Peer::new(Config::default(), Side::Higher, 201);
    deliver(&mut pair.hub, pair.now, &sealed);
    assert_eq!(events(&mut pair.hub), [], "nothing was meant for this run");
    // Late news of an older session changes nothing.
    pair.terminal.peer_announced(pair.now, 199, None);
    assert_eq!(pair.terminal.peer_incarnation(), Some(200));
}

/// Opens a stream with `request`, which its application then ends.
pub fn ask(peer: &mut Peer, now: Instant, request: &'static str) -> (Epoch, StreamId) {
    let (epoch, id) = peer.open(now, open()).unwrap();
    peer.current().write(id, request.into()).unwrap();
    peer.current().finish(id).unwrap();
    (epoch, id)
}

#[test]
fn streams_that_nothing_was_sealed_of_go_on_with_the_next_run() {
    let mut pair = Pair::acquainted(Config::default());
    let sealed = ask(&mut pair.terminal, pair.now, "sealed").1;
    let lost = payloads(&mut pair.terminal, 1 << 20);
    // The hub is down.
    let first = pair.terminal.epoch();
    let mut asked = vec![ask(&mut pair.terminal, pair.now, "whole")];
    let mut reset = pair.terminal.open(pair.now, open()).unwrap().1;
    let mux = pair.terminal.current();
    mux.write(reset, "all that was written".into()).unwrap();
    mux.reset_behind(reset, ResetCode::Aborted, "gone").unwrap();
    // Neither run hears more of a stream that is reset at once.
    let never = ask(&mut pair.terminal, pair.now, "never").1;
    let mux = pair.terminal.current();
    mux.reset(never, ResetCode::Aborted, "").unwrap();

    for run in [201, 202] {
        pair.hub = Peer::new(Config::default(), Side::Higher, run);
        pair.terminal.peer_announced(pair.now, run, None);
        asked.push(ask(&mut pair.terminal, pair.now, "whole"));
    }
    assert_eq!(pair.terminal.streams().count(), 5);
    assert!(asked.iter().any(|(epoch, _)| *epoch == first));
    pair.exchange();
    deliver(&mut pair.hub, pair.now, &lost);
    let restarted = |incarnation| Event::PeerRestarted { incarnation };
    let told = events(&mut pair.terminal);
    let ends: Vec<&Event> = told
        .iter()
        .filter(|e| matches!(e, Event::Reset { .. }))
        .collect();
    assert_eq!(ends, [&self::reset(sealed)], "{told:?}");
    assert!(told.contains(&restarted(201)) && told.contains(&restarted(202)));

    let opened = events(&mut pair.hub);
    let opened = opened.into_iter().filter_map(|event| match event {
        Event::Opened { id, .. } => Some(id),
        _ => None,
    });
    let mut opened: Vec<StreamId> = opened.collect();
    opened.sort_unstable();
    let mut expected: Vec<StreamId> = asked.iter().map(|(_, id)| *id).collect();
    expected.push(reset);
    expected.sort_unstable();
    assert_eq!(opened, expected, "each once");
    let present = pair.hub.epoch();
    for (epoch, id) in asked {
        assert_eq!(read(&mut pair.hub, present, id), b"whole");
        pair.hub.current().write(id, "answer".into()).unwrap();
        pair.hub.current().finish(id).unwrap();
        pair.exchange();
        assert_eq!(read(&mut pair.terminal, epoch, id), b"answer");
        assert!(events(&mut pair.terminal).contains(&Event::Closed(id)));
    }
    assert_eq!(read(&mut pair.hub, present, reset), b"all that was written");
    reset = sealed;
    assert!(!pair.terminal.streams().any(|(_, info)| info.id == reset));
}

#[test]
fn a_later_incarnation_of_this_node_takes_over_what_nothing_was_sealed_of() {
    let mut pair = Pair::acquainted(Config::default());
    // The terminal has lost its count of runs.
    pair.terminal = Peer::new(Config::default(), Side::Lower, 50);
    let (epoch, id) = ask(&mut pair.terminal, pair.now, "whole");
    pair.terminal.peer_announced(pair.now, 200, None);
    pair.hub
        .set_windows(Windows::of_path(1_000_000, Duration::from_millis(100)));
    let hello = payloads(&mut pair.hub, 1 << 20);
    deliver(&mut pair.terminal, pair.now, &hello);
    assert_eq!(pair.terminal.incarnation(), 101);
    pair.exchange();
    let told = events(&mut pair.terminal);
    assert!(
        !told.iter().any(|e| matches!(e, Event::Reset { .. })),
        "{told:?}"
    );
    assert!(pair.terminal.streams_of(epoch, id).is_some());
    let present = pair.hub.epoch();
    assert_eq!(read(&mut pair.hub, present, id), b"whole");
}

#[test]
fn no_payload_without_an_addressee_opens_a_stream_that_was_given_up() {
    let mut pair = Pair::new(Config::default());
    let waits = pair
        .terminal
        .open(
            pair.now,
            Open {
                class: CONTROL,
                ..open()
            },
        )
        .unwrap()
        .1;
    ask(&mut pair.terminal, pair.now, "sealed for whoever is there");
    let unaddressed = sealed(&mut pair.terminal, CLASS, 1 << 20).unwrap();
    pair.terminal.peer_announced(pair.now, 200, None);
    let later = ask(&mut pair.terminal, pair.now, "whole").1;
    pair.hub = Peer::new(Config::default(), Side::Higher, 201);
    pair.terminal.peer_announced(pair.now, 201, None);
    let told = events(&mut pair.terminal);
    // A void id makes all lower ids void.
    assert!(told.contains(&reset(waits)), "{told:?}");
    pair.exchange();
    events(&mut pair.hub);
    deliver(
        &mut pair.hub,
        pair.now,
        &[(CLASS, pair::joined(unaddressed))],
    );
    assert_eq!(events(&mut pair.hub), [], "it is void");
    assert_eq!(pair::read_all(&mut pair.hub, later), b"whole");
}

/// Seals ahead all bytes of a stream, for custody to withhold; returns the number of
/// payloads.
pub fn withhold(peer: &mut Peer, id: StreamId) -> usize {
    let sealed = || peer.current().seal_ahead(id, 40_000);
    std::iter::from_fn(sealed).count()
}

#[test]
fn a_stream_of_which_all_is_withheld_begins_anew_with_the_next_run() {
    let mut pair = Pair::acquainted(Config::default());
    let (epoch, id) = pair.terminal.open(pair.now, open()).unwrap();
    for piece in ["one, ", "two, "] {
        write(&mut pair.terminal, id, piece);
        assert_eq!(withhold(&mut pair.terminal, id), 1);
    }
    let mux = pair.terminal.current();
    mux.write(id, "three".into()).unwrap();
    mux.finish(id).unwrap();
    let ended = ask(&mut pair.terminal, pair.now, "whole").1;
    let mux = pair.terminal.current();
    mux.stop(ended, ResetCode::Cancelled).unwrap();
    assert_eq!(withhold(&mut pair.terminal, ended), 1);
    assert_eq!(events(&mut pair.terminal), [Event::Closed(ended)]);
    let large = pair.terminal.open(pair.now, open()).unwrap().1;
    for _ in 0..3 {
        write(&mut pair.terminal, large, Bytes::from(vec![1; 30_000]));
        assert!(withhold(&mut pair.terminal, large) > 0);
    }

    for run in [201, 202] {
        pair.hub = Peer::new(Config::default(), Side::Higher, run);
        pair.terminal.peer_announced(pair.now, run, None);
        let unwanted: Vec<_> = std::iter::from_fn(|| pair.terminal.poll_unwanted()).collect();
        let count = if run == 201 { 3 } else { 0 };
        assert_eq!(unwanted.len(), count, "{unwanted:?}");
        // Custody returns them.
        for (of, stream) in unwanted {
            pair.terminal.acknowledged(of, &[stream, stream, stream]);
        }
    }
    let told = events(&mut pair.terminal);
    assert_eq!(pair::codes(&told), [(large, ResetCode::Restarted)]);
    pair.exchange();
    let opened = events(&mut pair.hub);
    let opens = |event: &&Event| matches!(event, Event::Opened { .. });
    assert_eq!(opened.iter().filter(opens).count(), 2, "{opened:?}");
    assert_eq!(pair::read_all(&mut pair.hub, id), b"one, two, three");
    assert_eq!(pair::read_all(&mut pair.hub, ended), b"whole");
    let told = events(&mut pair.hub);
    assert!(told.contains(&Event::PeerFinished(id)));
    pair.hub.current().write(id, "answer".into()).unwrap();
    pair.exchange();
    assert_eq!(read(&mut pair.terminal, epoch, id), b"answer");
}

#[test]
fn a_stream_that_has_begun_to_leave_does_not_begin_anew() {
    let (mut pair, id) = Pair::opened(Config::default());
    for piece in ["one", "two"] {
        write(&mut pair.terminal, id, piece);
        assert_eq!(withhold(&mut pair.terminal, id), 1);
    }
    let leaves = pair.terminal.poll_payload(pair.now, CLASS, 4096);
    assert!(matches!(leaves, Some(Sealed::Withheld(_))), "{leaves:?}");
    pair.terminal.peer_announced(pair.now, 201, None);
    pair.hub = Peer::new(Config::default(), Side::Higher, 201);
    pair.exchange();
    let told = events(&mut pair.hub);
    let opens = |event: &Event| matches!(event, Event::Opened { .. });
    assert!(!told.iter().any(opens), "{told:?}");
}
