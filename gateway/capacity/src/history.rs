//! The latest readings, and what follows from them for times between them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::{Reading, WayThere};

/// Readings closer to the one before are left out: they say more about the
/// counters than about the link.
const LEAST_STEP: Duration = Duration::from_millis(4);

/// So many readings are kept at most: 10 s of one each 10 ms.
const MOST_READINGS: usize = 1024;

/// A reading, and when it was made.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Instant,
    reading: Reading,
    /// Something has arrived since the one before.
    advanced: bool,
    /// Sending was held back: a queue was drained, or a first flight was not answered yet.
    held: bool,
}

/// The readings of the last seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    points: VecDeque<Point>,
}

/// What has arrived of a first flight.
pub(crate) struct Arrived {
    /// All of it.
    pub all_bits: f64,
    /// The part of it that counts, and the times of the reading before it and of the last one in
    /// it.
    pub bits: f64,
    pub from: Instant,
    pub to: Instant,
}

/// One of a reading's totals.
pub(crate) type Total = fn(&Reading) -> u64;

pub(crate) const DELIVERED_BITS: Total = |reading| reading.delivered_bits;
pub(crate) const SENT_BITS: Total = |reading| reading.sent_bits;
pub(crate) const REPEATED_BITS: Total = |reading| reading.repeated_bits;
pub(crate) const OTHER_BITS: Total = |reading| reading.other_bits;

impl History {
    /// Takes a reading, `held` if sending is held back, and forgets those that are older than
    /// `horizon`. Returns whether the reading counts.
    pub fn push(&mut self, now: Instant, reading: Reading, held: bool, horizon: Duration) -> bool {
        let last = self.points.back();
        if last.is_some_and(|last| now < last.at + LEAST_STEP) {
            return false;
        }
        let advanced = last.is_some_and(|last| {
            // A total that falls is another hop's, or a lie.
            reading.delivered_bits > last.reading.delivered_bits
        });
        self.points.push_back(Point {
            at: now,
            reading,
            advanced,
            held,
        });
        let old = |point: &Point| now.saturating_duration_since(point.at) > horizon;
        while self.points.len() > MOST_READINGS || self.points.get(1).is_some_and(old) {
            self.points.pop_front();
        }
        true
    }

    pub fn clear(&mut self) {
        self.points = VecDeque::new();
    }

    /// The time since the last reading.
    pub fn since_last(&self, now: Instant) -> Duration {
        let last = self.points.back();
        last.map_or(Duration::ZERO, |last| {
            now.saturating_duration_since(last.at)
        })
    }

    /// Whether readings go back to `at`.
    pub fn reaches(&self, at: Instant) -> bool {
        self.points.front().is_some_and(|first| first.at <= at)
    }

    /// The time of the last reading at or before `at`.
    pub fn reading_at(&self, at: Instant) -> Option<Instant> {
        let next = self.points.partition_point(|point| point.at <= at);
        Some(self.points.get(next.checked_sub(1)?)?.at)
    }

    /// A total at a time between readings, by interpolation, bits.
    pub fn total_at(&self, total: Total, at: Instant) -> f64 {
        let next = self.points.partition_point(|point| point.at <= at);
        let Some(before) = next.checked_sub(1).map(|index| &self.points[index]) else {
            return self
                .points
                .front()
                .map_or(0.0, |first| total(&first.reading) as f64);
        };
        let from = total(&before.reading) as f64;
        let Some(after) = self.points.get(next) else {
            return from;
        };
        let to = total(&after.reading) as f64;
        let part = (at - before.at).as_secs_f64() / (after.at - before.at).as_secs_f64();
        from + (to - from) * part
    }

    /// How fast a total grew between two times, bit/s.
    pub fn rate(&self, total: Total, from: Instant, to: Instant) -> f64 {
        let seconds = to.saturating_duration_since(from).as_secs_f64();
        if seconds <= 0.0 {
            return 0.0;
        }
        ((self.total_at(total, to) - self.total_at(total, from)) / seconds).max(0.0)
    }

