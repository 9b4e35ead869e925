//! One direction of one terminal.

use super::loss::Loss;
use super::profile::nanos;
use super::queue::{Queue, Queued};
use super::random::Random;
use super::statistics::LinkStatistics;
use super::transmitter::Transmitter;
use super::{Direction, LinkProfile, Nanos, Packet, ProfileError};

/// A queue, a transmitter, and what happens to a packet on its way.
#[derive(Debug)]
pub(super) struct Link {
    profile: LinkProfile,
    /// The rate allocated of the beam's capacity, bit/s; 0 holds the queue.
    allocation: Option<u64>,
    queue: Queue,
    transmitter: Transmitter,
    loss: Loss,
    jitter: Random,
    last_due: Nanos,
    statistics: LinkStatistics,
}

/// A packet whose last bit leaves the link's transmitter at `departed`.
pub(super) struct Sent {
    pub(super) packet: Packet,
    pub(super) sequence: u64,
    pub(super) departed: Nanos,
}

impl Link {
    pub(super) fn new(
        profile: LinkProfile,
        name: &str,
        direction: Direction,
        seed: u64,
    ) -> Result<Self, ProfileError> {
        profile.validate()?;
        let (loss, jitter) = patterns(name, direction, seed);
        Ok(Link {
            profile,
            allocation: None,
            queue: Queue::default(),
            transmitter: Transmitter::default(),
            loss,
            jitter,
            last_due: 0,
            statistics: LinkStatistics::default(),
        })
    }

    pub(super) fn profile(&self) -> &LinkProfile {
        &self.profile
    }

    pub(super) fn set_profile(&mut self, profile: LinkProfile) -> Result<(), ProfileError> {
        profile.validate()?;
        self.profile = profile;
        Ok(())
    }

    pub(super) fn allocation(&self) -> Option<u64> {
        self.allocation
    }

    pub(super) fn set_allocation(&mut self, rate_bps: Option<u64>) {
        self.allocation = rate_bps;
    }

    pub(super) fn reseed(&mut self, name: &str, direction: Direction, seed: u64) {
        (self.loss, self.jitter) = patterns(name, direction, seed);
    }

    pub(super) fn enqueue(
        &mut self,
        now: Nanos,
        sequence: u64,
        packet: Packet,
        capacity_bps: Option<u64>,
    ) {
        self.statistics.offered(now, packet.len());
        let limit = self.profile.queue_limit(capacity_bps);
        let queued = Queued {
            packet,
            enqueued: now,
            sequence,
        };
        self.queue.push(queued, limit, &mut self.statistics);
    }

    /// When the packet at the head may be sent, and its sequence number.
    pub(super) fn next_ready(&self) -> Option<(Nanos, u64)> {
        let head = self.queue.fifo().head()?;
        if self.rate() == Some(0) {
            return None;
        }
        let start = self.transmitter.free_at().max(head.enqueued);
        Some((start, head.sequence))
    }

    /// Sends the next packet, if the discipline leaves one.
    pub(super) fn transmit(&mut self, start: Nanos) -> Option<Sent> {
        let next = self
            .queue
            .pop(&self.profile.queue, start, &mut self.statistics)?;
        let bytes = next.packet.len();
        self.statistics.sent(bytes);
        let rate = self.rate();
        Some(Sent {
            departed: self.transmitter.send(start, bytes, rate),
            packet: next.packet,
            sequence: next.sequence,
        })
    }

    /// When a packet that left at `departed` arrives, unless it is lost.
    pub(super) fn launch(&mut self, departed: Nanos, bytes: usize) -> Option<Nanos> {
        if self.loss.takes(&self.profile.loss) {
            self.statistics.lost(bytes);
            return None;
        }
        let jitter = match self.profile.jitter_ms {
            0.0 => 0,
            most => nanos(most * self.jitter.unit()),
        };
        let due = departed
            .saturating_add(nanos(self.profile.delay_ms))
            .saturating_add(jitter);
        self.statistics.in_flight_packets += 1;
        if self.profile.reorder {
            return Some(due);
        }
        self.last_due = self.last_due.max(due);
        Some(self.last_due)
    }

    /// The least time from the start of a transmission to its arrival.
    pub(super) fn min_delay(&self) -> Nanos {
        nanos(self.profile.delay_ms)
    }

    pub(super) fn statistics_mut(&mut self) -> &mut LinkStatistics {
        &mut self.statistics
    }

    pub(super) fn statistics(&self) -> LinkStatistics {
        LinkStatistics {
            queue_packets: self.queue.fifo().packets(),
            queue_bytes: self.queue.fifo().bytes(),
            ..self.statistics.clone()
        }
    }

    pub(super) fn reset_statistics(&mut self) {
        self.statistics = LinkStatistics {
            in_flight_packets: self.statistics.in_flight_packets,
            queue_max_bytes: self.queue.fifo().bytes(),
            ..LinkStatistics::default()
        };
    }

    fn rate(&self) -> Option<u64> {
        match (self.profile.rate_bps, self.allocation) {
            (Some(rate), Some(allocated)) => Some(rate.min(allocated)),
            (rate, allocated) => rate.or(allocated),
        }
    }
}

/// Loss and jitter have streams of their own, so that changing one leaves the
/// pattern of the other.
fn patterns(name: &str, direction: Direction, seed: u64) -> (Loss, Random) {
    let stream = |purpose| Random::new(seed, &format!("{name}/{direction:?}/{purpose}"));
    (Loss::new(stream("loss")), stream("jitter"))
}
