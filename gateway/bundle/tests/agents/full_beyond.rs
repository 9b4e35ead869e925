//! A neighbour that has no room for bundles to one node behind it or to one of its
//! services, but has room for others.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use underpass_bundle::wire::{ipn, ipn_parts};
use underpass_bundle::{
    Agent, BundleId, Config, CustodyTimer, DeleteReason, Event, NeighbourId, Offer, Reject,
    ReportRequest, Route, Send,
};
use underpass_cla::{Class, Outcome, Refusal};

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

/// A node, and the relay through which it reaches all nodes from 3 on.
fn pair() -> Net {
    pair_with(node(2))
}

fn pair_with(relay: Config) -> Net {
    Net::of([first(), relay])
}

fn first() -> Config {
    let mut first = node(1);
    first.routes = vec![route(3..=99, 2)];
    first
}

/// A node, and a relay that stores this many bundles and has as many of its own as it
/// takes for the node behind it.
fn pair_with_full_relay(bundles: usize) -> (Net, Vec<BundleId>) {
    let mut relay = node(2);
    relay.routes = vec![route(1..=1, 1), route(3..=3, 3)];
    relay.store_bundles = bundles;
    let mut net = pair_with(relay);
    let others = std::iter::from_fn(|| net.send(1, 3, b"others").ok()).collect();
    (net, others)
}

/// For so many tenths of a second, carries bundles from the first node to the relay and
/// signals back; returns the number of bundles.
fn live(net: &mut Net, tenths: usize) -> usize {
    let mut sent = 0;
    for _ in 0..tenths {
        for _ in 0..5 {
            let Some(offer) = net.offer(0, 2) else {
                break;
            };
            net.arrive(1, 1, &offer);
            net.finish(0, &offer, Outcome::Acknowledged);
            sent += 1;
        }
        net.signal(1, 0);
    }
    sent
}

fn to(to: u64, custody: bool) -> Send {
    to_service(to, SERVICE, custody)
}

