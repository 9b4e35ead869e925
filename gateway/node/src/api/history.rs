//! What the clients have sent and received in the last minutes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use underpass_cla::Class;
use underpass_engine::StreamTotals;

use super::ApiState;

/// Throughput is the mean over so long.
const INTERVAL: Duration = Duration::from_secs(5);
/// How many of them are kept: ten minutes.
const INTERVALS: usize = 120;

/// bit/s of a class in each interval.
type Rates = BTreeMap<Class, [u64; 2]>;

/// The throughput of the clients' streams by class, of the last intervals.
#[derive(Debug, Default)]
pub struct History {
    latest: Option<(Instant, Vec<(Class, StreamTotals)>)>,
    intervals: VecDeque<Rates>,
}

impl History {
    /// Takes the totals at the end of an interval.
    fn take(&mut self, now: Instant, totals: Vec<(Class, StreamTotals)>) {
        if let Some((then, earlier)) = &self.latest {
            let lasted_s = now.saturating_duration_since(*then).as_secs_f64();
            if self.intervals.len() == INTERVALS {
                self.intervals.pop_front();
            }
            self.intervals.push_back(rates(earlier, &totals, lasted_s));
        }
        self.latest = Some((now, totals));
    }

    /// The throughput of a class, the oldest first.
    fn of(&self, class: Class) -> ClassThroughput {
        let rates = |direction: usize| {
            let intervals = self.intervals.iter();
            let rates = intervals.map(|rates| rates.get(&class).map_or(0, |both| both[direction]));
            rates.collect()
        };
        ClassThroughput {
            sent_bps: rates(0),
            received_bps: rates(1),
        }
    }
}

fn rates(earlier: &[(Class, StreamTotals)], now: &[(Class, StreamTotals)], lasted_s: f64) -> Rates {
    let before: BTreeMap<Class, &StreamTotals> = earlier
        .iter()
        .map(|(class, total)| (*class, total))
        .collect();
    let bps = |now: u64, before: Option<u64>| {
        let bits = now.saturating_sub(before.unwrap_or(0)) as f64 * 8.0;
        (bits / lasted_s.max(1e-3)).round() as u64
    };
    let rates = now.iter().map(|(class, total)| {
        let before = before.get(class);
        let sent = bps(total.sent_bytes, before.map(|total| total.sent_bytes));
        let received = bps(
            total.received_bytes,
            before.map(|total| total.received_bytes),
        );
        (*class, [sent, received])
    });
    rates.collect()
}

/// The clients' throughput in the last minutes.
#[derive(Debug, Serialize)]
pub struct ThroughputView {
    /// An interval's length, s.
    interval_s: f64,
    /// Intervals that are kept at most.
    intervals: usize,
    /// By class name.
    classes: BTreeMap<String, ClassThroughput>,
}

/// bit/s of the streams' bytes in each interval, the oldest first; the last interval ended at most
/// one interval ago.
#[derive(Debug, Serialize)]
struct ClassThroughput {
    sent_bps: Vec<u64>,
    received_bps: Vec<u64>,
}

/// GET /v1/throughput
pub async fn throughput(State(state): State<Arc<ApiState>>) -> Json<ThroughputView> {
    let history = state.history.lock().unwrap();
    let classes = 0..state.config.get().classes.len();
    let classes = classes.filter_map(|number| u8::try_from(number).ok().map(Class));
    Json(ThroughputView {
        interval_s: INTERVAL.as_secs_f64(),
        intervals: INTERVALS,
        classes: classes
            .map(|class| (state.class_name(class), history.of(class)))
            .collect(),
    })
}

/// Takes the totals at the end of each interval, until dropped.
pub async fn keep(state: Arc<ApiState>) {
    let mut intervals = tokio::time::interval(INTERVAL);
    intervals.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        intervals.tick().await;
        let totals = state.shell.stream_totals();
        let history: &Mutex<History> = &state.history;
        history.lock().unwrap().take(Instant::now(), totals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(sent_bytes: u64, received_bytes: u64) -> Vec<(Class, StreamTotals)> {
        let total = StreamTotals {
            sent_bytes,
            received_bytes,
            ..StreamTotals::default()
        };
        vec![(Class(2), total)]
    }

    #[test]
    fn throughput_is_the_mean_of_each_interval() {
        let (mut history, start) = (History::default(), Instant::now());
        for (at_s, sent, received) in [(0, 500, 0), (5, 1_125, 0), (10, 1_125, 2_500)] {
            let at = start + Duration::from_secs(at_s);
            history.take(at, totals(sent, received));
        }
        let normal = history.of(Class(2));
        assert_eq!(normal.sent_bps, [1_000, 0]);
        assert_eq!(normal.received_bps, [0, 4_000]);
        assert_eq!(history.of(Class(1)).sent_bps, [0, 0]);
    }

    #[test]
    fn an_interval_that_lasted_longer_is_no_burst() {
        let (mut history, start) = (History::default(), Instant::now());
        history.take(start, totals(0, 0));
        history.take(start + Duration::from_secs(50), totals(6_250, 0));
        assert_eq!(history.of(Class(2)).sent_bps, [1_000]);
    }

    #[test]
    fn ten_minutes_are_kept() {
        let (mut history, start) = (History::default(), Instant::now());
        for n in 0..200 {
            history.take(start + INTERVAL * n, totals(u64::from(n) * 625, 0));
        }
        assert_eq!(history.of(Class(2)).sent_bps, [1_000; INTERVALS]);
    }
}
