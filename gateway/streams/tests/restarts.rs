//! What becomes of streams when a node at one of their ends restarts.

mod pair;

use std::time::{Duration, Instant};

use bytes::Bytes;
use pair::{Pair, events, open, payloads};
use underpass_cla::Class;
use underpass_streams::{Config, Epoch, Event, Peer, ResetCode, Side, StreamId};

type Sealed = Vec<(Class, Bytes)>;

/// The hub has sealed `answer` on a stream of the terminal when it is killed;
/// returns what is in its custody, and the stream at the terminal.
fn killed_hub(pair: &mut Pair, answer: &'static str, finished: bool) -> (Sealed, StreamId) {
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

fn deliver(peer: &mut Peer, now: Instant, sealed: &Sealed) {
    for (class, payload) in sealed {
        peer.handle_payload(now, *class, payload.clone()).unwrap();
    }
}

fn read(peer: &mut Peer, epoch: Epoch, id: StreamId) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(data) = peer
        .streams_of(epoch)
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
    assert!(pair.terminal.streams_of(former).is_none());
}

#[test]
fn an_end_that_was_in_custody_ends_the_stream_in_order() {
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
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
    // A repetition opens nothing again, neither before nor after the end.
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
    // A run of the terminal without any contact.
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
        pair.terminal.peer_announced(pair.now, run);
        events(&mut pair.terminal);
        assert!(pair.terminal.streams().count() <= 8);
    }
}

#[test]
fn a_session_names_the_peers_run_before_any_payload() {
    let mut pair = Pair::new(Config::default());
    pair.terminal.peer_announced(pair.now, 200);
    pair.terminal.open(pair.now, open()).unwrap();
    let sealed = payloads(&mut pair.terminal, 1 << 20);
    // The hub that the session was with has restarted meanwhile.
    pair.hub = Peer::new(Config::default(), Side::Higher, 201);
    deliver(&mut pair.hub, pair.now, &sealed);
    assert_eq!(events(&mut pair.hub), [], "nothing was meant for this run");
    // An older session's news changes nothing.
    pair.terminal.peer_announced(pair.now, 199);
    assert_eq!(pair.terminal.peer_incarnation(), Some(200));
}
