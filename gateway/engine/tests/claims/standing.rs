//! A hop that is heard but takes nothing, beside another one that works.

use std::time::Duration;

use bytes::Bytes;
use underpass_cla::{Outcome, SessionId};
use underpass_engine::{Message, ON_DEMAND_SERVICE, PathUse, Policy, Sign};

use crate::bench::{BULK, MRU, Node, URGENT, pair_by_two};
use crate::paths::{FAR, MS, NEAR, by_hop, two_hops};

/// What the near hop's sessions were given and did not finish, and what the far hop's
/// were given.
#[derive(Debug, Default)]
struct Seen {
    near: usize,
    far: usize,
    /// The transfers that the near hop's sessions did not finish.
    kept: Vec<u64>,
}

/// A terminal and a hub, with both hops up.
fn nodes(bulk: Policy) -> (Node, Node) {
    let mut config = two_hops(10, 1);
    config.policies.insert(BULK, bulk);
    pair_by_two(config, two_hops(1, 10))
}

/// The terminal sends for this time. Beacons are heard on both hops; bundles pass only on
/// the far one, if it takes any.
fn send(terminal: &mut Node, hub: &mut Node, time: Duration, far_takes: bool) -> Seen {
    let (end, mut seen) = (terminal.now + time, Seen::default());
    let bulk = terminal.open(1, BULK);
    let urgent = terminal.open(1, URGENT);
    while terminal.now < end {
        for key in [bulk, urgent] {
            terminal.write(key, 100);
        }
        for offered in terminal.offers() {
            let far = (200..300).contains(&offered.0.0);
            *(if far { &mut seen.far } else { &mut seen.near }) += 1;
            if far && far_takes {
                terminal.carry(offered, hub);
            } else if !far {
                seen.kept.push(offered.1.key);
            }
        }
        for offered in hub.offers() {
            hub.carry(offered, terminal);
        }
        for node in [&mut *terminal, &mut *hub] {
            for hop in [NEAR, FAR] {
                node.engine.heard(node.now, hop, node.now, Sign::Beacon);
            }
            node.pass(node.now + 50 * MS);
        }
    }
    seen
}

#[test]
fn what_stands_still_goes_by_the_hop_that_moves_and_that_one_goes_first() {
    let (mut terminal, mut hub) = nodes(Policy::default());
    let seen = send(&mut terminal, &mut hub, Duration::from_secs(9), true);
    assert!(seen.near > 0 && seen.far > 20, "{seen:?}");
    assert_eq!(terminal.aborted, []);
    send(&mut terminal, &mut hub, Duration::from_secs(6), true);
    let aborted = std::mem::take(&mut terminal.aborted);
    assert!(
        !aborted.is_empty() && aborted.iter().all(|id| id.0 < 200),
        "{aborted:?}"
    );
    // Its next sessions are not used for a while; then they are.
    for class in [URGENT, BULK] {
        terminal.session(0, 300 + u64::from(class.0), Some(class), MRU);
    }
    let seen = send(&mut terminal, &mut hub, Duration::from_secs(20), true);
    assert!(seen.near == 0 && seen.far > 20, "{seen:?}");
    let seen = send(&mut terminal, &mut hub, Duration::from_secs(20), true);
    assert!(seen.near > 0, "{seen:?}");
}

#[test]
fn copies_of_what_stands_still_go_by_the_other_hop_long_before_its_session_ends() {
    let (mut terminal, mut hub) = nodes(Policy::default());
    let seen = send(&mut terminal, &mut hub, Duration::from_millis(500), true);
    assert!(seen.near > 0, "{seen:?}");
    let stored = |node: &Node| {
        let stored = node.engine.stored_bundles(node.now, 1_000).into_iter();
        stored.map(|one| one.id).collect::<Vec<_>>()
    };
    let stuck = stored(&terminal);
    assert!(stuck.len() >= seen.near, "{stuck:?}");
    send(&mut terminal, &mut hub, Duration::from_secs(2), true);
    let left = stored(&terminal);
    assert!(stuck.iter().all(|id| !left.contains(id)), "{left:?}");
    assert_eq!(terminal.aborted, []);
}

#[test]
fn copies_of_what_stands_still_go_on_waiting_when_a_doubt_ends() {
    let (mut terminal, mut hub) = nodes(Policy::default());
    // The far hop's session of this class has a bundle that it does not finish.
    let bulk = terminal.open(1, BULK);
    terminal.engine.block(terminal.now, NEAR, true);
    terminal.write(bulk, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [0, 1]);
    terminal.engine.block(terminal.now, NEAR, false);
    terminal.write(bulk, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [1, 0]);
    send(&mut terminal, &mut hub, Duration::from_secs(3), true);
    terminal.changes.clear();
    let copies = |node: &Node| node.engine.footprint()["copies"];
    assert!(copies(&terminal) > 0, "the near hop is suspected");
    // The hop is silent for too long, and then heard.
    for hop in [FAR, FAR, NEAR] {
        let now = terminal.now;
        terminal.engine.heard(now, hop, now, Sign::Beacon);
        terminal.offers();
        if hop == FAR {
            terminal.pass(now + 50 * MS);
        }
    }
    assert!(copies(&terminal) > 0);
    assert_eq!(terminal.changes, []);
}

#[test]
fn a_hop_that_moves_again_takes_what_has_waited_meanwhile() {
    let (mut terminal, mut hub) = nodes(Policy::default());
    let seen = send(&mut terminal, &mut hub, Duration::from_secs(3), true);
    assert!(!seen.kept.is_empty(), "{seen:?}");
    for _ in 0..50 {
        let payload = Bytes::from(vec![7; 50_000]);
        let message = Message::new(1, ON_DEMAND_SERVICE, BULK, payload);
        let sent = terminal
            .engine
            .send_message(terminal.now, message, Duration::from_secs(60));
        sent.expect("there is room");
    }
    for key in seen.kept {
        terminal.finish(key, Outcome::Acknowledged);
    }
    let near = SessionId(100 + u64::from(BULK.0));
    terminal.ready(near);
    // The far hop takes only one bundle, and there is nothing new.
    let mut by_near = Vec::new();
    for step in 0..30 {
        let offers = terminal.offers().into_iter();
        by_near.extend(offers.filter(|of| of.0 == near).map(|_| step));
        for hop in [NEAR, FAR] {
            let now = terminal.now;
            terminal.engine.heard(now, hop, now, Sign::Beacon);
        }
        terminal.pass(terminal.now + 50 * MS);
    }
    // The hop was under suspicion for a second more, which is 20 steps.
    let first = by_near.first();
    assert!(first.is_some_and(|step| *step > 10), "{by_near:?}");
}

#[test]
fn while_the_neighbour_takes_nothing_by_either_hop_sessions_stay() {
    let (mut terminal, mut hub) = nodes(Policy::default());
    send(&mut terminal, &mut hub, Duration::from_secs(120), false);
    assert_eq!(terminal.aborted, []);
}

#[test]
fn a_class_that_may_go_by_no_other_hop_keeps_its_session() {
    let pinned = Policy {
        uses: PathUse::Pinned,
        paths: vec!["hop0".to_owned()],
        ..Policy::default()
    };
    let (mut terminal, mut hub) = nodes(pinned);
    send(&mut terminal, &mut hub, Duration::from_secs(60), true);
    let bulk = 100 + u64::from(BULK.0);
    assert!(terminal.aborted.iter().all(|id| id.0 != bulk));
}
