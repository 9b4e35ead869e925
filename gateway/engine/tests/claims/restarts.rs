//! What a client notices if its stream begins while the peer is down.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{self as bundle, MemoryStore, wire};
use underpass_cla::{Class, SessionId};
use underpass_streams::{Event, Frame, Header, ResetCode, decode_frames};

use crate::bench::{BULK, Node, Offered, config, live, pair};
use crate::durable::Durable;
use crate::reading_on::{self, SECOND, block};

fn lose_sessions(node: &mut Node) {
    for session in 100..103 {
        node.engine.session_down(node.now, SessionId(session));
    }
}

/// The sessions of a node with the next run of its peer come up.
fn meet_next_run(node: &mut Node) {
    meet_run_after(node, None);
}

/// The same; the peer reports by when its former run was over.
fn meet_run_after(node: &mut Node, over_by: Option<Instant>) {
    for class in 0..3 {
        node.session_with(0, 200 + class, Some(Class(class as u8)), |info| {
            info.incarnation = Some(2);
            info.former_over_by = over_by;
        });
    }
}

/// The hub's next run, which a terminal has met for a while.
fn next_run(terminal: &mut Node, hub: &Node, over_by: Option<Instant>) -> Node {
    let mut next = config(1, &[10]);
    next.incarnation = 2;
    next.agent.run_nonce += 1 << 30;
    let mut next = Node::new(terminal.now.max(hub.now), next);
    terminal.pass(next.now);
    meet_run_after(terminal, over_by);
    next.up(0, 200);
    live(terminal, &mut next, Duration::from_secs(5));
    next
}

/// Takes the offers of this time, and acknowledges none.
pub fn offered_in(node: &mut Node, time: Duration) -> Vec<Offered> {
    let (end, mut all) = (node.now + time, Vec::new());
    while node.now < end {
        for offered in node.offers() {
            node.ready(offered.0);
            all.push(offered);
        }
        node.pass(node.now + Duration::from_millis(10));
    }
    all
}

/// The headers and frames of the stream payloads in these offers.
pub fn payloads(offers: &[Offered]) -> Vec<(Header, Vec<Frame>)> {
    let config = bundle::Config::new(0, 1);
    let decode = |(_, transfer): &Offered| {
        let raw = Bytes::from(transfer.chunks.concat());
        let bundle = wire::decode(&raw, &config.decode, &config.codes).expect("a bundle");
        let (_, service) = wire::ipn_parts(&bundle.primary.destination)?;
        (service == 80).then(|| decode_frames(&bundle.payload).expect("frames"))
    };
    offers.iter().filter_map(decode).collect()
}

/// A node seals and sends many bytes for the present run of its peer, which is heard.
fn leave_much_for(peer: &mut Node, node: &mut Node) {
    let key = node.send(1, BULK, 1000);
    live(node, peer, SECOND);
    node.write(key, 200_000);
    let sent = offered_in(node, Duration::from_millis(50));
    assert!(!payloads(&sent).is_empty());
}

/// Checks what a node offers to the next run of its peer: nothing for the run before, and
/// the message that nothing else will come, which waits for what was sealed earlier. The
/// node no longer keeps the rest.
fn assert_is_for_the_next_run(node: &mut Node) {
    let payloads = payloads(&offered_in(node, Duration::from_millis(200)));
    let former = payloads.iter().filter(|(header, _)| header.receiver == 1);
    assert_eq!(former.count(), 0, "{payloads:?}");
    let mut frames = payloads.iter().flat_map(|(_, frames)| frames);
    assert!(frames.any(|frame| *frame == Frame::Settled), "{payloads:?}");
    let kept = node.engine.custody(node.now).used_bytes;
    assert!(kept < 5_000, "{kept}");
}

#[test]
fn what_was_for_a_former_run_of_the_peer_is_not_sent_to_its_next_one() {
    let (mut terminal, mut hub) = pair();
    leave_much_for(&mut hub, &mut terminal);
    lose_sessions(&mut terminal);
    meet_next_run(&mut terminal);
    assert_is_for_the_next_run(&mut terminal);
}

#[test]
fn what_a_former_run_left_for_a_former_run_of_the_peer_is_not_sent_either() {
    let disk = Arc::default();
    let (mut terminal, mut hub) = reading_on::pair_on(&disk, |config| {
        config.window_bytes = Some(1 << 20);
        config.send_buffer_bytes = Some(1 << 20);
    });
    leave_much_for(&mut hub, &mut terminal);

    let mut next = config(10, &[1]);
    next.incarnation = 2;
    next.agent.run_nonce += 1 << 30;
    let store = Box::new(Durable(MemoryStore::default(), disk));
    let mut next = Node::with_store(terminal.now, next, store);
    assert!(next.engine.custody(next.now).used_bytes > 100_000);
    meet_next_run(&mut next);
    assert_is_for_the_next_run(&mut next);
}

