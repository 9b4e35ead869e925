//! Counts the bytes of incomplete bundles that a peer has sent, on all of its sessions together.
//! They are in memory, and the peer may never complete them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a peer beyond which only one of its transfers continues.
const MOST_TOGETHER: u64 = 128 << 20;
/// The first bytes of each transfer, which do not count, so that short bundles pass beside a long
/// one and do not end it.
const SHORT_BYTES: u64 = 1 << 20;

/// The counts of all peers, by their node ids: there are as many as neighbours.
#[derive(Debug, Default)]
pub struct UnfinishedTransfers(Mutex<HashMap<String, Unfinished>>);

impl UnfinishedTransfers {
    /// The count of a peer, which all of its sessions share.
    pub(super) fn of(&self, peer: &str) -> Unfinished {
        let mut counts = self.0.lock().unwrap();
        counts.entry(peer.to_owned()).or_default().clone()
    }
}

/// The count of one peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Unfinished(Arc<AtomicU64>);

/// The share of one transfer in the count; dropping this subtracts it.
#[derive(Debug)]
pub(super) struct Counted {
    of: Unfinished,
    /// Those of its first bytes that may still come.
    short_left: u64,
    bytes: u64,
}

impl Unfinished {
    pub(super) fn begin(&self) -> Counted {
        Counted {
            of: self.clone(),
            short_left: SHORT_BYTES,
            bytes: 0,
        }
    }
}

impl Counted {
    /// Counts more bytes; false if the peer's other transfers leave no room for
    /// them.
    pub(super) fn add(&mut self, bytes: u64) -> bool {
        let short = bytes.min(self.short_left);
        self.short_left -= short;
        let bytes = bytes - short;
        if bytes == 0 {
            return true;
        }
        let own = self.bytes;
        let more = |all: u64| {
            let is_alone = all == own;
            let sum = all.saturating_add(bytes);
            (is_alone || sum <= MOST_TOGETHER).then_some(sum)
        };
        let count = &self.of.0;
        let added = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if added.is_ok() {
            self.bytes = own.saturating_add(bytes);
        }
        added.is_ok()
    }

    /// What was counted is not in memory.
    pub(super) fn clear(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_so_much_one_transfer_goes_on_and_no_other_of_its_peer() {
        let all = UnfinishedTransfers::default();
        let begin = |peer: &str| {
            let mut begun = all.of(peer).begin();
            assert!(begun.add(SHORT_BYTES), "that much always has room");
            begun
        };
        let peer = "ipn:10.0";
        let mut long = begin(peer);
        assert!(long.add(10 * MOST_TOGETHER), "it is alone");
        let mut second = begin(peer);
        assert!(!second.add(1));
        assert!(long.add(1), "what was refused does not count");
        assert!(begin("ipn:11.0").add(MOST_TOGETHER));
        drop(long);
        let mut third = begin(peer);
        assert!(second.add(MOST_TOGETHER / 2) && third.add(MOST_TOGETHER / 2));
        assert!(!second.add(1));
        // The other transfer is written to disk.
        third.clear();
        assert!(second.add(MOST_TOGETHER));
    }
}
