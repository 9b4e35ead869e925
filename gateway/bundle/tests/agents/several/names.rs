//! No two agents use the same names.

use std::collections::HashSet;

use underpass_bundle::wire::{CodePoints, DecodeLimits, decode};
use underpass_bundle::{Passed, SendError};

use super::hub::{Hub, by, to_send};
use super::terminals::{HUB, ends, hub_config, raw};
use crate::net::{BULK, node};

#[test]
fn bundles_and_custody_of_one_node_have_names_of_their_own() {
    for count in [1, 2, 5] {
        let neighbours: Vec<u64> = (10..30).collect();
        let mut hub = Hub::new(node(HUB), count, None, &neighbours);
        let (mut ids, mut names, mut custody) = (HashSet::new(), HashSet::new(), HashSet::new());
        for round in 0..2 {
            for to in &neighbours {
                for _ in 0..10 {
                    let now = hub.now;
                    let id = hub.of(*to).send(now, to_send(*to, b"data")).unwrap();
                    assert!(ids.insert(id));
                    let sent = raw(&hub.offer(*to, BULK).unwrap());
                    let limits = DecodeLimits::default();
                    let bundle = decode(&sent, &limits, &CodePoints::default()).unwrap();
                    let timestamp = &bundle.primary.creation_timestamp;
                    assert!(names.insert((timestamp.dtntime(), timestamp.seqno())));
                    let (_, cteb) = bundle.cteb.unwrap();
                    assert!(custody.insert((cteb.sequence, cteb.number)), "{round}");
                }
            }
            // The second round has a clock.
            for agent in &mut hub.agents {
                agent.set_clock(hub.now, 848_523_100_000);
            }
        }
    }
}

#[test]
fn a_service_sends_by_the_agent_that_has_the_next_hop() {
    let (near, far) = ends();
    let mut config = hub_config();
    config.routes.push(by(500, far));
    let mut hub = Hub::new(config, 2, None, &[near, far]);
    assert_eq!(hub.agents[0].shard_to(near, 0), Some(0));
    assert_eq!(hub.agents[0].shard_to(far, 0), Some(1));
    assert_eq!(hub.agents[0].shard_to(500, 0), Some(1));
    assert_eq!(hub.agents[1].shard_to(HUB, 0), Some(1));
    let now = hub.now;
    let refused = hub.agents[0].send(now, to_send(500, b"data"));
    assert_eq!(refused, Err(SendError::NoRoute));
    hub.assert_empty();
    hub.agents[1].send(now, to_send(500, b"data")).unwrap();
    assert_eq!(hub.stored(), [0, 1]);
}

#[test]
fn what_is_passed_may_go_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Passed>();
}
