//! The first estimate of a link of which nothing was told.

use std::time::{Duration, Instant};

use super::{Estimator, LEAST_RTT};
use crate::history::{Arrived, SENT_BITS};
use crate::view::{SLACK, SOME_PACKETS, noticed};
use crate::{FirstFlight, Reason};

/// A first flight of a satellite hop, bits: 64 packets. A shorter way has less, by what
/// TCP begins with (ten packets, RFC 6928) each 25 ms, as TCP Hybla has it.
const MOST_FLIGHT_BITS: f64 = 64.0 * 12_000.0;
const LEAST_FLIGHT_BITS: f64 = 10.0 * 12_000.0;
const REFERENCE_RTT: Duration = Duration::from_millis(25);
/// How fast it leaves, bit/s: what comes back of it fits between two readings or three.
const FLIGHT_BPS: u64 = 19_200_000;
/// What may leave behind it until it has been answered, bit/s.
const THEN_BPS: u64 = 300_000;
/// It is judged once nearly all of it has arrived, or some has for so long.
const ALL: f64 = 0.9;
const LONGEST_SPAN: Duration = Duration::from_millis(250);
/// Its last part counts: small answers that were sent before it arrive before it.
const COUNTED: f64 = 0.97;
/// Of a link whose capacity has to be asked for, only so much counts: it comes so many
/// times as fast as with what trickles in before it.
const GRANTED: f64 = 0.5;
const GRANTED_BY: f64 = 1.5;
/// A link from which so much less arrives than was sent is slower than that.
const SLOWER: f64 = 0.8;
/// A queue of this part (1/n) of the base round trip on the way back holds up most
/// acknowledgements of a first flight, which wait for it, but not longer than this.
/// Nor is there a bound for longer where nothing ever is acknowledged.
const HELD_UP_PART: u32 = 4;
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl Estimator {
    /// What may leave at first, while nothing is known of a link but its round trip.
    /// `None` before and after that; nor where a rate or a ceiling was told, or the way
    /// is a local network's.
    pub fn first_flight(&self) -> Option<FirstFlight> {
        self.unknown_flight().filter(|_| !self.unanswered)
    }

    fn unknown_flight(&self) -> Option<FirstFlight> {
        let told = self.capacity.is_some() || self.limits.ceiling_bps.is_some();
        let base = self.base.get().filter(|base| *base >= LEAST_RTT)?;
        let bits = LEAST_FLIGHT_BITS * base.div_duration_f64(REFERENCE_RTT);
        (!told).then(|| FirstFlight {
            bits: bits.clamp(LEAST_FLIGHT_BITS, MOST_FLIGHT_BITS) as u64,
            bps: FLIGHT_BPS,
            then_bps: THEN_BPS,
        })
    }

    /// A flight begins with a backlog. A pause in that of less than the time to its answer
    /// is of the same flight.
    pub(super) fn see_flight(&mut self, now: Instant, base: Duration, backlogged: bool) {
        if backlogged {
            let going_on = self
                .flight
                .filter(|(_, last)| now < *last + base + LONGEST_SPAN);
            let began = going_on.map_or(now, |(began, _)| began);
            self.flight = Some((began, now));
        }
    }

    /// How fast the last of a flight has arrived, bit/s, if that came only at `late`:
    /// where capacity has to be asked for, the first of it trickles in before the rest is
    /// granted.
    fn granted(&self, since: Instant, late: Instant) -> Option<f64> {
        let Arrived { bits, from, to, .. } = self.history.arrived_since(since, GRANTED)?;
        (from >= late).then(|| bits / to.saturating_duration_since(from).as_secs_f64())
    }

    /// How fast the first flight has arrived is the first estimate.
    pub(super) fn find_first(
        &mut self,
        now: Instant,
        base: Duration,
        in_flight_bits: u64,
        way_back: Duration,
        steady: bool,
    ) {
        let (Some(flight), Some((began, _))) = (self.unknown_flight(), self.flight) else {
            return;
        };
        let waited = now >= began + base + LONGEST_WAIT;
        if way_back >= base / HELD_UP_PART && !waited {
            return;
        }
        let arrived = self.history.arrived_since(began + base / 2, COUNTED);
        let Some(Arrived {
            all_bits,
            bits,
            from,
            to,
        }) = arrived
        else {
            self.unanswered |= waited;
            return;
        };
        let all = all_bits >= ALL * flight.bits as f64;
        if !all && now < from + LONGEST_SPAN {
            return;
        }
        let earlier = |at: Instant| at.checked_sub(base).unwrap_or(at);
        let sent = self.history.total_at(SENT_BITS, earlier(now))
            - self.history.total_at(SENT_BITS, earlier(from));
        let slower = !all && bits < SLOWER * sent;
        if !all && !slower && !waited {
            // Little was sent, and shows nothing.
            return;
        }
        let arrived = bits / to.saturating_duration_since(from).as_secs_f64();
        let held = arrived * (base + SLACK).as_secs_f64() + SOME_PACKETS;
        if slower && in_flight_bits as f64 > held && !waited {
            // What is in its queue leaves by itself, since little is sent meanwhile.
            return;
        }
        let granted = self.granted(began + base / 2, from + base / 2);
        let found = granted.filter(|bps| steady && *bps > GRANTED_BY * arrived);
        self.estimate(found.unwrap_or(arrived).max(THEN_BPS as f64), Reason::Start);
        self.unanswered = false;
        let rtt = self.history.longest_rtt(from).unwrap_or(base);
        let queue = rtt.saturating_sub(base);
        if slower {
            self.reason = Reason::Limit;
            self.probing.step_back(now, base);
        } else if queue < noticed(base) / 2 && steady {
            self.probing.multiply(now);
        } else {
            self.probing.double(now);
        }
    }
}
