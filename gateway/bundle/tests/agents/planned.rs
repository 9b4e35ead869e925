//! Bundles that are routed by a contact plan while its routes come and go.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::net::{BULK, Net, SERVICE, node, payload, route};
use underpass_bundle::wire::ipn;
use underpass_bundle::{
    Agent, Amount, Applications, Config, DeleteReason, Event, NeighbourId, NextHops, PlanChanged,
    PlannedRoutes, Route, Send,
};
use underpass_cla::{Class, Outcome, Refusal};

/// The nodes: a source, three relays, the destination behind them.
const SOURCE: usize = 0;
const UPPER: u64 = 2;
const LOWER: u64 = 3;
const END: u64 = 4;
const SLOW: u64 = 5;
const APPLICATION: u64 = 9;
/// The sizes of bundles with a table of their own.
const SMALL: u64 = 64 << 10;
const LARGE: u64 = 16 << 20;

fn applications() -> Arc<Applications> {
    let most = Amount {
        bytes: 1 << 20,
        bundles: 100,
    };
    let services = BTreeSet::from([SERVICE]);
    Arc::new(Applications::new(vec![1..=20], services, None, most))
}

fn direct(node: u64) -> Route {
    route(node, node)
}

/// The source has sessions with the relays, but none with the end.
fn net() -> Net {
    let with = |mut config: Config, neighbours: &[u64]| {
        config.routes = neighbours.iter().map(|number| direct(*number)).collect();
        config.applications = Some(applications());
        Agent::new(config)
    };
    let mut net = Net::new(vec![
        with(node(1), &[UPPER, LOWER, SLOW]),
        with(node(UPPER), &[1, END]),
        with(node(LOWER), &[1, END]),
        with(node(END), &[UPPER, LOWER]),
        with(node(SLOW), &[1, END]),
    ]);
    let speakers = |of: &[(u64, &[u64])]| -> HashMap<u64, BTreeSet<u64>> {
        let of = of.iter();
        of.map(|(node, by)| (*node, by.iter().copied().collect()))
            .collect()
    };
    let both = [UPPER, LOWER];
    plan(&mut net, SOURCE, &[(END, UPPER)], speakers(&[(END, &both)]));
    plan(&mut net, 3, &[(1, UPPER)], speakers(&[(1, &both)]));
    net
}

fn plan(net: &mut Net, at: usize, next: &[(u64, u64)], speakers: HashMap<u64, BTreeSet<u64>>) {
    let nodes: BTreeSet<u64> = next.iter().map(|(node, _)| *node).collect();
    change(
        net,
        at,
        next,
        speakers,
        &[],
        &nodes.into_iter().collect::<Vec<_>>(),
    );
}

fn change(
    net: &mut Net,
    at: usize,
    next: &[(u64, u64)],
    speakers: HashMap<u64, BTreeSet<u64>>,
    lost: &[u64],
    moved: &[u64],
) {
    let moved: Vec<(u64, u64)> = moved.iter().map(|node| (*node, SMALL)).collect();
    change_of(net, at, &[(SMALL, next)], speakers, lost, &moved);
}

/// The same with tables for several sizes of bundle.
fn change_of(
    net: &mut Net,
    at: usize,
    tables: &[(u64, &[(u64, u64)])],
    speakers: HashMap<u64, BTreeSet<u64>>,
    lost: &[u64],
    moved: &[(u64, u64)],
) {
    let tables = tables.iter().map(|(size, next)| {
        let next = next.iter().map(|(node, via)| (*node, NeighbourId(*via)));
        (*size, next.collect())
    });
    let routes = PlannedRoutes {
        next: Arc::new(NextHops::new(tables.collect())),
        speakers: Arc::new(speakers),
    };
    let lost = lost.iter().copied().collect();
    let moved = moved.iter().copied().collect();
    let changed = PlanChanged {
        lost: &lost,
        moved: &moved,
    };
    let now = net.now;
    net.agents[at].set_planned(now, Some(routes), changed);
}

/// The source's route to the end changes.
fn turn(net: &mut Net, via: u64, lost: &[u64], moved: &[u64]) {
    let speakers = HashMap::from([(END, BTreeSet::from([UPPER, LOWER]))]);
    change(net, SOURCE, &[(END, via)], speakers, lost, moved);
}

