//! The rate of traffic that shares a path but is not the scheduler's to send.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use underpass_cla::SessionId;

/// The time over which the estimate is smoothed: a few round trips of a
/// satellite hop, in which a flow's ACKs come and go.
const SMOOTHING: Duration = Duration::from_secs(1);

/// Below this an interval says more about the counters than about the rate.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(20);

/// If too little was subtracted, the rest stands in the path's queue. It is subtracted within about
/// this time, and over at least two looks at the counters, lest the repayment swing.
const REPAYMENT: Duration = Duration::from_millis(200);

/// The most that is repaid or credited: the traffic of so long.
const MOST_OWED: Duration = Duration::from_millis(500);
const MOST_CREDIT: Duration = Duration::from_millis(50);

/// A queue stands from this length on.
const STANDING: Duration = Duration::from_millis(80);

/// How fast the correction grows while a queue stands, and how fast it fades, parts of the estimate
/// per second; and its greatest value. ACKs of a path with losses carry up to 28 bytes of SACK
/// beside their 52.
const GROWS_PER_S: f64 = 0.15;
const FADES_PER_S: f64 = 0.03;
const MOST_CORRECTION: f64 = 0.5;

/// Measures a path's pure ACKs, which answer data of the other direction, and its plain IP traffic.
/// The result is for [`crate::LinkScheduler::subtract`].
#[derive(Clone, Debug)]
pub struct UnscheduledTraffic {
    sessions: HashMap<SessionId, u64>,
    plain_bytes: Option<u64>,
    since: Instant,
    bytes: u64,
    bps: f64,
    /// What has been subtracted since then, bit/s, without the correction.
    subtracted_bps: f64,
    /// What has passed beyond what was subtracted, bits.
    owed_bits: f64,
    /// What is subtracted beyond the estimate, as a part of it.
    correction: f64,
    queue: Duration,
}

impl UnscheduledTraffic {
    /// A path on which nothing was seen yet.
    pub fn new(now: Instant) -> Self {
        UnscheduledTraffic {
            sessions: HashMap::new(),
            plain_bytes: None,
            since: now,
            bytes: 0,
            bps: 0.0,
            subtracted_bps: 0.0,
            owed_bits: 0.0,
            correction: 0.0,
            queue: Duration::ZERO,
        }
    }

    /// Takes a session's counters, each a total since it began: all segments, and those with
    /// payload. The others have `ack_bytes` of IP each. A session's first counters count from zero.
    pub fn observe_session(
        &mut self,
        session: SessionId,
        segments_sent: u64,
        data_segments_sent: u64,
        ack_bytes: u64,
    ) {
        let acks = segments_sent.saturating_sub(data_segments_sent);
        let before = self.sessions.entry(session).or_insert(0);
        let new = acks.saturating_sub(*before);
        // The two counters are not read at one instant, so their difference may step back; it must
        // not be counted twice then.
        *before = acks.max(*before);
        self.bytes = self.bytes.saturating_add(new.saturating_mul(ack_bytes));
    }

    /// Forgets the sessions that are gone; what they sent still counts.
    pub fn keep_sessions(&mut self, there: &[SessionId]) {
        self.sessions.retain(|session, _| there.contains(session));
    }

    /// Takes the total of plain IP bytes, as an interface or a firewall counts them. Counting
    /// starts at the first total, and again at a total below the last one: the counter began anew.
    pub fn observe_plain(&mut self, total_bytes: u64) {
        let before = self.plain_bytes.replace(total_bytes).unwrap_or(total_bytes);
        self.bytes = self
            .bytes
            .saturating_add(total_bytes.saturating_sub(before));
    }

    /// Takes the queue in this direction. If it cannot be told from one on the way back, this is
    /// how far the round-trip time of sending sessions is above its minimum. A standing queue shows
    /// what the counters cannot: the size of ACKs, and what was sent in excess before the counters
    /// were read.
    pub fn observe_queue(&mut self, queue: Duration) {
        self.queue = queue;
    }

