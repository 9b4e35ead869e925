//! A short hop on which the peer owes an answer.

use std::time::{Duration, Instant};

use underpass_beacon::INTERVAL;

use super::hop::{HUB, Hop, PEER, TERMINAL};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const RTT: Duration = Duration::from_millis(20);
const EACH: Duration = Duration::from_millis(5);

/// A hop that is far shorter than assumed, idle for a while, and probed at this interval.
fn short_hop(interval: Duration) -> Hop {
    let mut hop = Hop::new(600 * MS);
    hop.delays = [RTT / 2; 2];
    for end in &mut hop.ends {
        end.set_probe_interval(PEER, interval);
    }
    hop.run(5 * SECOND);
    hop
}

/// Lets `time` pass; every 25 ms these ends find that an answer is owed.
fn owed(hop: &mut Hop, ends: &[usize], time: Duration) {
    let until = hop.now + time;
    while hop.now < until {
        for end in ends {
            hop.ends[*end].probe(hop.now, PEER, 250 * MS);
        }
        hop.run(25 * MS);
    }
}

fn sent_in(hop: &Hop, end: usize, from: Instant, until: Instant) -> usize {
    let sent = hop.sent[end].iter();
    sent.filter(|at| (from..until).contains(*at)).count()
}

#[test]
fn the_return_is_heard_within_a_round_trip_and_an_interval_by_one_end_and_sooner_by_both() {
    for (ends, most) in [(&[HUB][..], RTT), (&[HUB, TERMINAL], RTT / 2)] {
        for length_ms in (100..400).step_by(7) {
            let mut hop = short_hop(EACH);
            let back = hop.now + length_ms * MS;
            hop.blockage = Some((hop.now, back));
            owed(&mut hop, ends, length_ms * MS + 50 * MS);
            let heard = hop.first_heard(HUB, back) - back;
            assert!(heard <= most + EACH, "{heard:?} behind {length_ms} ms");
        }
    }
}

#[test]
fn who_is_heard_is_not_probed_any_more_and_who_stays_away_neither() {
    let mut hop = short_hop(EACH);
    hop.ends[HUB].probe(hop.now, PEER, SECOND);
    let start = hop.now;
    hop.run(SECOND);
    // The first one is answered at once.
    let sent = sent_in(&hop, HUB, start, start + SECOND);
    assert!(sent < 15, "{sent}");
    assert!(hop.first_heard(HUB, start) <= start + RTT + EACH);

    hop.blockage = Some((hop.now, hop.now + 60 * SECOND));
    let start = hop.now;
    hop.ends[HUB].probe(start, PEER, SECOND);
    hop.run(10 * SECOND);
    let probes = sent_in(&hop, HUB, start, start + SECOND);
    assert!((190..=202).contains(&probes), "{probes}");
    assert!(sent_in(&hop, HUB, start + 2 * SECOND, hop.now) <= 55);
}

#[test]
fn a_peer_that_asks_ever_more_often_is_answered_no_more_often_than_a_short_hop_needs() {
    // The least interval is 5 ms, whatever is set: a peer that lies about its silence
    // gets no more.
    for (interval, least) in [(Duration::ZERO, EACH), (SECOND, INTERVAL)] {
        let mut hop = short_hop(interval);
        // The terminal asks every 5 ms; its beacons arrive, and the answers are lost.
        hop.ends[TERMINAL].set_probe_interval(PEER, Duration::ZERO);
        hop.dead = Some(HUB);
        let start = hop.now;
        owed(&mut hop, &[TERMINAL], SECOND);
        let answers: Vec<_> = hop.sent[HUB].iter().filter(|at| **at > start).collect();
        assert!(answers.len() > 5);
        assert!(answers.windows(2).all(|pair| *pair[1] - *pair[0] >= least));
    }
}
