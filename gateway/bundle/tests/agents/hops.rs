//! Custody over several hops, in the dialects of other implementations.

use std::time::Duration;

use crate::net::{BULK, Net, node};
use underpass_bundle::wire::{CodePoints, CustodyDialect};
use underpass_bundle::{Agent, NeighbourId, Route};
use underpass_cla::{Class, Outcome};

use CustodyDialect::{Bplib, Ion};

const TERMINAL: usize = 0;
const FORWARDER: usize = 1;
const CUSTODIAN: usize = 2;
const HUB: usize = 3;

/// A terminal, a relay that only forwards, a relay that takes custody, and a hub, each
/// with its dialect.
fn chain(dialects: [CustodyDialect; 4]) -> Net {
    let agent = |index: usize| {
        let own = index as u64 + 1;
        let mut config = node(own);
        config.codes = CodePoints::of(dialects[index]);
        let others = (1..=4u64).filter(|other| *other != own);
        config.routes.extend(others.map(|other| Route {
            nodes: other..=other,
            neighbour: NeighbourId(if other > own { own + 1 } else { own - 1 }),
            take_custody: index == CUSTODIAN,
        }));
        Agent::new(config)
    };
    Net::new((0..4).map(agent).collect())
}

/// Carries all waiting bundles of a class from one node to the next.
fn carry(net: &mut Net, from: usize, to: usize, class: Class) {
    let (here, via) = (NeighbourId(from as u64 + 1), NeighbourId(to as u64 + 1));
    while let Some(offer) = net.agents[from].next_for(net.now, via, class, u64::MAX) {
        let raw = offer.chunks.concat().into();
        net.agents[to].receive(net.now, here, class, raw).unwrap();
        net.finish(from, &offer, Outcome::Acknowledged);
    }
}

fn stored(net: &Net, at: usize) -> usize {
    let stored = net.agents[at].list(net.now, None, 10);
    stored.iter().filter(|stored| stored.custody).count()
}

#[test]
fn custody_crosses_a_forwarder_and_a_custodian_in_every_mix_of_dialects() {
    for mix in 0..16u8 {
        let dialects = [0, 1, 2, 3].map(|bit| if mix >> bit & 1 == 0 { Ion } else { Bplib });
        let mut net = chain(dialects);
        net.send(TERMINAL, 4, b"over three hops").unwrap();
        carry(&mut net, TERMINAL, FORWARDER, BULK);
        assert_eq!([stored(&net, TERMINAL), stored(&net, FORWARDER)], [1, 0]);
        carry(&mut net, FORWARDER, CUSTODIAN, BULK);
        net.pass(Duration::from_millis(150));
        carry(&mut net, CUSTODIAN, FORWARDER, Class::SIGNALLING);
        carry(&mut net, FORWARDER, TERMINAL, Class::SIGNALLING);
        assert_eq!([stored(&net, TERMINAL), stored(&net, CUSTODIAN)], [0, 1]);
        carry(&mut net, CUSTODIAN, HUB, BULK);
        assert_eq!(stored(&net, CUSTODIAN), 1, "{dialects:?}");
        net.pass(Duration::from_millis(150));
        carry(&mut net, HUB, CUSTODIAN, Class::SIGNALLING);
        assert_eq!(stored(&net, CUSTODIAN), 0, "{dialects:?}");
        assert_eq!(net.delivered(HUB), [&b"over three hops"[..]]);
    }
}

#[test]
fn a_forwarder_that_loses_a_bundle_costs_a_repetition() {
    for dialect in [Ion, Bplib] {
        let mut net = chain([dialect; 4]);
        net.send(TERMINAL, 4, b"lost once").unwrap();
        carry(&mut net, TERMINAL, FORWARDER, BULK);
        // The forwarder stops and loses its bundles.
        let lost = net.agents[FORWARDER].list(net.now, None, 1)[0].id;
        assert!(net.agents[FORWARDER].cancel(net.now, lost));
        net.pass(Duration::from_secs(5));
        for (from, to) in [(0, 1), (1, 2), (2, 3)] {
            carry(&mut net, from, to, BULK);
        }
        assert_eq!(net.delivered(HUB), [&b"lost once"[..]]);
    }
}
