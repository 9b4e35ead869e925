//! A neighbour that has no room for what goes to one node behind it, and has some for
//! others.

use std::time::Duration;

use underpass_bundle::wire::{ipn, ipn_parts};
use underpass_bundle::{NeighbourId, Offer, Route, Send};
use underpass_cla::{Outcome, Refusal};

use crate::net::{BULK, Net, SERVICE, node, payload, read};

const NO_ROOM: Outcome = Outcome::Refused(Refusal::NoResources);
const RELAY: NeighbourId = NeighbourId(2);

/// A node and the relay that leads to all nodes from 3 on.
fn pair() -> Net {
    let mut first = node(1);
    first.routes = vec![Route {
        nodes: 3..=99,
        neighbour: RELAY,
        take_custody: true,
    }];
    Net::of([first, node(2)])
}

fn send(net: &mut Net, to: u64, custody: bool) {
    let send = Send {
        custody,
        ..Send::new(ipn(to, SERVICE), SERVICE, BULK, vec![payload(b"data")])
    };
    net.agents[0].send(net.now, send).unwrap();
}

fn destination(offer: &Offer) -> u64 {
    let bundle = read(&offer.chunks.concat().into());
    ipn_parts(&bundle.primary.destination).unwrap().0
}

#[test]
fn what_goes_to_other_nodes_goes_on() {
    let mut net = pair();
    for to in [3, 3, 3, 4] {
        send(&mut net, to, false);
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
    for to in 3..3 + 65 {
        assert!(!net.agents[0].is_paused(RELAY), "{to}");
        send(&mut net, to, false);
        let full = net.offer(0, 2).unwrap();
        assert_eq!(destination(&full), to);
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
