//! Whether anything moves on sessions, without asking each.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Counts how often bytes have come or gone on the sessions that share it.
/// Where all of their figures are still, they hold for as long as the count
/// does: one look stands for one at every session.
#[derive(Debug, Default)]
pub struct Activity(AtomicU64);

impl Activity {
    /// Bytes have come or gone.
    pub fn moved(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    /// How often they have until now. To be read before the figures that are
    /// to hold with it.
    pub fn count(&self) -> u64 {
        self.0.load(SeqCst)
    }
}