fn to_end(service: u64) -> Send {
    let payload = vec![payload(b"by the plan")];
    Send::new(ipn(END, APPLICATION), service, BULK, payload)
}

fn send(net: &mut Net, service: u64) {
    net.agents[SOURCE].send(net.now, to_end(service)).unwrap();
}

fn waiting(net: &Net) -> BTreeMap<u64, usize> {
    let mut waiting = BTreeMap::new();
    for stored in net.agents[SOURCE].list(net.now, None, 100) {
        *waiting.entry(stored.neighbour.0).or_default() += 1;
    }
    waiting
}

fn entries(agent: &Agent, name: &str) -> usize {
    let mut sum = 0;
    agent.footprint(&mut |of, count| sum += if of == name { count } else { 0 });
    sum
}

#[test]
fn a_bundle_without_a_route_goes_by_the_plan_and_is_acknowledged_by_another_way() {
    let mut net = net();
    send(&mut net, APPLICATION);
    net.carry(SOURCE, 1);
    net.pass(Duration::from_millis(200));
    net.carry_signals(1, SOURCE);
    assert_eq!(net.released(SOURCE).len(), 1);
    net.carry(1, 3);
    let delivered = net.deliveries(3);
    assert_eq!(delivered.len(), 1);
    // The end's service confirms, and its signal goes back by the lower relay.
    net.agents[3].confirm(net.now, delivered[0].ticket.expect("a ticket"));
    assert_eq!(entries(&net.agents[SOURCE], "bundles by destination"), 0);
}

#[test]
fn what_waits_for_a_lost_neighbour_goes_another_way_and_what_it_has_stays() {
    let mut net = net();
    for _ in 0..4 {
        send(&mut net, APPLICATION);
    }
    net.carry(SOURCE, 1);
    let begun = net.offer(SOURCE, UPPER).expect("another");
    turn(&mut net, LOWER, &[UPPER], &[END]);
    assert_eq!(waiting(&net), BTreeMap::from([(UPPER, 1), (LOWER, 3)]));
    // The transfer in progress no longer counts, whatever the CL still reports.
    net.finish(SOURCE, &begun, Outcome::Acknowledged);
    for _ in 0..3 {
        net.carry(SOURCE, 2);
    }
    net.pass(Duration::from_millis(200));
    net.carry_signals(2, SOURCE);
    assert_eq!(net.released(SOURCE).len(), 3);
    net.carry_signals(1, SOURCE);
    assert_eq!(net.released(SOURCE).len(), 1);
    assert_eq!(entries(&net.agents[SOURCE], "bundles by destination"), 0);
}

#[test]
fn what_waits_for_room_unsent_goes_by_the_better_way() {
    let mut net = net();
    for _ in 0..2 {
        let send = Send {
            custody: false,
            ..to_end(APPLICATION)
        };
        net.agents[SOURCE].send(net.now, send).unwrap();
    }
    let full = net.offer(SOURCE, UPPER).expect("a bundle");
    net.finish(SOURCE, &full, Outcome::Refused(Refusal::NoResources));
    assert!(net.offer(SOURCE, UPPER).is_none(), "it asks later");
    turn(&mut net, LOWER, &[], &[END]);
    assert_eq!(waiting(&net), BTreeMap::from([(UPPER, 1), (LOWER, 1)]));
    assert!(net.offer(SOURCE, LOWER).is_some());
}

#[test]
fn a_better_way_takes_what_waits_and_no_transfer() {
    let mut net = net();
    send(&mut net, APPLICATION);
    send(&mut net, APPLICATION);
    let begun = net.offer(SOURCE, UPPER).expect("a bundle");
    turn(&mut net, LOWER, &[], &[END]);
    assert_eq!(waiting(&net), BTreeMap::from([(UPPER, 1), (LOWER, 1)]));
    net.finish(SOURCE, &begun, Outcome::Acknowledged);
    // A route change for other destinations affects nothing that waits.
    turn(&mut net, UPPER, &[], &[]);
    assert_eq!(waiting(&net), BTreeMap::from([(UPPER, 1), (LOWER, 1)]));
    send(&mut net, APPLICATION);
    assert_eq!(waiting(&net), BTreeMap::from([(UPPER, 2), (LOWER, 1)]));
}