    /// The rate that was sent between two times, pure ACKs included, bit/s.
    pub fn sent(&self, from: Instant, to: Instant) -> f64 {
        self.rate(SENT_BITS, from, to) + self.rate(OTHER_BITS, from, to)
    }

    /// How fast data arrives, bit/s, and since when it was counted: over at least `window`, from
    /// one arrival to another before `now`, so that acknowledgements that come in bunches count by
    /// the time between bunches. `None` while readings do not go back so far.
    pub fn arrivals(&self, now: Instant, window: Duration) -> Option<(f64, Instant)> {
        let arrived = || self.points.iter().rev().filter(|point| point.advanced);
        let last = arrived().find(|point| point.at <= now)?;
        // If nothing has come for long, that time counts, too.
        let (end, delivered) = match now.saturating_duration_since(last.at) > window {
            true => (now, last.reading.delivered_bits),
            false => (last.at, last.reading.delivered_bits),
        };
        let from = end.checked_sub(window)?;
        let first = arrived().find(|point| point.at <= from)?;
        let bits = delivered.saturating_sub(first.reading.delivered_bits);
        Some((bits as f64 / (end - first.at).as_secs_f64(), first.at))
    }

    /// What has arrived since `since`, and the last `part` of it, or a little more: this leaves out
    /// what trickled in before a flight. `None` while nothing has arrived.
    pub fn arrived_since(&self, since: Instant, part: f64) -> Option<Arrived> {
        let first = self.points.partition_point(|point| point.at < since).max(1);
        let begins = (first..self.points.len()).find(|&index| self.points[index].advanced)?;
        let ends = self.points.iter().rposition(|point| point.advanced)?;
        let to = self.points.get(ends)?;
        let bits = |index: usize| {
            let before = self.points[index].reading.delivered_bits;
            to.reading.delivered_bits.saturating_sub(before) as f64
        };
        let all_bits = bits(begins - 1);
        let from = (begins - 1..ends).rfind(|&index| bits(index) >= part * all_bits)?;
        Some(Arrived {
            all_bits,
            bits: bits(from),
            from: self.points[from].at,
            to: to.at,
        })
    }

    /// Whether nothing has arrived for `span`.
    pub fn is_silent(&self, now: Instant, span: Duration) -> bool {
        let mut recent = self.points.iter().rev();
        recent
            .by_ref()
            .take_while(|point| now.saturating_duration_since(point.at) < span)
            .all(|point| !point.advanced)
    }

    /// The least smoothed round trip since that time.
    pub fn least_rtt(&self, since: Instant) -> Option<Duration> {
        let recent = self.points.iter().rev().take_while(|p| p.at >= since);
        recent.filter_map(|point| point.reading.rtt).min()
    }

    /// The longest smoothed round trip since that time.
    pub fn longest_rtt(&self, since: Instant) -> Option<Duration> {
        let recent = self.points.iter().rev().take_while(|p| p.at >= since);
        recent.filter_map(|point| point.reading.rtt).max()
    }

    /// The round trip in the latest reading.
    pub fn latest_rtt(&self) -> Option<Duration> {
        self.points.back()?.reading.rtt
    }

    /// How late packets of this direction are, by the peer's last report until `at`.
    pub fn told_at(&self, at: Instant) -> Option<Duration> {
        let until = self.points.iter().rev().skip_while(|point| point.at > at);
        until
            .map(|point| point.reading.way_there)
            .next()?
            .map(|told| told.late)
    }

    /// The least that the peer reported lately, `told` included: what delays one beacon may not
    /// delay the next.
    pub fn least_told(&self, now: Instant, told: WayThere) -> Duration {
        let recent = self.points.iter().rev();
        recent
            .take_while(|point| now < point.at + told.each / 2)
            .filter_map(|point| point.reading.way_there)
            .fold(told.late, |least, before| least.min(before.late))
    }