    /// What is to be subtracted at `now`, bit/s of IP: the smoothed rate, what
    /// has passed beyond what was subtracted before, and more of the rate the
    /// longer a queue stands.
    pub fn bps(&mut self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= SHORTEST_INTERVAL {
            let seconds = elapsed.as_secs_f64();
            let newest = self.bytes as f64 * 8.0 / seconds;
            let share = 1.0 - (-seconds / SMOOTHING.as_secs_f64()).exp();
            self.bps += share * (newest - self.bps);
            let most = newest.max(self.bps);
            self.owed_bits = (self.owed_bits + (newest - self.subtracted_bps) * seconds).clamp(
                -self.bps * MOST_CREDIT.as_secs_f64(),
                most * MOST_OWED.as_secs_f64(),
            );
            // A credit only evens out intervals. If it were paid out, it would speed up a node
            // whose rate is being lowered.
            let repaid = self.owed_bits.max(0.0) / REPAYMENT.as_secs_f64().max(2.0 * seconds);
            self.subtracted_bps = self.bps + repaid;
            self.bytes = 0;
            self.since = now;
            let step = match self.queue > STANDING {
                true => GROWS_PER_S * seconds,
                false => -FADES_PER_S * seconds,
            };
            self.correction = (self.correction + step).clamp(0.0, MOST_CORRECTION);
        }
        (self.subtracted_bps + self.bps * self.correction).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(1);

    #[test]
    fn steady_acks_converge_to_their_rate_and_silence_fades() {
        let mut now = Instant::now();
        let mut traffic = UnscheduledTraffic::new(now);
        for tick in 1..=100 {
            now += Duration::from_millis(100);
            // 1,000 ACKs of 52 bytes a second, among data that does not count.
            traffic.observe_session(SESSION, tick * 150, tick * 50, 52);
            traffic.bps(now);
        }
        let bps = traffic.bps(now);
        assert!(bps.abs_diff(416_000) < 1_000, "{bps}");
        for _ in 0..100 {
            now += Duration::from_millis(100);
            traffic.bps(now);
        }
        assert!(traffic.bps(now) < 1_000);
    }

    #[test]
    fn while_a_queue_stands_more_is_subtracted_up_to_a_bound() {
        let mut now = Instant::now();
        let mut traffic = UnscheduledTraffic::new(now);
        let mut after = |seconds: u32, queue_ms: u64, traffic: &mut UnscheduledTraffic| {
            for _ in 0..seconds * 5 {
                now += Duration::from_millis(200);
                traffic.bytes += 10_000;
                traffic.observe_queue(Duration::from_millis(queue_ms));
                traffic.bps(now);
            }
            traffic.bps(now)
        };
        let plain = after(20, 30, &mut traffic);
        assert!(plain.abs_diff(400_000) < 5_000, "{plain}");
        let more = after(2, 700, &mut traffic);
        assert!((480_000..560_000).contains(&more), "{more}");
        let most = after(60, 700, &mut traffic);
        assert!(most.abs_diff(600_000) < 5_000, "{most}");
        let again = after(60, 0, &mut traffic);
        assert!(again.abs_diff(400_000) < 5_000, "{again}");
    }

    #[test]
    fn sessions_that_come_and_go_leave_no_jump() {
        let mut now = Instant::now();
        let mut traffic = UnscheduledTraffic::new(now);
        for number in 0..100 {
            now += Duration::from_millis(100);
            traffic.observe_session(SessionId(number), 100, 0, 52);
            traffic.keep_sessions(&[]);
            assert!(traffic.sessions.is_empty());
            // What was subtracted too little at first is repaid in this time.
            assert!(traffic.bps(now) <= 416_000 * 5 / 4);
        }
        assert!(traffic.bps(now).abs_diff(416_000) < 1_000);
    }

    #[test]
    fn what_begins_at_once_has_soon_left_no_queue() {
        const ACKS_BPS: u64 = 700_000;
        let step = Duration::from_millis(100);
        let mut now = Instant::now();
        let mut traffic = UnscheduledTraffic::new(now);
        let (mut queued_bits, mut most, mut at_end) = (0.0_f64, 0.0_f64, 0.0);
        let mut subtracted = 0;
        for tick in 0..40_u64 {
            let begun = tick >= 10;
            let passed = if begun { ACKS_BPS as f64 } else { 0.0 };
            queued_bits = (queued_bits + (passed - subtracted as f64) * 0.1).max(0.0);
            most = most.max(queued_bits);
            at_end = queued_bits;
            now += step;
            traffic.bytes += (passed * 0.1 / 8.0) as u64;
            subtracted = traffic.bps(now);
        }
        let ms_of_acks = |bits: f64| bits / ACKS_BPS as f64 * 1e3;
        assert!(ms_of_acks(most) < 160.0, "{}", ms_of_acks(most));
        assert!(ms_of_acks(at_end) < 20.0, "{}", ms_of_acks(at_end));
        assert!(subtracted.abs_diff(ACKS_BPS) < 10_000, "{subtracted}");
    }

    #[test]
    fn counters_that_step_back_count_once() {
        let now = Instant::now();
        let mut traffic = UnscheduledTraffic::new(now);
        traffic.observe_session(SESSION, 100, 0, 100);
        traffic.observe_session(SESSION, 100, 10, 100);
        traffic.observe_session(SESSION, 110, 10, 100);
        traffic.observe_plain(1 << 40);
        traffic.observe_plain((1 << 40) + 500);
        traffic.observe_plain(0);
        assert_eq!(traffic.bytes, 10_500);
        assert_eq!(traffic.bps(now), 0);
    }
}