fn to_service(node: u64, service: u64, custody: bool) -> Send {
    Send {
        custody,
        ..Send::new(ipn(node, service), SERVICE, BULK, vec![payload(b"data")])
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
fn another_one_asks_where_that_which_asked_is_gone() {
    for asked in [false, true] {
        let mut net = pair();
        let ids = [(); 5].map(|()| net.agents[0].send(net.now, to(3, false)).unwrap());
        let full = net.offer(0, 2).unwrap();
        net.finish(0, &full, NO_ROOM);
        assert!(net.offer(0, 2).is_none());
        if asked {
            net.pass(Duration::from_millis(300));
            let asks = net.offer(0, 2).expect("the second one asks");
            net.finish(0, &asks, NO_ROOM);
        }
        for id in &ids[..2] {
            let now = net.now;
            net.agents[0].cancel(now, *id);
        }
        net.pass(Duration::from_millis(600));
        assert!(net.offer(0, 2).is_some(), "asked {asked}");
    }
}

#[test]
fn each_one_that_waits_has_its_turn_to_ask() {
    const WAIT: usize = 30;
    let mut net = pair();
    for _ in 0..WAIT {
        send(&mut net, 3, false);
    }
    let mut asked = BTreeSet::new();
    let end = net.now + Duration::from_secs(3_600);
    while net.now < end {
        if let Some(offer) = net.offer(0, 2) {
            net.finish(0, &offer, NO_ROOM);
            asked.insert(offer.id);
        } else {
            let next = net.agents[0].next_timeout().expect("some wait");
            net.pass(next.saturating_duration_since(net.now));
        }
    }
    assert_eq!(asked.len(), WAIT);
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
fn a_process_that_takes_over_finds_out_again_what_has_room() {
    let mut net = pair();
    send(&mut net, 3, false);
    send(&mut net, 3, false);
    let full = net.offer(0, 2).unwrap();
    net.finish(0, &full, NO_ROOM);
    assert!(net.offer(0, 2).is_none());
    net.events(0);
    let now = net.now;
    let before = std::mem::replace(&mut net.agents[0], Agent::new(first()));
    net.agents[0].take_over(now, before.hand_over(now)).unwrap();
    assert!(net.offer(0, 2).is_some());
}

#[test]
fn what_cannot_be_refused_is_received_and_deleted_with_reports() {
    let (mut net, _) = pair_with_full_relay(10);
    let asks = Send {
        reports: Some(ReportRequest {
            to: ipn(1, 0),
            reception: true,
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
    for _ in 0..2 {
        let report = net.offer(1, 1).unwrap();
        net.arrive(0, 2, &report);
    }
    let told = |event: Event| match event {
        Event::StatusReport { report, .. } => {
            let mut items = report.status_information.iter();
            items.position(|item| item.asserted)
        }
        _ => None,
    };
    let told: Vec<usize> = net.events(0).into_iter().filter_map(told).collect();
    assert_eq!(told, [0, 3], "received, and then deleted");
}

#[test]
fn custody_that_is_refused_for_want_of_room_costs_few_bundles() {
    let (mut net, _) = pair_with_full_relay(10);
    for _ in 0..50 {
        send(&mut net, 3, true);
    }
    let sent = live(&mut net, 600);
    assert!((6..30).contains(&sent), "{sent}");
}

#[test]
fn all_that_waited_under_custody_goes_when_there_is_room_again() {
    let (mut net, others) = pair_with_full_relay(200);
    for _ in 0..50 {
        send(&mut net, 3, true);
    }
    live(&mut net, 200);
    assert_eq!(net.released(0), []);
    for id in others {
        let now = net.now;
        net.agents[1].cancel(now, id);
    }
    live(&mut net, 600);
    assert_eq!(net.released(0).len(), 50);
}

#[test]
fn one_that_waits_for_a_session_that_takes_more_is_told_of_again() {
    const SHORT: u64 = 1_000;
    let (mut net, _) = pair_with_full_relay(10);
    let next = |net: &mut Net| net.agents[0].next_for(net.now, RELAY, BULK, SHORT);
    let long = Send {
        payload: vec![vec![0_u8; 100_000].into()],
        ..to(3, true)
    };
    net.agents[0].send(net.now, long).unwrap();
    assert!(next(&mut net).is_none());
    let short = net.agents[0].send(net.now, to(3, true)).unwrap();
    let refused = next(&mut net).expect("a short one");
    net.arrive(1, 1, &refused);
    net.finish(0, &refused, Outcome::Acknowledged);
    net.signal(1, 0);
    let now = net.now;
    net.agents[0].cancel(now, short);
    assert!(net.offer(0, 2).is_none());
    net.events(0);
    net.pass(Duration::from_secs(1));
    let woken = |event: &Event| match event {
        Event::Woken { neighbour, class } => *neighbour == RELAY && *class == Some(BULK),
        _ => false,
    };
    assert!(net.events(0).iter().any(woken));
    assert!(net.offer(0, 2).is_some());
}

#[test]
fn what_waited_unsent_is_missed_as_soon_as_other_bundles_once_it_is_sent() {
    let (mut net, _) = pair_with_full_relay(10);
    let refused = net.agents[0].send(net.now, to(3, true)).unwrap();
    net.carry(0, 1);
    net.signal(1, 0);
    send(&mut net, 3, true);
    assert!(net.offer(0, 2).is_none());
    net.pass(Duration::from_millis(300));
    let now = net.now;
    net.agents[0].cancel(now, refused);
    let lost = net.offer(0, 2).expect("the other one asks");
    net.finish(0, &lost, Outcome::Acknowledged);
    net.pass(CustodyTimer::default().initial);
    assert!(net.offer(0, 2).is_some());
}

#[test]
fn what_the_neighbour_may_have_already_needs_no_room() {
    let (mut net, others) = pair_with_full_relay(10);
    let now = net.now;
    net.agents[1].cancel(now, others[0]);
    let taken = net.agents[0].send(now, to(3, true)).unwrap();
    net.carry(0, 1);
    net.pass(Duration::from_millis(100));
    let signal = net.agents[1].next_for(net.now, NeighbourId(1), Class::SIGNALLING, u64::MAX);
    net.finish(1, &signal.expect("it has custody"), Outcome::Acknowledged);
    net.pass(CustodyTimer::default().initial - Duration::from_millis(200));
    send(&mut net, 3, true);
    net.carry(0, 1);
    net.signal(1, 0);
    // There is no room for the second bundle, and the signal for the first one is late.
    net.carry(0, 1);
    net.signal(1, 0);
    assert_eq!(net.released(0), [taken]);
}

#[test]
fn room_for_some_costs_no_more_than_a_few_times_as_many() {
    let (mut net, others) = pair_with_full_relay(200);
    for _ in 0..50 {
        send(&mut net, 3, true);
    }
    live(&mut net, 200);
    for id in &others[..10] {
        let now = net.now;
        net.agents[1].cancel(now, *id);
    }
    let sent = live(&mut net, 600);
    assert_eq!(net.released(0).len(), 10);
    assert!(sent < 40, "{sent}");
}

#[test]
fn custody_that_one_service_is_refused_holds_up_no_other() {
    let (mut net, _) = pair_with_full_relay(10);
    send(&mut net, 3, true);
    net.carry(0, 1);
    net.signal(1, 0);
    send(&mut net, 3, true);
    assert!(net.offer(0, 2).is_none());
    let other = to_service(3, SERVICE + 1, true);
    net.agents[0].send(net.now, other).unwrap();
    assert!(net.offer(0, 2).is_some());
}

#[test]
fn custody_of_what_is_for_the_neighbours_streams_is_refused_for_each_bundle_alone() {
    let mut deaf = node(2);
    deaf.services.clear();
    let mut net = Net::of([node(1), deaf]);
    for (service, waits) in [(SERVICE, false), (SERVICE + 1, true)] {
        net.agents[0]
            .send(net.now, to_service(2, service, true))
            .unwrap();
        net.carry(0, 1);
        net.signal(1, 0);
        net.agents[0]
            .send(net.now, to_service(2, service, true))
            .unwrap();
        assert_eq!(net.offer(0, 2).is_none(), waits, "{service}");
    }
}

#[test]
fn a_service_without_room_holds_up_no_other_of_the_neighbour() {
    let mut net = Net::of([node(1), node(2)]);
    let send = |net: &mut Net, service| {
        let send = to_service(2, service, false);
        net.agents[0].send(net.now, send).unwrap();
    };
    send(&mut net, SERVICE + 1);
    let full = net.offer(0, 2).unwrap();
    net.finish(0, &full, NO_ROOM);
    assert!(!net.agents[0].is_paused(RELAY));
    send(&mut net, SERVICE + 1);
    assert!(net.offer(0, 2).is_none());
    send(&mut net, SERVICE);
    let other = net.offer(0, 2).unwrap();
    net.finish(0, &other, NO_ROOM);
    assert!(
        net.agents[0].is_paused(RELAY),
        "it has none for its streams"
    );
}
