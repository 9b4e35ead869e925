//! Two sessions that talk to each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::{Class, Down, Outcome, Transfer};
use underpass_tcpcl::session::{Established, Event, Role, SessionConfig, SessionCore};
use underpass_tcpcl::wire::TermReason;

struct End {
    core: SessionCore,
    unread: Vec<u8>,
    events: Vec<Event>,
}

impl End {
    fn new(config: SessionConfig, now: Instant) -> Self {
        Self {
            core: SessionCore::new(config, now),
            unread: Vec::new(),
            events: Vec::new(),
        }
    }

    fn work(&mut self, now: Instant, tls: bool, peer: &str) -> Vec<u8> {
        let taken = self.core.handle_input(now, &self.unread);
        self.unread.drain(..taken);
        let mut output = Vec::new();
        while let Some(piece) = self.core.poll_output(now) {
            output.extend_from_slice(&piece);
        }
        while let Some(event) = self.core.poll_event() {
            match &event {
                Event::StartTls => {
                    assert!(tls);
                    self.core.tls_established(now, vec![peer.to_owned()]);
                }
                Event::Admit { .. } | Event::Received(_) => self.core.answer(Ok(())),
                _ => {}
            }
            self.events.push(event);
        }
        output
    }

    fn established(&self) -> Established {
        let established = |event: &Event| match event {
            Event::Established(established) => Some(established.clone()),
            _ => None,
        };
        let found = self.events.iter().find_map(established);
        found.expect("the session came up")
    }

    fn closed(&self) -> Option<Down> {
        self.events.iter().find_map(|event| match event {
            Event::Closed(down) => Some(down.clone()),
            _ => None,
        })
    }

    fn received(&self) -> Vec<Bytes> {
        let bundle = |event: &Event| match event {
            Event::Received(bundle) => Some(bundle.clone()),
            _ => None,
        };
        self.events.iter().filter_map(bundle).collect()
    }
}

struct Pair {
    active: End,
    passive: End,
    now: Instant,
    certified: &'static str,
}

impl Pair {
    fn new(active: SessionConfig, passive: SessionConfig) -> Self {
        let now = Instant::now();
        Self {
            active: End::new(active, now),
            passive: End::new(passive, now),
            now,
            certified: "ipn:1.0",
        }
    }

    fn settle(&mut self) {
        for _ in 0..50 {
            let out = self.active.work(self.now, true, "ipn:2.0");
            self.passive.unread.extend(out);
            let out = self.passive.work(self.now, true, self.certified);
            self.active.unread.extend(out);
        }
    }
}

fn configs() -> (SessionConfig, SessionConfig) {
    (
        SessionConfig::new(Role::Active, "ipn:1.0"),
        SessionConfig::new(Role::Passive, "ipn:2.0"),
    )
}

fn up() -> Pair {
    let (active, passive) = configs();
    let mut pair = Pair::new(active, passive);
    pair.settle();
    pair.active.established();
    pair
}

fn offer(end: &mut End, key: u64, bundle: &Bytes) {
    let chunks = vec![bundle.clone()];
    end.core.offer(Transfer::new(key, chunks));
}

#[test]
fn the_lower_keepalive_and_each_others_limits_hold() {
    let (mut active, mut passive) = configs();
    active.keepalive_s = 15;
    passive.transfer_mru_bytes = 1234;
    let mut pair = Pair::new(active, passive);
    pair.settle();
    let at_active = pair.active.established();
    assert_eq!(at_active.peer_node_id, "ipn:2.0");
    assert_eq!(
        (at_active.keepalive_s, at_active.transfer_mru_bytes),
        (15, 1234)
    );
    assert_eq!(pair.passive.established().keepalive_s, 15);
}

#[test]
fn a_passive_side_may_have_a_keepalive_for_some_peers_alone() {
    for (peer, agreed_s) in [("ipn:1.0", 150), ("ipn:3.0", 30)] {
        let (mut active, mut passive) = configs();
        (active.node_id, active.keepalive_s) = (peer.to_owned(), 200);
        passive.keepalives_of = Arc::new(BTreeMap::from([("ipn:1.0".to_owned(), 150)]));
        let mut pair = Pair::new(active, passive);
        pair.settle();
        assert_eq!(pair.active.established().keepalive_s, agreed_s);
        assert_eq!(pair.passive.established().keepalive_s, agreed_s);
    }
}

#[test]
fn both_sides_learn_class_standby_and_incarnation() {
    let (mut active, mut passive) = configs();
    active.class = Some((Class(4), true));
    (active.incarnation, passive.incarnation) = (11, 22);
    let mut pair = Pair::new(active, passive);
    pair.settle();
    for (end, incarnation) in [(&pair.active, 22), (&pair.passive, 11)] {
        let established = end.established();
        assert_eq!(established.class, Some(Class(4)));
        assert!(established.standby);
        assert_eq!(established.incarnation, Some(incarnation));
        assert_eq!(established.former_over_by, None);
    }
}