#[test]
fn what_was_sealed_before_the_peer_was_heard_goes_to_whichever_run_comes() {
    let mut alone = Node::new(Instant::now(), config(10, &[1]));
    alone.up(0, 100);
    alone.send(1, BULK, 1000);
    let sent = offered_in(&mut alone, Duration::from_millis(50));
    assert!(
        payloads(&sent)
            .iter()
            .all(|(header, _)| header.receiver == 0)
    );
    let open = |offers: &[Offered]| {
        let frames = payloads(offers).into_iter().flat_map(|(_, frames)| frames);
        frames
            .filter(|frame| matches!(frame, Frame::Open { .. }))
            .count()
    };
    assert_eq!(open(&sent), 1);
    lose_sessions(&mut alone);
    meet_next_run(&mut alone);
    assert_eq!(open(&offered_in(&mut alone, Duration::from_millis(200))), 1);
}

#[test]
fn a_client_whose_request_never_left_is_told_as_soon_as_the_next_run_is_there() {
    let (mut terminal, _) = reading_on::pair(|_| {});
    let heard = terminal.send(1, BULK, 1000);
    assert!(!offered_in(&mut terminal, Duration::from_millis(50)).is_empty());
    block(&mut terminal, true);
    let begun = terminal.open(1, BULK);
    // More bytes than are copied to begin anew with.
    terminal.write(begun, 40_000);
    terminal.pass(terminal.now + SECOND);
    terminal.write(begun, 40_000);
    terminal.pass(terminal.now + SECOND);
    assert!(terminal.offers().is_empty());
    lose_sessions(&mut terminal);
    block(&mut terminal, false);
    meet_next_run(&mut terminal);
    let reset = |id| {
        move |event: &Event| {
            let Event::Reset { id: of, code, .. } = event else {
                return false;
            };
            *of == id && *code == ResetCode::Restarted
        }
    };
    assert!(terminal.has(reset(begun.id)));
    // An answer of the former run is still possible.
    assert!(!terminal.has(reset(heard.id)));
}

#[test]
fn requests_read_on_while_blocked_go_on_with_the_next_run() {
    let (mut terminal, hub) = reading_on::pair(|_| {});
    block(&mut terminal, true);
    let kept = terminal.engine.custody(terminal.now).bundles;
    let begin = |terminal: &mut Node, finish| {
        let key = terminal.send(1, BULK, 1000);
        terminal.pass(terminal.now + SECOND);
        terminal.write(key, 500);
        if finish {
            terminal.engine.finish(terminal.now, key).expect("open");
        }
        terminal.pass(terminal.now + SECOND);
        key
    };
    let waits = begin(&mut terminal, false);
    let asks = begin(&mut terminal, true);
    // Its application waits for nothing.
    let tells = begin(&mut terminal, true);
    let stopped = terminal
        .engine
        .stop(terminal.now, tells, ResetCode::Cancelled);
    stopped.expect("it is open");
    terminal.pass(terminal.now + SECOND);
    assert!(terminal.engine.custody(terminal.now).bundles >= kept + 6);
    assert!(terminal.offers().is_empty());

    lose_sessions(&mut terminal);
    block(&mut terminal, false);
    let mut next = next_run(&mut terminal, &hub, None);

    assert!(!terminal.has(|event| matches!(event, Event::Reset { .. })));
    for key in [waits, asks, tells] {
        let there = next.engine.key(10, key.id);
        let mut read = 0;
        while let Some(bytes) = next.engine.read(next.now, there, 2000) {
            read += bytes.len();
        }
        assert_eq!(read, 1500, "{}", key.id);
        let ended = |event: &Event| matches!(event, Event::PeerFinished(id) if *id == key.id);
        assert_eq!(next.has(ended), key != waits);
    }
    let opened = next
        .events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Opened { .. }));
    assert_eq!(opened.count(), 3);

    let there = next.engine.key(10, asks.id);
    next.write(there, 700);
    next.engine.finish(next.now, there).expect("it is open");
    live(&mut terminal, &mut next, 3 * SECOND);
    let answer = terminal.engine.read(terminal.now, asks, 2000);
    assert_eq!(answer.expect("the answer").len(), 700);
    assert!(terminal.destinations().is_empty(), "nothing is kept");
}

