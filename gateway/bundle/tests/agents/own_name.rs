//! A node that has a name in the dtn scheme as well as its number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::net::{BULK, LIFETIME, SERVICE, bundle, next, node, payload};
use bp7::administrative_record::{DELIVERED_BUNDLE, StatusReport};
use bp7::dtntime::CreationTimestamp;
use bp7::primary::{PrimaryBlock, PrimaryBlockBuilder};
use underpass_bundle::wire::{
    CodePoints, Eid, Record, decode_record, encode_status_report, ipn, ipn_parts,
};
use underpass_bundle::{
    Agent, Amount, Applications, Config, DeleteReason, Delivery, Event, Forgery, NamedRoutes,
    NeighbourId, OwnNames, Reject, ReportRequest, Send, SendError, named_service,
};

const OWN: u64 = 7;
const NEAR: u64 = 1;
const FAR: u64 = 2;
const ALL_REPORTS: u64 = 0x7_4000;
const RECORD: u64 = 0x2;

fn dtn(endpoint: &str) -> Eid {
    Eid::with_dtn(endpoint).unwrap()
}

/// The node edge-7, whose application has the service "incoming". rover is behind one
/// neighbour, all other names are behind the other.
fn config() -> Config {
    let mut config = node(OWN);
    let names = ["incoming", "echo"].map(str::to_owned);
    config.names = Arc::new(OwnNames::new("edge-7", names));
    let incoming = named_service("incoming");
    let most = Amount {
        bytes: 1 << 20,
        bundles: 100,
    };
    let all = Applications::new(vec![incoming..=incoming], [].into(), Some(7), most);
    config.applications = Some(Arc::new(all));
    config.status_reports_per_s = 100;
    config.named = NamedRoutes {
        names: BTreeMap::from([("rover".to_owned(), (NeighbourId(NEAR), true))]),
        others: Some((NeighbourId(FAR), true)),
    };
    config
}

fn edge() -> (Agent, Instant) {
    let (mut agent, now) = (Agent::new(config()), Instant::now());
    agent.set_clock(now, 848_523_100_000);
    for neighbour in [NEAR, FAR] {
        agent.neighbour_up(now, NeighbourId(neighbour));
    }
    (agent, now)
}

fn from(source: Eid, destination: &str, report_to: Eid, flags: u64) -> PrimaryBlock {
    PrimaryBlockBuilder::new()
        .bundle_control_flags(flags)
        .destination(dtn(destination))
        .source(source)
        .report_to(report_to)
        .creation_timestamp(CreationTimestamp::with_time_and_seq(1_000, 7))
        .lifetime(LIFETIME)
        .build()
        .unwrap()
}

fn hear(agent: &mut Agent, now: Instant, by: u64, primary: &PrimaryBlock) -> Result<(), Reject> {
    let raw = bundle(primary, &[], b"content");
    agent.receive(now, NeighbourId(by), BULK, raw)
}

fn delivered(agent: &mut Agent) -> Vec<Delivery> {
    let events = std::iter::from_fn(|| agent.poll_event());
    let delivery = |event| match event {
        Event::Deliver(delivery) => Some(delivery),
        _ => None,
    };
    events.filter_map(delivery).collect()
}

#[test]
fn bundles_to_its_name_are_delivered_to_the_service_of_that_name() {
    for (destination, service) in [
        ("//edge-7/incoming", Some(named_service("incoming"))),
        ("//edge-7/echo", Some(named_service("echo"))),
        ("//edge-7/other", None),
        ("//edge-7/~incoming", None),
        ("//edge-7/", None),
        ("//edge-7/64", None),
    ] {
        let (mut agent, now) = edge();
        let primary = from(dtn("//rover/out"), destination, Eid::none(), 0);
        hear(&mut agent, now, NEAR, &primary).unwrap();
        let mut events: Vec<Event> = std::iter::from_fn(|| agent.poll_event()).collect();
        events.retain(|event| !matches!(event, Event::Woken { .. }));
        match (&events[..], service) {
            ([Event::Deliver(delivery)], Some(service)) => {
                assert_eq!(delivery.service, service, "{destination}");
                assert_eq!(delivery.source, dtn("//rover/out"));
            }
            ([Event::Deleted { reason, .. }], None) => {
                assert_eq!(*reason, DeleteReason::DestinationUnavailable);
            }
            (events, _) => panic!("{destination}: {events:?}"),
        }
        for neighbour in [NEAR, FAR] {
            assert!(next(&mut agent, now, neighbour).is_none(), "{destination}");
        }
    }
}

