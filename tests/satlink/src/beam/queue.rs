//! What waits for transmission on a link.

use std::collections::VecDeque;

use super::codel::Codel;
use super::profile::{Discipline, QueueProfile};
use super::statistics::LinkStatistics;
use super::{Nanos, Packet};

/// A packet with the time and the order in which it came.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) packet: Packet,
    pub(super) enqueued: Nanos,
    pub(super) sequence: u64,
}

/// Packets in order, with their bytes counted.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    packets: VecDeque<Queued>,
    bytes: u64,
}

impl Fifo {
    pub(super) fn push(&mut self, queued: Queued) {
        self.bytes += queued.packet.len() as u64;
        self.packets.push_back(queued);
    }

    pub(super) fn pop(&mut self) -> Option<Queued> {
        let queued = self.packets.pop_front()?;
        self.bytes -= queued.packet.len() as u64;
        Some(queued)
    }

    pub(super) fn head(&self) -> Option<&Queued> {
        self.packets.front()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets.len() as u64
    }
}

/// A bounded queue with its discipline.
#[derive(Debug, Default)]
pub(super) struct Queue {
    fifo: Fifo,
    codel: Codel,
}

impl Queue {
    pub(super) fn fifo(&self) -> &Fifo {
        &self.fifo
    }

    /// Appends a packet unless it would exceed the bound. An empty queue
    /// takes any one packet, so that a small bound does not stop the link.
    pub(super) fn push(&mut self, queued: Queued, limit: u64, statistics: &mut LinkStatistics) {
        let bytes = queued.packet.len();
        if self.fifo.bytes() > 0 && self.fifo.bytes() + bytes as u64 > limit {
            statistics.tail_dropped(bytes);
            return;
        }
        self.fifo.push(queued);
        statistics.queue_max_bytes = statistics.queue_max_bytes.max(self.fifo.bytes());
    }

    /// Takes the packet to be sent at `now`.
    pub(super) fn pop(
        &mut self,
        profile: &QueueProfile,
        now: Nanos,
        statistics: &mut LinkStatistics,
    ) -> Option<Queued> {
        match profile.discipline {
            Discipline::DropTail => self.fifo.pop(),
            Discipline::Codel => self.codel.dequeue(&mut self.fifo, profile, now, |dropped| {
                statistics.codel_dropped(dropped.packet.len());
            }),
        }
    }
}
