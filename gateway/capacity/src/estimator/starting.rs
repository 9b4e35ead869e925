//! The first estimate of a link for which no rate and no ceiling was given.

use std::time::{Duration, Instant};

use super::{Estimator, LEAST_RTT};
use crate::history::{Arrived, SENT_BITS};
use crate::view::{SLACK, SOME_PACKETS, noticed};
use crate::{FirstFlight, Reading, Reason};

/// A first flight of a satellite hop, bits: 64 packets. A shorter way has TCP's initial window (ten
/// packets, RFC 6928) for each 25 ms of its round trip, as TCP Hybla has it, and at least one.
pub(super) const MOST_FLIGHT_BITS: f64 = 64.0 * 12_000.0;
const LEAST_FLIGHT_BITS: f64 = 10.0 * 12_000.0;
const REFERENCE_RTT: Duration = Duration::from_millis(25);
/// How fast it leaves, bit/s: its answers come within two or three readings.
const FLIGHT_BPS: u64 = 19_200_000;
/// The rate allowed behind it until it has been answered, bit/s.
const THEN_BPS: u64 = 300_000;
/// It is judged once this part of it has arrived, or so long after its first packets have.
const ALL: f64 = 0.9;
const LONGEST_SPAN: Duration = Duration::from_millis(250);
/// Only this last part of the arrivals counts: small answers that were sent before the flight
/// arrive before it.
const COUNTED: f64 = 0.97;
/// On a link with capacity on demand only this last part counts, if it arrives more than so many
/// times as fast as all of the flight, of which the first part trickles in.
const GRANTED: f64 = 0.5;
const GRANTED_BY: f64 = 1.5;
/// A link is slower than the sender if less than this part of what was sent arrives. Data sent less
/// than a round trip and so long ago is not counted: it may be in flight without a queue.
const SLOWER: f64 = 0.8;
const ON_ITS_WAY: Duration = Duration::from_millis(75);
/// A transport that sends more than so many times the rate allowed behind a flight has a pace of
/// its own.
const OWN_PACE: f64 = 2.0;
/// Readings are some time apart, so what leaves at once seems to take up to so much longer.
const READ_LATE: Duration = Duration::from_millis(75);
/// A queue on the way back of this part (1/n) of the base round trip delays most acknowledgements
/// of a first flight. The first estimate waits until it is gone, but no longer than this. If
/// nothing is acknowledged for as long, the bound on sending ends.
const HELD_UP_PART: u32 = 4;
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The first flights of a link whose rate is not known yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flights {
    /// How many there were before the present one.
    number: u64,
    /// What had been sent before it, bits.
    sent_bits: u64,
    /// During the flight before, data waited nearly all the time, and still left in small pieces.
    busy: bool,
}

impl Estimator {
    /// What may be sent at first, while only the round trip of a link is known. `None` before and
    /// after that, where a rate or a ceiling was given, and on a local network.
    pub fn first_flight(&self) -> Option<FirstFlight> {
        self.unknown_flight().filter(|_| !self.unanswered)
    }

    /// Takes a round trip, smoothed. If the first one is of another path than the hint, the link is
    /// unknown.
    pub(super) fn see_rtt(&mut self, now: Instant, rtt: Duration) {
        let first = self.base.get().is_none();
        self.base.see(now, rtt);
        if first && self.reason == Reason::Hint && self.limits.hints_at_another_path(rtt) {
            self.elsewhere = true;
            self.capacity = None;
        }
    }

    fn unknown_flight(&self) -> Option<FirstFlight> {
        let told = self.capacity.is_some() || self.limits.ceiling_bps.is_some();
        let base = self.base.get().filter(|base| *base >= LEAST_RTT)?;
        let bits = LEAST_FLIGHT_BITS * base.div_duration_f64(REFERENCE_RTT);
        (!told).then(|| FirstFlight {
            number: self.flights.number,
            bits: bits.clamp(LEAST_FLIGHT_BITS, MOST_FLIGHT_BITS) as u64,
            bps: FLIGHT_BPS,
            then_bps: THEN_BPS,
        })
    }

    /// Begins a flight with the first backlog. A pause in the backlog that is shorter than the time
    /// to the answer does not end the flight.
    pub(super) fn see_flight(&mut self, now: Instant, base: Duration, backlogged: bool) {
        if backlogged {
            let going_on = self
                .flight
                .filter(|(_, last)| now < *last + base + LONGEST_SPAN);
            let began = going_on.map_or(now, |(began, _)| began);
            self.flight = Some((began, now));
        }
    }

