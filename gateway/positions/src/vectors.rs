//! The vectors that the control service's readers share: `docs/vectors`.

use serde::Deserialize;

use crate::feed::{Counts, Event};
use crate::fix::Fix;

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

/// Lines, and what they make.
#[derive(Deserialize)]
pub(crate) struct Case {
    name: String,
    pub lines: Vec<String>,
    fixes: Vec<Expected>,
    counts: Counted,
    pub not_before_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Expected {
    time_ms: Option<u64>,
    longitude: f64,
    latitude: f64,
    altitude_m: Option<f64>,
    speed_mps: Option<f64>,
    heading_deg: Option<f64>,
    accuracy_m: Option<f64>,
}

#[derive(Deserialize)]
struct Counted {
    sentences: u64,
    fixes: u64,
    spoilt: u64,
    rejected: u64,
    without_fix: u64,
}

fn near(one: Option<f64>, other: Option<f64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() < 1e-9,
        (one, other) => one == other,
    }
}

impl Expected {
    fn is(&self, fix: &Fix) -> bool {
        self.time_ms == fix.time_ms
            && near(Some(self.longitude), Some(fix.longitude))
            && near(Some(self.latitude), Some(fix.latitude))
            && near(self.altitude_m, fix.altitude_m)
            && near(self.speed_mps, fix.speed_mps)
            && near(self.heading_deg, fix.heading_deg)
            && near(self.accuracy_m, fix.accuracy_m)
    }
}

/// Checks that the lines of each case of a file make what the file says.
pub(crate) fn check(text: &str, read: impl Fn(&Case) -> (Vec<Event>, Counts)) {
    let vectors: Vectors = serde_json::from_str(text).unwrap();
    assert!(!vectors.cases.is_empty());
    for case in &vectors.cases {
        let (events, counts) = read(case);
        let fix = |event| match event {
            Event::Fix(fix) => Some(fix),
            _ => None,
        };
        let fixes: Vec<Fix> = events.into_iter().filter_map(fix).collect();
        let name = &case.name;
        assert_eq!(fixes.len(), case.fixes.len(), "{name}: {fixes:#?}");
        for (expected, fix) in case.fixes.iter().zip(&fixes) {
            assert!(expected.is(fix), "{name}: {fix:#?}");
        }
        let expected = Counts {
            sentences: case.counts.sentences,
            fixes: case.counts.fixes,
            spoilt: case.counts.spoilt,
            rejected: case.counts.rejected,
            without_fix: case.counts.without_fix,
        };
        assert_eq!(counts, expected, "{name}");
    }
}
