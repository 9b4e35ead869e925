//! TCP Hybla (Caini and Firrincieli, 2004) with Hoe's first ssthresh, by the
//! arithmetic of the kernel's program: round trips count as if they were 25 ms.

use std::time::{Duration, Instant};

use underpass_hybla::arithmetic::{Rho, Window, hoe_ssthresh};

/// RFC 9002, 7.2: ten datagrams.
const STANDARD_INITIAL: u32 = 10;
const UNKNOWN_SSTHRESH: u32 = u32::MAX;
/// Acknowledgements within this part (1/n) of a round trip are grouped to measure how fast they
/// return.
const GROUPS_PER_ROUND: u32 = 16;
/// A round trip longer than the least by this part (1/n), or by this time, indicates a queue.
const QUEUE_PART: u32 = 8;
const LEAST_QUEUE: Duration = Duration::from_millis(4);
/// Until ssthresh is known, a window is at most this many times what a round trip has delivered.
const MOST_GROWTH: u64 = 8;

/// Something that was sent has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledgement {
    pub(super) now: Instant,
    pub(super) sent: Instant,
    pub(super) bytes: u64,
    pub(super) datagram_bytes: u64,
    /// Bytes that were in flight before it.
    pub(super) in_flight: u64,
    pub(super) min_rtt: Duration,
}

#[derive(Debug)]
pub(super) struct Hybla {
    window: Window,
    rho: Option<Rho>,
    /// Acknowledged bytes that make no whole datagram yet.
    rest: u64,
    /// Losses of packets sent before this count as one with the last loss.
    reduced: Option<Instant>,
    group: Group,
    round: Round,
}

/// Acknowledgements that came close to each other.
#[derive(Debug)]
struct Group {
    since: Instant,
    bytes: u64,
    least_rtt: Duration,
}

/// What this round trip has delivered, and the one before.
#[derive(Debug)]
struct Round {
    since: Instant,
    bytes: u64,
    before: u64,
}

impl Hybla {
    pub(super) fn new(now: Instant) -> Hybla {
        Hybla {
            window: Window::new(STANDARD_INITIAL, UNKNOWN_SSTHRESH),
            rho: None,
            rest: 0,
            reduced: None,
            group: Group::new(now),
            round: Round {
                since: now,
                bytes: 0,
                before: 0,
            },
        }
    }

    /// Bytes that may be in flight.
    pub(super) fn window(&self, datagram_bytes: u64) -> u64 {
        u64::from(self.window.cwnd) * datagram_bytes
    }

    pub(super) fn acknowledged(&mut self, ack: &Acknowledgement) {
        let rtt_us = u32::try_from(ack.min_rtt.as_micros()).unwrap_or(u32::MAX);
        let rho = Rho::of(rtt_us);
        if self.rho.is_none() {
            let initial = rho.initial_window(STANDARD_INITIAL);
            self.window.cwnd = self.window.cwnd.max(initial);
        }
        self.rho = Some(rho);
        self.count(ack);
        // An unused window is not known to be right.
        let is_used = ack.in_flight * 2 >= self.window(ack.datagram_bytes);
        let recovers = self.reduced.is_some_and(|reduced| ack.sent < reduced);
        let bytes = self.rest + ack.bytes;
        let segments = bytes / ack.datagram_bytes;
        self.rest = bytes % ack.datagram_bytes;
        if !is_used || recovers {
            return;
        }
        let searching = self.window.ssthresh == UNKNOWN_SSTHRESH;
        let before = self.window.cwnd;
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        self.window.acknowledge(segments, rho);
        if searching {
            let delivered = self.round.bytes.max(self.round.before);
            let most = MOST_GROWTH * delivered / ack.datagram_bytes;
            let most = u32::try_from(most).unwrap_or(u32::MAX).max(before);
            self.window.cwnd = self.window.cwnd.min(most);
        }
        self.look_for_queue(ack, rtt_us);
    }

    /// A packet sent at `sent` is lost; `persistent` after a long time without an acknowledgement.
    pub(super) fn lost(&mut self, now: Instant, sent: Instant, persistent: bool) {
        if self.reduced.is_some_and(|reduced| sent <= reduced) {
            return;
        }
        self.reduced = Some(now);
        let half = (self.window.cwnd / 2).max(2);
        let cwnd = if persistent {
            half.min(STANDARD_INITIAL)
        } else {
            half
        };
        self.window = Window::new(cwnd, half);
    }

