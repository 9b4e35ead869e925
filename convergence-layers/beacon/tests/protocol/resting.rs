//! A link that both ends let rest.

use std::time::{Duration, Instant};

use underpass_beacon::{INTERVAL, REST_INTERVAL, REST_SILENCE, SILENCE};

use super::hop::{HUB, Hop, PEER, TERMINAL, key};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const LTE: Duration = Duration::from_millis(70);
const GEO: Duration = Duration::from_millis(560);
const ENDS: [usize; 2] = [TERMINAL, HUB];

fn let_rest(hop: &mut Hop, ends: &[usize], may: bool) {
    for end in ends {
        hop.ends[*end].let_rest(hop.now, PEER, may);
    }
}

/// A link that rests, with nothing recorded of what was heard before.
fn resting(rtt: Duration) -> Hop {
    let mut hop = Hop::new(rtt);
    hop.run(5 * SECOND);
    let_rest(&mut hop, &ENDS, true);
    hop.run(60 * SECOND);
    hop.heard.clear();
    hop
}

fn sent_since(hop: &Hop, end: usize, since: Instant) -> usize {
    hop.sent[end].iter().filter(|at| **at > since).count()
}

#[test]
fn a_link_that_both_ends_let_rest_carries_a_fiftieth_of_the_beacons() {
    for rtt in [LTE, GEO] {
        let mut hop = resting(rtt);
        let since = hop.now;
        hop.run(600 * SECOND);
        for end in ENDS {
            let sent = sent_since(&hop, end, since);
            assert!((74..=76).contains(&sent), "{sent} at {rtt:?}");
            let silent = hop.longest_silence(end, since);
            assert!(silent <= REST_INTERVAL + rtt, "{silent:?}");
        }
        assert!(hop.heard.iter().all(|heard| !heard.deaf));
    }
}

#[test]
fn a_link_rests_soon_whichever_end_lets_it_first_and_nobody_takes_the_other_for_deaf() {
    for rtt in [LTE, GEO] {
        for later_ms in (0..1_500).step_by(37) {
            let mut hop = Hop::new(rtt);
            hop.run(5 * SECOND);
            let_rest(&mut hop, &[HUB], true);
            hop.run(later_ms * MS);
            let_rest(&mut hop, &[TERMINAL], true);
            hop.run(2 * SECOND + 2 * rtt);
            let since = hop.now;
            hop.run(80 * SECOND);
            for end in ENDS {
                let sent = sent_since(&hop, end, since);
                assert!(sent <= 11, "{sent}, {later_ms} ms later");
            }
            assert!(hop.heard.iter().all(|heard| !heard.deaf));
        }
    }
}

#[test]
fn a_peer_that_is_not_told_at_once_that_the_link_rests_does_not_miss_this_end() {
    for rtt in [LTE, GEO] {
        for losses in [1, 2] {
            let mut hop = resting(rtt);
            let_rest(&mut hop, &ENDS, false);
            hop.run(5 * SECOND);
            let_rest(&mut hop, &[HUB], true);
            hop.run(2 * SECOND);
            let since = hop.now;
            hop.losses = losses;
            let_rest(&mut hop, &[TERMINAL], true);
            hop.run(rtt + 2 * SILENCE);
            let silent = hop.longest_silence(HUB, since);
            assert!(silent < rtt + SILENCE, "{silent:?}, {losses} lost");
            let since = hop.now + SECOND;
            hop.run(81 * SECOND);
            for end in ENDS {
                assert!(sent_since(&hop, end, since) <= 11);
            }
        }
    }
}

#[test]
fn one_end_alone_lets_no_link_rest_and_neither_does_a_peer_of_an_older_build() {
    let sent_in_80_s = |may_rest: &[usize], old: Option<usize>| {
        let mut hop = Hop::new(LTE);
        hop.old = old;
        hop.run(5 * SECOND);
        let_rest(&mut hop, may_rest, true);
        hop.run(20 * SECOND);
        let since = hop.now;
        hop.run(80 * SECOND);
        for end in ENDS {
            assert!(hop.longest_silence(end, since) < LTE + SILENCE);
        }
        ENDS.map(|end| sent_since(&hop, end, since))
    };
    let usual = sent_in_80_s(&[], None);
    for end in ENDS {
        for old in [None, Some(1 - end)] {
            let sent = sent_in_80_s(&[end], old);
            assert!(sent[1 - end].abs_diff(usual[1 - end]) <= 2, "{sent:?}");
            // The data that it sends costs one more beacon every 8 s.
            assert!(sent[end] >= usual[end] - 2, "{sent:?} of {usual:?}");
            assert!(sent[end] <= usual[end] + 12, "{sent:?} of {usual:?}");
        }
    }
}