    /// The mean of what the peer reported lately, since single reports are noisy.
    pub fn mean_told(&self, now: Instant, told: WayThere) -> Duration {
        let (mut sum, mut count) = (Duration::ZERO, 0);
        let recent = self.points.iter().rev();
        let lately = recent.take_while(|point| now < point.at + 2 * told.each);
        for before in lately.filter_map(|point| point.reading.way_there) {
            sum += before.late;
            count += 1;
        }
        sum.checked_div(count).unwrap_or(told.late)
    }

    /// The most by which the queue on the way back has grown since `since`.
    pub fn way_back_grown(&self, since: Instant) -> Duration {
        let recent = self.points.iter().rev();
        let told = recent
            .take_while(|point| point.at >= since)
            .filter_map(|point| point.reading.way_back);
        let (mut most, mut grown) = (Duration::ZERO, Duration::ZERO);
        for late in told {
            most = most.max(late);
            grown = grown.max(most - late);
        }
        grown
    }

    /// The most that was sent within any `span` since `since`, bits, and when that began. What was
    /// in flight at the first reading counts as sent just before it.
    pub fn most_sent(&self, since: Instant, span: Duration) -> (f64, Instant) {
        let mut most = (0.0, since);
        for (index, point) in self.points.iter().enumerate() {
            if point.at < since {
                continue;
            }
            let before = match index {
                0 => point.reading.in_flight_bits as f64,
                _ => 0.0,
            };
            let then = self.total_at(SENT_BITS, point.at + span);
            let sent = before + then - point.reading.sent_bits as f64;
            if sent >= most.0 {
                most = (sent, point.at);
            }
        }
        most
    }

    /// Whether there was a backlog nearly all the time between two times, and sending was never
    /// held back meanwhile.
    pub fn backlogged(&self, from: Instant, to: Instant) -> bool {
        let mut within = self.points.iter().filter(|p| from <= p.at && p.at <= to);
        !within.any(|point| point.held) && self.waits(from, to)
    }

    /// Whether something waited to be sent nearly all the time between two times.
    pub fn waits(&self, from: Instant, to: Instant) -> bool {
        self.nearly_always(from, to, |reading| reading.backlogged)
    }

    /// Whether a transport's window was full nearly all the time between two times, and so limited
    /// what was sent.
    pub fn window_full(&self, from: Instant, to: Instant) -> bool {
        self.nearly_always(from, to, |reading| reading.window_full)
    }

    /// The most that was in flight between two times, bits.
    pub fn in_flight(&self, from: Instant, to: Instant) -> f64 {
        let within = self.points.iter().filter(|p| from <= p.at && p.at <= to);
        let most = within.map(|point| point.reading.in_flight_bits).max();
        most.unwrap_or_default() as f64
    }

    fn nearly_always(&self, from: Instant, to: Instant, holds: fn(&Reading) -> bool) -> bool {
        let within = self.points.iter().filter(|p| from <= p.at && p.at <= to);
        let (mut all, mut held) = (0, 0);
        for point in within {
            all += 1;
            held += usize::from(holds(&point.reading));
        }
        all > 0 && held * 5 >= all * 4
    }

    /// Whether the round trip has grown by more than `part` of the time since `since`, in both
    /// halves of that time: a way that becomes longer at once is no queue, and grows in one half
    /// only.
    pub fn rtt_grows(&self, now: Instant, since: Instant, part: f64) -> bool {
        let middle = since + (now - since) / 2;
        let least = part * (now - since).as_secs_f64() / 2.0;
        let known = |at: Instant| {
            let until = self.points.iter().rev().skip_while(|p| p.at > at);
            let rtt = until.map(|point| point.reading.rtt).next()?;
            rtt.map(|rtt| rtt.as_secs_f64())
        };
        let (Some(first), Some(second), Some(last)) = (known(since), known(middle), known(now))
        else {
            return false;
        };
        second - first > least && last - second > least
    }

