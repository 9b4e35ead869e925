//! When the next bytes may be given to QUIC, whose own pacer does not know the rate.

use std::time::{Duration, Instant};

/// How much delay may be made up for: timers are late on a busy machine, and that time would
/// otherwise be lost.
const BURST: Duration = Duration::from_millis(25);

/// Part of the rate that is used: a queue at exactly the rate of its drain
/// never empties.
const HEADROOM: f64 = 0.990;

/// The average overhead of a packet beside a bundle's bytes: QUIC's header and tag, and the header
/// of a stream frame.
const PACKET_BYTES: u32 = 34;

/// The overhead of a packet beside a datagram frame's bytes: QUIC's header and tag, and the header
/// of the frame.
const DATAGRAM_PACKET_BYTES: u32 = 30;

/// Bundle bytes per second that fill `ip_bps` bit/s of IP packets, each with
/// `datagram_bytes` of UDP payload.
pub(crate) fn bundle_bytes_per_second(ip_bps: u64, datagram_bytes: u16, ipv6: bool) -> f64 {
    let datagram = f64::from(datagram_bytes);
    let headers = if ipv6 { 48.0 } else { 28.0 };
    let share = (datagram - f64::from(PACKET_BYTES)) / (datagram + headers);
    (ip_bps as f64 / 8.0 * share * HEADROOM).max(1.0)
}

/// The bundle bytes that take the same time at that rate as a datagram frame of `bytes` with its
/// packet.
pub(crate) fn cost_of_datagram(bytes: u64, datagram_bytes: u16, ipv6: bool) -> u64 {
    let datagram = f64::from(datagram_bytes);
    let headers = if ipv6 { 48.0 } else { 28.0 };
    let share = (datagram - f64::from(PACKET_BYTES)) / (datagram + headers);
    let packet = bytes as f64 + f64::from(DATAGRAM_PACKET_BYTES) + headers;
    (packet * share).ceil() as u64
}

/// The moment from which the next bytes may go.
#[derive(Debug)]
pub(crate) struct Pace {
    next: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Pace {
        Pace { next: now }
    }

    /// How long the next bytes have to wait.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }

    /// So many bytes go, at this rate.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u64, bytes_per_second: f64) {
        let from = now.checked_sub(BURST).unwrap_or(now);
        let time = Duration::from_secs_f64(bytes as f64 / bytes_per_second);
        self.next = self.next.max(from) + time;
    }

    /// A new rate applies at once: what was sent at the previous one is forgotten.
    pub(crate) fn begin_anew(&mut self, now: Instant) {
        self.next = self.next.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_packet_and_its_headers_make_the_rate() {
        let rate = bundle_bytes_per_second(140_000_000, 1452, false);
        assert!((rate - 140e6 / 8.0 * (1418.0 / 1480.0) * 0.990).abs() < 1.0);
        assert!(bundle_bytes_per_second(140_000_000, 1452, true) < rate);
    }

    #[test]
    fn datagrams_keep_to_the_rate_as_streams_do() {
        let rate = bundle_bytes_per_second(140_000_000, 1452, false);
        let full = 1414;
        let time = cost_of_datagram(full, 1452, false) as f64 / rate;
        let ip_bits = 8.0 * (1414.0 + 30.0 + 28.0);
        let ip_bps = ip_bits / time;
        assert!((0.985..=0.991).contains(&(ip_bps / 140e6)), "{ip_bps}");
    }

    #[test]
    fn late_timers_cost_nothing_and_idle_time_gives_no_burst() {
        let start = Instant::now();
        let (mut pace, mut now) = (Pace::new(start), start);
        let mut sent = 0;
        while now - start < Duration::from_secs(1) {
            now += Duration::from_millis(7);
            while pace.wait(now).is_zero() {
                pace.sent(now, 1000, 1e6);
                sent += 1000;
            }
        }
        assert!((950_000..=1_030_000).contains(&sent), "{sent}");
        let mut pace = Pace::new(start);
        let late = start + Duration::from_secs(60);
        let mut burst = 0;
        while pace.wait(late).is_zero() {
            pace.sent(late, 1000, 1e6);
            burst += 1000;
        }
        assert!(burst <= 26_000, "{burst}");
    }
}