#[test]
fn a_side_learns_by_when_the_process_before_its_peers_was_over() {
    let (mut active, mut passive) = configs();
    active.class = Some((Class(4), true));
    let since = Instant::now();
    passive.alone_since = Some(since);
    let mut pair = Pair::new(active, passive);
    pair.now += Duration::from_secs(2);
    pair.settle();
    let said = pair.active.established().former_over_by;
    let over_by = said.expect("it was said");
    let margin = Duration::from_millis(600);
    assert!(since <= over_by && over_by <= since + margin);
    // The session does not repeat what the peer has said.
    assert_eq!(pair.passive.established().former_over_by, None);
}

#[test]
fn tls_comes_before_any_session_parameter() {
    let (mut active, mut passive) = configs();
    (active.tls, passive.tls) = (true, true);
    let mut pair = Pair::new(active, passive);
    let out = pair.active.work(pair.now, true, "ipn:2.0");
    assert_eq!(out, b"dtn!\x04\x01");
    pair.passive.unread.extend(out);
    pair.settle();
    assert_eq!(pair.active.events[0], Event::StartTls);
    assert_eq!(pair.active.established().peer_node_id, "ipn:2.0");
}

#[test]
fn a_node_id_that_the_certificate_does_not_name_is_a_contact_failure() {
    let (mut active, mut passive) = configs();
    (active.tls, passive.tls) = (true, true);
    let mut pair = Pair::new(active, passive);
    pair.certified = "ipn:7.0";
    pair.settle();
    assert!(matches!(pair.passive.closed(), Some(Down::Protocol(_))));
    let told = pair.active.closed();
    assert!(matches!(&told, Some(Down::Protocol(why)) if why.contains("ContactFailure")));
}

#[test]
fn a_node_that_is_not_expected_is_a_contact_failure() {
    let (mut active, passive) = configs();
    active.accepted_peers = Some(["ipn:3.0".into()].into());
    let mut pair = Pair::new(active, passive);
    pair.settle();
    assert!(matches!(pair.active.closed(), Some(Down::Protocol(_))));
    assert!(pair.passive.closed().is_some());
}

#[test]
fn transfers_cross_in_both_directions_at_once() {
    let mut pair = up();
    let bundle = |value: u8| Bytes::from(vec![value; 700_000]);
    for key in 0..5 {
        offer(&mut pair.active, key, &bundle(key as u8));
        offer(&mut pair.passive, key, &bundle(100 + key as u8));
    }
    pair.settle();
    for (end, first) in [(&pair.passive, 0), (&pair.active, 100)] {
        let expected: Vec<_> = (first..first + 5).map(bundle).collect();
        assert!(end.received() == expected);
        let finished = end.events.iter().filter(|event| {
            matches!(
                event,
                Event::Finished {
                    outcome: Outcome::Acknowledged,
                    ..
                }
            )
        });
        assert_eq!(finished.count(), 5);
    }
}

#[test]
fn an_end_in_order_lets_transfers_in_progress_finish() {
    let mut pair = up();
    let bundle = Bytes::from(vec![1; 600_000]);
    offer(&mut pair.active, 1, &bundle);
    let out = pair.active.work(pair.now, false, "");
    let (begun, rest) = out.split_at(1000);
    pair.passive.unread.extend(begun);
    for _ in 0..3 {
        pair.passive.work(pair.now, false, "");
    }
    pair.passive.unread.extend(rest);
    pair.passive.core.close(pair.now, TermReason::Unknown);
    offer(&mut pair.active, 2, &bundle);
    pair.settle();
    assert!(pair.passive.received() == [bundle]);
    let outcomes = pair.active.events.iter().filter_map(|event| match event {
        Event::Finished { key, outcome } => Some((*key, *outcome)),
        _ => None,
    });
    let outcomes: Vec<_> = outcomes.collect();
    assert_eq!(outcomes[0], (1, Outcome::Acknowledged));
    assert_eq!(outcomes[1], (2, Outcome::Broken { acknowledged: 0 }));
    assert_eq!(pair.active.closed(), Some(Down::Closed));
    assert_eq!(pair.passive.closed(), Some(Down::Closed));
}

#[test]
fn ends_that_cross_end_in_order() {
    let mut pair = up();
    pair.active.core.close(pair.now, TermReason::Unknown);
    pair.passive.core.close(pair.now, TermReason::Unknown);
    pair.settle();
    assert_eq!(pair.active.closed(), Some(Down::Closed));
    assert_eq!(pair.passive.closed(), Some(Down::Closed));
}
