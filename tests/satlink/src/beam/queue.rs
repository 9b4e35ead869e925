//! What waits for transmission on a link.

use super::codel::Codel;
use super::flows::{FlowKey, Flows, flow_of};
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

/// A bounded queue with its discipline.
#[derive(Debug, Default)]
pub(super) struct Queue {
    flows: Flows,
    codel: Codel,
}

impl Queue {
    pub(super) fn flows(&self) -> &Flows {
        &self.flows
    }

    /// Appends a packet unless it would exceed the bound. An empty queue
    /// takes any one packet, so that a small bound does not stop the link.
    pub(super) fn push(
        &mut self,
        queued: Queued,
        limit: u64,
        discipline: Discipline,
        statistics: &mut LinkStatistics,
    ) {
        let bytes = queued.packet.len();
        let full = self.flows.bytes() > 0 && self.flows.bytes() + bytes as u64 > limit;
        match discipline {
            Discipline::DropTail | Discipline::Codel if full => {
                statistics.tail_dropped(bytes);
                return;
            }
            Discipline::DropTail | Discipline::Codel => self.flows.push(FlowKey::new(), queued),
            Discipline::FairQueue => {
                self.flows.push(flow_of(&queued.packet), queued);
                while self.flows.bytes() > limit && self.flows.packets() > 1 {
                    let Some(stolen) = self.flows.steal() else {
                        break;
                    };
                    statistics.tail_dropped(stolen.packet.len());
                }
            }
        }
        statistics.queue_max_bytes = statistics.queue_max_bytes.max(self.flows.bytes());
    }

    /// Takes the packet to be sent at `now`.
    pub(super) fn pop(
        &mut self,
        profile: &QueueProfile,
        now: Nanos,
        statistics: &mut LinkStatistics,
    ) -> Option<Queued> {
        match profile.discipline {
            Discipline::DropTail | Discipline::FairQueue => self.flows.pop(),
            Discipline::Codel => self
                .codel
                .dequeue(&mut self.flows, profile, now, |dropped| {
                    statistics.codel_dropped(dropped.packet.len());
                }),
        }
    }
}
