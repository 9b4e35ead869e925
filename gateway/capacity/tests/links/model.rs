//! Models a sender with a backlog, and a link with a queue, in steps of a millisecond.

pub mod pairs;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use underpass_capacity::{Estimator, FirstFlight, Limits, Reading};
use underpass_cla::SessionId;
use underpass_scheduler::UnscheduledTraffic;

use crate::beacons::{Beacons, way_back};
use crate::course::Course;
use crate::demand::{Demand, Slots};
use crate::random::Random;
use crate::tcp::Tcp;

pub const PACKET: u64 = 12_000;
/// The size of a pure ACK with timestamps, bytes of IP, and the number of packets of the
/// other direction that one ACK acknowledges.
const ACK_BYTES: u64 = 52;
const ACKED_PACKETS: u64 = 2;
pub const STEP_S: f64 = 1e-3;
/// The least rate that the link scheduler leaves to data beside ACKs, bit/s.
const LEAST_SCHEDULED_BPS: f64 = 8_000.0;
/// The rate of sending without any bound, bit/s.
const UNLIMITED: f64 = 1e9;
/// The part of a rate that the link scheduler uses.
const UTILISATION: f64 = 0.985;
/// A bundle's line time, s, and its bounds, bits.
const BUNDLE_S: f64 = 0.06;
const LEAST_BUNDLE: f64 = 32_768.0;
const MOST_BUNDLE: f64 = 8_388_608.0;
/// When the rate falls by more than this part, the scheduler waits for TCP's unsent bytes.
const LOWERED: f64 = 0.25;

pub type OverTime<T> = Box<dyn Fn(f64) -> T>;

/// What the link does over time, s.
pub struct Link {
    /// bit/s.
    pub rate: OverTime<f64>,
    /// One-way delays there and back, s.
    pub there: OverTime<f64>,
    pub back: OverTime<f64>,
    pub loss: OverTime<f64>,
    /// The queue's limit, s at the present rate.
    pub queue_s: f64,
    /// The queue's limit, bits, if it does not change with the rate.
    pub queue_bits: Option<f64>,
    /// The largest random delay of a packet on the way there, s; packets overtake.
    pub jitter_s: f64,
    /// Acknowledgements come back in bunches at this interval, s.
    pub bunch_s: f64,
    /// How capacity is requested, if it has to be.
    pub demand: Option<Demand>,
    /// The peer delays acknowledgements so that each round trip seems to have at least
    /// this much queue, s.
    pub pretends: OverTime<f64>,
    /// Other senders' traffic in the same queue, bit/s.
    pub others: OverTime<f64>,
    /// What a plan allows the sender, bit/s.
    pub planned: OverTime<f64>,
    /// The sender's own traffic, bit/s.
    pub offered: OverTime<f64>,
    /// Something waits at all times, if only others' traffic.
    pub waits: bool,
    /// The part of the way back's delay that beacons report as queue, s.
    pub told_back: Option<OverTime<f64>>,
    /// The delay of the sender's beacons that the peer's beacons report, given the time
    /// and the true delay, s.
    pub tells_there: Option<Box<dyn Fn(f64, f64) -> f64>>,
    /// The largest random delay of a beacon, s; most have much less.
    pub beacon_noise_s: f64,
    /// Packets in this direction's queue acknowledge the other direction's data.
    pub acknowledges: bool,
    /// A TCP connection between scheduler and link, with this round trip; without it,
    /// what the scheduler grants leaves at once.
    pub tcp: Option<f64>,
    /// TCP is given whole bundles, has the kernel's window and gets an acknowledgement
    /// for every second packet. Otherwise it is given packets, and each is acknowledged.
    pub as_in_a_node: bool,
    /// Before the first estimate, only TCP's window bounds what leaves.
    pub opens_blindly: bool,
}

impl Link {
    pub fn new(rate: impl Fn(f64) -> f64 + 'static, rtt_s: f64) -> Link {
        Link {
            rate: Box::new(rate),
            there: Box::new(move |_| rtt_s / 2.0),
            back: Box::new(move |_| rtt_s / 2.0),
            loss: Box::new(|_| 0.0),
            queue_s: 1.0,
            queue_bits: None,
            jitter_s: 0.0,
            bunch_s: 0.0,
            demand: None,
            pretends: Box::new(|_| 0.0),
            others: Box::new(|_| 0.0),
            planned: Box::new(|_| f64::INFINITY),
            offered: Box::new(|_| f64::INFINITY),
            waits: false,
            told_back: None,
            tells_there: None,
            beacon_noise_s: 0.0,
            acknowledges: false,
            tcp: None,
            as_in_a_node: false,
            opens_blindly: false,
        }
    }
}

