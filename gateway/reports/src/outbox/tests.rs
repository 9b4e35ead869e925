use proptest::prelude::*;

use super::*;
use crate::kinds::{Position, Status};
use crate::report::{Body, Stamps};

const PATIENCE: Duration = Duration::from_secs(10);

fn status() -> Body {
    Body::Status(Status::default())
}

fn position() -> Body {
    Body::Position(Position {
        synchronised: true,
        ..Position::at(8.6, 50.1)
    })
}

/// Statuses, one in each second.
fn statuses(outbox: &mut Outbox, start: Instant, seconds: std::ops::Range<u64>) {
    for second in seconds {
        let report = Report {
            body: status(),
            uptime_ms: second,
            incarnation: 1,
        };
        outbox.push(start + Duration::from_secs(second), report);
    }
}

fn times(batch: &Batch) -> Vec<u64> {
    let reports = batch.reports.iter();
    reports.map(|report| report.uptime_ms).collect()
}

#[test]
fn newest_goes_first_and_the_older_ones_follow_in_batches() {
    let start = Instant::now();
    let mut outbox = Outbox::new(1000, None);
    statuses(&mut outbox, start, 0..100);
    let mut left = vec![];
    while let Some(batch) = outbox.poll(start, true) {
        left.push((batch.urgency, times(&batch)));
    }
    assert_eq!(
        left,
        [
            (Urgency::Newest, vec![99]),
            (Urgency::Late, (0..64).collect()),
            (Urgency::Late, (64..99).collect()),
        ]
    );
}

#[test]
fn newest_of_each_kind_goes_before_anything_late() {
    let start = Instant::now();
    let mut outbox = Outbox::new(1000, None);
    let mut stamps = Stamps::new(1);
    for at in 0..3 {
        outbox.push(start, stamps.stamp(status(), at));
        outbox.push(start, stamps.stamp(position(), at));
    }
    let batches = std::iter::from_fn(|| outbox.poll(start, true));
    let left: Vec<_> = batches
        .map(|batch| (batch.urgency, batch.reports[0].kind(), batch.reports.len()))
        .collect();
    assert_eq!(
        left,
        [
            (Urgency::Newest, Kind::Position, 1),
            (Urgency::Newest, Kind::Status, 1),
            (Urgency::Late, Kind::Status, 4),
        ]
    );
}

#[test]
fn while_nothing_can_leave_only_full_batches_go_into_custody() {
    let start = Instant::now();
    let later = start + Duration::from_secs(1000);
    let mut outbox = Outbox::new(1000, None);
    statuses(&mut outbox, start, 0..64);
    assert_eq!(outbox.poll(later, false), None);
    statuses(&mut outbox, start, 64..65);
    let batch = outbox.poll(later, false).unwrap();
    assert_eq!(
        (batch.urgency, batch.reports.len()),
        (Urgency::Late, MAX_REPORTS)
    );
    assert_eq!(outbox.poll(later, false), None);
    assert_eq!(times(&outbox.poll(later, true).unwrap()), [64]);
}

#[test]
fn with_patience_no_late_report_waits_longer() {
    let start = Instant::now();
    let mut outbox = Outbox::new(1000, Some(PATIENCE));
    statuses(&mut outbox, start, 0..11);
    assert_eq!(outbox.next_timeout(), Some(start + PATIENCE));
    let early = start + PATIENCE - Duration::from_millis(1);
    assert_eq!(outbox.poll(early, false), None);
    let batch = outbox.poll(start + PATIENCE, false).unwrap();
    assert_eq!(times(&batch), (0..10).collect::<Vec<_>>());
    // Custody has no room: the statuses have waited all the same.
    outbox.take_back(batch);
    assert_eq!(outbox.next_timeout(), Some(start + PATIENCE));
}

#[test]
fn at_the_end_everything_goes_into_custody() {
    let start = Instant::now();
    let mut outbox = Outbox::new(1000, None);
    statuses(&mut outbox, start, 0..3);
    let batch = outbox.flush().unwrap();
    assert_eq!(
        (batch.urgency, times(&batch)),
        (Urgency::Late, vec![0, 1, 2])
    );
    assert_eq!(outbox.flush(), None);
    assert!(outbox.is_empty());
}

#[test]
fn full_outbox_gives_up_the_oldest_and_counts_them() {
    let start = Instant::now();
    let mut outbox = Outbox::new(10, None);
    statuses(&mut outbox, start, 0..20);
    assert_eq!((outbox.len(), outbox.dropped()), (11, 9));
    outbox.poll(start, true);
    let late = times(&outbox.poll(start, true).unwrap());
    assert_eq!(late, (9..19).collect::<Vec<_>>());
}

#[derive(Clone, Debug)]
enum Step {
    Status,
    Position,
    Poll { open: bool, room: bool },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Status),
        1 => Just(Step::Position),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(open, room)| Step::Poll { open, room }),
        1 => (0u64..12).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn every_report_leaves_once_and_late_ones_of_a_kind_in_their_order(
        steps in prop::collection::vec(step(), 1..400),
        patient in any::<bool>(),
    ) {
        let mut now = Instant::now();
        let mut outbox = Outbox::new(1000, patient.then_some(PATIENCE));
        let mut stamps = Stamps::new(1);
        let (mut made, mut seen) = (Vec::new(), Vec::new());
        let mut last_late = BTreeMap::new();
        let mut take = |outbox: &mut Outbox, now: Instant, open: bool, room: bool| {
            let Some(batch) = outbox.poll(now, open) else {
                let waiting = outbox.next_timeout();
                prop_assert!(waiting.is_none_or(|at| at > now), "no late report is overdue");
                return Ok(false);
            };
            prop_assert!((1..=MAX_REPORTS).contains(&batch.reports.len()));
            if !room {
                outbox.take_back(batch);
                return Ok(true);
            }
            for report in &batch.reports {
                let name = (report.kind(), report.uptime_ms);
                if batch.urgency == Urgency::Late {
                    let before = last_late.insert(name.0, name.1);
                    prop_assert!(before < Some(name.1), "late reports keep their order");
                }
                seen.push(name);
            }
            Ok(true)
        };
        for step in steps {
            match step {
                Step::Status | Step::Position => {
                    let body = if matches!(step, Step::Status) { status() } else { position() };
                    let report = stamps.stamp(body, 0);
                    made.push((report.kind(), report.uptime_ms));
                    outbox.push(now, report);
                }
                Step::Poll { open, room } => {
                    take(&mut outbox, now, open, room)?;
                }
                Step::Wait(seconds) => now += Duration::from_secs(seconds),
            }
        }
        while take(&mut outbox, now, true, true)? {}
        seen.sort_unstable();
        made.sort_unstable();
        prop_assert_eq!(seen, made);
    }
}
