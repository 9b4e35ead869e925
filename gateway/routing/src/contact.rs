//! Contacts: who can send to whom, when and how fast.

use serde::{Deserialize, Serialize};

/// A node's number.
pub type Node = u64;

/// The most contacts of a plan.
pub const MOST_CONTACTS: usize = 1_000_000;

/// An interval in which one node can send to another. Times are ms since the
/// plan's own epoch (for files: the Unix epoch).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contact {
    /// The sender.
    pub from: Node,
    /// The receiver.
    pub to: Node,
    /// The contact's start, ms.
    pub start_ms: u64,
    /// The contact's end, ms: the last byte must have left by then.
    pub end_ms: u64,
    /// The rate, bytes per second.
    pub rate_bytes_per_s: u64,
    /// One-way light time, ms.
    pub owlt_ms: u64,
    /// Bytes that are booked already: a later bundle is sent after them.
    #[serde(default)]
    pub booked_bytes: u64,
}

impl Contact {
    /// When the last of `bytes` arrives if they can be sent from `ready_ms` on; none if
    /// they do not fit before the contact's end.
    pub fn arrival_ms(&self, ready_ms: u64, bytes: u64) -> Option<u64> {
        self.timing()?.arrival_ms(ready_ms, bytes)
    }

    /// How bytes cross it; none if the booked bytes take longer than time can count.
    pub(crate) fn timing(&self) -> Option<Timing> {
        let rate_bytes_per_s = self.rate_bytes_per_s.max(1);
        let booked = line_ms(self.booked_bytes, rate_bytes_per_s)?;
        Some(Timing {
            begins_ms: self.start_ms.checked_add(booked)?,
            end_ms: self.end_ms,
            rate_bytes_per_s,
            owlt_ms: self.owlt_ms,
        })
    }

    /// Books bytes, which are sent from `now_ms` on, behind those that were booked before; gives
    /// booked ones back if they are negative.
    pub fn book(&mut self, bytes: i64, now_ms: u64) {
        self.booked_bytes = match u64::try_from(bytes) {
            // What could have been sent by now counts as used.
            Ok(more) => self
                .booked_bytes
                .max(self.volume_bytes_until(now_ms))
                .saturating_add(more),
            Err(_) => self.booked_bytes.saturating_sub(bytes.unsigned_abs()),
        };
    }

    /// The booked bytes that cannot have been sent by `now_ms`.
    pub(crate) fn waiting_bytes(&self, now_ms: u64) -> u64 {
        self.booked_bytes
            .saturating_sub(self.volume_bytes_until(now_ms))
    }

    /// The bytes that it can carry until a time, ms, behind none.
    pub(crate) fn volume_bytes_until(&self, at_ms: u64) -> u64 {
        let ms = at_ms.min(self.end_ms).saturating_sub(self.start_ms);
        let bytes = u128::from(ms) * u128::from(self.rate_bytes_per_s) / 1_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Whether no route through this contact can be better than through `other`, of which
    /// it is what a blockage or booked bytes leave.
    pub(crate) fn is_no_better_than(&self, other: &Contact) -> bool {
        (self.from, self.to) == (other.from, other.to)
            && self.start_ms >= other.start_ms
            && self.end_ms <= other.end_ms
            && self.rate_bytes_per_s <= other.rate_bytes_per_s
            && self.owlt_ms >= other.owlt_ms
            && self.booked_bytes >= other.booked_bytes
    }
}

/// How bytes cross a contact, behind the booked ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// When the first byte can be sent, ms.
    pub begins_ms: u64,
    pub end_ms: u64,
    rate_bytes_per_s: u64,
    pub owlt_ms: u64,
}

impl Timing {
    /// When the last of `bytes` arrives if they can be sent from `ready_ms` on.
    pub fn arrival_ms(&self, ready_ms: u64, bytes: u64) -> Option<u64> {
        let begin = ready_ms.max(self.begins_ms);
        let sent = begin.checked_add(line_ms(bytes, self.rate_bytes_per_s)?)?;
        // An empty bundle still needs the contact.
        let fits = begin < self.end_ms && sent <= self.end_ms;
        fits.then(|| sent.checked_add(self.owlt_ms)).flatten()
    }

    /// The latest time at which `bytes` may be ready for the last of them to arrive by
    /// `by_ms`.
    pub fn latest_ms(&self, by_ms: u64, bytes: u64) -> Option<u64> {
        let line = line_ms(bytes, self.rate_bytes_per_s)?;
        let in_contact = self.end_ms.checked_sub(line.max(1))?;
        let in_time = by_ms.checked_sub(self.owlt_ms)?.checked_sub(line)?;
        let latest = in_contact.min(in_time);
        (latest >= self.begins_ms).then_some(latest)
    }
}

/// The time that `bytes` take at a rate, ms, rounded up.
fn line_ms(bytes: u64, rate_bytes_per_s: u64) -> Option<u64> {
    match bytes.checked_mul(1_000) {
        Some(scaled) => Some(scaled.div_ceil(rate_bytes_per_s)),
        None => {
            let ms = (u128::from(bytes) * 1_000).div_ceil(u128::from(rate_bytes_per_s));
            u64::try_from(ms).ok()
        }
    }
}
