//! Creation timestamps that never repeat (RFC 9171 §4.2.7).
//!
//! With a clock the time is DTN time, renewed every 10 s, and sequence
//! numbers count on through the node's life from a start that differs from
//! run to run, below 2³² (ION-DTN reads 32 bits). So a receiver remembers one
//! range of numbers per source and 10 s, and a step of the clock repeats
//! nothing. Without a clock the time is 0, as RFC 9171 asks, and the upper
//! half of the sequence number is the run's nonce.
//!
//! Agents of one node that have parts of its neighbours use different times, or
//! without a clock different nonces.

use std::time::{Duration, Instant};

use bp7::dtntime::CreationTimestamp;
use serde::{Deserialize, Serialize};
use underpass_handover::Moment;
use underpass_work::FastMap;

use super::sharding::Sharding;

const RENEWED_EVERY: Duration = Duration::from_secs(10);

/// Gives each of the node's endpoints its next timestamp.
#[derive(Debug)]
pub(crate) struct Timestamps {
    run_nonce: u64,
    sharding: Sharding,
    /// A moment and its DTN time, ms.
    clock: Option<(Instant, u64)>,
    /// The same of a clock that is known to be right, by which others' bundles are judged.
    known: Option<(Instant, u64)>,
    /// The time in use and when it was read.
    current: Option<(Instant, u64)>,
    counts: FastMap<u64, u32>,
}

/// [`Timestamps`], to be handed over: the clock and the time in use, each with
/// its moment, and the counts by service.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TimestampsState {
    clock: Option<(Moment, u64)>,
    current: Option<(Moment, u64)>,
    counts: Vec<(u64, u32)>,
}

impl Timestamps {
    pub fn hand_over(self, now: Instant) -> TimestampsState {
        let moment = |(at, time)| (Moment::of(at, now), time);
        TimestampsState {
            clock: self.clock.map(moment),
            current: self.current.map(moment),
            counts: self.counts.into_iter().collect(),
        }
    }

    pub fn take_over(&mut self, now: Instant, state: TimestampsState) {
        let instant = |(at, time): (Moment, u64)| (at.instant(now), time);
        self.clock = state.clock.map(instant);
        self.current = state.current.map(instant);
        self.counts = state.counts.into_iter().collect();
    }

    pub fn new(run_nonce: u64, sharding: Sharding) -> Self {
        Timestamps {
            run_nonce,
            sharding,
            clock: None,
            known: None,
            current: None,
            counts: FastMap::default(),
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Timestamps {
            run_nonce: _,
            sharding: _,
            clock: _,
            known: _,
            current: _,
            counts,
        } = self;
        tell("services with timestamps", counts.len());
    }

    pub fn set_clock(&mut self, now: Instant, dtn_time_ms: u64) {
        self.clock = Some((now, dtn_time_ms));
        self.current = None;
    }

    /// DTN time, ms, or 0 without a clock.
    pub fn dtn_time_ms(&self, now: Instant) -> u64 {
        self.clock.map_or(0, |clock| time_at(clock, now))
    }

    pub fn set_known(&mut self, now: Instant, dtn_time_ms: Option<u64>) {
        self.known = dtn_time_ms.map(|time| (now, time));
    }

    /// The age, ms, of a bundle that was created at this DTN time, ms. It is 0 if the bundle's
    /// source had no clock, if the time is not known here, and for a time in the future.
    pub fn age_ms(&self, now: Instant, created_ms: u64) -> u64 {
        match (self.known, created_ms) {
            (None, _) | (_, 0) => 0,
            (Some(known), created_ms) => time_at(known, now).saturating_sub(created_ms),
        }
    }

    /// DTN time, ms, lowered by less than one ms per agent of the node, so that no two agents use
    /// the same time.
    fn own_time_ms(&self, now: Instant) -> u64 {
        let Sharding { own, count } = self.sharding;
        let (own, count) = (own as u64, count as u64);
        let time = self.dtn_time_ms(now).max(count);
        time - (time - own) % count
    }

    pub fn next(&mut self, now: Instant, service: u64) -> CreationTimestamp {
        // A 31-bit start leaves half of the 32 bits before the count wraps,
        // by which time the time has moved on.
        let start = (self.run_nonce >> 33) as u32;
        let count = self.counts.entry(service).or_insert(start);
        let this = *count;
        *count = count.wrapping_add(1);
        if self.clock.is_none() {
            let prefix = self.run_nonce.wrapping_add(self.sharding.own as u64) << 32;
            return CreationTimestamp::with_time_and_seq(0, prefix | u64::from(this));
        }
        let time = match self.current {
            Some((at, time)) if now.saturating_duration_since(at) < RENEWED_EVERY => time,
            _ => {
                let time = self.own_time_ms(now);
                self.current = Some((now, time));
                time
            }
        };
        CreationTimestamp::with_time_and_seq(time, u64::from(this))
    }
}

/// The time, ms, of a clock that showed `time` at `at`.
fn time_at((at, time): (Instant, u64), now: Instant) -> u64 {
    let since = now.saturating_duration_since(at).as_millis();
    time.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn timestamps_are_unique_over_clock_steps_and_restarts() {
        let now = Instant::now();
        let mut seen = HashSet::new();
        for run_nonce in [0x1111_2222_3333_4444, 0x5555_6666_7777_8888] {
            let mut timestamps = Timestamps::new(run_nonce, Sharding::ALONE);
            let mut take = |timestamps: &mut Timestamps| {
                for _ in 0..100 {
                    let next = timestamps.next(now, 64);
                    assert!(seen.insert((next.dtntime(), next.seqno())));
                }
            };
            take(&mut timestamps);
            timestamps.set_clock(now, 848_523_100_000);
            take(&mut timestamps);
            timestamps.set_clock(now, 848_523_100_000);
            take(&mut timestamps);
        }
    }

    #[test]
    fn agents_of_one_node_never_give_the_same_timestamp() {
        let now = Instant::now();
        for count in [1, 2, 3, 8] {
            let mut seen = HashSet::new();
            for (own, clock) in (0..count).flat_map(|own| [(own, None), (own, Some(1_000_003))]) {
                // The run's nonce is the node's.
                let mut timestamps = Timestamps::new(u64::MAX, Sharding { own, count });
                if let Some(time) = clock {
                    timestamps.set_clock(now, time + own as u64);
                }
                for second in 0..100 {
                    let now = now + Duration::from_secs(second);
                    let next = timestamps.next(now, 64);
                    assert!(seen.insert((next.dtntime(), next.seqno())));
                    let late = timestamps.dtn_time_ms(now) - next.dtntime();
                    assert!(late < 10_000 + count as u64);
                    assert_eq!(next.dtntime() == 0, clock.is_none());
                }
            }
        }
    }

    #[test]
    fn without_a_clock_the_time_is_zero() {
        let mut timestamps = Timestamps::new(7, Sharding::ALONE);
        assert_eq!(timestamps.next(Instant::now(), 1).dtntime(), 0);
    }

    #[test]
    fn the_time_lags_by_less_than_ten_seconds() {
        let now = Instant::now();
        let mut timestamps = Timestamps::new(7, Sharding::ALONE);
        timestamps.set_clock(now, 1_000_000);
        timestamps.next(now, 1);
        let later = timestamps.next(now + Duration::from_secs(25), 1);
        assert_eq!(later.dtntime(), 1_025_000);
    }
}
