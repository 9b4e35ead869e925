//! The cost of a message does not depend on how much else the node has.
//!
//! The same message goes to a small node and to one with a hundred times as many
//! neighbours and bundles; the test counts steps, see `underpass_work`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::net::{BULK, SERVICE, node, payload, record_bundle, route};
use bytes::Bytes;
use underpass_bundle::wire::{
    CodePoints, CustodyDialect, DecodeLimits, Disposition, REFUSED, Sequence, SequenceName, decode,
    encode_signal, ipn,
};
use underpass_bundle::{Agent, BundleId, Event, NeighbourId, Relaying, Send};
use underpass_cla::{Class, Outcome};

/// The neighbour whose messages are counted.
const ONE: u64 = 10;

/// A hub that also has bundles in custody for each of its other neighbours.
struct Hub {
    agent: Agent,
    now: Instant,
    stored: Vec<BundleId>,
}

impl Hub {
    /// `each` bundles for each of so many neighbours, ten of them for
    /// [`ONE`].
    fn new(neighbours: u64, each: usize) -> Hub {
        let mut config = node(1);
        let direct = |number| route(number, number);
        // The neighbour in question is the last of the routes.
        config.routes = (0..neighbours).rev().map(|n| direct(ONE + n)).collect();
        config.relaying = Relaying::Pairs(BTreeSet::new());
        let now = Instant::now();
        let mut agent = Agent::new(config);
        for number in 0..neighbours {
            agent.neighbour_up(now, NeighbourId(ONE + number));
        }
        let mut hub = Hub {
            agent,
            now,
            stored: Vec::new(),
        };
        for number in 1..neighbours {
            for _ in 0..each {
                hub.send(ONE + number, false);
            }
        }
        for _ in 0..10 {
            hub.send(ONE, false);
        }
        hub
    }

    /// Hubs with 10 neighbours and 100 bundles, and with 1,000 and 10,000.
    fn small_and_large() -> [Hub; 2] {
        [Hub::new(10, 10), Hub::new(1_000, 10)]
    }

    fn send(&mut self, to: u64, last: bool) -> BundleId {
        let send = Send {
            last,
            ..Send::new(ipn(to, SERVICE), SERVICE, BULK, vec![payload(b"data")])
        };
        let id = self.agent.send(self.now, send).unwrap();
        self.stored.push(id);
        id
    }

    /// Offers all bundles that wait for the neighbour; returns the name of its custody
    /// sequence.
    fn offer_all(&mut self) -> u64 {
        let mut sequence = 0;
        while let Some(offer) = self
            .agent
            .next_for(self.now, NeighbourId(ONE), BULK, u64::MAX)
        {
            let raw = offer.chunks.concat().into();
            let bundle = decode(&raw, &DecodeLimits::default(), &CodePoints::default()).unwrap();
            sequence = bundle.cteb.unwrap().1.sequence;
            self.agent
                .transfer_finished(self.now, offer.key, Outcome::Acknowledged);
        }
        sequence
    }

    fn hears(&mut self, raw: &Bytes) {
        let from = NeighbourId(ONE);
        self.agent
            .receive(self.now, from, BULK, raw.clone())
            .unwrap();
        while self.agent.poll_event().is_some() {}
    }
}

/// Asserts that `call` costs the large hub no more than the small one.
fn bounded(what: &str, mut call: impl FnMut(&mut Hub)) {
    let [few, many] = Hub::small_and_large().map(|mut hub| underpass_work::of(|| call(&mut hub)));
    underpass_work::assert_bounded(what, few, many);
}

#[test]
fn what_expires_together_is_given_up_some_at_a_time() {
    let Hub { mut agent, now, .. } = Hub::new(2, 5_000);
    let end = now + Duration::from_secs(365 * 86_400);
    let mut given_up = 0;
    while agent.next_timeout().is_some_and(|at| at <= end) {
        agent.handle_timeout(end);
        let events = std::iter::from_fn(|| agent.poll_event());
        let in_one_step = events
            .filter(|event| matches!(event, Event::GivenUp { .. }))
            .count();
        assert!(in_one_step <= 1_024, "{in_one_step}");
        given_up += in_one_step;
    }
    assert_eq!(given_up, 5_010);
}