    /// The longest time without an arrival since `since`. With a known round trip, a time counts
    /// only if something had been sent that should have arrived in its first half.
    pub fn longest_gap(&self, since: Instant, rtt: Option<Duration>) -> Duration {
        let arrivals = self
            .points
            .iter()
            .filter(|p| p.advanced && p.at >= since)
            .map(|point| point.at);
        let mut before: Option<Instant> = None;
        let mut longest = Duration::ZERO;
        for at in arrivals {
            let Some(before) = before.replace(at) else {
                continue;
            };
            let gap = at - before;
            let counts = |rtt: Duration| self.was_sent_for(before, gap / 2, rtt);
            if gap > longest && rtt.is_none_or(counts) {
                longest = gap;
            }
        }
        longest
    }

    /// Whether anything was sent that should have arrived within `span` from `from` on.
    fn was_sent_for(&self, from: Instant, span: Duration, rtt: Duration) -> bool {
        from.checked_sub(rtt).is_some_and(|sent| {
            self.total_at(SENT_BITS, sent + span) > self.total_at(SENT_BITS, sent)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const HORIZON: Duration = Duration::from_secs(3);

    fn delivered(bits: u64) -> Reading {
        Reading {
            sent_bits: bits,
            delivered_bits: bits,
            backlogged: true,
            ..Reading::default()
        }
    }

    #[test]
    fn bunches_count_by_the_time_between_them() {
        let start = Instant::now();
        let mut history = History::default();
        for step in 0..100_u64 {
            // 100 kbit every 100 ms, with a reading every 20 ms.
            let reading = delivered(step / 5 * 100_000);
            history.push(start + 20 * step as u32 * MS, reading, false, HORIZON);
            if step > 20 {
                let now = start + 20 * step as u32 * MS;
                let (rate, _) = history.arrivals(now, 150 * MS).unwrap();
                assert!((rate - 1e6).abs() < 1.0, "{rate}");
            }
        }
        let now = start + 1980 * MS;
        assert_eq!(
            history.longest_gap(start + 1000 * MS, Some(20 * MS)),
            100 * MS
        );
        // Then nothing arrives any more.
        let later = now + 400 * MS;
        history.push(later, delivered(19 * 100_000), false, HORIZON);
        let (rate, _) = history.arrivals(later, 150 * MS).unwrap();
        assert!(rate < 1.0, "{rate}");
    }

    #[test]
    fn a_total_between_readings_is_interpolated() {
        let start = Instant::now();
        let mut history = History::default();
        history.push(start, delivered(0), false, HORIZON);
        history.push(start + 100 * MS, delivered(1000), false, HORIZON);
        let sent: Total = |reading| reading.sent_bits;
        assert_eq!(history.total_at(sent, start + 25 * MS), 250.0);
        assert_eq!(history.rate(sent, start, start + 50 * MS), 10_000.0);
        assert_eq!(history.rate(sent, start, start), 0.0);
        assert_eq!(history.total_at(sent, start + 500 * MS), 1000.0);
    }

    #[test]
    fn what_left_at_once_is_found_among_what_trickles() {
        let start = Instant::now();
        let mut history = History::default();
        let mut bits = 0;
        for step in 0..40_u32 {
            bits += if step == 20 { 240_000 } else { 5_000 };
            history.push(start + 25 * step * MS, delivered(bits), false, HORIZON);
        }
        let most = history.most_sent(start, 100 * MS);
        assert_eq!(most, (255_000.0, start + 475 * MS));
    }

    #[test]
    fn memory_is_bounded_whoever_reads_how_often() {
        let start = Instant::now();
        let mut history = History::default();
        for step in 0..20_000 {
            history.push(
                start + step * MS,
                delivered(step.into()),
                false,
                3600 * 1000 * MS,
            );
        }
        assert_eq!(history.points.len(), MOST_READINGS);
    }
}
