//! A short hop on which the peer owes an answer.

use std::time::{Duration, Instant};

use super::hop::{HUB, Hop, PEER, TERMINAL};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const RTT: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(5);

/// A hop that is far shorter than was guessed, idle for a while.
fn short_hop() -> Hop {
    let mut hop = Hop::new(600 * MS);
    hop.delays = [RTT / 2; 2];
    hop.run(5 * SECOND);
    hop
}

/// Lets `time` pass; each 25 ms these ends find that an answer is owed.
fn owed(hop: &mut Hop, ends: &[usize], time: Duration) {
    let until = hop.now + time;
    while hop.now < until {
        for end in ends {
            hop.ends[*end].hurry(hop.now, PEER, PAUSE, 250 * MS);
        }
        hop.run(25 * MS);
    }
}

fn sent_in(hop: &Hop, end: usize, from: Instant, until: Instant) -> usize {
    let sent = hop.sent[end].iter();
    sent.filter(|at| (from..until).contains(*at)).count()
}

#[test]
fn the_return_is_heard_within_a_round_trip_and_the_pause_by_one_end_and_sooner_by_both() {
    for (ends, most) in [(&[HUB][..], RTT), (&[HUB, TERMINAL], RTT / 2)] {
        for length_ms in (100..400).step_by(7) {
            let mut hop = short_hop();
            let back = hop.now + length_ms * MS;
            hop.blockage = Some((hop.now, back));
            owed(&mut hop, ends, length_ms * MS + 50 * MS);
            let heard = hop.first_heard(HUB, back) - back;
            assert!(heard <= most + PAUSE, "{heard:?} behind {length_ms} ms");
        }
    }
}

#[test]
fn who_is_heard_is_not_hurried_any_more_and_who_stays_away_neither() {
    let mut hop = short_hop();
    hop.ends[HUB].hurry(hop.now, PEER, PAUSE, SECOND);
    let start = hop.now;
    hop.run(SECOND);
    // The first one is answered at once.
    let sent = sent_in(&hop, HUB, start, start + SECOND);
    assert!(sent < 15, "{sent}");
    assert!(hop.first_heard(HUB, start) <= start + RTT + PAUSE);

    hop.blockage = Some((hop.now, hop.now + 60 * SECOND));
    let start = hop.now;
    hop.ends[HUB].hurry(start, PEER, PAUSE, SECOND);
    hop.run(10 * SECOND);
    let hurried = sent_in(&hop, HUB, start, start + SECOND);
    assert!((190..=202).contains(&hurried), "{hurried}");
    assert!(sent_in(&hop, HUB, start + 2 * SECOND, hop.now) <= 55);
}

#[test]
fn pauses_that_are_too_short_are_made_longer() {
    let mut hop = short_hop();
    hop.blockage = Some((hop.now, hop.now + 60 * SECOND));
    let start = hop.now;
    hop.ends[HUB].hurry(start, PEER, Duration::ZERO, SECOND);
    hop.run(SECOND);
    let sent = sent_in(&hop, HUB, start, start + SECOND);
    assert!(sent <= 202, "{sent}");
}