/// Bundles from the neighbour, under custody.
fn bundle_from_one(count: usize) -> Vec<Bytes> {
    let mut config = node(ONE);
    config.routes = vec![route(1, 1)];
    let mut agent = Agent::new(config);
    let now = Instant::now();
    let mut bundles = Vec::new();
    for _ in 0..count {
        let send = Send::new(ipn(1, SERVICE), SERVICE, BULK, vec![payload(b"data")]);
        agent.send(now, send).unwrap();
        let offer = agent.next_for(now, NeighbourId(1), BULK, u64::MAX);
        bundles.push(offer.unwrap().chunks.concat().into());
    }
    bundles
}

/// A signal of the neighbour that refuses ranges of a sequence, each listed separately.
fn refusal(sequence: u64, ranges: usize, length: u64) -> Bytes {
    let of = Sequence {
        name: SequenceName::Id(sequence),
        first: 0,
        runs: vec![length],
    };
    let dispositions = [Disposition {
        code: REFUSED,
        sequences: vec![of; ranges],
    }];
    let record = encode_signal(13, CustodyDialect::Ion, &dispositions).remove(0);
    record_bundle(ONE, 1, record)
}

#[test]
fn a_bundle_in_and_a_bundle_out() {
    let bundles = bundle_from_one(1);
    bounded("a bundle that arrives", |hub| hub.hears(&bundles[0]));
    bounded("a bundle that is sent", |hub| {
        hub.send(ONE, false);
    });
    bounded("offering what waits for a neighbour", |hub| {
        hub.offer_all();
    });
}

#[test]
fn a_bundle_that_must_not_overtake() {
    bounded("keeping back", |hub| {
        hub.send(ONE, true);
    });
    // Bundles for all neighbours wait behind earlier ones.
    let [few, many] = Hub::small_and_large().map(|mut hub| {
        let others = (hub.stored.len() / 10) as u64;
        for number in 0..others {
            hub.send(ONE + number, true);
        }
        let gone = hub.stored[hub.stored.len() - others as usize - 1];
        underpass_work::of(|| assert!(hub.agent.cancel(hub.now, gone)))
    });
    underpass_work::assert_bounded("the release of one before it", few, many);
}

#[test]
fn a_refusal_costs_what_was_sent_and_the_bytes_that_say_it() {
    for ranges in [1, 1_000] {
        let mut hub = Hub::new(2, 10);
        for _ in 0..1_000 {
            hub.send(ONE, false);
        }
        let sequence = hub.offer_all();
        let signal = refusal(sequence, ranges, 1 << 40);
        let first = underpass_work::of(|| hub.hears(&signal));
        assert!(first <= 20 + 1_010 + ranges as u64, "{first}, {ranges}");
        let again = underpass_work::of(|| hub.hears(&signal));
        assert!(again <= 20 + ranges as u64, "{again}, {ranges}");
    }
}

#[test]
fn a_refusal_counts_once_for_each_transmission() {
    let mut hub = Hub::new(2, 10);
    let sequence = hub.offer_all();
    let signal = refusal(sequence, 1, 5);
    let second = Duration::from_secs(1);
    for _ in 0..4 {
        hub.hears(&signal);
    }
    // After one refusal the bundle is sent again in 0.75 to 1.25 s.
    hub.agent.handle_timeout(hub.now + second * 5 / 4);
    let mut again = 0;
    while let Some(offer) = hub
        .agent
        .next_for(hub.now, NeighbourId(ONE), BULK, u64::MAX)
    {
        again += 1;
        hub.agent
            .transfer_finished(hub.now, offer.key, Outcome::Acknowledged);
    }
    assert_eq!(again, 5);
    // A bundle that was sent again may be refused again; it then waits twice as long.
    hub.now += second * 5 / 4;
    hub.hears(&signal);
    hub.agent.handle_timeout(hub.now + second * 5 / 4);
    assert!(!hub.agent.has_pending(NeighbourId(ONE), BULK));
    hub.agent.handle_timeout(hub.now + second * 5 / 2);
    assert!(hub.agent.has_pending(NeighbourId(ONE), BULK));
}

