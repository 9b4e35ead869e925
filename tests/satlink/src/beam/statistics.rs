//! What a link has carried and dropped.

use serde::{Deserialize, Serialize};

use super::Nanos;

/// Counts of one link since it began or was last reset. Bytes are IP bytes.
///
/// Each incoming packet is queued, dropped by the queue, or sent; each sent one is lost, blocked,
/// in flight, or out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatistics {
    /// Packets offered to the link.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets transmitted, whatever their fate: the use of the link.
    pub packets_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Packets that arrived.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Packets taken by the loss model.
    pub lost_packets: u64,
    /// Their bytes.
    pub lost_bytes: u64,
    /// Packets that found the queue full.
    pub tail_dropped_packets: u64,
    /// Their bytes.
    pub tail_dropped_bytes: u64,
    /// Packets that CoDel dropped.
    pub codel_dropped_packets: u64,
    /// Their bytes.
    pub codel_dropped_bytes: u64,
    /// Packets dropped by a blockage; counted when they would have arrived.
    pub blocked_packets: u64,
    /// Their bytes.
    pub blocked_bytes: u64,
    /// Packets in the queue now.
    pub queue_packets: u64,
    /// Bytes in the queue now.
    pub queue_bytes: u64,
    /// Most bytes that the queue held.
    pub queue_max_bytes: u64,
    /// Packets that have departed and not yet arrived.
    pub in_flight_packets: u64,
    /// When the first packet came in, ns of the machine's monotonic clock.
    pub first_in_ns: Option<Nanos>,
    /// When the last packet came in.
    pub last_in_ns: Option<Nanos>,
    /// When the first packet arrived.
    pub first_out_ns: Option<Nanos>,
    /// When the last packet arrived.
    pub last_out_ns: Option<Nanos>,
}

impl LinkStatistics {
    pub(super) fn offered(&mut self, now: Nanos, bytes: usize) {
        self.packets_in += 1;
        self.bytes_in += bytes as u64;
        self.first_in_ns.get_or_insert(now);
        self.last_in_ns = Some(now);
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.packets_sent += 1;
        self.bytes_sent += bytes as u64;
    }

    pub(super) fn delivered(&mut self, due: Nanos, bytes: usize) {
        self.packets_out += 1;
        self.bytes_out += bytes as u64;
        self.first_out_ns.get_or_insert(due);
        self.last_out_ns = Some(due);
    }

    pub(super) fn lost(&mut self, bytes: usize) {
        self.lost_packets += 1;
        self.lost_bytes += bytes as u64;
    }

    pub(super) fn tail_dropped(&mut self, bytes: usize) {
        self.tail_dropped_packets += 1;
        self.tail_dropped_bytes += bytes as u64;
    }

    pub(super) fn codel_dropped(&mut self, bytes: usize) {
        self.codel_dropped_packets += 1;
        self.codel_dropped_bytes += bytes as u64;
    }

    pub(super) fn blocked(&mut self, bytes: usize) {
        self.blocked_packets += 1;
        self.blocked_bytes += bytes as u64;
    }
}
