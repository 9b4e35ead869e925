//! Which datagrams are accepted.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use underpass_beacon::{
    BEACON_BYTES, Beacon, Endpoint, Event, Key, Kind, PeerId, Sequence, Transmit,
};

use super::hop::{PEER, address, hub, key, terminal};

const GEO: Duration = Duration::from_millis(560);
const SECOND: Duration = Duration::from_secs(1);

/// The beacons of `endpoint` in the second after `now`.
fn beacons(endpoint: &mut Endpoint, now: Instant) -> Vec<Transmit> {
    let mut sent = Vec::new();
    while let Some(at) = endpoint.next_timeout().filter(|at| *at <= now + SECOND) {
        endpoint.handle_timeout(at);
        sent.extend(std::iter::from_fn(|| endpoint.poll_transmit()));
    }
    sent
}

fn pair(now: Instant) -> (Endpoint, Endpoint) {
    let (mut terminal, mut hub) = (terminal(now, GEO), hub(now, GEO));
    terminal.add_key(now, PEER, key(1));
    hub.add_key(now, PEER, key(1));
    (terminal, hub)
}

#[test]
fn a_beacon_counts_once_and_not_after_a_later_one() {
    let now = Instant::now();
    let (mut terminal, mut hub) = pair(now);
    let sent = beacons(&mut terminal, now);
    let from = address("192.0.2.1:1000");
    hub.handle_datagram(now, from, &sent[1].datagram);
    assert_eq!(hub.poll_event(), Some(Event::Heard(PEER)));
    hub.handle_datagram(now, from, &sent[1].datagram);
    hub.handle_datagram(now, from, &sent[0].datagram);
    assert_eq!(hub.poll_event(), None);
    assert_eq!(hub.counters().replayed, 2);
}

#[test]
fn a_restarted_node_is_heard_under_a_key_that_stays() {
    let now = Instant::now();
    let (mut terminal, mut hub) = pair(now);
    let from = address("192.0.2.1:1000");
    for sent in beacons(&mut terminal, now) {
        hub.handle_datagram(now, from, &sent.datagram);
    }
    while hub.poll_event().is_some() {}
    let mut restarted = Endpoint::new(2, 2, now);
    let config = underpass_beacon::PeerConfig {
        node: 1,
        rtt: GEO,
        address: Some(address("192.0.2.9:4556")),
        patience: std::time::Duration::MAX,
    };
    restarted.add_peer(now, PEER, config);
    restarted.add_key(now, PEER, key(1));
    let sent = beacons(&mut restarted, now);
    hub.handle_datagram(now, from, &sent[0].datagram);
    assert_eq!(hub.poll_event(), Some(Event::Heard(PEER)));
}

#[test]
fn a_node_is_heard_after_its_counter_began_again_and_after_the_next_start() {
    let begun = Instant::now();
    let now = begun + Duration::from_secs(60 * 86_400);
    let mut hub = hub(now, GEO);
    hub.add_key(now, PEER, key(1));
    let from = address("192.0.2.1:1000");
    // A beacon of the same run by an earlier build, which numbered runs without room between them.
    let earlier = Beacon {
        deaf: false,
        wants: false,
        rests: false,
        late: None,
        key: key(1).id(),
        node: 2,
        sequence: Sequence {
            incarnation: 2,
            counter: u32::MAX,
        },
    };
    hub.handle_datagram(now, from, &key(1).seal(&earlier));
    assert_eq!(hub.poll_event(), Some(Event::Heard(PEER)));
    let config = underpass_beacon::PeerConfig {
        node: 1,
        rtt: GEO,
        address: Some(address("192.0.2.9:4556")),
        patience: Duration::MAX,
    };
    for (incarnation, started) in [(1, begun), (2, now)] {
        let mut terminal = Endpoint::new(2, incarnation, started);
        terminal.add_peer(now, PEER, config);
        terminal.add_key(now, PEER, key(1));
        let sent = beacons(&mut terminal, now);
        hub.handle_datagram(now, from, &sent[0].datagram);
        assert_eq!(hub.poll_event(), Some(Event::Heard(PEER)), "{incarnation}");
    }
}

#[test]
fn a_peer_that_was_removed_and_comes_back_is_heard_under_the_same_key() {
    let start = Instant::now();
    let config = underpass_beacon::PeerConfig {
        node: 1,
        rtt: GEO,
        address: Some(address("192.0.2.9:4556")),
        patience: Duration::MAX,
    };
    let mut terminal = Endpoint::new(2, 1, start);
    let mut hub = hub(start, GEO);
    hub.add_key(start, PEER, key(1));
    let from = address("192.0.2.1:1000");
    for (time, other) in [(start, PEER), (start + SECOND * 5, PeerId(8))] {
        terminal.add_peer(time, other, config);
        terminal.add_key(time, other, key(1));
        for sent in beacons(&mut terminal, time) {
            hub.handle_datagram(time, from, &sent.datagram);
        }
        assert_eq!(hub.poll_event(), Some(Event::Heard(PEER)));
        assert_eq!(hub.counters().replayed, 0);
        while hub.poll_event().is_some() {}
        terminal.remove_peer(other);
        assert_eq!(terminal.next_timeout(), None, "nothing is sent any more");
    }
}

