//! What a neighbour may say of itself and of others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::net::{BULK, Net, SERVICE, bundle, node, payload, primary, route};
use bytes::Bytes;
use underpass_bundle::wire::{Eid, Extension, block_type, ipn};
use underpass_bundle::{
    Agent, Config, Event, Forgery, NeighbourId, Offer, PlanChanged, PlannedRoutes, Reject,
    Relaying, ReportRequest, Route, Send,
};
use underpass_cla::{Class, Outcome};

const HUB: u64 = 1;
const FIRST: u64 = 10;
const SECOND: u64 = 11;

/// The hub of two terminals.
fn hub() -> Config {
    let mut config = node(HUB);
    let direct = |number| route(number, number);
    config.routes = vec![direct(FIRST), direct(SECOND)];
    config.relaying = Relaying::Pairs(BTreeSet::new());
    config
}

/// A node that sends what it likes: its configuration says who it claims to be.
fn liar(claims: u64, change: impl FnOnce(&mut Config)) -> Net {
    let mut config = node(claims);
    config.routes = vec![Route {
        nodes: 1..=u64::from(u32::MAX),
        neighbour: NeighbourId(99),
        take_custody: true,
    }];
    change(&mut config);
    let mut net = Net::of([config]);
    net.agents[0].neighbour_up(net.now, NeighbourId(99));
    net
}

fn send_to(net: &mut Net, to: u64, report_to: Option<Eid>) -> Offer {
    let send = Send {
        reports: report_to.map(|to| ReportRequest {
            to,
            reception: true,
            forwarding: false,
            delivery: true,
            deletion: false,
        }),
        ..Send::new(ipn(to, SERVICE), SERVICE, BULK, vec![payload(b"forged")])
    };
    net.agents[0].send(net.now, send).unwrap();
    net.offer(0, 99).unwrap()
}

/// The first terminal gives a bundle to the hub.
fn hears(hub: &mut Agent, net: &Net, offer: &Offer) -> Result<(), Reject> {
    let raw = offer.chunks.concat().into();
    hub.receive(net.now, NeighbourId(FIRST), BULK, raw)
}

fn forgeries(hub: &mut Agent) -> Vec<(u64, Forgery)> {
    let events = std::iter::from_fn(|| hub.poll_event());
    let forged = |event| match event {
        Event::Forged { from, forgery, .. } => Some((from.0, forgery)),
        Event::Deliver(_) => panic!("a forgery is delivered"),
        _ => None,
    };
    events.filter_map(forged).collect()
}

#[test]
fn a_terminal_does_not_speak_for_another_nor_for_the_hub() {
    for claims in [SECOND, HUB, 77] {
        let mut agent = Agent::new(hub());
        let mut net = liar(claims, |_| {});
        let to = if claims == HUB { SECOND } else { HUB };
        let offer = send_to(&mut net, to, None);
        let outcome = hears(&mut agent, &net, &offer);
        assert_eq!(outcome, Err(Forgery::Source.into()), "{claims}");
        assert_eq!(forgeries(&mut agent), [(FIRST, Forgery::Source)]);
        assert_eq!(agent.custody(net.now).bundles, 0);
        // And nobody is told that custody was accepted.
        assert_eq!(agent.next_timeout(), None);
    }
}

#[test]
fn a_terminal_has_custody_of_its_own_bundles_only() {
    // The second terminal's bundle, forwarded by the first one in its own name, still
    // names the second as custodian.
    let mut net = liar(FIRST, |_| {});
    let offer = send_to(&mut net, HUB, None);
    let raw = offer.chunks.concat();
    // CTEB: sequence number, sequence id, custodian ipn:10.0.
    let custodian = [0x82, 0x02, 0x82, 0x0A, 0x00];
    let at = raw.windows(5).rposition(|window| window == custodian);
    let mut forged = raw.clone();
    forged[at.expect("a custodian") + 3] = 0x0B;
    let mut agent = Agent::new(hub());
    let outcome = agent.receive(net.now, NeighbourId(FIRST), BULK, forged.into());
    assert_eq!(outcome, Err(Forgery::Custodian.into()));
    assert_eq!(agent.next_timeout(), None, "no signal is owed");
    assert_eq!(
        agent.receive(net.now, NeighbourId(FIRST), BULK, raw.into()),
        Ok(())
    );
}

#[test]
fn a_foreign_report_to_costs_the_report_and_not_the_bundle() {
    let mut agent = Agent::new(hub());
    let mut net = liar(FIRST, |_| {});
    let offer = send_to(&mut net, HUB, Some(ipn(SECOND, 0)));
    assert_eq!(hears(&mut agent, &net, &offer), Ok(()));
    let delivered = std::iter::from_fn(|| agent.poll_event());
    assert!(
        delivered
            .into_iter()
            .any(|event| matches!(event, Event::Deliver(_)))
    );
    assert!(!agent.has_pending(NeighbourId(SECOND), BULK));
    let offer = send_to(&mut net, HUB, Some(ipn(FIRST, 0)));
    assert_eq!(hears(&mut agent, &net, &offer), Ok(()));
    assert!(agent.has_pending(NeighbourId(FIRST), BULK));
}