#[test]
fn either_end_wakes_the_link_within_a_round_trip() {
    for rtt in [LTE, GEO] {
        for end in ENDS {
            for offset in 0..40 {
                let mut hop = resting(rtt);
                hop.run(offset * 211 * MS);
                let woken = hop.now;
                let_rest(&mut hop, &[end], false);
                hop.run(20 * SECOND);
                // The other end hears of it at once, and so is heard too.
                let other = hop.first_heard(1 - end, woken) - woken;
                assert!(other <= rtt / 2 + INTERVAL, "{other:?}");
                let own = hop.first_heard(end, woken) - woken;
                assert!(own <= rtt + INTERVAL, "{own:?}");
                let since = woken + rtt + INTERVAL;
                for end in ENDS {
                    assert!(hop.longest_silence(end, since) < rtt + SILENCE);
                }
                assert!(hop.heard.iter().all(|heard| !heard.deaf));
            }
        }
    }
}

#[test]
fn a_link_that_wakes_while_all_is_lost_is_asked_for_as_any_other() {
    let mut hop = resting(LTE);
    let woken = hop.now;
    hop.blockage = Some((woken, woken + 60 * SECOND));
    let_rest(&mut hop, &[HUB], false);
    hop.run(10 * SECOND);
    let sent = sent_since(&hop, HUB, woken);
    assert!(sent >= 60, "{sent}");
}

#[test]
fn a_beacon_that_is_lost_on_a_link_that_rests_is_not_missed_and_the_next_is_asked_for() {
    for rtt in [LTE, GEO] {
        for losses in [1, 2, 4, 6] {
            let mut hop = resting(rtt);
            let since = hop.now;
            hop.losses = losses;
            hop.run(120 * SECOND);
            for end in ENDS {
                let silent = hop.longest_silence(end, since);
                assert!(silent < REST_SILENCE + rtt + SILENCE, "{silent:?}");
            }
        }
    }
}

#[test]
fn the_return_of_a_link_that_rests_is_heard_as_soon_as_that_of_any_other() {
    for offset in 0..20 {
        let mut hop = resting(LTE);
        let back = hop.now + 60 * SECOND + offset * 7 * MS;
        hop.blockage = Some((hop.now, back));
        hop.run(65 * SECOND);
        assert!(hop.first_heard(TERMINAL, back - MS) - back <= INTERVAL);
        assert!(hop.first_heard(HUB, back - MS) - back <= INTERVAL + LTE / 2);
        let since = hop.now + 20 * SECOND;
        hop.run(100 * SECOND);
        for end in ENDS {
            assert!(sent_since(&hop, end, since) <= 11);
        }
    }
}

#[test]
fn a_session_that_begins_anew_does_not_keep_a_link_from_rest() {
    let mut hop = resting(LTE);
    for end in &mut hop.ends {
        end.add_key(hop.now, PEER, key(2));
    }
    hop.run(20 * SECOND);
    let since = hop.now;
    hop.run(80 * SECOND);
    for end in ENDS {
        assert!(sent_since(&hop, end, since) <= 11);
    }
}

#[test]
fn a_peer_that_goes_on_with_an_older_build_hears_as_much_as_ever_soon() {
    for rtt in [LTE, GEO] {
        for end in ENDS {
            let mut hop = resting(rtt);
            // Like an upgrade in place, even to an older build, this continues its run.
            hop.old = Some(end);
            let_rest(&mut hop, &[end], false);
            hop.run(4 * SECOND);
            let since = hop.now;
            hop.run(80 * SECOND);
            let silent = hop.longest_silence(end, since);
            assert!(silent < rtt + SILENCE, "{silent:?}");
        }
    }
}
