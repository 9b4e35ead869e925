//! The vectors of `docs/vectors/nmea.json`, which the control service's reader
//! of logs shares.

use serde::Deserialize;

use super::reader::Reader;
use crate::calendar;
use crate::feed::{Counts, Event};
use crate::fix::Fix;

const VECTORS: &str = include_str!("../../../../docs/vectors/nmea.json");

#[derive(Deserialize)]
struct Vectors {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    lines: Vec<String>,
    fixes: Vec<Expected>,
    counts: Counted,
    not_before_ms: Option<u64>,
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

fn read(case: &Case) -> (Vec<Fix>, Counts) {
    let gps_began = calendar::midnight_ms(1980, 1, 6).unwrap();
    let mut reader = Reader::new(case.not_before_ms.unwrap_or(gps_began));
    for line in &case.lines {
        reader.line(line.as_bytes());
    }
    reader.finish();
    let fix = |event| match event {
        Event::Fix(fix) => Some(fix),
        _ => None,
    };
    (
        reader.take().into_iter().filter_map(fix).collect(),
        reader.counts(),
    )
}

#[test]
fn logs_are_read_as_the_vectors_say() {
    let vectors: Vectors = serde_json::from_str(VECTORS).unwrap();
    assert!(!vectors.cases.is_empty());
    for case in &vectors.cases {
        let (fixes, counts) = read(case);
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
