//! Bundles that come in at one agent and go out at another.

use std::time::Duration;

use underpass_bundle::wire::ipn;
use underpass_bundle::{DeleteReason, Event, Forgery, Reject, Relaying, ReportRequest};
use underpass_cla::{Class, Outcome};

use super::hub::{by, to_send};
use super::terminals::{HUB, Star, ends, hub_config, numbers, raw};
use crate::net::BULK;

#[test]
fn custody_is_signalled_once_the_bundle_is_safe_with_the_agent_that_sends_it() {
    let (near, far) = ends();
    let mut star = Star::with_disk();
    let id = star.send(near, far, b"data");
    star.up(near).unwrap();
    assert_eq!(star.hub.pairs(), [(0, 1)]);
    assert_eq!(star.signalled(near), 0, "it is on its way");
    star.hub.carry_all();
    assert_eq!(star.hub.stored(), [0, 1]);
    assert_eq!(star.signalled(near), 0, "it is not committed");
    assert!(star.hub.disk.as_ref().unwrap().commit());
    star.hub.handle_store();
    assert_eq!(star.hub.pairs(), [(1, 0)]);
    assert_eq!(star.signalled(near), 0, "the answer is on its way");
    star.hub.carry_all();
    assert_eq!(star.signalled(near), 1);
    assert_eq!(star.released(near), [id]);
    star.drain();
    assert_eq!(star.delivered(far), [&b"data"[..]]);
    star.hub.assert_settled();
}

#[test]
fn in_memory_custody_is_signalled_once_it_is_there() {
    let (near, far) = ends();
    let mut star = Star::new(hub_config(), None);
    let id = star.send(near, far, b"data");
    star.up(near).unwrap();
    assert_eq!(star.signalled(near), 0);
    star.hub.carry_all();
    assert_eq!(star.signalled(near), 1);
    assert_eq!(star.released(near), [id]);
}

#[test]
fn custody_that_has_gone_on_is_signalled_before_it_was_committed() {
    let (near, far) = ends();
    let mut star = Star::with_disk();
    let id = star.send(near, far, b"data");
    star.up(near).unwrap();
    star.hub.carry_all();
    assert_eq!(star.down(far, BULK), 1);
    star.pass(Duration::from_millis(100));
    star.signals_up(far);
    star.hub.carry_all();
    assert_eq!(star.signalled(near), 1);
    assert_eq!(star.released(near), [id]);
    star.hub.assert_settled();
}

#[test]
fn the_end_of_the_process_loses_nothing_that_was_signalled() {
    let (near, far) = ends();
    // When the process ends, the bundle is in the mail, stored, committed or answered.
    for moment in 0..4 {
        let mut star = Star::with_disk();
        let id = star.send(near, far, b"data");
        star.up(near).unwrap();
        if moment > 0 {
            star.hub.carry(0, 1);
        }
        if moment > 1 {
            assert!(star.hub.disk.as_ref().unwrap().commit());
            star.hub.handle_store();
        }
        if moment > 2 {
            star.hub.carry_all();
            star.signalled(near);
        }
        star.hub.restart(2);
        let kept = if moment > 1 { [0, 1] } else { [0, 0] };
        assert_eq!(star.hub.stored(), kept);
        star.drain();
        assert_eq!(star.delivered(far), [&b"data"[..]], "{moment}");
        assert_eq!(star.released(near), [id]);
        star.hub.assert_settled();
    }
}

