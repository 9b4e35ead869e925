//! Which source decides about a link, and when.

use super::*;

const RTT: Duration = Duration::from_millis(560);
const MS: Duration = Duration::from_millis(1);
const NOON: u64 = 1_800_000_000_000;

/// A link at noon, with its peer heard by a beacon just now.
struct Bench {
    start: Instant,
    link: LinkState,
}

impl Bench {
    fn new() -> Bench {
        let start = Instant::now();
        let mut link = LinkState::new(start, RTT);
        link.heard(start, Sign::Beacon);
        Bench { start, link }
    }

    fn planned(entry_s: u64, exit_s: u64) -> Bench {
        let mut bench = Bench::new();
        bench.link.set_plan(
            Planner::Control,
            vec![PlannedBlockage {
                entry_ms: NOON + entry_s * 1000,
                exit_ms: NOON + exit_s * 1000,
            }],
        );
        bench
    }

    fn utc(&self) -> Option<Utc> {
        Some(Utc {
            at: self.start,
            ms: NOON,
        })
    }

    /// Lets time pass until `ms` after the start, with the link's deadlines; returns the
    /// source at the end.
    fn at(&mut self, ms: u64) -> Option<Source> {
        let end = self.start + Duration::from_millis(ms);
        let mut now = self.start;
        while let Some(due) = self.link.next_timeout(now, self.utc()) {
            if due > end {
                break;
            }
            now = due;
            self.link.update(now, self.utc());
        }
        self.link.update(end, self.utc());
        self.link.blocked().map(|(source, _)| source)
    }

    fn heard(&mut self, ms: u64) {
        self.hear(ms, Sign::Beacon);
    }

    fn hear(&mut self, ms: u64, sign: Sign) {
        let at = self.start + Duration::from_millis(ms);
        self.link.heard(at, sign);
        self.link.update(at, self.utc());
    }

    /// Hears a deaf peer every 150 ms in this interval; returns the link's state each
    /// time.
    fn deaf(&mut self, from_ms: u64, until_ms: u64) -> Vec<Option<Source>> {
        let times = (from_ms..=until_ms).step_by(150);
        let judged = times.map(|ms| {
            self.at(ms);
            self.hear(ms, Sign::Deaf);
            self.at(ms)
        });
        judged.collect()
    }
}

#[test]
fn silence_of_a_round_trip_and_half_a_second_is_a_blockage() {
    let mut bench = Bench::new();
    assert_eq!(bench.at(1_059), None);
    assert_eq!(bench.at(1_060), Some(Source::Probing));
    bench.heard(20_000);
    assert_eq!(bench.link.blocked(), None);
    assert_eq!(bench.at(21_059), None);
    assert_eq!(bench.at(21_060), Some(Source::Probing));
}

#[test]
fn a_peer_without_beacons_is_never_blocked_by_probing() {
    let start = Instant::now();
    let mut link = LinkState::new(start, RTT);
    link.heard(start, Sign::Session);
    assert_eq!(link.next_timeout(start, None), None);
    link.update(start + Duration::from_secs(3600), None);
    assert_eq!(link.blocked(), None);
}

#[test]
fn an_operators_block_holds_whatever_is_heard() {
    let mut bench = Bench::new();
    bench.link.set_operator(true);
    for ms in (100..5_000).step_by(100) {
        bench.heard(ms);
        assert_eq!(bench.at(ms), Some(Source::Operator));
    }
    bench.link.set_operator(false);
    assert_eq!(bench.at(5_000), None);
}

#[test]
fn a_modem_without_lock_holds_until_it_says_otherwise() {
    let mut bench = Bench::new();
    bench.link.set_modem(true);
    bench.heard(500);
    assert_eq!(bench.at(9_000), Some(Source::Modem));
    bench.link.set_modem(false);
    let now = bench.start + 9_000 * MS;
    bench.link.update(now, bench.utc());
    assert_eq!(bench.link.blocked(), None);
}

#[test]
fn at_the_planned_end_sending_starts_without_waiting_to_hear() {
    let mut bench = Bench::planned(2, 10);
    bench.heard(1_900);
    assert_eq!(bench.at(1_999), None);
    assert_eq!(bench.at(2_000), Some(Source::Plan));
    assert_eq!(bench.at(9_999), Some(Source::Plan));
    assert_eq!(bench.at(10_000), None);
    // The link is blocked again if nothing is heard by then.
    assert_eq!(bench.at(11_059), None);
    assert_eq!(bench.at(11_060), Some(Source::Probing));
}

