//! Stored bundles whose routes change to another agent's neighbour.

use std::time::Duration;

use underpass_bundle::{Agent, BundleId, DeleteReason, Event, NeighbourId, Route};
use underpass_cla::{Class, Outcome};

use super::disk::Disk;
use super::hub::{Hub, by, direct, to_send};
use super::terminals::{HUB, ends, numbers, raw};
use crate::net::{BULK, node};

/// A node behind both neighbours.
const BEHIND: u64 = 500;

fn routes(via: u64) -> Vec<Route> {
    let (near, far) = ends();
    let mut routes = direct(&[near, far]);
    routes.push(by(BEHIND, via));
    routes
}

/// A hub whose service has sent bundles to [`BEHIND`], by the neighbour of
/// agent 0.
fn hub(disk: Option<Disk>, bundles: usize) -> (Hub, Vec<BundleId>) {
    let (near, far) = ends();
    let mut config = node(HUB);
    config.routes = routes(near);
    let mut hub = Hub::new(config, 2, disk, &[near, far]);
    let now = hub.now;
    let send = |_| hub.agents[0].send(now, to_send(BEHIND, b"data")).unwrap();
    let sent = (0..bundles).map(send).collect();
    (hub, sent)
}

fn released(hub: &mut Hub) -> Vec<BundleId> {
    let released = |event| match event {
        Event::Released { id, .. } => Some(id),
        Event::Woken { .. } => None,
        event => panic!("{event:?}"),
    };
    let events = std::mem::take(&mut hub.events);
    events.into_iter().filter_map(released).collect()
}

fn reroute(hub: &mut Hub, via: u64) {
    for shard in 0..hub.agents.len() {
        hub.set_routes(shard, &routes(via));
    }
}

#[test]
fn a_bundle_stays_until_the_other_agent_has_made_it_safe() {
    let (_, far) = ends();
    let (mut hub, sent) = hub(Some(Disk::default()), 1);
    hub.work();
    reroute(&mut hub, far);
    // Its payload is read first.
    hub.carry_all();
    assert_eq!(hub.stored(), [1, 0]);
    assert!(hub.disk.as_ref().unwrap().load());
    hub.handle_store();
    hub.carry_all();
    assert_eq!((hub.stored(), released(&mut hub)), (vec![1, 1], vec![]));
    assert!(hub.disk.as_ref().unwrap().commit());
    hub.handle_store();
    assert_eq!(hub.stored(), [1, 1], "the answer is on its way");
    hub.carry_all();
    assert_eq!((hub.stored(), released(&mut hub)), (vec![0, 1], sent));
    assert_eq!(hub.common.quota().stored().bundles, 1);
    hub.work();
    assert!(hub.offer(far, BULK).is_some() || hub.of(far).is_loading(NeighbourId(far), BULK));
}

#[test]
fn a_bundle_in_both_stores_at_the_end_of_the_process_is_restored_once() {
    let (_, far) = ends();
    let (mut hub, sent) = hub(Some(Disk::default()), 1);
    hub.work();
    reroute(&mut hub, far);
    hub.carry_all();
    assert!(hub.disk.as_ref().unwrap().load());
    hub.handle_store();
    hub.carry_all();
    assert!(hub.disk.as_ref().unwrap().commit());
    assert_eq!(hub.disk.as_ref().unwrap().bundles(), 2);
    hub.restart(2);
    assert_eq!(hub.stored(), [0, 1]);
    assert_eq!(hub.disk.as_ref().unwrap().bundles(), 1);
    let restored = |event: &Event| matches!(event, Event::Restored { id, .. } if *id == sent[0]);
    assert!(hub.events.iter().any(restored), "its service knows it");
}

#[test]
fn what_another_number_of_agents_has_left_goes_to_the_right_one() {
    let (near, far) = ends();
    let (mut hub, _) = hub(Some(Disk::default()), 5);
    hub.work();
    for shards in [3, 1, 2] {
        hub.restart(shards);
        let shard = hub.shard_of(near);
        assert_eq!(hub.stored()[shard], 5);
        hub.work();
        let _ = hub.offer(far, BULK);
        assert!(hub.agents[shard].has_pending(NeighbourId(near), BULK));
    }
}

#[test]
fn one_that_takes_turns_with_the_others_does_so_at_the_other_agent() {
    let (_, far) = ends();
    let (mut hub, sent) = hub(None, 1);
    hub.agents[0].set_restored(sent[0]);
    reroute(&mut hub, far);
    hub.carry_all();
    let offer = hub.offer(far, BULK).expect("it was passed on");
    assert!(offer.restored);
}

#[test]
fn a_few_at_a_time_are_under_way() {
    let (_, far) = ends();
    let (mut hub, sent) = hub(None, 1_000);
    reroute(&mut hub, far);
    hub.handle_timeout();
    let mut most = 0;
    while let Some((from, to)) = hub.pairs().first().copied() {
        most = most.max(hub.mail[&(from, to)].len());
        hub.carry(from, to);
        hub.handle_timeout();
    }
    assert!((2..=16).contains(&most), "{most}");
    assert_eq!((hub.stored(), released(&mut hub)), (vec![0, 1_000], sent));
}

#[test]
fn a_full_quota_does_not_keep_bundles_from_leaving() {
    let (_, far) = ends();
    let (mut hub, sent) = hub(Some(Disk::default()), 20);
    for agent in &mut hub.agents {
        agent.set_limits(underpass_bundle::Limits {
            store_bytes: 1,
            store_bundles: 1,
            guaranteed_percent: 50,
            foreign_lifetime: Duration::from_secs(60),
            hop_limit: 3,
        });
    }
    reroute(&mut hub, far);
    hub.work();
    assert_eq!((hub.stored(), released(&mut hub)), (vec![0, 20], sent));
}