#[test]
fn nothing_goes_from_terminal_to_terminal_unless_the_pair_is_configured() {
    let mut net = liar(FIRST, |_| {});
    let offer = send_to(&mut net, SECOND, None);
    let mut agent = Agent::new(hub());
    assert_eq!(hears(&mut agent, &net, &offer), Err(Forgery::Relay.into()));
    assert_eq!(forgeries(&mut agent), [(FIRST, Forgery::Relay)]);
    let mut config = hub();
    let pair = (NeighbourId(FIRST), NeighbourId(SECOND));
    config.relaying = Relaying::Pairs(BTreeSet::from([pair]));
    let mut agent = Agent::new(config);
    assert_eq!(hears(&mut agent, &net, &offer), Ok(()));
    assert!(agent.has_pending(NeighbourId(SECOND), BULK));
}

#[test]
fn a_relay_speaks_for_what_lies_behind_it() {
    let mut config = hub();
    config.routes.insert(
        0,
        Route {
            nodes: 30..=39,
            neighbour: NeighbourId(FIRST),
            take_custody: true,
        },
    );
    let mut agent = Agent::new(config);
    let mut net = liar(35, |_| {});
    let offer = send_to(&mut net, HUB, None);
    assert_eq!(hears(&mut agent, &net, &offer), Ok(()));
    let mut net = liar(40, |_| {});
    let offer = send_to(&mut net, HUB, None);
    assert_eq!(hears(&mut agent, &net, &offer), Err(Forgery::Source.into()));
}

/// A hub whose contact plan allows bundles of these nodes from these neighbours.
fn hub_with_plan(speakers: &[(u64, &[u64])]) -> Agent {
    let mut agent = Agent::new(hub());
    let speakers = speakers.iter();
    let speakers = speakers.map(|(node, by)| (*node, by.iter().copied().collect()));
    let routes = PlannedRoutes {
        next: Arc::default(),
        speakers: Arc::new(speakers.collect::<HashMap<_, _>>()),
    };
    let (lost, moved) = (BTreeSet::new(), BTreeSet::new());
    let changed = PlanChanged {
        lost: &lost,
        moved: &moved,
    };
    agent.set_planned(Instant::now(), Some(routes), changed);
    agent
}

#[test]
fn by_a_contact_plan_a_neighbour_speaks_for_what_the_plan_leads_by_it_and_nothing_else() {
    // Even a plan that names this node or none lets nobody speak for them.
    let speakers: &[(u64, &[u64])] = &[
        (40, &[FIRST]),
        (41, &[SECOND]),
        (HUB, &[FIRST]),
        (0, &[FIRST]),
    ];
    for (claims, believed) in [(40, true), (41, false), (42, false), (SECOND, false)] {
        let mut net = liar(claims, |_| {});
        let mut agent = hub_with_plan(speakers);
        let offer = send_to(&mut net, HUB, None);
        let expected = match believed {
            true => Ok(()),
            false => Err(Forgery::Source.into()),
        };
        assert_eq!(hears(&mut agent, &net, &offer), expected, "{claims}");
    }
    let mut net = liar(HUB, |_| {});
    let mut agent = hub_with_plan(speakers);
    let offer = send_to(&mut net, SECOND, None);
    let outcome = hears(&mut agent, &net, &offer);
    assert_eq!(outcome, Err(Forgery::Source.into()), "this node itself");
}

#[test]
fn another_neighbour_comes_by_the_first_only_if_the_plan_leads_there() {
    for (speakers, expected) in [
        (&[][..], Err(Forgery::Source.into())),
        (&[(SECOND, &[SECOND][..])][..], Err(Forgery::Source.into())),
        (&[(SECOND, &[FIRST, SECOND][..])][..], Ok(())),
    ] {
        let mut net = liar(SECOND, |_| {});
        let mut agent = hub_with_plan(speakers);
        let offer = send_to(&mut net, HUB, None);
        assert_eq!(hears(&mut agent, &net, &offer), expected, "{speakers:?}");
    }
}

#[test]
fn without_its_plan_a_neighbour_speaks_for_no_more_than_before() {
    let mut agent = hub_with_plan(&[(40, &[FIRST])]);
    let (lost, moved) = (BTreeSet::new(), BTreeSet::new());
    let changed = PlanChanged {
        lost: &lost,
        moved: &moved,
    };
    agent.set_planned(Instant::now(), None, changed);
    let mut net = liar(40, |_| {});
    let offer = send_to(&mut net, HUB, None);
    assert_eq!(hears(&mut agent, &net, &offer), Err(Forgery::Source.into()));
}