#[test]
fn the_number_of_a_service_with_a_name_is_not_reached_by_the_ipn_scheme() {
    let (mut agent, now) = edge();
    let to = ipn(OWN, named_service("incoming"));
    let mut primary = from(ipn(NEAR, SERVICE), "//x/", Eid::none(), 0);
    primary.destination = to.clone();
    hear(&mut agent, now, NEAR, &primary).unwrap();
    assert!(delivered(&mut agent).is_empty());
    let send = Send::new(to, SERVICE, BULK, vec![payload(b"data")]);
    assert_eq!(agent.send(now, send), Err(SendError::NoRoute));
}

#[test]
fn a_service_with_a_name_sends_from_its_endpoint_and_hears_reports_there() {
    let (mut agent, now) = edge();
    let incoming = named_service("incoming");
    let send = Send {
        reports: Some(ReportRequest {
            to: dtn("//edge-7/incoming"),
            reception: false,
            forwarding: false,
            delivery: true,
            deletion: false,
        }),
        ..Send::new(dtn("//rover/in"), incoming, BULK, vec![payload(b"data")])
    };
    agent.send(now, send).unwrap();
    let sent = next(&mut agent, now, NEAR).unwrap().primary;
    assert_eq!(sent.source, dtn("//edge-7/incoming"));
    assert_eq!(sent.report_to, dtn("//edge-7/incoming"));
    let item = |position| bp7::administrative_record::BundleStatusItem {
        asserted: position == DELIVERED_BUNDLE,
        time: 0,
        status_requested: false,
    };
    let report = encode_status_report(StatusReport {
        status_information: (0..4).map(item).collect(),
        report_reason: 0,
        source_node: sent.source.clone(),
        timestamp: sent.creation_timestamp.clone(),
        frag_offset: 0,
        frag_len: 0,
    });
    let primary = from(dtn("//rover/"), "//edge-7/incoming", Eid::none(), RECORD);
    let raw = bundle(&primary, &[], &report);
    agent.receive(now, NeighbourId(NEAR), BULK, raw).unwrap();
    let heard = std::iter::from_fn(|| agent.poll_event()).find_map(|event| match event {
        Event::StatusReport { reporter, report } => Some((reporter, report.source_node)),
        _ => None,
    });
    let (reporter, about) = heard.unwrap();
    assert_eq!((reporter, about), (dtn("//rover/"), sent.source));
}

#[test]
fn what_a_service_sends_to_a_name_of_its_own_node_is_delivered_here() {
    let (mut agent, now) = edge();
    let send = |to| Send::new(dtn(to), SERVICE, BULK, vec![payload(b"data")]);
    agent.send(now, send("//edge-7/incoming")).unwrap();
    let [delivery] = &delivered(&mut agent)[..] else {
        panic!("it is not delivered");
    };
    assert_eq!(delivery.source, ipn(OWN, SERVICE));
    let unknown = agent.send(now, send("//edge-7/other"));
    assert_eq!(unknown, Err(SendError::NoRoute));
}

#[test]
fn what_a_service_with_a_name_sends_to_its_own_node_gives_its_room_back() {
    let config = config();
    let applications = config.applications.clone().unwrap();
    let (mut agent, now) = (Agent::new(config), Instant::now());
    let incoming = named_service("incoming");
    for number in 0..200 {
        let to = dtn("//edge-7/incoming");
        let send = Send::new(to, incoming, BULK, vec![payload(b"data")]);
        assert!(agent.send(now, send).is_ok(), "{number}");
        for delivery in delivered(&mut agent) {
            let bytes = delivery.payload.len() as u64;
            let sender = ipn_parts(&delivery.source).map_or(0, |(node, _)| node);
            applications.stored(sender, bytes);
            applications.free(delivery.service, sender, bytes);
        }
    }
}

