//! The time of day, as far as this machine knows it.

use std::time::{SystemTime, UNIX_EPOCH};

/// DTN time begins at 2000-01-01 UTC (RFC 9171 § 4.2.6).
const DTN_EPOCH_MS: u64 = 946_684_800_000;

/// No terminal's clock was right before this; it boots at some earlier time.
const PLAUSIBLE_MS: u64 = 1_767_225_600_000;

/// ms since 1970-01-01 UTC, unless the clock is plainly not set.
pub fn utc_ms() -> Option<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let ms = u64::try_from(since.as_millis()).ok()?;
    (ms >= PLAUSIBLE_MS).then_some(ms)
}

/// The same as DTN time, ms since 2000-01-01 UTC.
pub fn dtn_time_ms() -> Option<u64> {
    utc_ms()?.checked_sub(DTN_EPOCH_MS)
}