    /// How fast the last part of a flight has arrived, bit/s, if it came at `late` or after: with
    /// capacity on demand, the first part trickles in before the rest is granted.
    fn granted(&self, since: Instant, late: Instant) -> Option<f64> {
        let Arrived { bits, from, to, .. } = self.history.arrived_since(since, GRANTED)?;
        (from >= late).then(|| bits / to.saturating_duration_since(from).as_secs_f64())
    }

    /// Allows another flight, since all that was sent has been answered, or shows nothing.
    fn fly_again(&mut self, sent_bits: u64) {
        self.flights.number += 1;
        self.flights.sent_bits = sent_bits;
    }

    /// When nearly all of the flight that began at `began` left at once; `None` if it did not.
    fn left_at_once(&self, began: Instant, flight: FirstFlight) -> Option<Instant> {
        let since = began.checked_sub(READ_LATE).unwrap_or(began);
        let (bits, at) = self.history.most_sent(since, time_to_leave(flight));
        (bits >= ALL * flight.bits as f64).then_some(at.max(began))
    }

    /// Whether, since the flight could have left at once, data has left faster than is allowed
    /// behind a flight: then the transport sends the flight at a pace of its own.
    fn goes_on(&self, began: Instant, now: Instant, flight: FirstFlight) -> bool {
        let from = began + time_to_leave(flight);
        let behind = now.saturating_duration_since(from);
        let sent = self.history.total_at(SENT_BITS, now) - self.history.total_at(SENT_BITS, from);
        behind >= READ_LATE && sent > OWN_PACE * flight.then_bps as f64 * behind.as_secs_f64()
    }

    /// Whether data that left in small pieces shows too little, so that another flight is tried now
    /// or soon.
    fn tries_another(
        &mut self,
        now: Instant,
        base: Duration,
        began: Instant,
        flight: FirstFlight,
        sent_bits: u64,
    ) -> bool {
        let busy = self.history.waits(began, now);
        if busy && self.goes_on(began, now, flight) {
            return false;
        }
        if now < began + base + LONGEST_SPAN {
            return true;
        }
        // Transports that had enough to send and could not send it at once get only one more
        // flight.
        if busy && self.flights.busy {
            return false;
        }
        // The link has carried the pieces, so a whole flight can be tried.
        self.flights.busy = busy;
        self.flight = None;
        self.fly_again(sent_bits);
        true
    }

    /// Takes the rate at which the first flight has arrived as the first estimate. Data that left
    /// in small pieces, because there was no more or another flight had used up what was allowed,
    /// arrives as slowly as it was sent, and gives no estimate.
    pub(super) fn find_first(
        &mut self,
        now: Instant,
        base: Duration,
        reading: &Reading,
        way_back: Duration,
        steady: bool,
    ) {
        let Some(flight) = self.unknown_flight() else {
            return;
        };
        let answered = reading.in_flight_bits == 0 && reading.lost_bits == 0;
        if answered && !reading.backlogged && reading.sent_bits > self.flights.sent_bits {
            self.fly_again(reading.sent_bits);
        }
        let Some((began, _)) = self.flight else {
            return;
        };
        let left = self.left_at_once(began, flight);
        let since = left.unwrap_or(began);
        let waited = now >= since + base + LONGEST_WAIT;
        if way_back >= base / HELD_UP_PART && !waited {
            return;
        }
        let arrived = self.history.arrived_since(since + base / 2, COUNTED);
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
        let sent_before = |at: Instant, time: Duration| {
            let at = at.checked_sub(time).unwrap_or(at);
            self.history.total_at(SENT_BITS, at)
        };
        let sent = sent_before(now, base + ON_ITS_WAY) - sent_before(from, base);
        let slower = !all && bits < SLOWER * sent;
        let long = to.saturating_duration_since(from) > time_to_leave(flight);
        let in_pieces = long && left.is_none() && !slower;
        if in_pieces && self.tries_another(now, base, began, flight, reading.sent_bits) {
            return;
        }
        if !all && !slower && !waited {
            // So little was sent that it shows nothing.
            return;
        }
        let arrived = bits / to.saturating_duration_since(from).as_secs_f64();
        let held = arrived * (base + SLACK).as_secs_f64() + SOME_PACKETS;
        if slower && reading.in_flight_bits as f64 > held && !waited {
            // Its queue drains by itself, since little is sent meanwhile.
            return;
        }
        let granted = self.granted(since + base / 2, from + base / 2);
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

/// How long a flight takes to leave, as readings show it.
fn time_to_leave(flight: FirstFlight) -> Duration {
    READ_LATE + Duration::from_secs_f64(flight.bits as f64 / flight.bps as f64)
}
