//! Laws of plans and of the order in which they come into force.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use underpass_plans::{Plan, Schedule};

/// Segments of a line: lengths in ms, rates in kbit/s, blocked or not.
type Parts = Vec<(u64, u64, bool)>;

fn document(version: u64, start_ms: u64, lines: &[Parts]) -> Value {
    let span = |parts: &Parts| parts.iter().map(|(length, ..)| length).sum::<u64>();
    let longest = lines.iter().map(span).max().unwrap_or(1);
    let lines = lines.iter().enumerate().map(|(number, parts)| {
        let mut at = start_ms;
        let mut segments = Vec::new();
        for (place, (length, kbps, blocked)) in parts.iter().enumerate() {
            // The last segment lasts until the plan's end.
            let end = match place + 1 == parts.len() {
                true => start_ms + longest,
                false => at + length,
            };
            segments.push(json!({
                "start_ms": at, "end_ms": end,
                "rate_bps": if *blocked { 0 } else { kbps * 1000 },
                "state": if *blocked { "blocked" } else { "fair" },
            }));
            at = end;
        }
        json!({ "terminals": [number + 1], "guaranteed_bps": 1000, "segments": segments })
    });
    json!({
        "version": 1, "beam": "east", "link": "forward", "plan": version,
        "issued_ms": start_ms, "start_ms": start_ms, "end_ms": start_ms + longest,
        "capacity": [
            { "from_ms": start_ms, "rate_bps": 8_000_000 },
            { "from_ms": start_ms + longest / 2 + 1, "rate_bps": 4_000_000 },
        ],
        "lines": lines.collect::<Vec<_>>(),
    })
}

fn decoded(document: &Value) -> Arc<Plan> {
    Arc::new(Plan::decode(document.to_string().as_bytes()).unwrap())
}

fn parts() -> impl Strategy<Value = Parts> {
    prop::collection::vec((1..5_000_u64, 0..8_000_u64, any::<bool>()), 1..8)
}

