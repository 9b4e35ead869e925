//! What a client notices whose stream begins while the peer is down.

use std::time::Duration;

use underpass_cla::{Class, SessionId};
use underpass_streams::{Event, ResetCode};

use crate::bench::{BULK, MRU, Node, config, live, pair};
use crate::reading_on::{self, SECOND, block};

fn lose_sessions(node: &mut Node) {
    for session in 100..103 {
        node.engine.session_down(node.now, SessionId(session));
    }
}

#[test]
fn a_stream_that_begins_while_the_hub_is_down_goes_on_with_its_next_run() {
    let (mut terminal, hub) = pair();
    let sealed = terminal.open(1, BULK);
    terminal.write(sealed, 1000);
    terminal.pass(terminal.now + Duration::from_millis(10));
    assert!(!terminal.offers().is_empty());
    lose_sessions(&mut terminal);
    let begun = terminal.open(1, BULK);
    terminal.write(begun, 1000);
    terminal.engine.finish(terminal.now, begun).unwrap();
    terminal.pass(terminal.now + Duration::from_secs(2));

    let mut next = config(1, &[10]);
    next.incarnation = 2;
    let mut next = Node::new(hub.now + Duration::from_secs(3), next);
    terminal.pass(next.now);
    for class in 0..3 {
        let sealed_in = Some(Class(class as u8));
        terminal.session_with(0, 200 + class, sealed_in, |info| {
            info.transfer_mru_bytes = MRU;
            info.incarnation = Some(2);
        });
    }
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

    // The application goes on by the name that it knows.
    next.write(there, 500);
    next.engine.finish(next.now, there).unwrap();
    live(&mut terminal, &mut next, Duration::from_secs(1));
    let answer = terminal.engine.read(terminal.now, begun, 2000);
    assert_eq!(answer.unwrap().len(), 500);
    assert!(terminal.has(|event| matches!(event, Event::Closed(id) if *id == begun.id)));
}

#[test]
fn what_begins_without_a_session_is_not_sealed_for_a_run_that_may_be_over() {
    let (mut terminal, _) = reading_on::pair(|_| {});
    lose_sessions(&mut terminal);
    block(&mut terminal, true);
    let before = terminal.engine.custody(terminal.now).bundles;
    let begun = terminal.open(1, BULK);
    terminal.write(begun, 1000);
    terminal.pass(terminal.now + 20 * SECOND);
    let bundles = terminal.engine.custody(terminal.now).bundles;
    assert_eq!(bundles, before);
    // But it is read on in time.
    terminal.pass(terminal.now + 15 * SECOND);
    let bundles = terminal.engine.custody(terminal.now).bundles;
    assert_eq!(bundles, before + 1);
}
