//! Bundles that must not overtake.

use std::time::Duration;

use crate::net::{BULK, Net, SERVICE, node, payload};
use underpass_bundle::wire::ipn;
use underpass_bundle::{Agent, BundleId, Config, NeighbourId, Route, Send};
use underpass_cla::{Class, Outcome};

const URGENT: Class = Class(1);

/// Nodes 1, 2 and 3 in a line; the relay takes custody or not.
fn line(custody: bool) -> Net {
    let route = |to: u64, via: u64| Route {
        nodes: to..=to,
        neighbour: NeighbourId(via),
        take_custody: custody,
    };
    let with = |mut config: Config, routes: &[Route]| {
        config.routes.extend(routes.iter().cloned());
        Agent::new(config)
    };
    Net::new(vec![
        with(node(1), &[route(3, 2)]),
        with(node(2), &[route(3, 3), route(1, 1)]),
        with(node(3), &[route(1, 2)]),
    ])
}

fn send_last(net: &mut Net, bytes: &[u8]) -> BundleId {
    let send = Send {
        last: true,
        ..Send::new(ipn(3, SERVICE), SERVICE, URGENT, vec![payload(bytes)])
    };
    net.agents[0].send(net.now, send).unwrap()
}

/// Carries the next bundle of a class, if there is one.
fn carry(net: &mut Net, from: usize, to: usize, class: Class) -> bool {
    let via = NeighbourId(to as u64 + 1);
    let Some(offer) = net.agents[from].next_for(net.now, via, class, u64::MAX) else {
        return false;
    };
    let raw = offer.chunks.concat().into();
    let here = NeighbourId(from as u64 + 1);
    net.agents[to].receive(net.now, here, class, raw).unwrap();
    net.finish(from, &offer, Outcome::Acknowledged);
    true
}

fn signals(net: &mut Net, way: &[(usize, usize)]) {
    net.pass(Duration::from_millis(150));
    for (from, to) in way {
        net.carry_signals(*from, *to);
    }
}

#[test]
fn a_custodian_keeps_back_what_must_not_overtake() {
    let mut net = line(true);
    net.send(0, 3, b"first").unwrap();
    send_last(&mut net, b"last");
    assert!(!carry(&mut net, 0, 1, URGENT), "the first is not released");
    assert!(carry(&mut net, 0, 1, BULK));
    signals(&mut net, &[(1, 0)]);
    assert!(carry(&mut net, 0, 1, URGENT), "the relay has the first");
    assert!(
        !carry(&mut net, 1, 2, URGENT),
        "and keeps the last back too"
    );
    assert!(carry(&mut net, 1, 2, BULK));
    signals(&mut net, &[(2, 1)]);
    assert!(carry(&mut net, 1, 2, URGENT));
    let delivered = net.delivered(2);
    assert_eq!(delivered, [&b"first"[..], &b"last"[..]]);
}

#[test]
fn a_relay_without_custody_leaves_the_order_to_the_custodian() {
    let mut net = line(false);
    net.send(0, 3, b"first").unwrap();
    send_last(&mut net, b"last");
    assert!(carry(&mut net, 0, 1, BULK));
    signals(&mut net, &[(1, 0)]);
    assert!(!carry(&mut net, 0, 1, URGENT), "nobody has taken the first");
    assert!(carry(&mut net, 1, 2, BULK));
    signals(&mut net, &[(2, 1), (1, 0)]);
    assert!(carry(&mut net, 0, 1, URGENT));
}

#[test]
fn a_bundle_given_up_holds_up_nothing_behind_it() {
    let mut net = line(true);
    let first = net.send(0, 3, b"first").unwrap();
    send_last(&mut net, b"last");
    assert!(net.agents[0].cancel(net.now, first));
    assert!(carry(&mut net, 0, 1, URGENT));
}

#[test]
fn later_bundles_and_those_of_other_ways_are_not_waited_for() {
    let mut net = line(true);
    net.send(0, 2, b"for the relay").unwrap();
    send_last(&mut net, b"last");
    net.send(0, 3, b"later").unwrap();
    assert!(carry(&mut net, 0, 1, URGENT));
}
