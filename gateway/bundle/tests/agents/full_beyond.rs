//! A neighbour that has no room for what goes to one node behind it, and has some for
//! others.

use std::ops::RangeInclusive;
use std::time::Duration;

use underpass_bundle::wire::{ipn, ipn_parts};
use underpass_bundle::{
    Config, DeleteReason, Event, NeighbourId, Offer, Reject, ReportRequest, Route, Send,
};
use underpass_cla::{Outcome, Refusal};

use crate::net::{BULK, Net, SERVICE, node, payload, read};

const NO_ROOM: Outcome = Outcome::Refused(Refusal::NoResources);
const RELAY: NeighbourId = NeighbourId(2);

fn route(nodes: RangeInclusive<u64>, via: u64) -> Route {
    Route {
        nodes,
        neighbour: NeighbourId(via),
        take_custody: true,
    }
}

/// A node and the relay that leads to all nodes from 3 on.
fn pair() -> Net {
    pair_with(node(2))
}

fn pair_with(relay: Config) -> Net {
    let mut first = node(1);
    first.routes = vec![route(3..=99, 2)];
    Net::of([first, relay])
}

fn to(to: u64, custody: bool) -> Send {
    Send {
        custody,
        ..Send::new(ipn(to, SERVICE), SERVICE, BULK, vec![payload(b"data")])
    }
}

fn send(net: &mut Net, node: u64, custody: bool) {
    net.agents[0].send(net.now, to(node, custody)).unwrap();
}

fn destination(offer: &Offer) -> u64 {
    let bundle = read(&offer.chunks.concat().into());
    ipn_parts(&bundle.primary.destination).unwrap().0
}

#[test]
fn what_goes_to_other_nodes_goes_on() {
    let mut net = pair();
    for node in [3, 3, 3, 4] {
        send(&mut net, node, false);
    }
    let full = net.offer(0, 2).unwrap();
    assert_eq!(destination(&full), 3);
    net.finish(0, &full, NO_ROOM);
    assert!(!net.agents[0].is_paused(RELAY));
    let other = net.offer(0, 2).unwrap();
    assert_eq!(destination(&other), 4);
    net.finish(0, &other, Outcome::Acknowledged);
    assert!(net.offer(0, 2).is_none(), "those to the first wait");
}

#[test]
fn one_bundle_at_a_time_asks_for_those_to_the_same_node() {
    let mut net = pair();
    for _ in 0..5 {
        send(&mut net, 3, false);
    }
    let full = net.offer(0, 2).unwrap();
    net.finish(0, &full, NO_ROOM);
    assert!(net.offer(0, 2).is_none());
    net.pass(Duration::from_secs(2));
    let asks = net.offer(0, 2).unwrap();
    assert!(net.offer(0, 2).is_none(), "nobody knows yet");
    net.finish(0, &asks, Outcome::Acknowledged);
    send(&mut net, 3, false);
    assert!(net.offer(0, 2).is_some(), "there is room again");
    net.pass(Duration::from_secs(10));
    for _ in 0..4 {
        assert!(net.offer(0, 2).is_some());
    }
}

#[test]
fn a_node_that_stays_full_costs_few_bundles() {
    let mut net = pair();
    for _ in 0..50 {
        send(&mut net, 3, false);
    }
    let mut refused = 0;
    for _ in 0..600 {
        while let Some(offer) = net.offer(0, 2) {
            net.finish(0, &offer, NO_ROOM);
            refused += 1;
        }
        net.pass(Duration::from_millis(100));
    }
    assert!((3..10).contains(&refused), "{refused}");
}

#[test]
fn what_a_signal_would_answer_is_refused_for_want_of_any_room() {
    let mut net = pair();
    send(&mut net, 3, true);
    send(&mut net, 4, false);
    let full = net.offer(0, 2).unwrap();
    net.finish(0, &full, NO_ROOM);
    assert!(net.agents[0].is_paused(RELAY));
    assert!(net.offer(0, 2).is_none());
}

#[test]
fn a_neighbour_with_room_for_very_many_nodes_no_more_has_none() {
    let mut net = pair();
    for node in 3..3 + 65 {
        assert!(!net.agents[0].is_paused(RELAY), "{node}");
        send(&mut net, node, false);
        let full = net.offer(0, 2).unwrap();
        assert_eq!(destination(&full), node);
        net.finish(0, &full, NO_ROOM);
    }
    assert!(net.agents[0].is_paused(RELAY));
}

#[test]
fn a_neighbour_that_is_reached_again_is_asked_anew() {
    let mut net = pair();
    send(&mut net, 3, false);
    let full = net.offer(0, 2).unwrap();
    net.finish(0, &full, NO_ROOM);
    send(&mut net, 3, false);
    let now = net.now;
    net.agents[0].neighbour_down(now, RELAY);
    net.agents[0].neighbour_up(now, RELAY);
    assert!(net.offer(0, 2).is_some());
}

#[test]
fn what_cannot_be_refused_is_deleted_with_a_report() {
    let mut relay = node(2);
    relay.routes = vec![route(1..=1, 1), route(3..=3, 3)];
    relay.store_bundles = 10;
    let mut net = pair_with(relay);
    while net.send(1, 3, b"others").is_ok() {}
    let asks = Send {
        reports: Some(ReportRequest {
            to: ipn(1, 0),
            reception: false,
            forwarding: false,
            delivery: false,
            deletion: true,
        }),
        ..to(3, false)
    };
    net.agents[0].send(net.now, asks).unwrap();
    let offer = net.offer(0, 2).unwrap();
    let refused = Err(Reject::NoResources);
    assert_eq!(net.try_arrive(1, 1, &offer), refused);
    assert!(net.offer(1, 1).is_none(), "the neighbour hears of it");
    let (now, from) = (net.now, NeighbourId(1));
    let raw = offer.chunks.concat().into();
    let agent = &mut net.agents[1];
    let decoded = agent.decoder().decode(&raw);
    assert_eq!(agent.receive_unrefusable(now, from, BULK, decoded), refused);
    let deleted = |event: &Event| match event {
        Event::Deleted { reason, .. } => *reason == DeleteReason::DepletedStorage,
        _ => false,
    };
    assert!(net.events(1).iter().any(deleted));
    let report = net.offer(1, 1).unwrap();
    net.arrive(0, 2, &report);
    let told = |event: &Event| match event {
        Event::StatusReport { report, .. } => report.status_information[3].asserted,
        _ => false,
    };
    assert!(net.events(0).iter().any(told));
}