#[test]
fn a_large_bundle_goes_by_a_slow_contact_that_can_finish_it_and_stays_there() {
    let mut net = net();
    let speakers = || HashMap::from([(END, BTreeSet::from([UPPER, LOWER, SLOW]))]);
    let send_large = |net: &mut Net| {
        let send = Send {
            payload: vec![payload(&vec![7; 10_000_000])],
            ..to_end(APPLICATION)
        };
        net.agents[SOURCE].send(net.now, send).unwrap();
    };
    // The first one comes before there is a table for its size.
    send_large(&mut net);
    send(&mut net, APPLICATION);
    let sizes = net.agents[SOURCE].take_planned_sizes();
    assert_eq!(sizes, BTreeSet::from([SMALL, LARGE]));
    let begun = net.offer(SOURCE, UPPER).expect("a bundle");
    let tables = |via: u64| [[(END, via)], [(END, SLOW)]];
    let turn = |net: &mut Net, via: u64, lost: &[u64], moved: u64| {
        let [small, large] = tables(via);
        let tables = [(SMALL, &small[..]), (LARGE, &large[..])];
        change_of(net, SOURCE, &tables, speakers(), lost, &[(END, moved)]);
    };
    turn(&mut net, UPPER, &[], LARGE);
    assert_eq!(waiting(&net), BTreeMap::from([(UPPER, 2)]), "it has begun");
    turn(&mut net, LOWER, &[UPPER], SMALL);
    assert_eq!(waiting(&net), BTreeMap::from([(LOWER, 1), (SLOW, 1)]));
    net.finish(
        SOURCE,
        &begun,
        Outcome::Broken {
            acknowledged: 5_000_000,
        },
    );
    send_large(&mut net);
    assert_eq!(waiting(&net), BTreeMap::from([(LOWER, 1), (SLOW, 2)]));

    let offer = net.offer(SOURCE, SLOW).expect("the large one");
    for via in [UPPER, LOWER, UPPER] {
        turn(
            &mut net,
            via,
            &[if via == UPPER { LOWER } else { UPPER }],
            SMALL,
        );
        assert_eq!(waiting(&net), BTreeMap::from([(via, 1), (SLOW, 2)]));
    }
    net.arrive(4, 1, &offer);
    net.finish(SOURCE, &offer, Outcome::Acknowledged);
    net.pass(Duration::from_millis(200));
    net.carry_signals(4, SOURCE);
    assert_eq!(net.released(SOURCE).len(), 1);
}

#[test]
fn what_a_neighbour_is_given_counts_until_it_moves_or_is_given_up() {
    let mut net = net();
    let mut send = || {
        let sent = net.agents[SOURCE].send(net.now, to_end(APPLICATION));
        sent.unwrap()
    };
    let (_, other) = (send(), send());
    let bytes = i64::try_from(b"by the plan".len()).unwrap();
    let given = net.agents[SOURCE].take_given();
    assert_eq!(given, BTreeMap::from([((END, UPPER, SMALL), 2 * bytes)]));
    turn(&mut net, LOWER, &[UPPER], &[END]);
    let given = net.agents[SOURCE].take_given();
    let moved = [
        ((END, UPPER, SMALL), -2 * bytes),
        ((END, LOWER, SMALL), 2 * bytes),
    ];
    assert_eq!(given, BTreeMap::from(moved));

    // What was forwarded is on its way there, what was given up is not.
    net.carry(SOURCE, 2);
    net.pass(Duration::from_millis(200));
    net.carry_signals(2, SOURCE);
    assert_eq!(net.released(SOURCE).len(), 1);
    let now = net.now;
    assert!(net.agents[SOURCE].cancel(now, other));
    let given = net.agents[SOURCE].take_given();
    assert_eq!(given, BTreeMap::from([((END, LOWER, SMALL), -bytes)]));
    assert!(net.agents[SOURCE].take_given().is_empty());
}