#[test]
fn routes_that_change_back_while_a_bundle_is_under_way_lose_nothing() {
    let (near, far) = ends();
    // With each number of messages carried and of commits before the next
    // change.
    for durable in [false, true] {
        for carried in 0..64u32 {
            let (mut hub, sent) = hub(durable.then(Disk::default), 3);
            hub.carry_all();
            for change in 0..3 {
                reroute(&mut hub, if change % 2 == 0 { far } else { near });
                hub.handle_timeout();
                for _ in 0..(carried >> (2 * change)) % 4 {
                    if let Some((from, to)) = hub.pairs().last().copied() {
                        hub.carry(from, to);
                    }
                    if let Some(disk) = &hub.disk
                        && carried % 3 == 0
                    {
                        disk.commit();
                        hub.handle_store();
                    }
                    hub.handle_timeout();
                }
                assert!(hub.stored().iter().sum::<usize>() >= 3, "{carried}");
            }
            for _ in 0..10 {
                hub.work();
                hub.pass(Duration::from_secs(10));
            }
            assert_eq!(hub.stored(), [0, 3], "{durable} {carried}");
            let mut told = released(&mut hub);
            told.sort_unstable();
            assert_eq!(told, sent);
        }
    }
}

#[test]
fn a_bundle_without_any_route_is_given_up_by_all() {
    let (_, far) = ends();
    let (mut hub, sent) = hub(None, 1);
    for shard in 0..2 {
        hub.set_routes(shard, &direct(&[far]));
    }
    hub.carry_all();
    hub.carry_all();
    let events = std::mem::take(&mut hub.events);
    let [
        Event::GivenUp {
            id,
            reason,
            payload,
            ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((*id, *reason), (sent[0], DeleteReason::NoRoute));
    assert_eq!(payload[..], [&b"data"[..]]);
    hub.assert_settled();
}

#[test]
fn a_bundle_in_transmission_goes_anew_by_the_other_agent() {
    let (near, far) = ends();
    let (mut hub, sent) = hub(None, 1);
    let offer = hub.offer(near, BULK).unwrap();
    reroute(&mut hub, far);
    hub.carry_all();
    hub.finish(near, &offer, Outcome::Acknowledged);
    assert_eq!((hub.stored(), released(&mut hub)), (vec![0, 1], sent));
    assert!(hub.offer(near, BULK).is_none());
    assert!(hub.offer(far, BULK).is_some());
}

#[test]
fn what_is_given_up_while_it_is_read_holds_up_no_other() {
    let (_, far) = ends();
    let (mut hub, sent) = hub(Some(Disk::default()), 40);
    hub.work();
    reroute(&mut hub, far);
    hub.handle_timeout();
    let now = hub.now;
    for id in &sent[..16] {
        hub.agents[0].discard(now, *id);
    }
    hub.work();
    assert_eq!(hub.stored(), [0, 24]);
}

#[test]
fn a_copy_that_is_not_committed_does_not_vouch_for_another() {
    let (near, far) = ends();
    let (mut hub, _) = hub(Some(Disk::default()), 0);
    let mut terminal = node(near);
    terminal.routes = vec![by(BEHIND, HUB)];
    let mut terminal = Agent::new(terminal);
    let now = hub.now;
    terminal.send(now, to_send(BEHIND, b"data")).unwrap();
    let offer = terminal.next_for(now, NeighbourId(HUB), BULK, u64::MAX);
    let offer = raw(&offer.unwrap());
    // By another neighbour of agent 0 at first.
    let other = numbers(2)[0][1];
    reroute(&mut hub, other);
    hub.receive(near, BULK, offer.clone()).unwrap();
    hub.work();
    assert_eq!(hub.stored(), [1, 0]);
    // The custodian has missed the signal: agent 1 takes a second copy, and
    // then is passed the first.
    reroute(&mut hub, far);
    hub.receive(near, BULK, offer).unwrap();
    hub.carry_all();
    assert!(hub.disk.as_ref().unwrap().load());
    hub.handle_store();
    hub.carry_all();
    assert_eq!(hub.stored(), [1, 1], "the second is not committed");
    hub.work();
    hub.pass(Duration::from_secs(2));
    hub.work();
    assert_eq!(hub.stored(), [0, 1]);
    assert_eq!(hub.common.quota().stored().bundles, 1);
}

#[test]
fn without_custody_it_is_passed_on_too() {
    let (near, far) = ends();
    let (mut hub, _) = hub(None, 0);
    let now = hub.now;
    let mut send = to_send(BEHIND, b"data");
    send.custody = false;
    send.class = Class(1);
    let id = hub.of(near).send(now, send).unwrap();
    reroute(&mut hub, far);
    hub.carry_all();
    assert_eq!((hub.stored(), released(&mut hub)), (vec![0, 1], vec![id]));
    let offer = hub.offer(far, Class(1)).unwrap();
    hub.finish(far, &offer, Outcome::Acknowledged);
    hub.assert_settled();
}

#[test]
fn what_expires_or_is_cancelled_on_its_way_leaves_nothing_behind() {
    let (_, far) = ends();
    for cancelled in [false, true] {
        let (mut hub, sent) = hub(None, 1);
        reroute(&mut hub, far);
        hub.handle_timeout();
        match cancelled {
            true => assert!(hub.agents[0].cancel(hub.now, sent[0])),
            false => hub.pass(Duration::from_secs(24 * 3600)),
        }
        hub.carry_all();
        hub.pass(Duration::from_secs(24 * 3600));
        hub.assert_settled();
    }
}
