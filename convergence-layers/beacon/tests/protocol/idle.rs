//! What both ends hear of a link with no other traffic.

use std::time::Duration;

use proptest::prelude::*;
use underpass_beacon::{BEACON_BYTES, INTERVAL, PeerId, SILENCE, Signs};

use super::hop::{HUB, Hop, PATIENCE, PEER, TERMINAL, key};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const GEO: Duration = Duration::from_millis(560);

#[test]
fn what_goes_to_a_peer_and_comes_from_it_is_counted_for_that_peer() {
    let mut hop = Hop::new(GEO);
    hop.run(5 * SECOND);
    let end = &hop.ends[HUB];
    let counters = end.counters();
    assert!(counters.sent > 10 && counters.heard > 10, "{counters:?}");
    assert_eq!(end.moved(PEER), counters.sent + counters.heard);
    assert_eq!(end.moved(PeerId(PEER.0 + 1)), 0);
}

#[test]
fn a_direction_never_carries_more_than_5_kbit_per_second_of_beacons() {
    let ipv6_bytes = (40 + 8 + BEACON_BYTES) as u128;
    let bps = ipv6_bytes * 8 * 1000 / INTERVAL.as_millis();
    assert_eq!(bps, 4_800);
    assert!(INTERVAL <= 200 * MS);

    // The interval is kept in each state: deaf, asked, idle.
    let mut hop = Hop::new(GEO);
    hop.blockage = Some((hop.start + 3 * SECOND, hop.start + 9 * SECOND));
    hop.run(20 * SECOND);
    for sent in &hop.sent {
        assert!(sent.windows(2).all(|pair| pair[1] - pair[0] >= INTERVAL));
    }
}

#[test]
fn while_nothing_is_heard_both_ends_send_every_150_ms() {
    let mut hop = Hop::new(GEO);
    hop.run(5 * SECOND);
    let entry = hop.now;
    hop.blockage = Some((entry, entry + 60 * SECOND));
    hop.run(60 * SECOND);
    for sent in &hop.sent {
        let silent = sent.iter().filter(|at| **at >= entry + 2 * GEO);
        let silent: Vec<_> = silent.collect();
        assert!(silent.len() > 380, "{}", silent.len());
        assert!(
            silent
                .windows(2)
                .all(|pair| *pair[1] - *pair[0] == INTERVAL)
        );
    }
}

#[test]
fn who_hears_nothing_of_a_direction_that_is_dead_says_so_and_nobody_else_does() {
    for rtt in [30 * MS, GEO] {
        for dead in [HUB, TERMINAL] {
            let mut hop = Hop::new(rtt);
            hop.run(20 * SECOND);
            let told = |hop: &Hop| hop.heard.iter().filter(|heard| heard.deaf).count();
            assert_eq!(told(&hop), 0, "on a link that is well, at {rtt:?}");
            let died = hop.now;
            hop.dead = Some(dead);
            hop.run(5 * SECOND);
            // It tells only the end whose beacons are lost.
            let deaf = hop.heard.iter().filter(|heard| heard.deaf);
            let deaf: Vec<_> = deaf.collect();
            assert!(deaf.iter().all(|heard| heard.by == dead));
            let first = deaf.first().expect("it is told").at - died;
            assert!(first <= SECOND + rtt + 2 * INTERVAL, "{first:?}");
            assert!(deaf.len() > 20, "{}", deaf.len());
            hop.dead = None;
            let back = hop.now;
            hop.run(5 * SECOND);
            let last = hop.heard.iter().rfind(|heard| heard.deaf);
            let last = last.expect("it was told").at;
            assert!(last <= back + rtt + 2 * INTERVAL, "{:?}", last - back);
        }
    }
}

