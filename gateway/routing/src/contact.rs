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
    /// Who sends.
    pub from: Node,
    /// Who receives.
    pub to: Node,
    /// From when on, ms.
    pub start_ms: u64,
    /// Until when, ms: the last byte has left by then.
    pub end_ms: u64,
    /// How fast, bytes per second.
    pub rate_bytes_per_s: u64,
    /// One-way light time, ms.
    pub owlt_ms: u64,
    /// Bytes that are booked already: what comes later is sent after them.
    #[serde(default)]
    pub booked_bytes: u64,
}

impl Contact {
    /// When the last byte of so many has arrived that could be sent from
    /// `ready_ms` on; none if they do not fit before the contact's end.
    pub fn arrival_ms(&self, ready_ms: u64, bytes: u64) -> Option<u64> {
        let booked = self.line_ms(self.booked_bytes)?;
        let begin = ready_ms.max(self.start_ms.checked_add(booked)?);
        let sent = begin.checked_add(self.line_ms(bytes)?)?;
        // An empty bundle still needs the contact.
        let fits = begin < self.end_ms && sent <= self.end_ms;
        fits.then(|| sent.checked_add(self.owlt_ms)).flatten()
    }

    /// Whether no route can be better by this contact than by the other: a
    /// blockage, or bytes that are booked.
    pub(crate) fn is_no_better_than(&self, other: &Contact) -> bool {
        (self.from, self.to) == (other.from, other.to)
            && self.start_ms >= other.start_ms
            && self.end_ms <= other.end_ms
            && self.rate_bytes_per_s <= other.rate_bytes_per_s
            && self.owlt_ms >= other.owlt_ms
            && self.booked_bytes >= other.booked_bytes
    }

    /// Time of so many bytes on the line, ms, rounded up.
    fn line_ms(&self, bytes: u64) -> Option<u64> {
        let ms = u128::from(bytes) * 1_000;
        let ms = ms.div_ceil(u128::from(self.rate_bytes_per_s.max(1)));
        u64::try_from(ms).ok()
    }
}