    fn count(&mut self, ack: &Acknowledgement) {
        if ack.now.saturating_duration_since(self.round.since) >= ack.min_rtt {
            self.round = Round {
                since: ack.now,
                bytes: 0,
                before: self.round.bytes,
            };
        }
        self.round.bytes += ack.bytes;
        self.group.bytes += ack.bytes;
        let rtt = ack.now.saturating_duration_since(ack.sent);
        self.group.least_rtt = self.group.least_rtt.min(rtt);
    }

    /// Once the bottleneck has a queue, acknowledgements return at its rate.
    fn look_for_queue(&mut self, ack: &Acknowledgement, min_rtt_us: u32) {
        let time = ack.now.saturating_duration_since(self.group.since);
        if time < ack.min_rtt / GROUPS_PER_ROUND {
            return;
        }
        let group = std::mem::replace(&mut self.group, Group::new(ack.now));
        let queue = LEAST_QUEUE.max(ack.min_rtt / QUEUE_PART);
        let queued = group.least_rtt < Duration::MAX && group.least_rtt > ack.min_rtt + queue;
        if self.window.ssthresh != UNKNOWN_SSTHRESH || !queued {
            return;
        }
        let segments = u32::try_from(group.bytes / ack.datagram_bytes).unwrap_or(u32::MAX);
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let ssthresh = hoe_ssthresh(segments, time_us, min_rtt_us).max(2);
        self.window = Window::new(self.window.cwnd.min(ssthresh), ssthresh);
    }
}

impl Group {
    fn new(now: Instant) -> Group {
        Group {
            since: now,
            bytes: 0,
            least_rtt: Duration::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 1452;
    const FAR: Duration = Duration::from_millis(600);

    /// Acknowledges `count` datagrams at once, `rtt` after they were sent.
    fn acknowledge(hybla: &mut Hybla, now: Instant, count: u64, rtt: Duration, min_rtt: Duration) {
        for _ in 0..count {
            hybla.acknowledged(&Acknowledgement {
                now,
                sent: now - rtt,
                bytes: BYTES,
                datagram_bytes: BYTES,
                in_flight: u64::MAX / 4,
                min_rtt,
            });
        }
    }

    #[test]
    fn a_long_round_trip_opens_the_window_as_a_short_one_would() {
        let start = Instant::now();
        let (mut near, mut far) = (Hybla::new(start), Hybla::new(start));
        let short = Duration::from_millis(25);
        acknowledge(&mut near, start + short, 10, short, short);
        acknowledge(&mut far, start + FAR, 1, FAR, FAR);
        let of = |hybla: &Hybla| hybla.window(BYTES) / BYTES;
        assert!((19..=20).contains(&of(&near)), "{}", of(&near));
        assert_eq!(of(&far), 240, "24 times ten; one datagram was delivered");
        acknowledge(&mut far, start + FAR, 239, FAR, FAR);
        assert!(of(&far) > 1500 && of(&far) <= 8 * 240, "{}", of(&far));
    }

    #[test]
    fn a_queue_gives_the_first_ssthresh() {
        let start = Instant::now();
        let mut hybla = Hybla::new(start);
        // 100 datagrams in each 25 ms: 2400 of them are the path's product.
        let mut now = start + FAR;
        for step in 0..40u32 {
            let rtt = FAR + Duration::from_millis(5) * step;
            now += Duration::from_millis(25);
            for _ in 0..100 {
                hybla.acknowledged(&Acknowledgement {
                    now,
                    sent: now - rtt,
                    bytes: BYTES,
                    datagram_bytes: BYTES,
                    in_flight: u64::MAX / 4,
                    min_rtt: FAR,
                });
            }
        }
        let ssthresh = hybla.window.ssthresh;
        assert!((1200..=3600).contains(&ssthresh), "{ssthresh}");
    }

    #[test]
    fn losses_of_one_round_trip_halve_the_window_once() {
        let start = Instant::now();
        let mut hybla = Hybla::new(start);
        acknowledge(&mut hybla, start + FAR, 240, FAR, FAR);
        let before = hybla.window.cwnd;
        let now = start + FAR;
        hybla.lost(now, start, false);
        hybla.lost(now, start + FAR / 2, false);
        assert_eq!(hybla.window.cwnd, before / 2);
        hybla.lost(now + 2 * FAR, now + FAR, true);
        assert_eq!(hybla.window.cwnd, STANDARD_INITIAL);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let start = Instant::now();
        let mut hybla = Hybla::new(start);
        for _ in 0..1000 {
            hybla.acknowledged(&Acknowledgement {
                now: start + FAR,
                sent: start,
                bytes: BYTES,
                datagram_bytes: BYTES,
                in_flight: 10 * BYTES,
                min_rtt: FAR,
            });
        }
        assert_eq!(hybla.window.cwnd, 240);
    }
}