#[test]
fn what_was_given_and_only_that_is_taken_back_whatever_ways_there_are_by_then() {
    let mut net = net();
    let now = net.now;
    let bytes = i64::try_from(b"by the plan".len()).unwrap();
    let send = |net: &mut Net| net.agents[SOURCE].send(now, to_end(APPLICATION)).unwrap();
    let given = send(&mut net);
    let taken = net.agents[SOURCE].take_given();
    assert_eq!(taken, BTreeMap::from([((END, UPPER, SMALL), bytes)]));
    change(&mut net, SOURCE, &[], HashMap::new(), &[], &[END]);
    assert!(net.agents[SOURCE].cancel(now, given));
    let taken = net.agents[SOURCE].take_given();
    assert_eq!(taken, BTreeMap::from([((END, UPPER, SMALL), -bytes)]));

    // This one goes by a route, and stays there when the plan has a way again.
    let fallback = Route {
        nodes: END..=END,
        ..direct(LOWER)
    };
    let routes = vec![direct(UPPER), direct(LOWER), fallback];
    net.agents[SOURCE].set_routes(now, routes, underpass_bundle::Relaying::All);
    let not_given = send(&mut net);
    turn(&mut net, UPPER, &[], &[]);
    assert!(net.agents[SOURCE].cancel(now, not_given));
    assert!(net.agents[SOURCE].take_given().is_empty());
}

#[test]
fn a_size_is_asked_for_while_a_bundle_has_it_and_once_after() {
    let mut net = net();
    let now = net.now;
    let send = Send {
        payload: vec![payload(&vec![7; 100_000])],
        ..to_end(APPLICATION)
    };
    let id = net.agents[SOURCE].send(now, send.clone()).unwrap();
    let other = net.agents[SOURCE].send(now, send).unwrap();
    let sizes = |net: &mut Net| net.agents[SOURCE].take_planned_sizes();
    let its_own = BTreeSet::from([256 << 10]);
    assert_eq!(sizes(&mut net), its_own);
    assert!(net.agents[SOURCE].cancel(now, id));
    assert_eq!(sizes(&mut net), its_own, "another one waits");
    assert_eq!(sizes(&mut net), its_own);
    assert!(net.agents[SOURCE].cancel(now, other));
    // It may have come and gone since the last call.
    assert_eq!(sizes(&mut net), its_own);
    assert_eq!(sizes(&mut net), BTreeSet::new());
}

#[test]
fn what_the_first_table_is_for_needs_no_other_one() {
    const FIRST: u64 = 100_000;
    let mut net = net();
    change_of(
        &mut net,
        SOURCE,
        &[(FIRST, &[(END, UPPER)])],
        HashMap::new(),
        &[],
        &[],
    );
    let now = net.now;
    let mut sizes_with = |bytes: u64| {
        let send = Send {
            payload: vec![payload(&vec![7; bytes as usize])],
            ..to_end(APPLICATION)
        };
        net.agents[SOURCE].send(now, send).unwrap();
        net.agents[SOURCE].take_planned_sizes()
    };
    // Both have the same power of four.
    assert_eq!(sizes_with(FIRST), BTreeSet::from([FIRST]));
    assert_eq!(sizes_with(FIRST + 1), BTreeSet::from([256 << 10]));
}

#[test]
fn a_bundle_that_nobody_answers_for_is_sent_by_the_present_way() {
    let mut net = net();
    send(&mut net, APPLICATION);
    let offer = net.offer(SOURCE, UPPER).expect("a bundle");
    net.finish(SOURCE, &offer, Outcome::Acknowledged);
    turn(&mut net, LOWER, &[UPPER], &[END]);
    assert_eq!(waiting(&net), BTreeMap::from([(UPPER, 1)]));
    net.pass(Duration::from_secs(10));
    assert_eq!(waiting(&net), BTreeMap::from([(LOWER, 1)]));
}

