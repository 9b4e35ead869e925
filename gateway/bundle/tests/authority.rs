//! What a neighbour may say of itself and of others.

mod net;

use std::collections::BTreeSet;
use std::time::Duration;

use net::{BULK, Net, SERVICE, node, payload};
use underpass_bundle::wire::{Eid, ipn};
use underpass_bundle::{
    Agent, Config, Event, Forgery, NeighbourId, Offer, Reject, Relaying, ReportRequest, Route, Send,
};
use underpass_cla::{Class, Outcome};

const HUB: u64 = 1;
const FIRST: u64 = 10;
const SECOND: u64 = 11;

/// The hub of two terminals.
fn hub() -> Config {
    let mut config = node(HUB);
    let direct = |number| Route {
        nodes: number..=number,
        neighbour: NeighbourId(number),
        take_custody: true,
    };
    config.routes = vec![direct(FIRST), direct(SECOND)];
    config.relaying = Relaying::Pairs(BTreeSet::new());
    config
}

/// A node that writes as it likes: its configuration says who it claims to be.
fn liar(claims: u64, change: impl FnOnce(&mut Config)) -> Net {
    let mut config = node(claims);
    config.routes = vec![Route {
        nodes: 1..=u64::from(u32::MAX),
        neighbour: NeighbourId(99),
        take_custody: true,
    }];
    change(&mut config);
    let mut net = Net::new(vec![Agent::new(config)]);
    net.agents[0].neighbour_up(net.now, NeighbourId(99));
    net
}

fn send_to(net: &mut Net, to: u64, report_to: Option<Eid>) -> Offer {
    let send = Send {
        destination: ipn(to, SERVICE),
        service: SERVICE,
        class: BULK,
        payload: vec![payload(b"forged")],
        lifetime: None,
        custody: true,
        last: false,
        label: 0,
        reports: report_to.map(|to| ReportRequest {
            to,
            reception: true,
            forwarding: false,
            delivery: true,
            deletion: false,
        }),
    };
    net.agents[0].send(net.now, send).unwrap();
    net.offer(0, 99).unwrap()
}

/// The first terminal hands a bundle to the hub.
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
        // And nobody is told that custody was taken.
        assert_eq!(agent.next_timeout(), None);
    }
}

#[test]
fn a_terminal_has_custody_of_its_own_bundles_only() {
    // The second one's bundle, as the first one sends it on in its own name,
    // still names the second as custodian.
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
        left.iter().all(|held| held.class == Class::SIGNALLING),
        "{left:?}"
    );
    net.finish(0, &offer, Outcome::Acknowledged);
}