#[test]
fn a_hub_calls_a_terminal_that_stays_away_ever_more_seldom() {
    let mut hop = Hop::new(GEO);
    hop.run(5 * SECOND);
    let entry = hop.now;
    let back = entry + 2 * PATIENCE;
    hop.blockage = Some((entry, back));
    hop.run(2 * PATIENCE);
    let calls = |from, until| {
        let sent = hop.sent[HUB].iter();
        sent.filter(|at| (entry + from..entry + until).contains(at))
            .count()
    };
    assert!(calls(PATIENCE / 2, PATIENCE) > 1_900, "patient at first");
    let last = calls(2 * PATIENCE - 100 * SECOND, 2 * PATIENCE);
    let ipv6_bits = (40 + 8 + BEACON_BYTES) as f64 * 8.0;
    let of_500_bps = 500.0 * last as f64 * ipv6_bits / 100.0;
    assert!(of_500_bps <= 50_000.0, "{of_500_bps}");
    // The terminal goes on calling, so its return is heard as soon.
    hop.run(5 * SECOND);
    assert!(hop.first_heard(HUB, back - MS) - back <= INTERVAL + GEO / 2);
    assert!(hop.first_heard(TERMINAL, back - MS) - back <= INTERVAL + GEO);
}

#[test]
fn the_return_is_heard_within_an_interval_and_half_a_round_trip() {
    for offset in 0..40 {
        let mut hop = Hop::new(GEO);
        hop.run(5 * SECOND);
        let back = hop.now + 20 * SECOND + offset * 7 * MS;
        hop.blockage = Some((hop.now, back));
        hop.run(25 * SECOND);
        assert!(hop.first_heard(TERMINAL, back - MS) - back <= INTERVAL);
        // What the terminal sent before the blockage is heard by the hub
        // half a round trip later; nothing of that lies 20 s back.
        assert!(hop.first_heard(HUB, back - MS) - back <= INTERVAL + GEO / 2);
    }
}

#[test]
fn three_beacons_lost_in_a_row_are_no_blockage() {
    let mut hop = Hop::new(GEO);
    hop.run(5 * SECOND);
    // Three beacons of each end, whoever sends first.
    hop.losses = 6;
    let since = hop.now;
    hop.run(5 * SECOND);
    for end in [TERMINAL, HUB] {
        assert!(hop.longest_silence(end, since) < GEO + SILENCE);
    }
}

#[test]
fn at_a_small_rate_an_idle_link_carries_fewer_beacons_and_two_lost_in_a_row_are_no_blockage() {
    let sent_in_20_s = |pace: Option<Duration>, losses| {
        let mut hop = Hop::new(GEO);
        for end in &mut hop.ends {
            pace.into_iter().for_each(|pace| end.set_pace(PEER, pace));
            // A new session changes nothing about that.
            end.add_key(hop.now, PEER, key(2));
        }
        hop.run(5 * SECOND);
        hop.losses = losses;
        let (since, before) = (hop.now, hop.sent[TERMINAL].len());
        hop.run(20 * SECOND);
        for end in [TERMINAL, HUB] {
            assert!(hop.longest_silence(end, since) < GEO + SILENCE);
        }
        hop.sent[TERMINAL].len() - before
    };
    let usual = sent_in_20_s(None, 0);
    let sparing = sent_in_20_s(Some(800 * MS), 0);
    assert!(4 * sparing <= 3 * usual, "{sparing} of {usual}");
    // Two beacons of each end, whoever sends first.
    sent_in_20_s(Some(800 * MS), 4);
}

#[test]
fn a_link_in_use_carries_no_beacons() {
    let mut hop = Hop::new(GEO);
    hop.run(5 * SECOND);
    let before = hop.sent.each_ref().map(Vec::len);
    for _ in 0..1000 {
        hop.run(10 * MS);
        for end in &mut hop.ends {
            let signs = Signs {
                heard: Some(hop.now),
                sent: Some(hop.now),
            };
            end.note(PEER, signs);
        }
    }
    let after = hop.sent.each_ref().map(Vec::len);
    // One more may answer what was in flight.
    assert!(after[0] <= before[0] + 2 && after[1] <= before[1] + 2);
}

