//! Hops are added and removed while streams run.

use std::time::{Duration, Instant};

use underpass_cla::{Outcome, SessionId};
use underpass_engine::{EngineConfig, EngineError, StreamKey};
use underpass_streams::{Announcement, Event, ResetCode};

use crate::bench::{BULK, Node, config, exchange, live, pair, route};

/// A hub with terminals 10 and 11; their sessions are numbered from 100 and from 200.
fn three() -> (Node, Node, Node) {
    let now = Instant::now();
    let hub = Node::new(now, config(1, &[10, 11]));
    let (mut hub, mut one, mut two) = (
        hub,
        Node::new(now, config(10, &[1])),
        Node::new(now, config(11, &[1])),
    );
    hub.up(0, 100);
    one.up(0, 100);
    live(&mut hub, &mut one, Duration::from_millis(300));
    two.pass(hub.now);
    hub.up(1, 200);
    two.up(0, 200);
    live(&mut hub, &mut two, Duration::from_millis(300));
    one.pass(hub.now);
    (hub, one, two)
}

fn reconfigure(node: &mut Node, config: EngineConfig) {
    node.engine.reconfigure(node.now, config).unwrap();
}

#[test]
fn a_new_neighbour_is_served_and_no_session_is_cut() {
    let (mut terminal, mut hub) = pair();
    let key = hub.send(10, BULK, 50_000);
    exchange(&mut hub, &mut terminal);

    reconfigure(&mut hub, config(1, &[10, 11]));
    let mut newcomer = Node::new(hub.now, config(11, &[1]));
    hub.up(1, 200);
    newcomer.up(0, 200);
    newcomer.send(1, BULK, 1_000);
    live(&mut newcomer, &mut hub, Duration::from_millis(300));
    assert!(
        hub.events
            .iter()
            .any(|(peer, event)| *peer == 11 && matches!(event, Event::Readable(_)))
    );

    terminal.pass(hub.now);
    hub.write(key, 50_000);
    live(&mut hub, &mut terminal, Duration::from_millis(300));
    assert!(hub.aborted.is_empty());
    assert!(!hub.has(|event| matches!(event, Event::Reset { .. })));
    let key = StreamKey {
        peer: 1,
        epoch: terminal.engine.epoch_of(1),
        ..key
    };
    let mut read = 0;
    while let Some(bytes) = terminal.engine.read(terminal.now, key, 1 << 20) {
        if bytes.is_empty() {
            break;
        }
        read += bytes.len();
    }
    assert_eq!(read, 100_000);
}

#[test]
fn a_removed_neighbour_loses_sessions_streams_and_custody_and_no_other_does() {
    let (mut hub, mut one, mut two) = three();
    let kept = hub.open(10, BULK);
    let lost = hub.open(11, BULK);
    for key in [kept, lost] {
        hub.write(key, 5_000);
    }
    // Bundles are in flight to both when the second terminal is removed.
    let offered = hub.offers();
    assert_eq!(hub.destinations().len(), 2);

    reconfigure(&mut hub, config(1, &[10]));
    assert_eq!(hub.destinations(), [10]);
    assert!(hub.has(|event| matches!(
        event,
        Event::Reset {
            code: ResetCode::Unreachable,
            ..
        }
    )));
    let reset: Vec<u64> = hub
        .events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Reset { .. }))
        .map(|(peer, _)| *peer)
        .collect();
    assert_eq!(reset, [11]);
    let aborted: Vec<u64> = hub.aborted.iter().map(|id| id.0).collect();
    assert_eq!(aborted, [200, 201, 202]);

    // Late events of its sessions are ignored.
    for (session, transfer) in offered {
        match session.0 {
            200.. => hub.finish(transfer.key, Outcome::Acknowledged),
            _ => hub.carry((session, transfer), &mut one),
        }
    }
    hub.engine.session_down(hub.now, SessionId(202));
    live(&mut hub, &mut one, Duration::from_millis(300));
    assert!(one.has(|event| matches!(event, Event::Readable(_))));
    assert!(hub.offers().is_empty());
    two.pass(hub.now);
    assert!(!two.has(|event| matches!(event, Event::Readable(_))));
}