#[test]
fn heard_beats_planned_and_is_told_once() {
    let mut bench = Bench::planned(2, 60);
    bench.heard(1_900);
    assert_eq!(bench.at(2_000), Some(Source::Plan));
    // Signs in flight at the entry prove nothing.
    bench.heard(2_700);
    assert_eq!(
        bench.link.blocked().map(|state| state.0),
        Some(Source::Plan)
    );
    let at = bench.start + 3_000 * MS;
    bench.link.heard(at, Sign::Beacon);
    let (change, told) = bench.link.update(at, bench.utc());
    assert_eq!(change, Some(LinkChange::Free(1_000 * MS)));
    assert!(matches!(told, Some(LinkChange::PlanContradicted(_))));
    assert!(bench.link.plan().1);
    bench.heard(3_200);
    let (change, told) = bench.link.update(bench.start + 3_300 * MS, bench.utc());
    assert_eq!((change, told), (None, None));
    // The blockage comes later than planned: probing finds it.
    assert_eq!(bench.at(4_260), Some(Source::Probing));
}

#[test]
fn a_blockage_that_comes_before_its_plan_ends_with_the_plan() {
    let mut bench = Bench::planned(5, 10);
    bench.heard(1_000);
    assert_eq!(bench.at(2_060), Some(Source::Probing));
    assert_eq!(bench.at(5_000), Some(Source::Plan));
    let since = bench.link.blocked().map(|(_, since)| since);
    assert_eq!(since, Some(bench.start + 2_060 * MS));
    assert_eq!(bench.at(10_000), None);
}

#[test]
fn without_the_time_of_day_a_plan_holds_nothing() {
    let mut bench = Bench::planned(0, 60);
    let (change, _) = bench.link.update(bench.start + 1_000 * MS, None);
    assert_eq!(change, None);
}

#[test]
fn what_a_clock_ahead_took_for_over_is_still_planned_once_the_clock_is_set_back() {
    let mut bench = Bench::planned(2, 10);
    let by = |bench: &mut Bench, at_ms: u64, clock_ms: u64| {
        let utc = Utc {
            at: bench.start,
            ms: clock_ms,
        };
        let now = bench.start + Duration::from_millis(at_ms);
        bench.link.update(now, Some(utc));
        bench.link.plan().0.len()
    };
    assert_eq!(by(&mut bench, 0, NOON + 3_600_000), 0);
    bench.heard(1_900);
    assert_eq!(bench.at(1_999), None);
    assert_eq!(bench.at(2_000), Some(Source::Plan));
    assert_eq!(bench.at(10_000), None);
    // A clock that is adjusted begins no blockage again.
    assert_eq!(by(&mut bench, 10_000, NOON - 1_000), 0);
    assert_eq!(by(&mut bench, 10_000, NOON - 1_001), 1);
}

#[test]
fn planned_blockages_that_overlap_are_one() {
    let mut bench = Bench::new();
    let blockage = |entry_ms, exit_ms| PlannedBlockage { entry_ms, exit_ms };
    bench.link.set_plan(
        Planner::Control,
        vec![
            blockage(50, 60),
            blockage(10, 30),
            blockage(20, 40),
            blockage(40, 45),
            blockage(9, 9),
        ],
    );
    assert_eq!(bench.link.plan().0, [blockage(10, 45), blockage(50, 60)]);
    bench
        .link
        .set_plan(Planner::Control, vec![blockage(1, u64::MAX); 5]);
    assert_eq!(bench.link.plan().0, [blockage(1, u64::MAX)]);
    bench.link.set_plan(Planner::Operator, vec![blockage(3, 5)]);
    assert_eq!(bench.link.plan().0, [blockage(1, u64::MAX)]);
    bench.link.set_plan(Planner::Control, vec![blockage(4, 7)]);
    assert_eq!(bench.link.plan().0, [blockage(3, 7)]);
    bench.link.set_plan(
        Planner::Control,
        (0..5_000).map(|n| blockage(n * 10, n * 10 + 1)).collect(),
    );
    assert_eq!(bench.link.plan().0.len(), MAX_PLANNED);
}

