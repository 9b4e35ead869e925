//! Nodes behind one neighbour, which have its part of a relay's store in common.

use underpass_bundle::Send;
use underpass_bundle::wire::ipn;
use underpass_cla::Outcome;

use crate::net::{BULK, Net, SERVICE, node, payload, route};

/// A node and a relay, whose other neighbour leads to more nodes. Of the relay's store that
/// neighbour has 100 bundles.
fn pair() -> Net {
    let (mut first, mut relay) = (node(1), node(2));
    first.routes = vec![route(3..=9, 2)];
    relay.routes = vec![route(1..=1, 1), route(3..=9, 3)];
    relay.store_bundles = 200;
    Net::of([first, relay])
}

/// The first node sends so many bundles without custody to another one; how many of them
/// the relay takes.
fn sends(net: &mut Net, to: u64, bundles: usize) -> usize {
    let taken = (0..bundles).filter(|_| {
        let send = Send {
            custody: false,
            ..Send::new(ipn(to, SERVICE), SERVICE, BULK, vec![payload(b"data")])
        };
        net.agents[0].send(net.now, send).unwrap();
        let offer = net.offer(0, 2).unwrap();
        let taken = net.try_arrive(1, 1, &offer);
        net.finish(0, &offer, Outcome::Acknowledged);
        taken.is_ok()
    });
    taken.count()
}

#[test]
fn a_node_behind_a_neighbour_leaves_room_to_the_others_there() {
    let mut net = pair();
    let most = sends(&mut net, 4, 150);
    assert!((80..=95).contains(&most), "{most}");
    assert_eq!(sends(&mut net, 5, 5), 5);
    assert_eq!(sends(&mut net, 4, 1), 0);
}

#[test]
fn custody_of_what_exceeds_its_nodes_part_is_refused() {
    let mut net = pair();
    for _ in 0..150 {
        net.send(0, 4, b"data").unwrap();
        net.carry(0, 1);
    }
    net.signal(1, 0);
    let most = net.released(0).len();
    assert!((80..=95).contains(&most), "{most}");
    let other = net.send(0, 5, b"data").unwrap();
    net.carry(0, 1);
    net.signal(1, 0);
    assert_eq!(net.released(0), [other]);
}

#[test]
fn what_has_gone_on_counts_no_more() {
    let mut net = pair();
    sends(&mut net, 4, 150);
    while let Some(offer) = net.offer(1, 3) {
        net.finish(1, &offer, Outcome::Acknowledged);
    }
    let mut left = 0;
    net.agents[1].footprint(&mut |name, count| {
        left += if name.contains("behind") { count } else { 0 };
    });
    assert_eq!(left, 0);
    assert_eq!(sends(&mut net, 4, 80), 80);
}

#[test]
fn the_neighbour_itself_has_all_of_its_part() {
    let mut net = pair();
    assert_eq!(sends(&mut net, 3, 150), 100);
}
