//! Payloads are read from the disk before they are needed.

use underpass_bundle::{Agent, NeighbourId};
use underpass_cla::Outcome;

use super::disk::Disk;
use crate::net::{BULK, Net, node};

const BUNDLES: usize = 1_000;

#[test]
fn a_queue_on_disk_waits_for_a_few_of_its_bundles_alone() {
    let disk = Disk::default();
    let store = Box::new(disk.part(0, Vec::new()));
    let mut net = Net::new(vec![Agent::with_store(node(1), store), Agent::new(node(2))]);
    for number in 0..BUNDLES {
        net.send(0, 2, &number.to_be_bytes()).unwrap();
    }
    while disk.commit() {}
    let now = net.now;
    let agent = &mut net.agents[0];
    agent.handle_store(now);
    let (mut waits, mut sent) = (0, Vec::new());
    while sent.len() < BUNDLES {
        match agent.next_for(now, NeighbourId(2), BULK, u64::MAX) {
            Some(offer) => {
                agent.transfer_finished(now, offer.key, Outcome::Acknowledged);
                sent.push(offer.id);
            }
            // A payload that is asked for arrives only when the link waits for it.
            None => {
                assert!(
                    agent.is_loading(NeighbourId(2), BULK),
                    "it waits for nothing"
                );
                waits += 1;
                while disk.load() {}
                agent.handle_store(now);
            }
        }
    }
    assert!(sent.is_sorted());
    assert!(waits <= BUNDLES / 100, "{waits}");
}