#[test]
fn a_bundle_that_is_older_than_others_are_kept_goes_on_while_it_lives() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut config = hub();
    config.relaying = Relaying::All;
    config.foreign_lifetime = HOUR;
    let mut agent = Agent::new(config);
    let now = Instant::now();
    // The bundle is two hours old, with a lifetime of three.
    let mut old = primary(0, FIRST, ipn(SECOND, SERVICE));
    old.lifetime = 3 * HOUR;
    let age = Extension::new(block_type::BUNDLE_AGE, 2, 0, &[0x1A, 0, 0x6D, 0xDD, 0]);
    let raw = bundle(&old, &[age], b"old");
    agent.receive(now, NeighbourId(FIRST), BULK, raw).unwrap();
    assert_eq!(agent.custody(now).bundles, 1);
    agent.handle_timeout(now + HOUR - Duration::from_secs(1));
    assert_eq!(agent.custody(now).bundles, 1);
    agent.handle_timeout(now + HOUR);
    assert_eq!(agent.custody(now).bundles, 0);
}

#[test]
fn what_is_kept_for_others_is_kept_for_a_day_at_most() {
    let mut config = hub();
    config.relaying = Relaying::All;
    config.foreign_lifetime = Duration::from_secs(3600);
    let mut agent = Agent::new(config);
    let mut net = liar(FIRST, |config| {
        config.lifetime = Duration::from_secs(365 * 86_400)
    });
    let offer = send_to(&mut net, SECOND, None);
    assert_eq!(hears(&mut agent, &net, &offer), Ok(()));
    agent.handle_timeout(net.now + Duration::from_secs(3599));
    assert_eq!(agent.custody(net.now).bundles, 1);
    agent.handle_timeout(net.now + Duration::from_secs(3601));
    let left = agent.list(net.now, None, 10);
    assert!(
        left.iter().all(|stored| stored.class == Class::SIGNALLING),
        "{left:?}"
    );
    net.finish(0, &offer, Outcome::Acknowledged);
}

/// A bundle with these endpoints, each in its CBOR encoding, and with this custodian.
fn raw(destination: &[u8], source: &[u8], report_to: &[u8], custodian: &[u8]) -> Bytes {
    let mut raw = vec![0x9F, 0x88, 0x07, 0x00, 0x00];
    for endpoint in [destination, source, report_to] {
        raw.extend(endpoint);
    }
    // Creation timestamp, lifetime (ms).
    raw.extend([0x82, 0x00, 0x07, 0x1A, 0x05, 0x26, 0x5C, 0x00]);
    // CTEB: number 0 in sequence 9.
    raw.extend([
        0x85,
        0x0D,
        0x02,
        0x00,
        0x00,
        0x40 + custodian.len() as u8 + 3,
    ]);
    raw.extend([0x83, 0x00, 0x09]);
    raw.extend(custodian);
    raw.extend([0x85, 0x01, 0x01, 0x00, 0x00, 0x41, b'x', 0xFF]);
    raw.into()
}

/// `ipn:10.64`, `ipn:1.64` and the null endpoint.
const OF_FIRST: &[u8] = &[0x82, 0x02, 0x82, 0x0A, 0x18, 0x40];
const OF_HUB: &[u8] = &[0x82, 0x02, 0x82, 0x01, 0x18, 0x40];
const NULL: &[u8] = &[0x82, 0x01, 0x00];

/// The first terminal sends this bundle to a hub with a route for all nodes: the outcome,
/// and the hub.
fn said(raw: Bytes) -> (Result<(), Reject>, Agent) {
    let mut config = hub();
    config.routes.push(Route {
        nodes: 0..=u64::MAX,
        neighbour: NeighbourId(FIRST),
        take_custody: true,
    });
    let mut agent = Agent::new(config);
    let now = Instant::now();
    agent.neighbour_up(now, NeighbourId(FIRST));
    let outcome = agent.receive(now, NeighbourId(FIRST), BULK, raw);
    (outcome, agent)
}

fn is_delivered(agent: &mut Agent) -> bool {
    let mut events = std::iter::from_fn(|| agent.poll_event());
    events.any(|event| matches!(event, Event::Deliver(_)))
}

