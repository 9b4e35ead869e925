//! Shows whether anything moves on sessions, without asking each.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Counts how often bytes have come or gone on the sessions that share it. If all of their figures
/// are still, they stay valid until the count changes: reading the count replaces reading every
/// session.
#[derive(Debug, Default)]
pub struct Activity(AtomicU64);

impl Activity {
    /// Bytes have come or gone.
    pub fn moved(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    /// The count until now. It must be read before the figures that it is kept with.
    pub fn count(&self) -> u64 {
        self.0.load(SeqCst)
    }
}