/// How the sender's rate is decided.
pub enum Sender {
    /// By the estimator.
    Found(Limits),
    /// By an oracle that knows the link, but with this delay, s.
    Oracle(f64),
}

struct Packet {
    /// Number and transmission of a packet of the sender; others' packets have none.
    of_sender: Option<(u64, u64)>,
    sent: f64,
    bits: u64,
}

/// Packets under way, by the time, s, at which they are due; those of one time in the order in
/// which they left. On a fast link there are thousands, so that no step may look at all of them.
#[derive(Default)]
struct UnderWay(VecDeque<(f64, Packet)>);

impl UnderWay {
    fn push(&mut self, at: f64, packet: Packet) {
        let is_before = |(other, _): &(f64, Packet)| other.total_cmp(&at).is_le();
        let place = self.0.partition_point(is_before);
        self.0.insert(place, (at, packet));
    }

    /// Takes the next packet that is due at `t`.
    fn pop_due(&mut self, t: f64) -> Option<(f64, Packet)> {
        let is_due = self.0.front().is_some_and(|(at, _)| *at <= t);
        is_due.then(|| self.0.pop_front()).flatten()
    }
}

/// Runs `link` for `seconds`.
pub fn run(link: &Link, sender: &Sender, seconds: f64, reading_each_ms: u64) -> Course {
    let start = Instant::now();
    let mut way = Way::new(link, sender);
    let mut beacons = Beacons::new();
    for ms in 0..(seconds * 1e3) as u64 {
        let t = ms as f64 * STEP_S;
        let now = start + Duration::from_millis(ms);
        way.pass(t, now, 0.0);
        beacons.go_on(link, t, (way.queue_s(t), way.allowed(t, now)));
        if ms % reading_each_ms == 0 {
            way.reading.way_there = beacons.told();
            let told_back = link.told_back.as_ref();
            way.reading.way_back = told_back.map(|queue| way_back(link, queue, t));
            way.read(now);
        }
        way.note(t, ms);
    }
    way.course
}

/// One direction: its sender, and the link with its queue.
pub struct Way<'a> {
    pub link: &'a Link,
    sender: &'a Sender,
    estimator: Estimator,
    random: Random,
    course: Course,
    queue: VecDeque<Packet>,
    queue_bits: f64,
    served: f64,
    slots: Slots,
    others: f64,
    /// Packets past the queue by arrival time; they are acknowledged then.
    arriving: UnderWay,
    acks: UnderWay,
    /// When the last acknowledgement left the other direction's queue.
    last_ack: f64,
    /// By number: the last transmission of each unacknowledged packet.
    outstanding: BTreeMap<u64, u64>,
    /// By transmission: the number of each packet not known to be lost.
    on_their_way: BTreeMap<u64, u64>,
    repairs: VecDeque<u64>,
    next: u64,
    transmission: u64,
    highest: u64,
    credit: f64,
    offered: f64,
    /// Bits that arrived for the first time in this step.
    delivered: f64,
    reading: Reading,
    srtt: f64,
    fresh: bool,
    /// Packets that have arrived, for the other direction to acknowledge.
    arrived: u64,
    /// Of the other direction: packets not acknowledged yet; ACKs sent so far, and in this step.
    to_acknowledge: u64,
    acks_sent: u64,
    ack_bits: u64,
    unscheduled: Option<UnscheduledTraffic>,
    /// The rate that the scheduler leaves to ACKs, bit/s.
    left_bps: f64,
    tcp: Option<Tcp>,
    /// The latest first flight.
    flight: Option<FirstFlight>,
    /// When the last acknowledgement came.
    heard: f64,
    /// Packets that the peer has yet to acknowledge: it acknowledges every second one.
    half_acknowledged: bool,
    /// The rate that TCP was last told, bit/s, and whether it fell since the last reading.
    paced: f64,
    planned: f64,
    lowered: bool,
}