/// Both ends send and hear data for `time`; the end `wants` asks for beacons.
fn in_use(hop: &mut Hop, time: Duration, wants: Option<usize>) {
    let end = hop.now + time;
    while hop.now < end {
        hop.run(10 * MS);
        let now = hop.now;
        for endpoint in &mut hop.ends {
            let signs = Signs {
                heard: Some(now),
                sent: Some(now),
            };
            endpoint.note(PEER, signs);
        }
        if let Some(wants) = wants {
            hop.ends[wants].want(now, PEER);
        }
    }
}

#[test]
fn a_link_in_use_carries_beacons_as_long_as_they_are_wanted() {
    let mut hop = Hop::new(GEO);
    hop.run(5 * SECOND);
    let before = hop.sent.each_ref().map(Vec::len);
    in_use(&mut hop, 20 * SECOND, Some(TERMINAL));
    let wanted = hop.sent.each_ref().map(Vec::len);
    assert!((115..=135).contains(&(wanted[HUB] - before[HUB])));
    assert!((18..=25).contains(&(wanted[TERMINAL] - before[TERMINAL])));
    assert!(
        hop.sent[HUB]
            .windows(2)
            .all(|sent| sent[1] - sent[0] >= INTERVAL)
    );
    in_use(&mut hop, 7 * SECOND, None);
    let last = hop.sent.each_ref().map(Vec::len);
    in_use(&mut hop, 20 * SECOND, None);
    assert_eq!(hop.sent.each_ref().map(Vec::len), last);
}

#[test]
fn beacons_beside_traffic_are_as_far_apart_as_the_rate_allows() {
    let mut hop = Hop::new(GEO);
    hop.run(5 * SECOND);
    hop.ends[HUB].set_pace(PEER, 2 * SECOND);
    let before = hop.sent[HUB].len();
    in_use(&mut hop, 20 * SECOND, Some(TERMINAL));
    assert!((9..=12).contains(&(hop.sent[HUB].len() - before)));
}

#[test]
fn each_end_is_told_how_late_the_other_ones_beacons_are() {
    let mut hop = Hop::new(GEO);
    hop.run(5 * SECOND);
    let delayed = |hop: &Hop, end: usize| hop.ends[end].delayed(hop.now, PEER);
    let late = |hop: &Hop, end: usize| delayed(hop, end).from_peer.unwrap();
    let told = |hop: &Hop, end: usize| delayed(hop, end).to_peer.unwrap();
    assert!(late(&hop, TERMINAL) < 2 * MS && late(&hop, HUB) < 2 * MS);
    hop.delays[HUB] += 80 * MS;
    in_use(&mut hop, 4 * SECOND, Some(TERMINAL));
    assert!(late(&hop, TERMINAL).abs_diff(80 * MS) < 2 * MS);
    assert!(late(&hop, HUB) < 2 * MS);
    // Each end tells the other.
    let known = told(&hop, HUB);
    assert!(known.abs_diff(80 * MS) < 7 * MS, "{known:?}");
    assert!(told(&hop, TERMINAL) < 2 * MS);
    let each = delayed(&hop, HUB).told_each;
    assert!((SECOND..2 * SECOND).contains(&each), "{each:?}");
    hop.delays[HUB] -= 80 * MS;
    in_use(&mut hop, 2 * SECOND, Some(TERMINAL));
    assert!(late(&hop, TERMINAL) < 2 * MS);
    hop.blockage = Some((hop.now, hop.now + 60 * SECOND));
    hop.run(5 * SECOND);
    assert_eq!(delayed(&hop, TERMINAL).from_peer, None);
    assert_eq!(delayed(&hop, TERMINAL).to_peer, None);
}

proptest! {
    #[test]
    fn an_idle_link_is_never_silent_for_long(rtt_ms in 1_u64..2_000) {
        let rtt = rtt_ms as u32 * MS;
        let mut hop = Hop::new(rtt);
        hop.run(2 * SECOND + 2 * rtt);
        let since = hop.now;
        hop.run(20 * SECOND);
        for end in [TERMINAL, HUB] {
            prop_assert!(hop.longest_silence(end, since) < rtt + SILENCE);
        }
    }
}
