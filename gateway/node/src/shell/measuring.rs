//! Reads the sessions of a hop to estimate the capacity of its link.

mod reverse;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use underpass_beacon::BEACON_BYTES;
use underpass_capacity::{Estimator, Limits, Reading, Reason, WayThere};
use underpass_cla::{PathFigures, SessionId};
use underpass_completion::LossWindow;
use underpass_engine::{Engine, HopId, MeasuredLink, Sending};

use super::{SessionReading, Shell, timer};
use crate::config::{GUESSED_RTT, RTTS_MS};
use reverse::Reverse;

/// How long the measured queue of a hop counts for other hops.
const QUEUE_KNOWN: Duration = Duration::from_millis(300);

/// How long the measured capacity of a beam counts after two hops last moved at once: one hop alone
/// could not detect that it has risen again.
const BEAM_KNOWN: Duration = Duration::from_secs(60);

/// A measured capacity of the beam below this part (1/n) of the configured one is not believed: at
/// so low a rate round trips describe the past. The hops' own estimates then bound what is sent.
const LEAST_PART_OF_BEAM: u64 = 10;

/// While a hop has a backlog, it asks its peer this often for beacons, which show how much of a
/// round trip is queue on the way back.
const ASKS_EACH: Duration = Duration::from_secs(1);
/// How long the measurement of a link with a configured rate counts while nothing tells a queue on
/// the way back from one of this direction.
const COUNTS_UNTOLD: Duration = Duration::from_secs(10);
/// Beacons beside other traffic take at most this part (1/n) of the rate. But at a rate of some
/// kbit/s, which may be far too low an estimate, they still come each `RAREST_BEACONS`; otherwise
/// they would be useless.
const PART_OF_BEACONS: u64 = 200;
const RAREST_BEACONS: Duration = Duration::from_millis(800);
const BEACON_BITS: u64 = (40 + 8 + BEACON_BYTES as u64) * 8;

/// A peer that owes an answer is probed this often in a round trip, from one round trip
/// and the kernel's clock tick after it was heard,
const PROBES_PER_RTT: u32 = 4;
const CLOCK_TICK: Duration = Duration::from_millis(4);
/// until this after it was heard; each look at the sessions has it probed for a while.
const PROBED_FOR: Duration = Duration::from_secs(2);
const PROBED_AT_ONCE: Duration = Duration::from_millis(250);

/// A shorter queue counts as none: the estimator does not notice it either.
const NO_QUEUE: Duration = Duration::from_millis(12);

/// A guessed round trip is corrected if it is wrong by more than this part (1/n) of it.
const RTT_NOTICED_PART: u32 = 16;

/// By what a guessed round trip is replaced; `None` if it is near enough.
fn corrected_rtt(guessed: Duration, measured: Duration) -> Option<Duration> {
    // The peer's beacons come as seldom as the first guess allows: with a shorter round trip, few
    // lost ones would count as a blockage. The upper bound ensures that a peer which answers ever
    // later cannot hide silence.
    let rtt = measured.max(GUESSED_RTT);
    let noticed = rtt.abs_diff(guessed) > guessed / RTT_NOTICED_PART;
    (noticed && rtt <= Duration::from_millis(*RTTS_MS.end())).then_some(rtt)
}

/// The reason of a measured capacity, as it is reported. If a window is full and there is no queue,
/// the window and not the link limits what is sent: the link may carry more.
fn reason_told(found: Option<Reason>, window_full: bool, queue: Duration) -> Option<Reason> {
    match found {
        Some(Reason::Limit) if window_full && queue < NO_QUEUE => Some(Reason::Probe),
        found => found,
    }
}

/// The two smallest queues among the hops of a beam at present, with their hops.
#[derive(Clone, Copy, Default)]
pub(super) struct SharedQueue([Option<(Duration, HopId)>; 2]);