#[test]
fn a_custody_signal_counts_by_the_way_that_the_plan_lets_it_come() {
    // The upper relay's signal arrives through the lower one.
    for let_speak in [true, false] {
        let mut net = net();
        let mut speakers = HashMap::from([(END, BTreeSet::from([UPPER]))]);
        if let_speak {
            speakers.insert(UPPER, BTreeSet::from([UPPER, LOWER]));
        }
        change(&mut net, SOURCE, &[(END, UPPER)], speakers, &[], &[]);
        send(&mut net, APPLICATION);
        net.carry(SOURCE, 1);
        net.pass(Duration::from_millis(200));
        let upper = NeighbourId(1);
        let signal = net.agents[1].next_for(net.now, upper, Class::SIGNALLING, u64::MAX);
        let raw = signal.expect("a signal").chunks.concat().into();
        let heard = net.agents[SOURCE].receive(net.now, NeighbourId(LOWER), Class::SIGNALLING, raw);
        assert_eq!(heard.is_ok(), let_speak);
        assert_eq!(net.released(SOURCE).len(), usize::from(let_speak));
    }
}

#[test]
fn what_this_nodes_own_services_send_goes_by_the_routes() {
    let mut net = net();
    let send = Send::new(
        ipn(LOWER, SERVICE),
        SERVICE,
        BULK,
        vec![payload(b"a stream")],
    );
    let speakers = HashMap::new();
    let next = [(END, UPPER), (LOWER, UPPER)];
    change(&mut net, SOURCE, &next, speakers, &[], &[LOWER]);
    net.agents[SOURCE].send(net.now, send.clone()).unwrap();
    assert_eq!(waiting(&net), BTreeMap::from([(LOWER, 1)]));
    // Nor does it move when that neighbour is lost, unlike an application's bundle.
    let service = APPLICATION;
    net.agents[SOURCE]
        .send(net.now, Send { service, ..send })
        .unwrap();
    change(&mut net, SOURCE, &next, HashMap::new(), &[LOWER], &[LOWER]);
    assert_eq!(waiting(&net), BTreeMap::from([(LOWER, 1), (UPPER, 1)]));
}

#[test]
fn a_plan_that_begins_takes_up_what_is_stored_and_one_that_ends_gives_it_back() {
    let mut net = net();
    let now = net.now;
    let changed = PlanChanged {
        lost: &BTreeSet::new(),
        moved: &BTreeSet::new(),
    };
    net.agents[SOURCE].set_planned(now, None, changed);
    let mut routes = vec![direct(UPPER), direct(LOWER)];
    routes.push(Route {
        nodes: END..=END,
        ..direct(LOWER)
    });
    let relaying = underpass_bundle::Relaying::All;
    net.agents[SOURCE].set_routes(now, routes.clone(), relaying.clone());
    send(&mut net, APPLICATION);
    assert_eq!(waiting(&net), BTreeMap::from([(LOWER, 1)]));
    turn(&mut net, UPPER, &[], &[]);
    assert_eq!(waiting(&net), BTreeMap::from([(UPPER, 1)]));
    assert_eq!(entries(&net.agents[SOURCE], "bundles by destination"), 1);
    net.agents[SOURCE].set_planned(now, None, changed);
    assert_eq!(waiting(&net), BTreeMap::from([(LOWER, 1)]));
    assert_eq!(entries(&net.agents[SOURCE], "bundles by destination"), 0);
}

#[test]
fn a_bundle_that_came_by_the_only_way_is_refused_and_not_sent_back() {
    let mut net = net();
    send(&mut net, APPLICATION);
    let offer = net.offer(SOURCE, UPPER).expect("a bundle");
    // The relay has lost its own contact to the end: its best route leads back.
    let now = net.now;
    let routes = vec![direct(1)];
    net.agents[1].set_routes(now, routes, underpass_bundle::Relaying::All);
    let speakers = HashMap::from([(1, BTreeSet::from([1]))]);
    change(&mut net, 1, &[(END, 1)], speakers, &[], &[END]);
    net.arrive(1, 1, &offer);
    let refused = |event: &Event| {
        matches!(
            event,
            Event::Deleted {
                reason: DeleteReason::NoRoute,
                id: None,
                ..
            }
        )
    };
    assert!(net.events(1).iter().any(refused));
    // The custodian is told, keeps the bundle, and tries the route that it has by then.
    net.finish(SOURCE, &offer, Outcome::Acknowledged);
    net.pass(Duration::from_millis(200));
    net.carry_signals(1, SOURCE);
    turn(&mut net, LOWER, &[UPPER], &[END]);
    net.pass(Duration::from_secs(5));
    assert_eq!(waiting(&net), BTreeMap::from([(LOWER, 1)]));
}