#[test]
fn a_stream_that_begins_while_the_hub_is_down_goes_on_with_its_next_run() {
    let (mut terminal, hub) = pair();
    terminal.send(1, BULK, 1000);
    terminal.pass(terminal.now + Duration::from_millis(10));
    assert!(!terminal.offers().is_empty());
    lose_sessions(&mut terminal);
    let begun = terminal.send(1, BULK, 1000);
    terminal.engine.finish(terminal.now, begun).unwrap();
    terminal.pass(terminal.now + Duration::from_secs(2));

    let mut next = config(1, &[10]);
    next.incarnation = 2;
    let mut next = Node::new(hub.now + Duration::from_secs(3), next);
    terminal.pass(next.now);
    meet_next_run(&mut terminal);
    next.up(0, 200);
    live(&mut terminal, &mut next, Duration::from_secs(5));

    let restarted = |event: &Event| matches!(event, Event::PeerRestarted { incarnation: 2 });
    assert!(terminal.has(restarted));
    let reset = |event: &Event| match event {
        Event::Reset { id, code, .. } => *id == begun.id || *code != ResetCode::Restarted,
        _ => false,
    };
    assert!(!terminal.has(reset), "{:?}", terminal.events);
    let opened = next
        .events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Opened { .. }));
    assert_eq!(opened.count(), 1, "{:?}", next.events);
    let there = next.engine.key(10, begun.id);
    assert_eq!(next.engine.read(next.now, there, 2000).unwrap().len(), 1000);
    assert!(next.has(|event| matches!(event, Event::PeerFinished(id) if *id == begun.id)));

    // The application continues with the stream's key that it knows.
    next.write(there, 500);
    next.engine.finish(next.now, there).unwrap();
    live(&mut terminal, &mut next, Duration::from_secs(1));
    let answer = terminal.engine.read(terminal.now, begun, 2000);
    assert_eq!(answer.unwrap().len(), 500);
    assert!(terminal.has(|event| matches!(event, Event::Closed(id) if *id == begun.id)));
}

/// A request leaves on sessions that the peer has lost, which nobody knows yet. The
/// peer's next run comes up, and reports by when its former run was over: `says` gets the
/// times before and after the request. Returns how often the next run is asked to open
/// the stream, how many bytes of it arrive, and whether the client is told of a reset.
fn ask_the_dead(says: fn(Instant, Instant) -> Option<Instant>) -> (usize, usize, bool) {
    let (mut terminal, hub) = pair();
    terminal.pass(terminal.now + SECOND);
    let before = terminal.now;
    let begun = terminal.send(1, BULK, 1000);
    terminal.engine.finish(terminal.now, begun).unwrap();
    let sent = payloads(&offered_in(&mut terminal, Duration::from_millis(250)));
    let opens = |frame: &Frame| matches!(frame, Frame::Open { .. });
    let mut left = sent.iter().filter(|(header, _)| header.receiver == 1);
    assert!(left.any(|(_, frames)| frames.iter().any(opens)));
    lose_sessions(&mut terminal);
    let over_by = says(before, terminal.now);
    let mut next = next_run(&mut terminal, &hub, over_by);

    let opened = |(_, event): &&(u64, Event)| matches!(event, Event::Opened { .. });
    let opened = next.events.iter().filter(opened).count();
    let there = next.engine.key(10, begun.id);
    let mut read = 0;
    while let Some(bytes) = next.engine.read(next.now, there, 2000) {
        read += bytes.len();
    }
    let reset = terminal.has(|event| matches!(event, Event::Reset { .. }));
    (opened, read, reset)
}

#[test]
fn a_request_that_left_into_dead_sessions_goes_on_with_the_next_run() {
    const TICK: Duration = Duration::from_millis(1);
    let answered = ask_the_dead(|before, _| Some(before - TICK));
    assert_eq!(answered, (1, 1000, false));
    // It may have arrived, and must not be repeated.
    assert_eq!(ask_the_dead(|_, after| Some(after)), (0, 0, true));
    assert_eq!(ask_the_dead(|_, _| None), (0, 0, true));
}

#[test]
fn what_begins_without_a_session_is_not_sealed_for_a_run_that_may_be_over() {
    let (mut terminal, _) = reading_on::pair(|_| {});
    lose_sessions(&mut terminal);
    block(&mut terminal, true);
    let before = terminal.engine.custody(terminal.now).bundles;
    terminal.send(1, BULK, 1000);
    terminal.pass(terminal.now + 20 * SECOND);
    let bundles = terminal.engine.custody(terminal.now).bundles;
    assert_eq!(bundles, before);
    // But it is read in time.
    terminal.pass(terminal.now + 15 * SECOND);
    let bundles = terminal.engine.custody(terminal.now).bundles;
    assert_eq!(bundles, before + 1);
}
