//! One direction of one terminal.

use super::demand::{Access, Turn};
use super::loss::Loss;
use super::profile::{LossProfile, nanos};
use super::queue::{Queue, Queued};
use super::random::Random;
use super::standing::Standing;
use super::statistics::LinkStatistics;
use super::trace::{Course, TraceStep};
use super::transmitter::Transmitter;
use super::{Direction, LinkProfile, Nanos, Packet, ProfileError, QueueSeries};

/// A queue, a transmitter, and the loss, delay and jitter of packets on their way.
#[derive(Debug)]
pub(super) struct Link {
    profile: LinkProfile,
    course: Course,
    /// The rate allocated of the beam's capacity, bit/s; 0 holds the queue.
    allocation: Option<u64>,
    queue: Queue,
    standing: Standing,
    transmitter: Transmitter,
    /// Of a link on demand.
    access: Access,
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
        now: Nanos,
    ) -> Result<Self, ProfileError> {
        profile.validate()?;
        let (loss, jitter) = patterns(name, direction, seed);
        Ok(Link {
            profile,
            course: Course::default(),
            allocation: None,
            queue: Queue::default(),
            standing: Standing::new(now),
            transmitter: Transmitter::default(),
            access: Access::default(),
            loss,
            jitter,
            last_due: 0,
            statistics: LinkStatistics::default(),
        })
    }

    pub(super) fn profile(&self) -> &LinkProfile {
        &self.profile
    }

    /// Whether the link can take this profile. A waiting packet gets its capacity in the way in
    /// which it began to wait.
    pub(super) fn admits(&self, profile: &LinkProfile) -> Result<(), ProfileError> {
        profile.validate()?;
        let waits = self.queue.flows().packets() > 0 || self.access.is_sending();
        if profile.demand != self.profile.demand && waits {
            let wanted = "possible while packets wait";
            return Err(ProfileError::new("demand", "a change", wanted));
        }
        Ok(())
    }

    pub(super) fn set_profile(&mut self, profile: LinkProfile) -> Result<(), ProfileError> {
        self.admits(&profile)?;
        self.profile = profile;
        Ok(())
    }

    /// Follows a trace from an epoch on.
    pub(super) fn set_trace(&mut self, steps: Vec<TraceStep>, epoch: Nanos, now: Nanos) {
        self.change(now, |link| link.course = Course::new(steps, epoch));
    }

    /// Begins the trace again from a new epoch.
    pub(super) fn restart_trace(&mut self, epoch: Nanos) {
        self.change(epoch, |link| link.course.restart(epoch));
    }

    /// When the trace changes the link next.
    pub(super) fn next_step(&self) -> Option<Nanos> {
        self.course.next_at()
    }

    pub(super) fn follow_trace(&mut self, now: Nanos) {
        self.change(now, |_| ());
    }

    /// Changes the rate at `now`; after a rate of zero, sending begins then.
    fn change(&mut self, now: Nanos, change: impl FnOnce(&mut Self)) {
        let held = self.rate() == Some(0);
        change(self);
        self.course.advance(now);
        if held && self.rate() != Some(0) {
            self.transmitter.idle_until(now);
        }
    }

    pub(super) fn allocation(&self) -> Option<u64> {
        self.allocation
    }

    pub(super) fn set_allocation(&mut self, rate_bps: Option<u64>, at: Nanos) {
        self.change(at, |link| link.allocation = rate_bps);
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
        self.observe(now);
        self.statistics.offered(now, packet.len());
        let limit = self.profile.queue_limit(capacity_bps);
        let queued = Queued {
            packet,
            enqueued: now,
            sequence,
        };
        let discipline = self.profile.queue.discipline;
        self.queue
            .push(queued, limit, discipline, &mut self.statistics);
    }

    /// Whether capacity has to be asked for.
    pub(super) fn is_on_demand(&self) -> bool {
        self.profile.demand.is_some()
    }

    /// When [`Link::transmit`] has something to do next, and the sequence number of the packet
    /// that it is about.
    pub(super) fn next_ready(&self) -> Option<(Nanos, u64)> {
        if self.rate() == Some(0) {
            return None;
        }
        let head = self.queue.flows().head();
        let begin = head.map(|head| self.transmitter.free_at().max(head.enqueued));
        let Some(demand) = &self.profile.demand else {
            return Some((begin?, head?.sequence));
        };
        let (at, _) = self.access.next(demand, begin)?;
        let sequence = self.access.sequence().or(head.map(|head| head.sequence))?;
        Some((at.max(self.transmitter.free_at()), sequence))
    }

    /// Does what is due at `start`: sends the next packet, if the discipline leaves one.
    pub(super) fn transmit(&mut self, start: Nanos) -> Option<Sent> {
        if self.is_on_demand() {
            return self.transmit_on_demand(start);
        }
        let next = self.take(start)?;
        let rate = self.rate();
        let bytes = next.packet.len();
        let departed = self.transmitter.send(start, bytes, rate);
        Some(self.sent(next, departed))
    }

    fn transmit_on_demand(&mut self, now: Nanos) -> Option<Sent> {
        let (demand, rate) = (self.profile.demand?, self.rate()?);
        let head = self.queue.flows().head();
        let begin = head.map(|head| self.transmitter.free_at().max(head.enqueued));
        let (_, turn) = self.access.next(&demand, begin)?;
        self.transmitter.idle_until(now);
        match turn {
            Turn::Frame => {
                let waiting = self.queue.flows().bytes() * 8;
                self.access.open(&demand, rate, now, waiting);
                None
            }
            Turn::Begin => {
                let next = self.take(now)?;
                self.access.begin(next, rate, now);
                None
            }
            Turn::End => {
                let next = self.access.end()?;
                Some(self.sent(next, now))
            }
        }
    }

    fn take(&mut self, now: Nanos) -> Option<Queued> {
        self.observe(now);
        self.queue
            .pop(&self.profile.queue, now, &mut self.statistics)
    }

    fn sent(&mut self, queued: Queued, departed: Nanos) -> Sent {
        self.statistics.sent(queued.packet.len());
        Sent {
            departed,
            packet: queued.packet,
            sequence: queued.sequence,
        }
    }

    /// Notes how the queue has stood until `now`.
    fn observe(&mut self, now: Nanos) {
        let oldest = self.queue.flows().oldest().map(|oldest| oldest.enqueued);
        self.standing.observe(now, oldest);
    }

    /// How the queue has stood.
    pub(super) fn queue_series(&mut self, now: Nanos) -> QueueSeries {
        self.observe(now);
        self.standing.series()
    }

    /// When a packet that left at `departed` arrives, unless it is lost.
    pub(super) fn launch(&mut self, departed: Nanos, bytes: usize) -> Option<Nanos> {
        let model = self.loss_model();
        if self.loss.takes(&model) {
            self.statistics.lost(bytes);
            return None;
        }
        let jitter = match self.profile.jitter_ms {
            0.0 => 0,
            most => nanos(most * self.jitter.unit()),
        };
        let due = departed
            .saturating_add(self.min_delay())
            .saturating_add(jitter);
        self.statistics.in_flight_packets += 1;
        if self.profile.reorder {
            return Some(self.bunched(due));
        }
        self.last_due = self.last_due.max(due);
        Some(self.bunched(self.last_due))
    }

    fn bunched(&self, due: Nanos) -> Nanos {
        match nanos(self.profile.bunch_ms) {
            0 => due,
            step => due.checked_next_multiple_of(step).unwrap_or(Nanos::MAX),
        }
    }

    fn loss_model(&self) -> LossProfile {
        let traced = self.course.current().and_then(|step| step.loss);
        traced.unwrap_or(self.profile.loss)
    }

    /// The least time from the start of a transmission to its arrival.
    pub(super) fn min_delay(&self) -> Nanos {
        let traced = self.course.current().and_then(|step| step.delay_ms);
        nanos(traced.unwrap_or(self.profile.delay_ms))
    }

    pub(super) fn statistics_mut(&mut self) -> &mut LinkStatistics {
        &mut self.statistics
    }

    pub(super) fn statistics(&self) -> LinkStatistics {
        LinkStatistics {
            queue_packets: self.queue.flows().packets() + u64::from(self.access.is_sending()),
            queue_bytes: self.queue.flows().bytes(),
            ..self.statistics.clone()
        }
    }

    pub(super) fn reset_statistics(&mut self, now: Nanos) {
        self.standing = Standing::new(now);
        self.statistics = LinkStatistics {
            in_flight_packets: self.statistics.in_flight_packets,
            queue_max_bytes: self.queue.flows().bytes(),
            ..LinkStatistics::default()
        };
    }

    /// The rate of its own that is in force, bit/s.
    pub(super) fn own_rate(&self) -> Option<u64> {
        let traced = self.course.current().and_then(|step| step.rate_bps);
        traced.or(self.profile.rate_bps)
    }

    fn rate(&self) -> Option<u64> {
        match (self.own_rate(), self.allocation) {
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