#[test]
fn a_peer_that_is_heard_and_hears_nothing_is_not_there() {
    let mut bench = Bench::new();
    bench.heard(1_000);
    // After a round trip and half a second from its first word on, 1,060 ms, and no
    // sooner.
    let judged = bench.deaf(1_500, 6_000);
    let blocked = judged
        .iter()
        .position(|source| *source == Some(Source::Probing));
    assert_eq!(blocked, Some(1_060_usize.div_ceil(150)));
    // The link then stays blocked, though the peer is heard all the time.
    let blocked = blocked.expect("it is blocked");
    assert!(
        judged[blocked..]
            .iter()
            .all(|source| *source == Some(Source::Probing))
    );
    // The peer's data does not show that it hears; its next beacon may.
    bench.hear(6_050, Sign::Session);
    assert_eq!(bench.at(6_050), Some(Source::Probing));
    bench.heard(6_100);
    assert_eq!(bench.at(6_100), None);
}

#[test]
fn behind_a_blockage_a_peer_is_deaf_for_a_while_and_the_link_is_free_at_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.at(20_000), Some(Source::Probing));
    // The peer hears the first answer a round trip later.
    let judged = bench.deaf(20_000, 20_600);
    assert!(judged.iter().all(Option::is_none), "{judged:?}");
    bench.heard(20_750);
    assert_eq!(bench.at(21_500), None);
}

#[test]
fn a_deaf_peer_is_found_sooner_where_another_hop_can_carry_and_stays_so_without() {
    let mut bench = Bench::new();
    bench.heard(1_000);
    bench.deaf(1_500, 1_500);
    bench.link.expect(Some(Expectation {
        since: bench.start,
        within: RTT + 200 * MS,
        elsewhere: true,
    }));
    assert_eq!(bench.at(2_200), None);
    bench.deaf(2_100, 2_250);
    assert_eq!(bench.at(2_300), Some(Source::Probing));
    // The bytes in flight have gone by another path.
    bench.link.expect(None);
    let judged = bench.deaf(2_400, 4_000);
    assert!(judged.iter().all(|source| *source == Some(Source::Probing)));
}

#[test]
fn where_only_a_standby_can_carry_a_deaf_peer_is_given_its_whole_time() {
    let mut bench = Bench::new();
    bench.link.set_operator(true);
    assert_eq!(bench.at(20_000), Some(Source::Operator));
    bench.link.set_operator(false);
    bench.hear(20_000, Sign::Session);
    bench.link.expect(Some(Expectation {
        since: bench.start,
        within: RTT,
        elsewhere: false,
    }));
    // The peer hears a beacon of this end within a round trip and half a second, and no
    // sooner.
    let judged = bench.deaf(20_050, 20_950);
    assert!(judged.iter().all(Option::is_none), "{judged:?}");
    bench.heard(21_000);
    assert_eq!(bench.at(21_500), None);
}

#[test]
fn a_late_acknowledgement_does_not_end_what_a_deaf_peer_has_begun() {
    let mut bench = Bench::new();
    bench.heard(1_000);
    bench.deaf(1_500, 1_800);
    // Bytes that were sent before its first word may have arrived.
    let first_word = bench.start + Duration::from_millis(1_500);
    bench.link.answered(first_word - MS);
    let judged = bench.deaf(1_950, 3_000);
    assert_eq!(judged.last(), Some(&Some(Source::Probing)));
    // The link is blocked by now.
    bench.link.answered(first_word + MS);
    assert_eq!(bench.at(3_050), Some(Source::Probing));
}

#[test]
fn an_early_word_of_a_deaf_peer_says_nothing_of_later() {
    let mut bench = Bench::new();
    bench.heard(1_000);
    bench.deaf(1_500, 1_800);
    // Then the peer hears, as data shows; its next beacon is due seconds later.
    for ms in (1_900..4_000).step_by(50) {
        bench.hear(ms, Sign::Session);
        assert_eq!(bench.at(ms), None, "at {ms} ms");
    }
}

#[test]
fn who_has_not_said_for_a_second_that_he_hears_nothing_is_not_deaf_any_more() {
    let mut bench = Bench::new();
    bench.heard(1_000);
    bench.deaf(1_500, 3_000);
    assert_eq!(bench.at(3_000), Some(Source::Probing));
    // Beacons are rare while data is sent.
    for ms in (3_100..4_500).step_by(100) {
        bench.hear(ms, Sign::Session);
    }
    assert_eq!(bench.at(4_500), None);
}

#[test]
fn a_moment_before_the_clock_was_read_is_of_the_millisecond_before() {
    let at = Instant::now() + Duration::from_secs(1);
    let utc = Utc { at, ms: NOON };
    let micros = Duration::from_micros;
    for (before, ms) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
        assert_eq!(
            utc.ms_at(at - micros(before)),
            NOON - ms,
            "{before} us before"
        );
    }
    // The instant of a time is exact, whenever it is requested.
    for asked in [at - micros(1_700), at, at + micros(2_300)] {
        assert_eq!(utc.instant_of(asked, NOON + 5), Some(at + micros(5_000)));
        assert_eq!(utc.instant_of(asked, NOON - 5), Some(asked));
    }
    assert_eq!(utc.ms_at(at + micros(999)), NOON);
    assert_eq!(utc.ms_at(at + micros(1_000)), NOON + 1);
}

