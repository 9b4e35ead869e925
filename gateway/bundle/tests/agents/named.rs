//! Bundles for nodes of the dtn scheme.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::net::{BULK, SERVICE, bundle, next, node, payload, primary};
use underpass_bundle::wire::Eid;
use underpass_bundle::{Agent, NamedRoutes, NeighbourId, Reject, Relaying, Send, SendError};

const SOURCE: u64 = 1;
const RELAY: u64 = 2;
const FIRST: u64 = 3;
const SECOND: u64 = 4;

fn named(endpoint: &str) -> Eid {
    Eid::with_dtn(endpoint).unwrap()
}

fn routes(rover: u64, others: Option<u64>) -> NamedRoutes {
    let to = |number| (NeighbourId(number), true);
    NamedRoutes {
        names: BTreeMap::from([("rover".to_owned(), to(rover))]),
        others: others.map(to),
    }
}

fn relay(routes: NamedRoutes) -> (Agent, Instant) {
    let mut config = node(RELAY);
    config.named = routes;
    let (mut agent, now) = (Agent::new(config), Instant::now());
    for neighbour in [SOURCE, FIRST, SECOND] {
        agent.neighbour_up(now, NeighbourId(neighbour));
    }
    (agent, now)
}

fn receive(agent: &mut Agent, now: Instant, destination: &str) -> Result<(), Reject> {
    let primary = primary(0, SOURCE, named(destination));
    let raw = bundle(&primary, &[], b"content");
    agent.receive(now, NeighbourId(SOURCE), BULK, raw)
}

#[test]
fn a_node_is_reached_by_its_name_whatever_the_service() {
    for (destination, first, second) in [
        ("//rover/in", true, false),
        ("//rover/", true, false),
        ("//rover/~group/a", true, false),
        ("//rovers/in", false, true),
        ("//Rover/in", false, true),
    ] {
        let (mut agent, now) = relay(routes(FIRST, Some(SECOND)));
        receive(&mut agent, now, destination).unwrap();
        for (to, goes) in [(FIRST, first), (SECOND, second), (SOURCE, false)] {
            let passed = next(&mut agent, now, to);
            assert_eq!(passed.is_some(), goes, "{destination} by {to}");
            if let Some(passed) = passed {
                assert_eq!(passed.primary.destination, named(destination));
            }
        }
    }
}

#[test]
fn without_a_route_it_goes_nowhere_and_never_back() {
    for named in [routes(FIRST, None), routes(FIRST, Some(SOURCE))] {
        let (mut agent, now) = relay(named);
        receive(&mut agent, now, "//elsewhere/in").unwrap();
        assert_eq!(agent.custody(now).bundles, 0);
    }
}

#[test]
fn what_is_stored_follows_other_routes() {
    let (mut agent, now) = relay(routes(FIRST, None));
    receive(&mut agent, now, "//rover/in").unwrap();
    agent.set_named_routes(routes(SECOND, None));
    agent.set_routes(now, Vec::new(), Relaying::All);
    assert!(next(&mut agent, now, FIRST).is_none());
    assert!(next(&mut agent, now, SECOND).is_some());
}

#[test]
fn services_of_this_node_send_there_too() {
    let (mut agent, now) = relay(routes(FIRST, None));
    let send = |to| Send::new(to, SERVICE, BULK, vec![payload(b"data")]);
    agent.send(now, send(named("//rover/in"))).unwrap();
    let sent = next(&mut agent, now, FIRST).unwrap();
    assert_eq!(sent.primary.destination, named("//rover/in"));
    assert!(sent.cteb.is_some(), "under custody");
    let elsewhere = agent.send(now, send(named("//elsewhere/in")));
    assert_eq!(elsewhere, Err(SendError::NoRoute));
    let nobody = agent.send(now, send(Eid::none()));
    assert_eq!(nobody, Err(SendError::Destination));
}