#[test]
fn a_neighbour_that_comes_back_has_new_streams() {
    let (mut hub, _, mut two) = three();
    let before = hub.send(11, BULK, 1_000);
    live(&mut hub, &mut two, Duration::from_millis(300));
    assert!(two.has(|event| matches!(event, Event::Readable(_))));
    for class in 0..3 {
        two.engine.session_down(two.now, SessionId(200 + class));
    }
    reconfigure(&mut hub, config(1, &[10]));
    let mut back = config(1, &[10, 11]);
    back.hops[1].id.0 = 2;
    reconfigure(&mut hub, back);
    two.pass(hub.now);
    hub.up(2, 300);
    two.up(0, 300);
    two.events.clear();
    let after = hub.open(11, BULK);
    assert_ne!(after, before);
    hub.write(after, 1_000);
    live(&mut hub, &mut two, Duration::from_millis(500));
    // The old stream has ended there too, and the new one works.
    assert!(two.has(|event| matches!(event, Event::Stopped { id, .. } if *id == before.id)));
    assert!(two.has(|event| matches!(event, Event::Readable(id) if *id == after.id)));
}

#[test]
fn bundles_follow_a_route_that_changes() {
    let now = Instant::now();
    let by = |relay| {
        let mut config = config(10, &[5, 6]);
        config.routes.push(route(1, relay, true));
        config
    };
    let mut terminal = Node::new(now, by(5));
    terminal.up(0, 100);
    terminal.up(1, 200);
    let key = terminal.send(1, BULK, 1_000);
    terminal.pass(now + Duration::from_millis(20));
    let first: Vec<u64> = terminal.offers().iter().map(|(id, _)| id.0).collect();
    assert!(first.contains(&102), "{first:?}");
    let to_hub = |node: &Node| {
        let destinations = node.destinations().into_iter();
        destinations.filter(|node| *node == 1).count()
    };
    let before = to_hub(&terminal);

    reconfigure(&mut terminal, by(6));
    let second: Vec<u64> = terminal.offers().iter().map(|(id, _)| id.0).collect();
    assert!(second.contains(&202), "{second:?}");
    assert_eq!(to_hub(&terminal), before);
    // And so do the bytes that were not sealed yet.
    terminal.ready(SessionId(202));
    terminal.write(key, 1_000);
    terminal.pass(terminal.now + Duration::from_millis(20));
    assert!(terminal.offers().iter().all(|(id, _)| id.0 >= 200));
}

#[test]
fn rates_weights_and_reach_change_in_place() {
    let (mut terminal, mut hub) = pair();
    let mut changed = config(1, &[10]);
    changed.hops[0].send_rate_bps = Some(1_000_000);
    changed.hops[0].rtt = Duration::from_millis(200);
    changed.beam_rate_bps = Some(5_000_000);
    changed.scheduler.classes[2].weight = 7;
    changed.reaches = Announcement {
        ipv4: true,
        ipv6: false,
    };
    reconfigure(&mut hub, changed);
    assert_eq!(hub.engine.beam_rate_bps(), Some(5_000_000));
    assert_eq!(hub.engine.hops()[0].send_rate_bps, Some(1_000_000));
    live(&mut hub, &mut terminal, Duration::from_millis(300));
    let told = terminal.engine.announcement_of(1).unwrap();
    assert_eq!((told.ipv4, told.ipv6), (true, false));
    assert!(hub.aborted.is_empty());
}

#[test]
fn peers_hear_of_families_that_come_and_go() {
    let (mut terminal, mut hub) = pair();
    for ipv6 in [true, false] {
        let reaches = Announcement { ipv4: true, ipv6 };
        assert!(hub.engine.set_reaches(hub.now, reaches));
        assert!(!hub.engine.set_reaches(hub.now, reaches));
        live(&mut hub, &mut terminal, Duration::from_millis(300));
        assert_eq!(terminal.engine.announcement_of(1), Some(reaches));
    }
}

#[test]
fn other_classes_are_refused_and_nothing_has_changed() {
    let (_, mut hub) = pair();
    let mut wrong = config(1, &[11]);
    wrong.scheduler.classes.pop();
    wrong.default_class = wrong.scheduler.classes[1].class;
    let refused = hub.engine.reconfigure(hub.now, wrong);
    assert!(matches!(refused, Err(EngineError::Scheduler(_))));
    assert!(hub.offers().is_empty() && hub.aborted.is_empty());
    assert_eq!(hub.engine.hop_ids().len(), 1);
    assert_eq!(hub.engine.hops()[0].neighbour, 10);
}