fn lines() -> impl Strategy<Value = Vec<Parts>> {
    prop::collection::vec(parts(), 1..5)
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Plan::decode(&bytes);
    }

    #[test]
    fn no_change_of_a_good_document_makes_a_reader_panic(
        lines in lines(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut text = document(7, 1_000, &lines).to_string().into_bytes();
        let place = at.index(text.len());
        text[place] = byte;
        if let Ok(plan) = Plan::decode(&text) {
            prop_assert_eq!(Plan::decode(&plan.encode()).unwrap(), plan);
        }
    }

    #[test]
    fn a_part_says_of_its_terminal_what_the_plan_says(lines in lines(), at_ms in 0..30_000_u64) {
        let plan = decoded(&document(7, 1_000, &lines));
        for terminal in plan.terminals() {
            let part = plan.part(terminal).unwrap();
            let line = |plan: &Plan| plan.line(terminal).unwrap().at(at_ms).copied();
            prop_assert_eq!(line(&part), line(&plan));
            prop_assert_eq!(part.lines().len(), 1);
            let sent = Plan::decode(&part.encode()).unwrap();
            prop_assert_eq!(sent, part);
        }
        prop_assert!(plan.part(99).is_none());
    }

    #[test]
    fn nothing_changes_before_the_next_change(
        lines in lines(),
        at_ms in 0..30_000_u64,
        within in any::<prop::sample::Index>(),
    ) {
        let plan = decoded(&document(7, 1_000, &lines));
        let mut schedule = Schedule::default();
        schedule.take(plan.clone(), at_ms).unwrap();
        let what = |at_ms: u64| {
            let segments = plan.terminals().map(|id| schedule.segment(id, at_ms));
            let mut segments: Vec<_> = segments.collect();
            segments.sort_by_key(|segment| segment.map(|s| (s.start_ms, s.rate_bps)));
            let holds = schedule.in_force(at_ms).is_some();
            (segments, holds, holds.then(|| plan.capacity_at(at_ms)))
        };
        match schedule.next_change(at_ms) {
            None => prop_assert!(plan.end_ms() <= at_ms),
            Some(change) => {
                prop_assert!(at_ms < change);
                let between = at_ms + within.index((change - at_ms) as usize) as u64;
                prop_assert_eq!(what(between), what(at_ms));
            }
        }
    }

    #[test]
    fn the_newest_that_has_begun_holds_whatever_comes_in_between(
        steps in prop::collection::vec((1..20_u64, 0..4_000_u64, 0..2_000_u64), 1..30),
    ) {
        let mut schedule = Schedule::default();
        let mut now_ms = 0;
        // The plan in force and the next one, as (version, start).
        let mut current: Option<(u64, u64)> = None;
        let mut next: Option<(u64, u64)> = None;
        for (version, start, pause) in steps {
            now_ms += pause;
            let start_ms = (now_ms + start).saturating_sub(1_000);
            let plan = decoded(&document(version, start_ms, &[vec![(100_000, 1, false)]]));
            if next.is_some_and(|(_, start_ms)| start_ms <= now_ms) {
                current = next.take();
            }
            let known = next.or(current).map(|(version, _)| version);
            let newer = known.is_none_or(|known| known < version);
            prop_assert_eq!(schedule.take(plan, now_ms).is_ok(), newer);
            if newer {
                next = Some((version, start_ms));
                if start_ms <= now_ms {
                    current = next.take();
                }
            }
            let holds = schedule.in_force(now_ms).map(|plan| plan.version());
            prop_assert_eq!(holds, current.map(|(version, _)| version));
            let newest = schedule.newest().map(|plan| plan.version());
            prop_assert_eq!(newest, next.or(current).map(|(version, _)| version));
        }
    }

    #[test]
    fn blockages_are_when_segments_are_blocked(lines in lines(), at_ms in 1_000..30_000_u64) {
        let plan = decoded(&document(7, 1_000, &lines));
        let mut schedule = Schedule::default();
        schedule.take(plan.clone(), 1_000).unwrap();
        for terminal in plan.terminals() {
            let blockages = schedule.blockages(terminal);
            prop_assert!(blockages.is_sorted_by(|a, b| a.1 < b.0));
            let inside = blockages.iter().any(|(entry, exit)| (*entry..*exit).contains(&at_ms));
            let segment = schedule.segment(terminal, at_ms);
            prop_assert_eq!(inside, segment.is_some_and(|s| s.state.name() == "blocked"));
        }
    }
}

#[test]
fn control_that_counts_anew_is_followed_once_its_former_plan_is_over() {
    let plan =
        |version, start_ms| decoded(&document(version, start_ms, &[vec![(1_000, 1, false)]]));
    let mut schedule = Schedule::default();
    schedule.take(plan(70, 1_000), 1_500).unwrap();
    assert!(schedule.take(plan(1, 1_500), 1_600).is_err());
    assert!(schedule.is_stale(2_000));
    assert!(schedule.take(plan(1, 900), 2_000).is_err(), "made before");
    schedule.take(plan(1, 1_900), 2_000).unwrap();
    assert_eq!(schedule.in_force(2_000).unwrap().version(), 1);
}

#[test]
fn a_blockage_that_a_later_plan_no_longer_has_ends_with_its_start() {
    let blocked = document(1, 1_000, &[vec![(1_000, 1, false), (5_000, 1, true)]]);
    let free = document(2, 4_000, &[vec![(9_000, 1, false)]]);
    let mut schedule = Schedule::default();
    schedule.take(decoded(&blocked), 1_000).unwrap();
    assert_eq!(schedule.blockages(1), [(2_000, 7_000)]);
    schedule.take(decoded(&free), 1_000).unwrap();
    assert_eq!(schedule.blockages(1), [(2_000, 4_000)]);
}