impl SharedQueue {
    pub fn of<'a>(meters: impl Iterator<Item = (&'a HopId, &'a LinkMeter)>) -> SharedQueue {
        let now = timer::now();
        let mut least = SharedQueue::default();
        for (hop, meter) in meters {
            let Some(queue) = meter.queue_at(now) else {
                continue;
            };
            let [first, second] = &mut least.0;
            if first.is_none_or(|(least, _)| queue < least) {
                *second = first.replace((queue, *hop));
            } else if second.is_none_or(|(least, _)| queue < least) {
                *second = Some((queue, *hop));
            }
        }
        least
    }

    /// The least queue of the other hops; `None` if this one moves alone.
    fn beside(&self, hop: HopId) -> Option<Duration> {
        let others = self.0.iter().flatten().filter(|(_, of)| *of != hop);
        others.map(|(queue, _)| *queue).min()
    }
}

/// Measures the link that the hops of a beam share: the queue that all of them have, and what
/// arrives of all of them together.
pub(super) struct BeamMeter {
    estimator: Estimator,
    limits: Limits,
    /// The last reading of each hop, so that sums outlive hops.
    seen: HashMap<HopId, Reading>,
    sums: Reading,
    looked_at: Instant,
    /// When two hops last moved at once.
    shared_at: Instant,
}

impl BeamMeter {
    pub fn new() -> BeamMeter {
        BeamMeter {
            estimator: Estimator::new(Limits::default()),
            limits: Limits::default(),
            seen: HashMap::new(),
            sums: Reading::default(),
            looked_at: timer::now(),
            shared_at: timer::now(),
        }
    }

    /// Whether it is time to measure again, if hops are measured each `pause`.
    pub fn is_due(&self, pause: Duration) -> bool {
        timer::now() >= self.looked_at + pause
    }

    /// Takes the last readings of the hops that move. With fewer than two, a beam's queue cannot be
    /// distinguished from a terminal's.
    pub fn look<'a>(
        &mut self,
        shell: &Shell,
        meters: impl Iterator<Item = (&'a HopId, &'a LinkMeter)>,
        beam: &SharedQueue,
    ) {
        let now = timer::now();
        self.looked_at = now;
        let ceiling_bps = shell.read_any(Engine::beam_allowed_bps);
        let ([Some((queue, _)), Some(_)], Some(_)) = (beam.0, ceiling_bps) else {
            self.estimator.interrupt();
            if now >= self.shared_at + BEAM_KNOWN && self.estimator.capacity_bps().is_some() {
                self.estimator = Estimator::new(self.limits);
                shell.with_each(|engine, now| engine.measured_beam(now, None));
            }
            return;
        };
        self.shared_at = now;
        let limits = Limits {
            ceiling_bps,
            least_bps: ceiling_bps.map(|bps| bps / LEAST_PART_OF_BEAM),
            ..Limits::default()
        };
        if std::mem::replace(&mut self.limits, limits) != limits {
            self.estimator.set_limits(limits);
        }
        let least = self.add(now, meters);
        self.sums.rtt = least.map(|least| least + queue);
        self.estimator.read(now, self.sums);
        let measured = self.estimator.capacity_bps();
        let rate_bps = measured.and_then(|_| self.estimator.rate_bps(now));
        let told = shell.read_any(Engine::beam_measured_bps);
        if told != rate_bps {
            if told.is_some() && self.estimator.doubts(now) {
                tracing::warn!("that the beam carries so little is not believed");
            }
            shell.with_each(|engine, now| engine.measured_beam(now, rate_bps));
        }
        let drain_bytes = self.estimator.drain_bits() / 8;
        if drain_bytes > 0 {
            shell.with_first(|engine, now| engine.drain_beam(now, drain_bytes));
        }
    }

    /// Adds up the readings of the hops; returns the least round trip of all.
    fn add<'a>(
        &mut self,
        now: Instant,
        meters: impl Iterator<Item = (&'a HopId, &'a LinkMeter)>,
    ) -> Option<Duration> {
        let mut least: Option<Duration> = None;
        let sums = &mut self.sums;
        (sums.in_flight_bits, sums.lost_bits) = (0, 0);
        (sums.backlogged, sums.window_full) = (false, false);
        let mut seen = HashMap::new();
        for (hop, meter) in meters.filter(|(_, meter)| meter.shares) {
            let new = meter.sums;
            let old = self.seen.get(hop).copied().unwrap_or(new);
            seen.insert(*hop, new);
            sums.sent_bits += new.sent_bits - old.sent_bits;
            sums.repeated_bits += new.repeated_bits - old.repeated_bits;
            sums.delivered_bits += new.delivered_bits - old.delivered_bits;
            sums.other_bits += new.other_bits - old.other_bits;
            sums.in_flight_bits += new.in_flight_bits;
            sums.lost_bits += new.lost_bits;
            sums.backlogged |= new.backlogged;
            sums.window_full |= new.window_full;
            if meter.queue_at(now).is_some() {
                least = least.into_iter().chain(meter.least_rtt).min();
            }
        }
        self.seen = seen;
        least
    }
}