#[test]
fn a_link_that_both_ends_let_rest_may_be_silent_until_one_of_them_wakes_it() {
    let mut bench = Bench::new();
    let moment = |bench: &Bench, ms| bench.start + Duration::from_millis(ms);
    let now = moment(&bench, 0);
    assert!(bench.link.let_rest(now, true));
    assert!(!bench.link.let_rest(now, true));
    // The peer has not said that it lets the link rest too.
    assert_eq!(bench.at(1_059), None);
    assert_eq!(bench.at(1_060), Some(Source::Probing));
    bench.hear(2_000, Sign::Resting);
    assert_eq!(bench.at(23_059), None);
    assert_eq!(bench.at(23_060), Some(Source::Probing));
    // The peer ends the rest.
    bench.hear(30_000, Sign::Resting);
    assert_eq!(bench.at(40_000), None);
    bench.heard(41_000);
    assert_eq!(bench.at(42_059), None);
    assert_eq!(bench.at(42_060), Some(Source::Probing));
    // This end ends the rest: only signs from then on can be missed.
    bench.hear(50_000, Sign::Resting);
    assert_eq!(bench.at(60_000), None);
    let now = moment(&bench, 60_000);
    assert!(bench.link.let_rest(now, false));
    assert_eq!(bench.at(61_059), None);
    assert_eq!(bench.at(61_060), Some(Source::Probing));
}

#[test]
fn silence_of_a_link_begins_with_the_first_sign_that_may_have_been_missed() {
    let mut bench = Bench::new();
    let since = |bench: &Bench| {
        let since = bench.link.silent_since().expect("it was heard");
        (since - bench.start).as_millis()
    };
    // Signs are frequent on a link that does not rest.
    bench.heard(1_000);
    assert_eq!(bench.at(2_060), Some(Source::Probing));
    assert_eq!(since(&bench), 1_000);
    // On a resting link the peer owes its next sign after 8 s.
    bench.link.let_rest(bench.start + 3_000 * MS, true);
    bench.hear(3_000, Sign::Resting);
    assert_eq!(bench.at(24_060), Some(Source::Probing));
    assert_eq!(since(&bench), 11_000);
    bench.link.let_rest(bench.start + 25_000 * MS, false);
    assert_eq!(since(&bench), 11_000);
    // The rest ends before the next sign is due: signs from then on can be missed.
    bench.link.let_rest(bench.start + 26_000 * MS, true);
    bench.hear(30_000, Sign::Resting);
    bench.at(35_000);
    bench.link.let_rest(bench.start + 35_000 * MS, false);
    assert_eq!(bench.at(36_060), Some(Source::Probing));
    assert_eq!(since(&bench), 35_000);
    bench.heard(40_000);
    assert_eq!(bench.at(41_060), Some(Source::Probing));
    assert_eq!(since(&bench), 40_000);
}

#[test]
fn silence_behind_a_planned_blockage_begins_at_its_entry_on_a_link_that_rested() {
    let mut bench = Bench::planned(10, 20);
    bench.link.let_rest(bench.start, true);
    bench.hear(9_500, Sign::Resting);
    assert_eq!(bench.at(10_000), Some(Source::Plan));
    // The node must know whether the peer is heard then.
    bench.link.let_rest(bench.start + 10_000 * MS, false);
    assert_eq!(bench.at(20_000), None);
    assert_eq!(bench.at(21_060), Some(Source::Probing));
    let since = bench.link.silent_since().expect("it was heard");
    assert_eq!(since, bench.start + 10_000 * MS);
}

#[test]
fn a_link_that_was_found_blocked_is_not_free_for_being_woken() {
    let mut bench = Bench::new();
    bench.link.let_rest(bench.start, true);
    bench.hear(100, Sign::Resting);
    assert_eq!(bench.at(30_000), Some(Source::Probing));
    let now = bench.start + 31_000 * MS;
    bench.link.let_rest(now, false);
    assert_eq!(bench.at(31_000), Some(Source::Probing));
    bench.hear(32_000, Sign::Resting);
    assert_eq!(bench.at(32_000), None);
}
