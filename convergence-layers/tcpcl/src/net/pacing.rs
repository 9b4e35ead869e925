//! From a rate of IP bytes to the count of Linux' TCP pacing.

/// Part of the rate that is used: a queue at exactly the rate of its drain
/// never empties.
const HEADROOM: f64 = 0.990;
/// A bundle is at most so much line time, s.
const BUNDLE_LINE_TIME_S: f64 = 0.06;
const MIN_LOWAT_BYTES: u64 = 16 << 10;
const MAX_LOWAT_BYTES: u64 = 1 << 20;

/// The payload rate, bytes/s, that fills `ip_bps` bit/s of IP packets with
/// `mss_bytes` of payload each. TCP's internal pacing counts payload only.
pub fn payload_bytes_per_second(ip_bps: u64, mss_bytes: u32, ipv6: bool, timestamps: bool) -> u64 {
    let ip_header = if ipv6 { 40 } else { 20 };
    let tcp_header = 20 + if timestamps { 12 } else { 0 };
    let payload = f64::from(mss_bytes.max(1));
    let share = payload / (payload + f64::from(ip_header + tcp_header));
    ((ip_bps as f64 / 8.0 * share * HEADROOM) as u64).max(1)
}

/// `TCP_NOTSENT_LOWAT` for a rate: the socket counts as writable below half of it, which should be
/// one bundle.
pub(super) fn notsent_lowat_bytes(ip_bps: u64) -> u32 {
    let bundle = (ip_bps as f64 / 8.0 * BUNDLE_LINE_TIME_S) as u64;
    let bytes = bundle
        .saturating_mul(2)
        .clamp(MIN_LOWAT_BYTES, MAX_LOWAT_BYTES);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_headroom_are_taken_off() {
        // 1,500 bytes of IP carry 1,448 of payload.
        let rate = payload_bytes_per_second(140_000_000, 1448, false, true);
        let expected = 140e6 / 8.0 * (1448.0 / 1500.0) * 0.990;
        assert_eq!(rate, expected as u64);
        let ipv6 = payload_bytes_per_second(140_000_000, 1428, true, true);
        assert!(ipv6 < rate);
    }

    #[test]
    fn unsent_bytes_follow_the_bundle_size() {
        assert_eq!(notsent_lowat_bytes(2_000_000), 30_000);
        assert_eq!(notsent_lowat_bytes(64_000), 16 << 10);
        assert_eq!(notsent_lowat_bytes(10_000_000_000), 1 << 20);
    }
}
