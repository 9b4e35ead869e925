//! Compares the hub's delivery of the offered chunks with an ideal fair queue.

use serde::Serialize;

use super::ideal::{Blocked, Offered, departures};

#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub offered: Offered,
    /// When its last byte had left the hub, ns; none if it has not.
    pub left_ns: Option<u64>,
}

/// What is judged.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// The beam's rate, all of which the ideal queue has for payload.
    pub rate_bps: f64,
    pub terminals: usize,
    /// Chunks count that were offered from here on, ns,
    pub from_ns: u64,
    /// to here, ns.
    pub to_ns: u64,
    /// What has not left by then has not left, ns.
    pub end_ns: u64,
}

/// Quantiles of delays beyond the ideal queue's, ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Excess {
    pub chunks: usize,
    pub median_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub most_ms: f64,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Judgement {
    /// Payload offered in the course, bit/s.
    pub offered_bps: f64,
    /// Payload that left in that time, of what was offered in it.
    pub delivered: f64,
    /// What the ideal queue would have delivered of it.
    pub ideal_delivered: f64,
    /// Jain's index of what each terminal was delivered, as a part of what the
    /// ideal queue would have delivered to it.
    pub jain: Option<f64>,
    /// Of all chunks.
    pub excess: Option<Excess>,
    /// Of those whose terminal was not blocked from when they were offered
    /// until they left the ideal queue.
    pub clear: Option<Excess>,
    /// Of the others, which waited for the end of a blockage.
    pub recovery: Option<Excess>,
    /// The p99 of the ideal queue's own delays of clear chunks, ms.
    pub ideal_clear_p99_ms: Option<f64>,
    /// Chunks that cannot be judged: at the end the ideal queue has them too.
    pub unjudged: usize,
    /// Chunks that had not left at the end; they count with their delay so far.
    pub missing: usize,
}

/// Judges chunks, which are in the order in which they were offered.
///
/// In the ideal queue a terminal is blocked from the moment when the kernel drops packets to it, to
/// the first moment when the hub can hear it again. So the time in between does not count for a
/// chunk that waits there, but all later time does.
pub fn judge(course: &Course, chunks: &[Chunk], blocked: &[Blocked]) -> Judgement {
    let offered: Vec<Offered> = chunks.iter().map(|chunk| chunk.offered).collect();
    let ideal = departures(course.rate_bps, course.terminals, &offered, blocked);
    let mut by_terminal: Vec<Vec<Blocked>> = vec![Vec::new(); course.terminals];
    for blockage in blocked {
        by_terminal[blockage.terminal].push(*blockage);
    }
    let within =
        |at: Option<u64>| at.is_some_and(|at| (course.from_ns..course.to_ns).contains(&at));
    let mut sums = Sums::new(course.terminals);
    let (mut clear, mut recovery, mut ideal_clear) = (Vec::new(), Vec::new(), Vec::new());
    let (mut unjudged, mut missing) = (0, 0);
    for (Chunk { offered, left_ns }, ideal) in chunks.iter().zip(ideal) {
        let bytes = offered.bytes as f64;
        sums.real[offered.terminal] += bytes * f64::from(u8::from(within(*left_ns)));
        sums.ideal[offered.terminal] += bytes * f64::from(u8::from(within(ideal)));
        if !within(Some(offered.at_ns)) {
            continue;
        }
        sums.offered += bytes;
        let Some(ideal) = ideal.filter(|at| *at < course.end_ns) else {
            unjudged += 1;
            continue;
        };
        missing += usize::from(left_ns.is_none());
        let excess = left_ns.unwrap_or(course.end_ns) as f64 - ideal as f64;
        let waits = |b: &Blocked| b.from_ns < ideal && offered.at_ns < b.until_ns;
        if by_terminal[offered.terminal].iter().any(waits) {
            recovery.push(excess / 1e6);
        } else {
            clear.push(excess / 1e6);
            ideal_clear.push((ideal - offered.at_ns) as f64 / 1e6);
        }
    }
    let mut all = [clear.as_slice(), recovery.as_slice()].concat();
    let real: f64 = sums.real.iter().sum();
    let ideal: f64 = sums.ideal.iter().sum();
    let parts = sums.real.iter().zip(&sums.ideal);
    let parts: Vec<f64> = parts
        .filter(|(_, i)| **i > 0.0)
        .map(|(r, i)| r / i)
        .collect();
    let seconds = (course.to_ns - course.from_ns) as f64 / 1e9;
    Judgement {
        offered_bps: sums.offered * 8.0 / seconds,
        delivered: real / sums.offered,
        ideal_delivered: ideal / sums.offered,
        jain: jain(&parts),
        excess: Excess::of(&mut all),
        clear: Excess::of(&mut clear),
        recovery: Excess::of(&mut recovery),
        ideal_clear_p99_ms: quantile_of(&mut ideal_clear, 0.99),
        unjudged,
        missing,
    }
}

/// Payload in the course, bytes.
struct Sums {
    offered: f64,
    /// What each terminal was delivered.
    real: Vec<f64>,
    /// The same of the ideal queue.
    ideal: Vec<f64>,
}

impl Sums {
    fn new(terminals: usize) -> Sums {
        Sums {
            offered: 0.0,
            real: vec![0.0; terminals],
            ideal: vec![0.0; terminals],
        }
    }
}