#[test]
fn figures_and_lists_do_not_visit_every_bundle() {
    bounded("figures", |hub| {
        let figures = hub.agent.custody(hub.now);
        assert_eq!(figures.bundles, hub.stored.len());
        let class = figures.classes[&BULK];
        assert_eq!(class.custody_bundles as usize, hub.stored.len());
        assert_eq!(class.custody_bytes as usize, 4 * hub.stored.len());
    });
    bounded("the oldest bundles", |hub| {
        let listed = hub.agent.list(hub.now, None, 20);
        let ids: Vec<BundleId> = listed.iter().map(|stored| stored.id).collect();
        assert_eq!(ids, hub.stored[..20]);
        let listed = hub.agent.list(hub.now, Some(hub.stored[19]), 5);
        let ids: Vec<BundleId> = listed.iter().map(|stored| stored.id).collect();
        assert_eq!(ids, hub.stored[20..25]);
    });
}

#[test]
fn the_figures_are_those_of_what_is_held() {
    let mut hub = Hub::new(3, 4);
    hub.now += Duration::from_secs(5);
    let first = hub.stored[0];
    assert!(hub.agent.cancel(hub.now, first));
    let figures = hub.agent.custody(hub.now);
    let class = figures.classes[&BULK];
    assert_eq!((class.bundles, class.bytes), (17, 68));
    assert_eq!(class.oldest, Duration::from_secs(5));
    for id in hub.stored.clone() {
        hub.agent.cancel(hub.now, id);
    }
    assert!(!hub.agent.custody(hub.now).classes.contains_key(&BULK));
}

#[test]
fn what_goes_again_on_a_session_that_cannot_resume() {
    let offer_again = |bundles: usize| {
        let mut hub = Hub::new(2, 10);
        for _ in 0..bundles {
            hub.send(ONE, false);
        }
        let one = NeighbourId(ONE);
        let mut keys = Vec::new();
        while let Some(offer) = hub.agent.next_for(hub.now, one, BULK, u64::MAX) {
            keys.push(offer.key);
        }
        for key in keys {
            let broken = Outcome::Broken { acknowledged: 20 };
            hub.agent.transfer_finished(hub.now, key, broken);
        }
        underpass_work::of(|| {
            hub.agent.set_resumes(one, BULK, false);
            let offer = hub.agent.next_for(hub.now, one, BULK, u64::MAX).unwrap();
            assert!(offer.again && offer.resume.is_none());
        })
    };
    underpass_work::assert_bounded("an offer", offer_again(10), offer_again(1_000));
}

#[test]
fn bundles_of_all_classes_are_listed_in_the_order_in_which_they_came() {
    let mut hub = Hub::new(2, 2);
    let bundles = bundle_from_one(3);
    for raw in &bundles {
        hub.hears(raw);
    }
    hub.now += Duration::from_secs(1);
    hub.agent.handle_timeout(hub.now);
    let one = NeighbourId(ONE);
    let signal = hub
        .agent
        .next_for(hub.now, one, Class::SIGNALLING, u64::MAX);
    let signal = signal.expect("a custody signal").id;
    let last = hub.send(ONE, false);
    let listed = hub.agent.list(hub.now, None, 100);
    let ids: Vec<BundleId> = listed.iter().map(|stored| stored.id).collect();
    let mut expected = hub.stored.clone();
    expected.push(signal);
    expected.sort_unstable();
    assert_eq!(ids, expected);
    assert_eq!(ids.last(), Some(&last));
}
