//! Models the kernel's TCP between the link scheduler and the link: the window of
//! `hybla_dama`, pacing, and retransmissions that the scheduler does not grant.

use crate::model::{PACKET, STEP_S};

/// TCP Hybla's reference round trip, s, and the initial window of RFC 6928.
const REFERENCE_S: f64 = 0.025;
const INITIAL_WINDOW: f64 = 10.0;
const MOST_INITIAL_WINDOW: f64 = 1024.0;
/// Until the rate is known, the window is this many times what a round has delivered.
const BLIND_GROWTH: f64 = 8.0;
/// Acknowledgements are observed in groups that last this part (1/n) of the round trip,
/// with at least this many packets.
const GROUP_PART: f64 = 16.0;
const GROUP_PACKETS: u64 = 8;
/// TCP takes more while less than this is unsent: s at its rate, or bits; for packets,
/// and for bundles.
const LOW_WATER_S: f64 = 0.02;
const LEAST_LOW_WATER: f64 = 32_768.0;
const LOW_WATER_OF_BUNDLES_S: f64 = 0.06;
const LEAST_LOW_WATER_OF_BUNDLES: f64 = 65_536.0;
const MOST_LOW_WATER: f64 = 4_194_304.0;
const UNLIMITED_LOW_WATER: f64 = 8.0 * 262_144.0;
/// The part of its rate that it paces.
const PACED_PART: f64 = 0.99;
/// The part (1/n) of its rate that it uses while a queue is drained.
const DRAINING_PART: f64 = 4.0;
/// How long a smallest round trip counts, the kernel's own window for it, s.
const SMALLEST_KNOWN_S: f64 = 300.0;

/// The sender of one connection.
pub struct Tcp {
    as_in_a_node: bool,
    base_s: f64,
    /// When the base round trip was seen, s.
    base_at: f64,
    rho: f64,
    /// In packets; `threshold` is where slow start ends.
    window: f64,
    threshold: Option<f64>,
    /// Bits that were written and not sent yet.
    pub unsent: f64,
    credit: f64,
    delivered: u64,
    /// When a group of acknowledgements began, the count of delivered packets then, and
    /// the group's least round trip, s.
    group: (f64, u64, f64),
    /// The transmission that ends a round, the count of delivered packets when it began,
    /// and the number that the last round delivered.
    round: (u64, u64, u64),
    /// Losses up to this transmission belong to one recovery.
    recovery: u64,
    /// When the allocation last needed this window, s.
    needed_at: f64,
}

impl Tcp {
    pub fn new(base_s: f64, as_in_a_node: bool) -> Tcp {
        let rho = (base_s / REFERENCE_S).max(1.0);
        Tcp {
            as_in_a_node,
            base_s,
            base_at: 0.0,
            rho,
            window: (rho * INITIAL_WINDOW).min(MOST_INITIAL_WINDOW),
            threshold: None,
            unsent: 0.0,
            credit: 0.0,
            delivered: 0,
            group: (0.0, 0, f64::INFINITY),
            round: (0, 0, 0),
            recovery: 0,
            needed_at: 0.0,
        }
    }

    /// Whether TCP takes more.
    pub fn is_writable(&self, rate: Option<f64>) -> bool {
        let (time_s, least) = match self.as_in_a_node {
            true => (LOW_WATER_OF_BUNDLES_S, LEAST_LOW_WATER_OF_BUNDLES),
            false => (LOW_WATER_S, LEAST_LOW_WATER),
        };
        let most = rate.map_or(UNLIMITED_LOW_WATER, |bps| {
            (bps * time_s).clamp(least, MOST_LOW_WATER)
        });
        self.unsent < most
    }

    /// One millisecond at `t`.
    pub fn pass(&mut self, t: f64, srtt: f64, rate: Option<f64>, drains: bool) {
        let part = if drains { DRAINING_PART } else { 1.0 };
        let told = rate.map(|bps| bps / part);
        let for_window = if self.as_in_a_node { told } else { rate };
        let pace = match told {
            Some(bps) if self.as_in_a_node => bps * PACED_PART,
            Some(bps) => bps,
            None => {
                let gain = if self.threshold.is_none() { 2.0 } else { 1.2 };
                gain * self.window * PACKET as f64 / srtt
            }
        };
        if let Some(bps) = for_window {
            let rtt = srtt.clamp(self.base_s, 1.5 * self.base_s);
            let covered = (1.25 * rtt).max(srtt.min(2.5 * self.base_s));
            let needed = bps * (covered + 0.01) / PACKET as f64 + 10.0;
            // Packets sent at a higher rate are still in flight.
            if needed >= self.window || t > self.needed_at + srtt || !self.as_in_a_node {
                self.window = needed;
                self.needed_at = t;
            }
        }
        self.credit = (self.credit + pace * STEP_S).min(pace * STEP_S + PACKET as f64);
    }

    /// Whether it may send a packet now.
    pub fn may_send(&self, on_their_way: usize) -> bool {
        self.credit >= 0.0 && (on_their_way as f64) < self.window
    }

    /// Whether only the window stops it from sending.
    pub fn is_window_full(&self, on_their_way: usize) -> bool {
        on_their_way as f64 >= 0.9 * self.window
    }

    pub fn sent(&mut self, again: bool) {
        self.credit -= PACKET as f64;
        if !again {
            self.unsent -= PACKET as f64;
        }
    }

    /// A packet is acknowledged at `t`.
    pub fn acknowledged(
        &mut self,
        t: f64,
        rtt: f64,
        transmission: u64,
        (next, flight): (u64, usize),
    ) {
        self.delivered += 1;
        if self.as_in_a_node && (rtt < self.base_s || t > self.base_at + SMALLEST_KNOWN_S) {
            (self.base_s, self.base_at) = (rtt, t);
            self.rho = (rtt / REFERENCE_S).max(1.0);
        }
        self.group.2 = self.group.2.min(rtt);
        if transmission >= self.round.0 {
            self.round = (next, self.delivered, self.delivered - self.round.1);
        }
        if let Some(threshold) = self.threshold
            && self.window >= threshold
        {
            if flight as f64 >= self.window - 2.0 {
                self.window += self.rho * self.rho / self.window;
            }
            return;
        }
        let (began, delivered, least) = self.group;
        let packets = self.delivered - delivered;
        if t >= began + self.base_s / GROUP_PART && packets >= GROUP_PACKETS {
            if self.threshold.is_none() && least > self.base_s + (self.base_s / 8.0).max(0.004) {
                let threshold = packets as f64 / (t - began) * self.base_s;
                self.threshold = Some(threshold.max(2.0));
                self.window = self.window.min(threshold.max(2.0));
            }
            self.group = (t, self.delivered, f64::INFINITY);
        }
        let seen = self.round.2.max(self.delivered - self.round.1) as f64;
        let bound = self.threshold.unwrap_or(BLIND_GROWTH * seen);
        if 2.0 * flight as f64 >= self.window && self.window < bound {
            self.window = (self.window + 2.0_f64.powf(self.rho.min(16.0)) - 1.0).min(bound);
        }
    }

    /// A packet is known to be lost.
    pub fn lost(&mut self, transmission: u64, next: u64) {
        if transmission >= self.recovery {
            self.recovery = next;
            self.window = (self.window / 2.0).max(2.0);
            self.threshold = Some(self.window);
        }
    }
}