#[test]
fn answers_follow_a_translated_address_that_changes() {
    let now = Instant::now();
    let (mut terminal, mut hub) = pair(now);
    let sent = beacons(&mut terminal, now);
    for (beacon, from) in sent.iter().zip(["192.0.2.1:1000", "198.51.100.7:2000"]) {
        hub.handle_datagram(now, address(from), &beacon.datagram);
    }
    let answers = beacons(&mut hub, now);
    assert!(!answers.is_empty());
    assert!(answers.iter().all(|a| a.to == address("198.51.100.7:2000")));
    // A forged or repeated datagram does not redirect the beacons.
    hub.handle_datagram(now, address("203.0.113.5:1"), &sent[0].datagram);
    let mut forged = sent[2].datagram;
    forged[25] ^= 1;
    hub.handle_datagram(now, address("203.0.113.5:1"), &forged);
    let answers = beacons(&mut hub, now + SECOND);
    assert!(answers.iter().all(|a| a.to == address("198.51.100.7:2000")));
}

#[test]
fn an_own_beacon_that_is_thrown_back_is_not_the_peers() {
    let now = Instant::now();
    let (mut terminal, _) = pair(now);
    let sent = beacons(&mut terminal, now);
    terminal.handle_datagram(now, address("203.0.113.5:1"), &sent[0].datagram);
    assert_eq!(terminal.poll_event(), None);
}

#[test]
fn a_hub_without_the_key_says_so_and_the_terminal_believes_only_its_own_beacon() {
    let now = Instant::now();
    let (mut terminal, _) = pair(now);
    let mut restarted = hub(now, GEO);
    let sent = beacons(&mut terminal, now);
    let from = address("192.0.2.1:1000");
    restarted.handle_datagram(now, from, &sent[0].datagram);
    assert_eq!(restarted.poll_event(), None);
    let back = restarted.poll_transmit().unwrap();
    assert_eq!(back.to, from);
    assert_eq!(back.datagram[0], Kind::KeyUnknown.byte());

    // The peer may not know so young a key yet.
    terminal.handle_datagram(now, from, &back.datagram);
    assert_eq!(terminal.poll_event(), None);

    let now = now + 2 * SECOND;
    let mut forged = back.datagram;
    forged[40] ^= 1;
    terminal.handle_datagram(now, address("192.0.2.9:4556"), &forged);
    assert_eq!(terminal.poll_event(), None);
    terminal.handle_datagram(now, address("192.0.2.9:4556"), &back.datagram);
    terminal.handle_datagram(now, address("192.0.2.9:4556"), &back.datagram);
    assert_eq!(terminal.poll_event(), Some(Event::KeyUnknown(PEER)));
    assert_eq!(terminal.poll_event(), None);
}

#[test]
fn a_flood_is_given_back_at_most_a_hundred_times_a_second() {
    let now = Instant::now();
    let (mut terminal, _) = pair(now);
    let mut hub = hub(now, GEO);
    let sent = beacons(&mut terminal, now);
    for _ in 0..10_000 {
        hub.handle_datagram(now, address("203.0.113.5:1"), &sent[0].datagram);
    }
    let answers = std::iter::from_fn(|| hub.poll_transmit()).count();
    assert_eq!(answers, 100);
    assert_eq!(hub.counters().unknown_key, 10_000);
}

#[test]
fn keys_of_sessions_that_ended_are_kept_within_bounds() {
    let now = Instant::now();
    let (mut terminal, mut hub) = pair(now);
    let old = beacons(&mut terminal, now).remove(0);
    for number in 2..=200 {
        hub.add_key(now, PEER, key(number));
    }
    hub.handle_datagram(now, address("192.0.2.1:1000"), &old.datagram);
    assert_eq!(hub.counters().unknown_key, 1);
    terminal.add_key(now, PEER, key(137));
    let new = beacons(&mut terminal, now).pop().unwrap();
    hub.handle_datagram(now, address("192.0.2.1:1000"), &new.datagram);
    assert_eq!(hub.poll_event(), Some(Event::Heard(PEER)));
}

#[test]
fn a_configured_key_is_64_hexadecimal_digits() {
    let text = "01".repeat(32);
    assert_eq!(Key::from_hex(&text).unwrap().id(), key(1).id());
    for wrong in [
        "",
        "01",
        &"0g".repeat(32),
        &"é".repeat(32),
        &"01".repeat(33),
    ] {
        assert!(Key::from_hex(wrong).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn no_datagram_but_a_sealed_one_is_heard(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        kind in prop::sample::select(vec![0xb1_u8, 0xb2, 0xb3, 0x9f]),
    ) {
        let now = Instant::now();
        let (mut terminal, mut hub) = pair(now);
        let whole = beacons(&mut terminal, now)[0].datagram;
        let mut mixed = bytes.clone();
        if let Some(first) = mixed.first_mut() {
            *first = kind;
        }
        let mut patched = whole;
        for (byte, patch) in patched.iter_mut().skip(1).zip(&bytes) {
            *byte = *patch;
        }
        for datagram in [&bytes[..], &mixed, &whole[..bytes.len().min(BEACON_BYTES - 1)]] {
            hub.handle_datagram(now, address("203.0.113.5:1"), datagram);
            terminal.handle_datagram(now, address("203.0.113.5:1"), datagram);
        }
        if patched != whole {
            hub.handle_datagram(now, address("203.0.113.5:1"), &patched);
        }
        prop_assert_eq!(hub.poll_event(), None);
        prop_assert_eq!(terminal.poll_event(), None);
    }
}