#[test]
fn the_default_allocator_written_out_names_the_same_node() {
    // RFC 9758: [0, 10, 64] is [10, 64].
    let written_out = [0x82, 0x02, 0x83, 0x00, 0x0A, 0x18, 0x40];
    let to_hub = [0x82, 0x02, 0x83, 0x00, 0x01, 0x18, 0x40];
    let (outcome, mut agent) = said(raw(&to_hub, &written_out, NULL, &written_out));
    assert_eq!(outcome, Ok(()));
    assert!(is_delivered(&mut agent));
    // The hub's own number as custodian does so too; it is refused.
    for custodian in [OF_FIRST, &to_hub] {
        let (outcome, _) = said(raw(OF_HUB, &to_hub, NULL, custodian));
        assert_eq!(outcome, Err(Forgery::Source.into()));
    }
    let (outcome, _) = said(raw(OF_HUB, OF_FIRST, NULL, &to_hub));
    assert_eq!(outcome, Err(Forgery::Custodian.into()));
}

#[test]
fn another_allocators_node_of_the_same_number_is_another_node() {
    let foreign = [0x82, 0x02, 0x83, 0x03, 0x0A, 0x18, 0x40];
    let mut agent = Agent::new(hub());
    let now = Instant::now();
    for (source, custodian, forgery) in [
        (&foreign[..], OF_FIRST, Forgery::Source),
        (OF_FIRST, &foreign[..], Forgery::Custodian),
    ] {
        let bundle = raw(OF_HUB, source, NULL, custodian);
        let outcome = agent.receive(now, NeighbourId(FIRST), BULK, bundle);
        assert_eq!(outcome, Err(forgery.into()));
    }
    // The hub of another allocator is another node: nothing is delivered.
    let other_hub = [0x82, 0x02, 0x83, 0x03, 0x01, 0x18, 0x40];
    let bundle = raw(&other_hub, OF_FIRST, NULL, OF_FIRST);
    let outcome = agent.receive(now, NeighbourId(FIRST), BULK, bundle);
    assert_eq!(outcome, Ok(()));
    assert!(!is_delivered(&mut agent));
}

#[test]
fn what_names_no_node_has_no_neighbour_that_speaks_for_it() {
    // ipn:!.64, as [2³²−1, 64] and as [0, 2³²−1, 64], means the node that reads it
    // (RFC 9758): from outside it names nobody. Node number 0 of an allocator is reserved.
    let local = [0x82, 0x02, 0x82, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0x18, 0x40];
    let local_written_out = [
        0x82, 0x02, 0x83, 0x00, 0x1A, 0xFF, 0xFF, 0xFF, 0xFF, 0x18, 0x40,
    ];
    let reserved = [0x82, 0x02, 0x83, 0x03, 0x00, 0x18, 0x40];
    for nobody in [&local[..], &local_written_out, &reserved] {
        let (outcome, _) = said(raw(OF_HUB, nobody, NULL, OF_FIRST));
        assert_eq!(outcome, Err(Forgery::Source.into()), "{nobody:02x?}");
        let (outcome, _) = said(raw(OF_HUB, OF_FIRST, NULL, nobody));
        assert_eq!(outcome, Err(Forgery::Custodian.into()), "{nobody:02x?}");
        // As a report-to endpoint it costs only the report.
        let mut reported = raw(OF_HUB, OF_FIRST, nobody, OF_FIRST).to_vec();
        // The flag that asks for reports of delivery, 0x20000, in the primary.
        reported.splice(3..4, [0x1A, 0x00, 0x02, 0x00, 0x00]);
        let (outcome, mut agent) = said(reported.into());
        assert_eq!(outcome, Ok(()), "{nobody:02x?}");
        assert_eq!(agent.custody(Instant::now()).bundles, 0, "no report");
        assert!(is_delivered(&mut agent));
        // As a destination it has no route.
        let (outcome, mut agent) = said(raw(nobody, OF_FIRST, NULL, OF_FIRST));
        assert_eq!(outcome, Ok(()), "{nobody:02x?}");
        let events: Vec<Event> = std::iter::from_fn(|| agent.poll_event()).collect();
        let deleted = |event: &Event| matches!(event, Event::Deleted { id: None, .. });
        assert!(events.iter().any(deleted), "{events:?}");
    }
}

#[test]
fn node_number_0_is_the_null_endpoint() {
    // [0, 0], [0, 0, 0], and a service of node 0, are equal to dtn:none: anybody may use
    // them, and nobody gets a report for them.
    let nulls: [&[u8]; 4] = [
        NULL,
        &[0x82, 0x02, 0x82, 0x00, 0x00],
        &[0x82, 0x02, 0x83, 0x00, 0x00, 0x00],
        &[0x82, 0x02, 0x82, 0x00, 0x18, 0x40],
    ];
    for null in nulls {
        let (outcome, mut agent) = said(raw(OF_HUB, null, null, null));
        assert_eq!(outcome, Ok(()), "{null:02x?}");
        assert!(is_delivered(&mut agent));
        assert_eq!(agent.next_timeout(), None, "no signal is owed");
    }
}