/// Measures one hop's link.
pub(super) struct LinkMeter {
    estimator: Estimator,
    limits: Limits,
    /// The last figures of each session, so that sums outlive sessions.
    seen: HashMap<SessionId, PathFigures>,
    sums: Reading,
    /// Bits of IP beside bundles that were not taken yet: retransmissions, repair of coded
    /// datagrams, pure acknowledgements, and keepalives, including those of the peer.
    beside_bits: u64,
    losses: LossWindow,
    smoothed_rtt: Option<(Instant, Duration)>,
    blocked: bool,
    looked_at: Instant,
    /// Whether it shares a medium that is measured, the least round trip, and by how much the
    /// last was above it.
    shares: bool,
    least_rtt: Option<Duration>,
    queue: Option<Duration>,
    /// The queue in this direction, if it is known separately.
    queue_there: Option<Duration>,
    reverse: Reverse,
    /// When the queue on the way back was last known.
    way_back_known: Option<Instant>,
    follows: bool,
    /// When the peer was last asked for beacons, and the interval of those that it gets.
    asked: Option<Instant>,
    pace: Duration,
    /// How far apart beacons are that probe it.
    probe_interval: Duration,
    /// A queue was being drained.
    drains: bool,
    /// What the engine was told.
    told: MeasuredLink,
}

impl LinkMeter {
    pub fn new() -> LinkMeter {
        let limits = Limits::default();
        LinkMeter {
            estimator: Estimator::new(limits),
            limits,
            seen: HashMap::new(),
            sums: Reading::default(),
            beside_bits: 0,
            losses: LossWindow::default(),
            smoothed_rtt: None,
            blocked: false,
            looked_at: timer::now(),
            shares: false,
            least_rtt: None,
            queue: None,
            queue_there: None,
            reverse: Reverse::default(),
            way_back_known: None,
            follows: true,
            asked: None,
            pace: Duration::ZERO,
            probe_interval: Duration::ZERO,
            drains: false,
            told: MeasuredLink::default(),
        }
    }

    /// When the sessions were last looked at.
    pub fn looked_at(&self) -> Instant {
        self.looked_at
    }