#[test]
fn a_neighbour_that_invents_names_leaves_room_for_the_others() {
    let mut config = config();
    let services = ["incoming", "other"];
    config.names = Arc::new(OwnNames::new("edge-7", services.map(str::to_owned)));
    let numbers = services.map(named_service);
    let ranges = numbers.map(|number| number..=number).to_vec();
    let most = Amount {
        bytes: 1 << 20,
        bundles: 100,
    };
    config.applications = Some(Arc::new(Applications::new(ranges, [].into(), None, most)));
    let (mut agent, now) = (Agent::new(config), Instant::now());
    let mut taken = |source: &str, destination: &str, by: u64| {
        let primary = from(dtn(source), destination, Eid::none(), 0);
        hear(&mut agent, now, by, &primary).unwrap();
        delivered(&mut agent).len()
    };
    let mut flood = 0;
    for number in 0..100 {
        let invented = format!("//invented-{number}/out");
        flood += taken(&invented, "//edge-7/incoming", FAR);
    }
    assert_eq!(flood, 50);
    assert_eq!(taken("//another/out", "//edge-7/other", FAR), 0);
    assert_eq!(taken("//rover/out", "//edge-7/other", NEAR), 1);
}

#[test]
fn nobody_else_uses_its_name_nor_one_that_a_route_leads_to_elsewhere() {
    for (source, by, believed) in [
        ("//edge-7/incoming", NEAR, false),
        ("//edge-7/", FAR, false),
        ("//rover/out", NEAR, true),
        ("//rover/out", FAR, false),
        // Names without a route of their own are unknown.
        ("//elsewhere/out", NEAR, true),
        ("//elsewhere/out", FAR, true),
    ] {
        let (mut agent, now) = edge();
        let primary = from(dtn(source), "//edge-7/incoming", Eid::none(), 0);
        let heard = hear(&mut agent, now, by, &primary);
        let expected = match believed {
            true => Ok(()),
            false => Err(Reject::Forged(Forgery::Source)),
        };
        assert_eq!(heard, expected, "{source} by {by}");
    }
}

#[test]
fn reports_go_to_a_name_where_its_bundle_came_from_and_nowhere_else() {
    for (report_to, by, reported) in [
        ("//rover/reports", NEAR, true),
        ("//rover/reports", FAR, false),
        ("//elsewhere/reports", FAR, true),
        ("//elsewhere/reports", NEAR, false),
        ("//edge-7/incoming", NEAR, false),
    ] {
        let (mut agent, now) = edge();
        let source = ipn(by, SERVICE);
        let to = dtn(report_to);
        let primary = from(source, "//edge-7/incoming", to.clone(), ALL_REPORTS);
        hear(&mut agent, now, by, &primary).unwrap();
        let reports = [NEAR, FAR].map(|neighbour| next(&mut agent, now, neighbour));
        assert_eq!(
            reports.iter().flatten().count(),
            usize::from(reported),
            "{report_to} by {by}"
        );
        let Some(report) = reports.into_iter().flatten().next() else {
            continue;
        };
        assert_eq!(report.primary.destination, to);
        assert_eq!(report.primary.source, dtn("//edge-7/"));
        let record = decode_record(&report.payload, &CodePoints::default());
        assert!(matches!(record, Ok(Record::Status(_))));
    }
}

#[test]
fn another_name_holds_for_all_that_decode_and_handle_its_bundles() {
    let config = config();
    let names = config.names.clone();
    let (mut agent, now) = (Agent::new(config), Instant::now());
    for neighbour in [NEAR, FAR] {
        agent.neighbour_up(now, NeighbourId(neighbour));
    }
    names.replace(&OwnNames::new("edge-8", ["incoming".to_owned()]));
    for (destination, here) in [("//edge-8/incoming", true), ("//edge-7/incoming", false)] {
        let primary = from(dtn("//rover/out"), destination, Eid::none(), 0);
        hear(&mut agent, now, NEAR, &primary).unwrap();
        assert_eq!(delivered(&mut agent).len(), usize::from(here));
        assert_eq!(next(&mut agent, now, FAR).is_some(), !here);
    }
}
