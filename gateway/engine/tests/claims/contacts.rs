//! What a node sends while a contact plan says when it can send.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use underpass_bundle::wire::ipn;
use underpass_bundle::{
    self as bundle, Amount, Applications, NeighbourId, NextHops, PlannedRoutes,
};
use underpass_cla::SessionId;
use underpass_engine::{Contacts, EngineConfig, LinkChange, Source};

use crate::bench::{BULK, Node, config};

const SERVICE: u64 = 9;
const UPPER: u64 = 2;
const LOWER: u64 = 3;
const BEHIND: u64 = 4;
/// The size of bundle that the plan's ways are for.
const SIZE: u64 = 64 << 10;

fn with_applications(mut config: EngineConfig) -> EngineConfig {
    let most = Amount {
        bytes: 1 << 20,
        bundles: 100,
    };
    let applications = Applications::new(vec![1..=20], BTreeSet::new(), None, most);
    config.agent.applications = Some(Arc::new(applications));
    config
}

/// A node with a session for each class and neighbour: numbers from 100 to the upper
/// neighbour, from 200 to the lower one.
fn node() -> Node {
    let config = with_applications(config(1, &[UPPER, LOWER]));
    let mut node = Node::new(Instant::now(), config);
    node.up(0, 100);
    node.up(1, 200);
    node.offers();
    node
}

fn follow(node: &mut Node, via: u64, open: &[(u64, bool)], lost: &[u64]) {
    let next = HashMap::from([(BEHIND, NeighbourId(via))]);
    let next = NextHops::new(BTreeMap::from([(SIZE, next)]));
    let contacts = Contacts {
        routes: Some(PlannedRoutes {
            next: Arc::new(next),
            speakers: Arc::default(),
        }),
        open: open.iter().copied().collect(),
        lost: lost.iter().copied().collect(),
        moved: BTreeSet::from([(BEHIND, SIZE)]),
    };
    node.engine.set_contacts(node.now, &contacts);
}

fn send(node: &mut Node) {
    let send = bundle::Send::new(
        ipn(BEHIND, SERVICE),
        SERVICE,
        BULK,
        vec![vec![b'x'; 5_000].into()],
    );
    let sent = node.engine.send_for_application(node.now, send, None);
    assert!(sent.is_ok(), "{sent:?}");
}

fn sessions(node: &mut Node) -> Vec<SessionId> {
    node.offers()
        .into_iter()
        .map(|(session, _)| session)
        .collect()
}

fn waiting(node: &Node) -> BTreeMap<u64, usize> {
    let mut waiting = BTreeMap::new();
    let stored = node.engine.stored_bundles(node.now, 100).into_iter();
    for stored in stored.filter(|stored| stored.destination == ipn(BEHIND, SERVICE)) {
        *waiting.entry(stored.neighbour.0).or_default() += 1;
    }
    waiting
}

#[test]
fn a_bundle_waits_for_its_contact_and_leaves_when_it_begins() {
    let mut node = node();
    follow(&mut node, UPPER, &[(UPPER, false)], &[]);
    send(&mut node);
    node.pass(node.now + Duration::from_secs(60));
    assert!(node.offers().is_empty());
    let changes = [LinkChange::Blocked(Source::Contact)];
    assert_eq!(node.changes, changes);
    follow(&mut node, UPPER, &[(UPPER, true)], &[]);
    assert_eq!(sessions(&mut node), [SessionId(102)]);
}

#[test]
fn a_contact_that_ends_takes_back_what_was_not_sent() {
    let mut node = node();
    follow(&mut node, UPPER, &[(UPPER, true), (LOWER, true)], &[]);
    send(&mut node);
    send(&mut node);
    let begun = node.offers();
    assert_eq!(begun.len(), 1, "the session takes one after the other");
    let open = [(UPPER, false), (LOWER, true)];
    follow(&mut node, LOWER, &open, &[UPPER]);
    assert_eq!(waiting(&node), BTreeMap::from([(LOWER, 2)]));
    assert_eq!(sessions(&mut node), [SessionId(202)]);
    node.ready(SessionId(202));
    assert_eq!(sessions(&mut node), [SessionId(202)]);
}

#[test]
fn a_neighbour_that_the_plan_does_not_name_is_sent_to_as_before() {
    let mut node = node();
    follow(&mut node, LOWER, &[(UPPER, false)], &[]);
    send(&mut node);
    assert_eq!(sessions(&mut node), [SessionId(202)]);
    assert_eq!(node.engine.next_hop(BEHIND, 0), Some(LOWER));
    assert_eq!(node.engine.next_hop(UPPER, 0), Some(UPPER));
    assert_eq!(node.engine.next_hop(77, 0), None);
    node.engine.set_contacts(node.now, &Contacts::default());
    assert_eq!(node.engine.next_hop(BEHIND, 0), None);
    assert!(node.engine.hops().iter().all(|hop| !hop.blocked));
}