    /// Bytes of IP beside bundles since the last call.
    pub fn take_beside_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.beside_bits) / 8
    }

    /// Its last measured queue, if that is recent.
    fn queue_at(&self, now: Instant) -> Option<Duration> {
        let known = now < self.looked_at + QUEUE_KNOWN;
        self.queue.filter(|_| known && self.shares && self.follows)
    }

    /// The part of its queue that all other moving hops have, too. A hop that moves alone shares
    /// its queue with none.
    fn shared_queue(&self, hop: HopId, beam: &SharedQueue) -> Option<Duration> {
        let beside = beam.beside(hop).filter(|_| self.shares);
        beside.map(|others| others.min(self.queue.unwrap_or_default()))
    }

    /// Whether the hop's rate follows the measurement. If a rate is configured, it does so only
    /// while the queue on the way back is known: round trips alone cannot distinguish that from a
    /// queue of this hop.
    pub fn is_followed(&self) -> bool {
        self.follows
    }

    /// Whether the hop's rate follows the measurement, and a queue is being drained.
    pub fn is_draining(&self) -> bool {
        self.follows && self.estimator.is_draining()
    }

    /// The queue in this direction, without that on the way back; `None` while only round trips are
    /// known.
    pub fn queue_there(&self) -> Option<Duration> {
        self.queue_there
    }

    /// Nothing moves any more, so earlier readings are useless. Tells the engine, if it does not
    /// know yet, that the former queue and probe are over.
    pub fn rest(&mut self, shell: &Shell, hop: HopId) {
        self.estimator.interrupt();
        let now = timer::now();
        self.miss_none(now);
        let link = self.link(now);
        let drains = std::mem::take(&mut self.drains);
        if link != self.told || drains {
            self.told = link;
            shell.with_hop(hop, |engine, now| engine.measured(now, hop, link, 0));
        }
    }

    /// Takes the figures of all sessions of a hop, and how it sends; passes the result to the
    /// engine.
    pub fn look(
        &mut self,
        shell: &Shell,
        hop: HopId,
        sending: Sending,
        sessions: &[SessionReading],
        beam: &SharedQueue,
    ) {
        let now = timer::now();
        self.looked_at = now;
        self.queue_there = None;
        self.probe(shell, hop, sending, sessions);
        let limits = Limits {
            hint_bps: sending.hint_bps,
            hint_rtt: sending.hint_rtt,
            ceiling_bps: sending.ceiling_bps,
            least_bps: None,
        };
        if limits != self.limits {
            self.limits = limits;
            self.estimator.set_limits(limits);
        }
        self.estimator.set_efficiency(sending.efficiency);
        self.add(sessions);
        // Bundles wait for the rate, or for the transports that are paced by it.
        let unsent = |reading: &SessionReading| reading.figures.unsent_bytes > 0;
        self.sums.backlogged = sending.waits || sessions.iter().any(unsent);
        let full = |reading: &SessionReading| reading.figures.is_window_full();
        self.sums.window_full = sessions.iter().any(full);
        if sending.blocked {
            self.blocked = true;
            return;
        }
        if std::mem::take(&mut self.blocked) {
            self.estimator.interrupt();
        }
        self.shares = sending.shares;
        let delayed = shell
            .beacons()
            .map(|beacons| beacons.delayed(hop))
            .unwrap_or_default();
        let way_back = delayed.from_peer;
        self.sums.way_back = way_back;
        self.sums.way_there = delayed.to_peer.map(|late| WayThere {
            late,
            each: delayed.told_each,
        });
        let known = self.knows_way_back(way_back);
        self.ask_for_beacons(shell, hop, sending, known, now);
        if let Some(rtt) = self.sums.rtt {
            let least = self.least_rtt.map_or(rtt, |least| least.min(rtt));
            self.least_rtt = Some(least);
            self.queue = Some((rtt - least).saturating_sub(way_back.unwrap_or_default()));
        }
        if self.follows && limits.ceiling_bps.is_some() && !known {
            // The round trips of this moment mean nothing: a probe or drain in progress ends.
            self.estimator.interrupt();
        } else {
            self.sums.shared_queue = self.shared_queue(hop, beam);
            self.sums.allowed_bps = sending.rate_bps;
            self.estimator.read(now, self.sums);
            self.queue_there = way_back.map(|_| self.estimator.queue());
            self.correct_rtt(shell, hop, sending);
        }
        let link = self.link(now);
        let drain_bytes = match self.follows {
            true => self.estimator.drain_bits() / 8,
            false => 0,
        };
        let drains = std::mem::replace(&mut self.drains, drain_bytes > 0);
        if link != self.told || drains || drain_bytes > 0 {
            self.told = link;
            shell.with_hop(hop, |engine, now| {
                engine.measured(now, hop, link, drain_bytes)
            });
        }
    }

    /// Whether the queue on the way back is known: beacons show it, or the peer sends so little that
    /// there is none of its data.
    fn knows_way_back(&self, by_beacons: Option<Duration>) -> bool {
        by_beacons.is_some() || self.reverse.is_quiet()
    }

    /// Asks for beacons while there is a backlog. Decides whether the hop's rate follows the
    /// measurement; `known` says whether the queue on the way back is known.
    fn ask_for_beacons(
        &mut self,
        shell: &Shell,
        hop: HopId,
        sending: Sending,
        known: bool,
        now: Instant,
    ) {
        self.follow(now, sending.ceiling_bps.is_some(), known);
        if let Some(beacons) = shell.beacons() {
            if self.sums.backlogged && self.asked.is_none_or(|at| now >= at + ASKS_EACH) {
                self.asked = Some(now);
                beacons.want(hop);
            }
            let pace = sending.rate_bps.map_or(Duration::ZERO, |bps| {
                Duration::from_millis(1000 * PART_OF_BEACONS * BEACON_BITS / bps.max(8_000))
                    .min(RAREST_BEACONS)
            });
            if pace != self.pace {
                self.pace = pace;
                beacons.set_pace(hop, pace);
            }
        }
    }

    /// Decides whether the hop's rate follows the measurement: if a rate is configured (`told`),
    /// only while the queue on the way back is `known`.
    fn follow(&mut self, now: Instant, told: bool, known: bool) {
        if known {
            self.way_back_known = Some(now);
        }
        let lately = self
            .way_back_known
            .is_some_and(|at| now < at + COUNTS_UNTOLD);
        let follows = !told || known || (self.follows && lately);
        if follows && !self.follows {
            self.estimator.begin_anew();
        }
        self.follows = follows;
    }

    /// Nothing moves: missing beacons do not count, since they are rare on a link at rest.
    fn miss_none(&mut self, now: Instant) {
        self.way_back_known = self.way_back_known.map(|_| now);
    }

    /// Probes a peer that owes an acknowledgement or the rest of a bundle, to detect a blockage of
    /// a short hop and its end.
    fn probe(&mut self, shell: &Shell, hop: HopId, sending: Sending, sessions: &[SessionReading]) {
        let Some(beacons) = shell.beacons() else {
            return;
        };
        let (rtt, now) = (sending.round_trip, self.looked_at);
        let interval = (rtt / PROBES_PER_RTT).max(self.pace);
        if std::mem::replace(&mut self.probe_interval, interval) != interval {
            beacons.set_probe_interval(hop, interval);
        }
        let silent = sending.heard.map(|at| now.saturating_duration_since(at));
        let overdue = rtt + CLOCK_TICK..PROBED_FOR;
        let owes = |figures: PathFigures| figures.is_unanswered() || figures.receiving;
        let owed = || sessions.iter().any(|reading| owes(reading.figures));
        if silent.is_some_and(|silent| overdue.contains(&silent)) && owed() {
            beacons.probe(hop, PROBED_AT_ONCE);
        }
    }

    /// Corrects a guessed round trip: by it, silence counts as a blockage. It may have been raised by
    /// a queue of others, or on a path that has become shorter since.
    fn correct_rtt(&self, shell: &Shell, hop: HopId, sending: Sending) {
        let guessed = sending.guessed_rtt.zip(self.estimator.base_rtt());
        let corrected = guessed.and_then(|(guessed, rtt)| corrected_rtt(guessed, rtt));
        if let Some(rtt) = corrected {
            shell.with_hop(hop, |engine, now| engine.correct_rtt(now, hop, rtt));
            if let Some(beacons) = shell.beacons() {
                beacons.set_rtt(hop, rtt);
            }
        }
    }

    fn link(&self, now: Instant) -> MeasuredLink {
        let known = MeasuredLink {
            base_rtt: self.estimator.base_rtt(),
            path_rtt: self.estimator.path_rtt(),
            queue: self.estimator.queue(),
            loss: self.estimator.loss(),
            loss_learned: self.estimator.loss_learned(),
            smoothed_rtt: self.smoothed_rtt,
            recovery_loss: self.losses.loss(),
            ..MeasuredLink::default()
        };
        match self.follows {
            true => MeasuredLink {
                rate_bps: self.estimator.rate_bps(now),
                capacity_bps: self.estimator.capacity_bps(),
                reason: reason_told(
                    self.estimator.reason(),
                    self.sums.window_full,
                    self.estimator.queue(),
                ),
                first: self.estimator.first_flight(),
                ..known
            },
            false => known,
        }
    }

    /// Adds what the sessions have moved since the last reading.
    fn add(&mut self, sessions: &[SessionReading]) {
        self.seen
            .retain(|id, _| sessions.iter().any(|reading| reading.id == *id));
        let sums = &mut self.sums;
        (sums.in_flight_bits, sums.lost_bits, sums.rtt) = (0, 0, None);
        let (mut most, mut packets, mut repeats) = (0, 0, false);
        let (mut there, mut here) = (0, 0);
        for reading in sessions {
            let new = reading.figures;
            let old = self.seen.insert(reading.id, new).unwrap_or_default();
            // Bytes of payload to bits of IP, by full segments.
            let segment = u64::from(new.segment_bytes).max(1);
            let bits = |bytes: u64| bytes * 8 * (segment + reading.ack_bytes) / segment;
            // A closed socket no longer counts anything.
            let step = |of: fn(&PathFigures) -> u64| of(&new).saturating_sub(of(&old));
            sums.sent_bits += bits(step(|figures| figures.sent_bytes));
            sums.repeated_bits += bits(step(|figures| figures.retransmitted_bytes));
            let acks = |of: &PathFigures| of.segments_sent.saturating_sub(of.data_segments_sent);
            let acks = acks(&new).saturating_sub(acks(&old));
            sums.other_bits += acks * reading.ack_bytes * 8;
            let (of_new, of_old) = (new.coded, old.coded);
            let symbols = of_new.repair_symbols_sent + of_new.asked_symbols_sent;
            let before = of_old.repair_symbols_sent + of_old.asked_symbols_sent;
            let codes = of_new.symbols_sent > of_old.symbols_sent || symbols > before;
            let again = match codes {
                // Repair symbols, not the transport, replace losses of these.
                true => symbols.saturating_sub(before) * segment,
                false => step(|figures| figures.retransmitted_bytes),
            };
            // What the peer sends is acknowledged from here, and counted as such.
            let bytes = reading.place.keepalive_bytes;
            let keepalives = step(|figures| figures.keepalives_received) * bytes
                + step(|figures| figures.keepalives_sent) * (bytes + reading.ack_bytes);
            self.beside_bits += bits(again) + (acks * reading.ack_bytes + keepalives) * 8;
            packets += step(|figures| figures.data_segments_sent);
            repeats |= step(|figures| figures.retransmitted_bytes) > 0;
            sums.in_flight_bits += bits(new.on_their_way_bytes);
            sums.lost_bits += bits(new.lost_bytes);
            let delivered = step(|figures| figures.delivered_bytes);
            sums.delivered_bits += bits(delivered);
            // A transport without a window does not acknowledge each packet.
            if new.cwnd_bytes > 0 {
                there += delivered;
                here += step(|figures| figures.received_bytes);
            }
            // The smoothed round trip of a session that receives little describes the past.
            if delivered > most {
                most = delivered;
                sums.rtt = Some(new.rtt);
            }
        }
        let now = self.looked_at;
        self.reverse.count(now, there, here);
        if let Some(rtt) = sums.rtt {
            self.smoothed_rtt = Some((now, rtt));
        }
        let (_, rtt) = self.smoothed_rtt.unwrap_or((now, Duration::ZERO));
        self.losses.sent(now, packets, repeats, rtt);
    }
}

#[cfg(test)]
mod tests;