#[test]
fn a_duplicate_is_answered_and_not_stored_again() {
    let (near, far) = ends();
    let mut star = Star::with_disk();
    let id = star.send(near, far, b"data");
    let offer = star.next(near, BULK).unwrap();
    // The first copy is in the mail, then stored, then gone.
    for _ in 0..2 {
        star.hub.receive(near, BULK, raw(&offer)).unwrap();
    }
    star.hub.carry_all();
    assert_eq!(star.hub.stored(), [0, 1]);
    star.hub.receive(near, BULK, raw(&offer)).unwrap();
    star.hub.carry_all();
    assert_eq!(star.signalled(near), 0, "it is not committed");
    star.hub.work();
    assert_eq!(star.hub.common.quota().stored().bundles, 1);
    assert_eq!(star.signalled(near), 1);
    assert_eq!(star.released(near), [id]);
    star.drain();
    star.hub.receive(near, BULK, raw(&offer)).unwrap();
    star.hub.work();
    assert_eq!(star.hub.stored(), [0, 0]);
    assert_eq!(star.signalled(near), 1);
    assert_eq!(star.delivered(far).len(), 1);
    star.hub.assert_settled();
}

#[test]
fn what_is_on_its_way_holds_room() {
    let (near, far) = ends();
    let mut config = hub_config();
    config.store_bundles = 8;
    let mut star = Star::new(config, None);
    for _ in 0..4 {
        star.send(near, far, b"data");
    }
    // A neighbour may have three of the eight: its own share, and two of the four in the
    // common pool.
    for taken in [1, 2, 3, 3] {
        star.up(near).unwrap();
        assert_eq!(star.hub.common.quota().stored().bundles, taken);
    }
    // A bundle that is dropped between agents leaves the quota.
    star.hub.mail.get_mut(&(0, 1)).unwrap().pop_front();
    assert_eq!(star.hub.common.quota().stored().bundles, 2);
    star.drain();
    assert_eq!(star.delivered(far).len(), 4);
    star.hub.assert_settled();
}

#[test]
fn a_full_node_still_answers_for_what_it_has() {
    let (near, far) = ends();
    let mut config = hub_config();
    config.store_bundles = 1;
    let mut star = Star::new(config, None);
    let id = star.send(near, far, b"data");
    let offer = star.next(near, BULK).unwrap();
    star.hub.receive(near, BULK, raw(&offer)).unwrap();
    star.hub.carry_all();
    star.signalled(near);
    star.released(near);
    // As if the signal were lost.
    star.hub.receive(near, BULK, raw(&offer)).unwrap();
    assert_eq!(star.hub.common.quota().stored().bundles, 1);
    star.hub.carry_all();
    assert_eq!(star.signalled(near), 1, "{id:?}");
    // The hub does not answer for bundles that it does not have.
    let other = star.send(near, far, b"other");
    star.up(near).unwrap();
    star.hub.carry_all();
    star.signalled(near);
    assert!(star.released(near).is_empty());
    star.drain();
    assert_eq!(star.released(near), [other]);
    star.hub.assert_settled();
}

#[test]
fn what_is_not_taken_is_refused_upstream() {
    let (near, far) = ends();
    let deleted = |star: &mut Star, why: DeleteReason| {
        let events = std::mem::take(&mut star.hub.events);
        let is_it =
            |event: &Event| matches!(event, Event::Deleted { reason, .. } if *reason == why);
        assert!(events.iter().any(is_it), "{why:?}: {events:?}");
        assert_eq!(star.hub.stored(), [0, 0]);
        assert_eq!(star.signalled(near), 1, "that custody is not taken");
        assert_eq!(star.released(near), []);
        star.hub.assert_settled();
    };
    // The store of the other agent has filled meanwhile.
    let mut star = Star::with_disk();
    star.send(near, far, b"data");
    star.up(near).unwrap();
    star.hub.disk.as_ref().unwrap().set_full(true);
    star.hub.carry_all();
    deleted(&mut star, DeleteReason::DepletedStorage);
    // The bundle's lifetime ended on its way.
    let mut star = Star::with_disk();
    let mut send = to_send(far, b"data");
    send.lifetime = Some(Duration::from_secs(5));
    let now = star.hub.now;
    star.terminal(near).send(now, send).unwrap();
    star.up(near).unwrap();
    star.hub.now += Duration::from_secs(5);
    star.hub.carry_all();
    deleted(&mut star, DeleteReason::LifetimeExpired);
    // Its destination could be a neighbour, but is none.
    let mut star = Star::with_disk();
    let near_routes: Vec<_> = numbers(2)[0]
        .iter()
        .map(|number| by(*number, *number))
        .collect();
    star.hub.set_routes(0, &near_routes);
    star.hub.set_routes(1, &near_routes);
    star.send(near, far, b"data");
    star.up(near).unwrap();
    star.hub.carry_all();
    deleted(&mut star, DeleteReason::NoRoute);
}