impl Excess {
    fn of(delays_ms: &mut [f64]) -> Option<Excess> {
        delays_ms.sort_unstable_by(f64::total_cmp);
        Some(Excess {
            chunks: delays_ms.len(),
            median_ms: quantile(delays_ms, 0.5)?,
            p95_ms: quantile(delays_ms, 0.95)?,
            p99_ms: quantile(delays_ms, 0.99)?,
            p999_ms: quantile(delays_ms, 0.999)?,
            most_ms: quantile(delays_ms, 1.0)?,
        })
    }
}

/// Sorts, and gives the [`quantile`].
pub fn quantile_of(values: &mut [f64], part: f64) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    quantile(values, part)
}

/// The least of the sorted values that this part of them does not exceed.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied()
}

/// Jain's index of rates: 1 where all are equal, 1/n where one has all.
pub fn jain(rates: &[f64]) -> Option<f64> {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 8 kbit/s: a byte in a millisecond.
    const COURSE: Course = Course {
        rate_bps: 8e3,
        terminals: 2,
        from_ns: 0,
        to_ns: 1_000 * MS,
        end_ns: 2_000 * MS,
    };

    fn chunk(terminal: usize, at_ms: u64, left_ms: Option<u64>) -> Chunk {
        let offered = Offered {
            terminal,
            at_ns: at_ms * MS,
            bytes: 10,
        };
        Chunk {
            offered,
            left_ns: left_ms.map(|ms| ms * MS),
        }
    }

    const TUNNEL: Blocked = Blocked {
        terminal: 0,
        from_ns: 100 * MS,
        until_ns: 500 * MS,
    };

    #[test]
    fn jain_tells_equal_from_unequal() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(quantile_of(&mut values, 0.99), Some(99.0));
        assert_eq!(quantile(&values, 0.5), Some(50.0));
        assert_eq!(quantile(&values, 1.0), Some(100.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn who_sends_as_the_ideal_queue_has_no_excess() {
        let chunks = [chunk(0, 0, Some(10)), chunk(1, 20, Some(30))];
        let told = judge(&COURSE, &chunks, &[]);
        assert_eq!(told.clear.map(|clear| clear.most_ms), Some(0.0));
        assert_eq!((told.delivered, told.ideal_delivered), (1.0, 1.0));
        assert_eq!((told.jain, told.recovery), (Some(1.0), None));
    }

    #[test]
    fn what_exceeds_the_wait_of_the_ideal_queue_counts() {
        // Behind the first chunk the ideal queue has the second wait, too.
        let chunks = [chunk(0, 0, Some(13)), chunk(0, 0, Some(27))];
        let told = judge(&COURSE, &chunks, &[]);
        assert_eq!(told.clear.map(|clear| clear.median_ms), Some(3.0));
        assert_eq!(told.clear.map(|clear| clear.most_ms), Some(7.0));
    }

    #[test]
    fn a_blockage_does_not_count_and_what_follows_it_does() {
        let chunks = [
            chunk(0, 50, Some(60)),
            chunk(0, 200, Some(530)),
            chunk(0, 490, Some(540)),
        ];
        let told = judge(&COURSE, &chunks, &[TUNNEL]);
        assert_eq!(
            told.clear.map(|clear| (clear.chunks, clear.most_ms)),
            Some((1, 0.0))
        );
        let recovery = told.recovery.expect("two wait for the end");
        assert_eq!((recovery.chunks, recovery.most_ms), (2, 20.0));
    }

    #[test]
    fn what_the_hub_sends_into_a_blockage_too_late_is_clear_and_counts() {
        let chunks = [chunk(0, 80, Some(510))];
        let told = judge(&COURSE, &chunks, &[TUNNEL]);
        assert_eq!(told.clear.map(|clear| clear.most_ms), Some(420.0));
    }

    #[test]
    fn what_never_comes_counts_with_the_time_to_the_end() {
        let chunks = [chunk(1, 0, None), chunk(0, 0, Some(20))];
        let told = judge(&COURSE, &chunks, &[]);
        assert_eq!(told.missing, 1);
        assert_eq!(told.clear.map(|clear| clear.most_ms), Some(1_980.0));
        assert_eq!((told.delivered, told.jain), (0.5, Some(0.5)));
    }

    #[test]
    fn fairness_counts_against_what_the_blockage_leaves() {
        // The blocked terminal's chunk comes behind the course in either queue.
        let tunnel = Blocked {
            until_ns: 1_500 * MS,
            ..TUNNEL
        };
        let chunks = [
            chunk(0, 0, Some(10)),
            chunk(1, 50, Some(60)),
            chunk(0, 200, Some(1_520)),
            chunk(1, 250, Some(260)),
        ];
        let told = judge(&COURSE, &chunks, &[tunnel]);
        assert_eq!((told.delivered, told.jain), (0.75, Some(1.0)));
    }

    #[test]
    fn chunks_that_the_ideal_queue_has_at_the_end_are_not_judged() {
        let tunnel = Blocked {
            until_ns: u64::MAX,
            ..TUNNEL
        };
        let told = judge(&COURSE, &[chunk(0, 200, None)], &[tunnel]);
        assert_eq!((told.unjudged, told.missing, told.excess), (1, 0, None));
    }
}