impl<'a> Way<'a> {
    fn new(link: &'a Link, sender: &'a Sender) -> Way<'a> {
        let limits = match sender {
            Sender::Found(limits) => *limits,
            Sender::Oracle(_) => Limits::default(),
        };
        // TCP's handshake has shown the round trip, and is acknowledged.
        let handshake = link.tcp.map_or(0, |_| PACKET);
        Way {
            link,
            sender,
            estimator: Estimator::new(limits),
            random: Random::new(7),
            course: Course::default(),
            queue: VecDeque::new(),
            queue_bits: 0.0,
            served: 0.0,
            slots: Slots::default(),
            others: 0.0,
            arriving: UnderWay::default(),
            acks: UnderWay::default(),
            last_ack: 0.0,
            outstanding: BTreeMap::new(),
            on_their_way: BTreeMap::new(),
            repairs: VecDeque::new(),
            next: 0,
            transmission: 0,
            highest: 0,
            credit: 0.0,
            offered: 0.0,
            delivered: 0.0,
            reading: Reading {
                sent_bits: handshake,
                delivered_bits: handshake,
                ..Reading::default()
            },
            srtt: link.tcp.unwrap_or_default(),
            fresh: link.tcp.is_some(),
            arrived: 0,
            to_acknowledge: 0,
            acks_sent: 0,
            ack_bits: 0,
            unscheduled: None,
            left_bps: 0.0,
            tcp: link.tcp.map(|base_s| Tcp::new(base_s, link.as_in_a_node)),
            flight: None,
            heard: 0.0,
            half_acknowledged: false,
            paced: f64::INFINITY,
            planned: f64::INFINITY,
            lowered: false,
        }
    }

    pub fn queue_s(&self, t: f64) -> f64 {
        self.queue_bits / (self.link.rate)(t)
    }

    /// The rate at which the sender may send, bit/s.
    fn allowed(&self, t: f64, now: Instant) -> f64 {
        match self.sender {
            Sender::Found(_) => {
                let first = self.first_flight().map(|first| first.then_bps);
                let rate = self.estimator.rate_bps(now).or(first);
                let rate = rate.map_or(UNLIMITED, |bps| bps as f64);
                rate.min(self.planned)
            }
            Sender::Oracle(late) => (self.link.rate)((t - late).max(0.0)),
        }
    }

    fn first_flight(&self) -> Option<FirstFlight> {
        let first = self.estimator.first_flight();
        first.filter(|_| !self.link.opens_blindly)
    }

    fn has_packets(&self) -> bool {
        !self.repairs.is_empty() || self.offered >= PACKET as f64
    }

    /// One millisecond at `t`; `queue_s` is the other direction's queue.
    fn pass(&mut self, t: f64, now: Instant, queue_s: f64) {
        self.planned = (self.link.planned)(t);
        let allowed = self.allowed(t, now);
        self.send(t, allowed);
        self.carry(t);
        self.acknowledge(t, queue_s);
        // A packet counts as lost once later ones have arrived.
        let reordering = 3 + (allowed * self.link.jitter_s * 2.0 / PACKET as f64) as u64;
        while let Some((&first, &number)) = self.on_their_way.first_key_value()
            && first + reordering <= self.highest
        {
            self.on_their_way.remove(&first);
            self.repairs.push_back(number);
            if let Some(tcp) = &mut self.tcp {
                tcp.lost(first, self.transmission);
            }
        }
        self.reading.in_flight_bits = self.on_their_way.len() as u64 * PACKET;
        self.reading.lost_bits = self.repairs.len() as u64 * PACKET;
    }

    fn send(&mut self, t: f64, allowed: f64) {
        let first = self.first_flight();
        let burst = first.map_or(0.0, |flight| flight.bits as f64);
        let most = match self.link.as_in_a_node {
            true => (allowed * BUNDLE_S).max(LEAST_BUNDLE).max(burst),
            false => (4.0 * PACKET as f64 + allowed * 0.01).max(burst),
        };
        let before = self.flight;
        self.flight = first.or(before);
        if first.map(|flight| flight.number) > before.map(|flight| flight.number) {
            self.credit = self.credit.max(burst);
        }
        let scheduled = (allowed - self.left_bps).max(LEAST_SCHEDULED_BPS);
        self.credit = (self.credit + scheduled * UTILISATION * STEP_S).min(most);
        self.offered = (self.offered + (self.link.offered)(t) * STEP_S).min(1e9);
        match self.tcp.take() {
            Some(mut tcp) => {
                let told = first.map_or(scheduled, |flight| flight.bps as f64);
                let rate = (allowed < UNLIMITED).then_some(told);
                self.send_by(t, rate, scheduled, &mut tcp);
                let unsent = tcp.unsent >= PACKET as f64;
                self.reading.backlogged |= unsent;
                self.reading.window_full |= unsent && tcp.is_window_full(self.on_their_way.len());
                self.tcp = Some(tcp);
            }
            None => {
                while self.credit >= 0.0 && self.has_packets() {
                    let again = self.transmit(t);
                    self.credit -= PACKET as f64;
                    self.offered -= if again { 0.0 } else { PACKET as f64 };
                }
            }
        }
        let held = self.credit < 0.0 && self.has_packets();
        self.reading.backlogged |= held || self.link.waits;
        self.others += (self.link.others)(t) * STEP_S;
        while self.others >= PACKET as f64 {
            self.others -= PACKET as f64;
            self.enqueue(t, None, PACKET);
        }
    }

    /// Gives TCP what the scheduler grants, and sends what TCP lets leave.
    fn send_by(&mut self, t: f64, rate: Option<f64>, granted: f64, tcp: &mut Tcp) {
        let grants = rate.map_or(MOST_BUNDLE, |_| granted * BUNDLE_S);
        let bundle = match self.link.as_in_a_node {
            true => grants.clamp(LEAST_BUNDLE, MOST_BUNDLE),
            false => PACKET as f64,
        };
        while self.credit >= 0.0 && self.offered >= PACKET as f64 && tcp.is_writable(rate) {
            let bits = bundle.min(self.offered);
            self.credit -= bits;
            self.offered -= bits;
            tcp.unsent += bits;
        }
        self.lowered |= rate.is_some_and(|bps| bps < self.paced * (1.0 - LOWERED));
        self.paced = rate.unwrap_or(f64::INFINITY);
        let srtt = if self.srtt == 0.0 {
            (self.link.there)(t) + (self.link.back)(t)
        } else {
            self.srtt
        };
        tcp.pass(t, srtt, rate, self.estimator.drain_bits() > 0);
        let has = |way: &Self, tcp: &Tcp| !way.repairs.is_empty() || tcp.unsent >= PACKET as f64;
        while has(self, tcp) && tcp.may_send(self.on_their_way.len()) {
            if self.on_their_way.is_empty() {
                self.heard = t;
            }
            let again = self.transmit(t);
            tcp.sent(again);
            if again {
                self.credit -= PACKET as f64;
            }
        }
        if t > self.heard + 1.5 * srtt + 0.2 {
            // The retransmission timeout.
            self.heard = t;
            self.repairs
                .extend(std::mem::take(&mut self.on_their_way).into_values());
        }
    }

    /// Sends a packet, lost ones first; whether it was a lost one.
    fn transmit(&mut self, t: f64) -> bool {
        let (number, again) = match self.repairs.pop_front() {
            Some(number) => (number, true),
            None => {
                self.next += 1;
                (self.next, false)
            }
        };
        self.transmission += 1;
        self.outstanding.insert(number, self.transmission);
        self.on_their_way.insert(self.transmission, number);
        self.reading.sent_bits += PACKET;
        self.reading.repeated_bits += if again { PACKET } else { 0 };
        self.enqueue(t, Some((number, self.transmission)), PACKET);
        again
    }

    /// Acknowledges `arrived` more packets of the other direction.
    fn acknowledge_others(&mut self, t: f64, arrived: u64) {
        self.ack_bits = 0;
        if !self.link.acknowledges {
            return;
        }
        self.to_acknowledge += arrived;
        while self.to_acknowledge >= ACKED_PACKETS {
            self.to_acknowledge -= ACKED_PACKETS;
            self.acks_sent += 1;
            self.ack_bits += ACK_BYTES * 8;
            self.enqueue(t, None, ACK_BYTES * 8);
        }
        self.reading.other_bits += self.ack_bits;
    }

    /// The scheduler leaves to ACKs the rate that it has measured of them.
    fn leave_to_acks(&mut self, now: Instant) {
        if !self.link.acknowledges {
            return;
        }
        let traffic = self
            .unscheduled
            .get_or_insert_with(|| UnscheduledTraffic::new(now));
        traffic.observe_session(SessionId(1), self.acks_sent, 0, ACK_BYTES);
        let queue = match self.estimator.is_draining() {
            true => Duration::ZERO,
            false => self.estimator.queue(),
        };
        traffic.observe_queue(queue);
        self.left_bps = traffic.bps(now) as f64;
    }

    /// Puts a packet of the sender or of others into the queue, if it has room.
    fn enqueue(&mut self, t: f64, of_sender: Option<(u64, u64)>, bits: u64) {
        let by_time = self.link.queue_s * (self.link.rate)(t);
        let most = self.link.queue_bits.unwrap_or(by_time);
        if self.queue_bits + bits as f64 <= most.max(20.0 * PACKET as f64) {
            self.queue_bits += bits as f64;
            self.queue.push_back(Packet {
                of_sender,
                sent: t,
                bits,
            });
        }
    }

    /// The link carries packets from the queue.
    fn carry(&mut self, t: f64) {
        let link = self.link;
        let rate = (link.rate)(t);
        self.served += match &link.demand {
            Some(demand) => {
                let waiting = self.queue_bits - self.served;
                self.slots.pass(demand, t, rate, waiting)
            }
            None => rate * STEP_S,
        };
        while self
            .queue
            .front()
            .is_some_and(|packet| self.served >= packet.bits as f64)
            && let Some(packet) = self.queue.pop_front()
        {
            self.served -= packet.bits as f64;
            self.queue_bits -= packet.bits as f64;
            if packet.of_sender.is_none() || self.random.part() < (link.loss)(t) {
                continue;
            }
            let jitter = link.jitter_s * 2.0 * self.random.part();
            self.arriving.push(t + (link.there)(t) + jitter, packet);
        }
        if self.queue.is_empty() {
            // Unused capacity is lost.
            let most = link.demand.map_or(PACKET as f64, |_| 0.0);
            self.served = self.served.min(most);
        }
    }

    /// Packets arrive, and are acknowledged.
    fn acknowledge(&mut self, t: f64, queue_s: f64) {
        while let Some((at, packet)) = self.arriving.pop_due(t) {
            self.arrived += 1;
            let bunch_s = self.link.bunch_s;
            let left = match bunch_s > 0.0 {
                true => (at / bunch_s).ceil() * bunch_s,
                false => at,
            };
            let waited = at - packet.sent - (self.link.there)(t);
            let held_back = ((self.link.pretends)(t) - waited).max(0.0);
            // Acknowledgements do not overtake each other in the queue.
            self.last_ack = self.last_ack.max(left + queue_s + held_back);
            self.acks.push(self.last_ack + (self.link.back)(t), packet);
        }
        self.delivered = 0.0;
        while let Some((at, packet)) = self.acks.pop_due(t) {
            let Some((number, transmission)) = packet.of_sender else {
                continue;
            };
            self.highest = self.highest.max(transmission);
            let sample = at - packet.sent;
            self.half_acknowledged = self.link.as_in_a_node && !self.half_acknowledged;
            if self.srtt == 0.0 {
                self.srtt = sample;
            } else if !self.half_acknowledged {
                self.srtt += (sample - self.srtt) / 8.0;
            }
            self.fresh = true;
            self.heard = t;
            if let Some(tcp) = &mut self.tcp {
                let flight = (self.transmission, self.on_their_way.len());
                tcp.acknowledged(t, sample, transmission, flight);
            }
            if let Some(last) = self.outstanding.remove(&number) {
                if self.on_their_way.remove(&last).is_none() {
                    self.repairs.retain(|repair| *repair != number);
                }
                self.delivered += PACKET as f64;
                self.reading.delivered_bits += PACKET;
            }
        }
    }

    /// The estimator takes a reading.
    fn read(&mut self, now: Instant) {
        let plan = Some(self.planned).filter(|bps| bps.is_finite());
        let rate = self.estimator.rate_bps(now);
        self.reading.allowed_bps = rate.into_iter().chain(plan.map(|bps| bps as u64)).min();
        self.reading.rtt = self.fresh.then(|| Duration::from_secs_f64(self.srtt));
        self.estimator.read(now, self.reading);
        let drain = self.estimator.drain_bits() as f64;
        let lowered = std::mem::take(&mut self.lowered);
        let burst = self.flight.map_or(0.0, |flight| flight.bits as f64);
        match &self.tcp {
            Some(tcp) if self.link.as_in_a_node => {
                let most = (self.paced * BUNDLE_S).max(LEAST_BUNDLE).max(burst);
                if lowered {
                    self.credit = self.credit.min(most - tcp.unsent);
                }
                if drain > 0.0 {
                    self.credit = self.credit.min(-drain);
                }
            }
            _ => self.credit = self.credit.min((4.0 * PACKET as f64).max(burst) - drain),
        }
        self.fresh = false;
        (self.reading.backlogged, self.reading.window_full) = (false, false);
        self.leave_to_acks(now);
    }

    fn note(&mut self, t: f64, ms: u64) {
        if (ms + 1).is_multiple_of(1_000) {
            self.course.reasons.push(self.estimator.reason());
        }
        let capacity = self.estimator.capacity_bps().map(|bps| bps as f64);
        let could = ((self.link.rate)(t) - (self.link.others)(t)) * STEP_S;
        let could = (could - self.ack_bits as f64).max(0.0);
        let step = (could, self.delivered, self.queue_s(t), capacity);
        self.course.steps.push(step);
    }
}