#[test]
fn a_full_store_of_another_agent_refuses_at_the_door() {
    let (near, far) = ends();
    let mut star = Star::with_disk();
    star.hub.disk.as_ref().unwrap().set_full(true);
    star.hub.handle_store();
    star.send(near, far, b"data");
    assert_eq!(star.up(near), Err(Reject::NoResources));
    star.hub.disk.as_ref().unwrap().set_full(false);
    star.hub.handle_store();
    star.drain();
    assert_eq!(star.delivered(far).len(), 1);
}

#[test]
fn without_custody_a_bundle_crosses_and_its_custodian_stays() {
    let (near, far) = ends();
    let mut config = hub_config();
    config.accept_custody = false;
    let mut star = Star::new(config, Some(Default::default()));
    let id = star.send(near, far, b"data");
    star.up(near).unwrap();
    star.hub.work();
    assert_eq!(star.signalled(near), 0);
    star.down(far, BULK);
    star.hub.assert_settled();
    star.drain();
    assert_eq!(star.released(near), [id], "the destination signals");
    assert_eq!(star.delivered(far).len(), 1);
}

#[test]
fn nothing_is_relayed_between_neighbours_that_may_not() {
    let (near, far) = ends();
    let mut config = hub_config();
    config.relaying = Relaying::Pairs(Default::default());
    let mut star = Star::new(config, None);
    star.send(near, far, b"data");
    assert_eq!(star.up(near), Err(Forgery::Relay.into()));
    assert!(star.hub.pairs().is_empty());
    star.hub.assert_settled();
}

#[test]
fn status_reports_go_back_by_the_agent_that_has_the_reporter() {
    let (near, far) = ends();
    let mut star = Star::with_disk();
    let mut send = to_send(far, b"data");
    send.reports = Some(ReportRequest {
        to: ipn(near, 0),
        reception: true,
        forwarding: true,
        delivery: false,
        deletion: false,
    });
    let now = star.hub.now;
    star.terminal(near).send(now, send).unwrap();
    star.up(near).unwrap();
    star.drain();
    let reports = star.events(near);
    let of_hub = |event: &&Event| matches!(event, Event::StatusReport { reporter, .. } if *reporter == ipn(HUB, 0));
    assert_eq!(reports.iter().filter(of_hub).count(), 2);
    star.hub.assert_settled();
}

#[test]
fn signals_for_others_cross_too() {
    // The terminals take custody of each other's bundles, and the hub takes none: it
    // relays their signals as bundles.
    let (near, far) = ends();
    let mut config = hub_config();
    for route in &mut config.routes {
        route.take_custody = false;
    }
    let mut star = Star::new(config, None);
    let id = star.send(near, far, b"data");
    star.up(near).unwrap();
    star.hub.carry_all();
    star.down(far, BULK);
    star.pass(Duration::from_millis(100));
    star.signals_up(far);
    assert_eq!(star.hub.pairs(), [(1, 0)]);
    star.hub.carry_all();
    let signal = star.hub.offer(near, Class::SIGNALLING).unwrap();
    let now = star.hub.now;
    let hub = underpass_bundle::NeighbourId(HUB);
    star.terminal(near)
        .receive(now, hub, Class::SIGNALLING, raw(&signal))
        .unwrap();
    star.hub.finish(near, &signal, Outcome::Acknowledged);
    assert_eq!(star.released(near), [id]);
    star.hub.assert_settled();
}
