//! A sender with a backlog, and a link with a queue, in steps of a millisecond.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use underpass_capacity::{Estimator, Limits, Reading, Reason};

const PACKET: u64 = 12_000;
const STEP_S: f64 = 1e-3;
/// What the link scheduler uses of a rate.
const UTILISATION: f64 = 0.985;

type OverTime<T> = Box<dyn Fn(f64) -> T>;

/// What the link does over time, s.
pub struct Link {
    /// bit/s.
    pub rate: OverTime<f64>,
    /// One-way delays there and back, s.
    pub there: OverTime<f64>,
    pub back: OverTime<f64>,
    pub loss: OverTime<f64>,
    /// What the queue holds, s at the present rate.
    pub queue_s: f64,
    /// Added to each packet's delay there, at most, s; packets overtake.
    pub jitter_s: f64,
    /// Acknowledgements come back in bunches, each so long after the last, s.
    pub bunch_s: f64,
    /// What others send into the same queue, bit/s.
    pub others: OverTime<f64>,
    /// What the sender has to send, bit/s.
    pub offered: OverTime<f64>,
    /// Something waits at all times, if only for what others send.
    pub waits: bool,
    /// Beacons tell what of the way back is queue: so much of its delay, s.
    pub told_back: Option<OverTime<f64>>,
}

/// Time from one beacon to the next, s.
const BEACON_S: f64 = 0.15;

impl Link {
    pub fn new(rate: impl Fn(f64) -> f64 + 'static, rtt_s: f64) -> Link {
        Link {
            rate: Box::new(rate),
            there: Box::new(move |_| rtt_s / 2.0),
            back: Box::new(move |_| rtt_s / 2.0),
            loss: Box::new(|_| 0.0),
            queue_s: 1.0,
            jitter_s: 0.0,
            bunch_s: 0.0,
            others: Box::new(|_| 0.0),
            offered: Box::new(|_| f64::INFINITY),
            waits: false,
            told_back: None,
        }
    }
}

/// What a course showed from one time on.
#[derive(Debug, Default)]
pub struct Course {
    /// Of each millisecond: bits that the link could carry beside others', bits
    /// delivered of the sender's, the queue in s, the estimate.
    pub steps: Vec<(f64, f64, f64, Option<f64>)>,
    /// What the estimate goes back to at the end of each second.
    pub reasons: Vec<Option<Reason>>,
}

impl Course {
    fn part(&self, from_s: f64, to_s: f64) -> &[(f64, f64, f64, Option<f64>)] {
        let index = |s: f64| ((s * 1e3) as usize).min(self.steps.len());
        &self.steps[index(from_s)..index(to_s)]
    }

    /// Bits delivered for the first time, as a part of what the link could carry.
    pub fn used(&self, from_s: f64, to_s: f64) -> f64 {
        let part = self.part(from_s, to_s);
        let could: f64 = part.iter().map(|step| step.0).sum();
        part.iter().map(|step| step.1).sum::<f64>() / could
    }

    /// That quantile of the queue over time, s.
    pub fn queue(&self, quantile: f64, from_s: f64, to_s: f64) -> f64 {
        let mut queues: Vec<f64> = self.part(from_s, to_s).iter().map(|s| s.2).collect();
        queues.sort_by(f64::total_cmp);
        queues[((queues.len() - 1) as f64 * quantile) as usize]
    }

    /// The least estimate, bit/s; infinite where there was none.
    pub fn least_estimate(&self, from_s: f64, to_s: f64) -> f64 {
        let known = self.part(from_s, to_s).iter().filter_map(|step| step.3);
        known.fold(f64::INFINITY, f64::min)
    }

    /// From when on the estimate is never below `bps`.
    pub fn reaches(&self, bps: f64, from_s: f64) -> f64 {
        let part = self.part(from_s, f64::MAX);
        let first = part.iter().position(|s| s.3.is_none_or(|e| e >= bps));
        first.map_or(f64::INFINITY, |steps| steps as f64 * STEP_S)
    }
}

/// How fast is sent.
pub enum Sender {
    /// As the estimator says.
    Found(Limits),
    /// As somebody says who knows the link, but later by so much, s.
    Oracle(f64),
}

struct Packet {
    number: u64,
    /// Which transmission it is of all.
    transmission: u64,
    sent: f64,
    of_others: bool,
}

/// A sequence that looks random and is the same each time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below 1.
    pub fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Runs `link` for `seconds`.
pub fn run(link: &Link, sender: &Sender, seconds: f64, reading_each_ms: u64) -> Course {
    let start = Instant::now();
    let limits = match sender {
        Sender::Found(limits) => *limits,
        Sender::Oracle(_) => Limits::default(),
    };
    let mut estimator = Estimator::new(limits);
    let mut random = Random::new(7);
    let mut course = Course::default();
    let mut queue: VecDeque<Packet> = VecDeque::new();
    let (mut queue_bits, mut served, mut others) = (0.0_f64, 0.0_f64, 0.0_f64);
    // Packets behind the queue by when they arrive, and what then is acknowledged.
    let mut arriving: Vec<(f64, Packet)> = Vec::new();
    let mut acks: Vec<(f64, Packet)> = Vec::new();
    // By number: the last transmission.
    let mut outstanding: BTreeMap<u64, u64> = BTreeMap::new();
    // By transmission, those not known to be lost: the number.
    let mut on_their_way: BTreeMap<u64, u64> = BTreeMap::new();
    let mut repairs: VecDeque<u64> = VecDeque::new();
    let mut next = 0_u64;
    let mut transmission = 0_u64;
    let mut highest = 0_u64;
    let (mut credit, mut offered) = (0.0_f64, 0.0_f64);
    let mut reading = Reading::default();
    let (mut srtt, mut fresh) = (0.0_f64, false);

    for ms in 0..(seconds * 1e3) as u64 {
        let t = ms as f64 * STEP_S;
        let now = start + Duration::from_millis(ms);
        let rate = (link.rate)(t);
        // What is sent.
        let allowed = match sender {
            Sender::Found(_) => estimator.rate_bps(now).map_or(1e9, |bps| bps as f64),
            Sender::Oracle(late) => (link.rate)((t - late).max(0.0)),
        };
        credit =
            (credit + allowed * UTILISATION * STEP_S).min(4.0 * PACKET as f64 + allowed * 0.01);
        offered = (offered + (link.offered)(t) * STEP_S).min(1e9);
        while credit >= 0.0 && (!repairs.is_empty() || offered >= PACKET as f64) {
            let (number, again) = match repairs.pop_front() {
                Some(number) => (number, true),
                None => {
                    offered -= PACKET as f64;
                    next += 1;
                    (next, false)
                }
            };
            transmission += 1;
            outstanding.insert(number, transmission);
            on_their_way.insert(transmission, number);
            credit -= PACKET as f64;
            reading.sent_bits += PACKET;
            reading.repeated_bits += if again { PACKET } else { 0 };
            enqueue(
                &mut queue,
                &mut queue_bits,
                link.queue_s * rate,
                Packet {
                    number,
                    transmission,
                    sent: t,
                    of_others: false,
                },
            );
        }
        let held = credit < 0.0 && (!repairs.is_empty() || offered >= PACKET as f64);
        others += (link.others)(t) * STEP_S;
        while others >= PACKET as f64 {
            others -= PACKET as f64;
            enqueue(
                &mut queue,
                &mut queue_bits,
                link.queue_s * rate,
                Packet {
                    number: 0,
                    transmission: 0,
                    sent: t,
                    of_others: true,
                },
            );
        }
        // What the link carries.
        served += rate * STEP_S;
        while served >= PACKET as f64
            && let Some(packet) = queue.pop_front()
        {
            served -= PACKET as f64;
            queue_bits -= PACKET as f64;
            if packet.of_others || random.part() < (link.loss)(t) {
                continue;
            }
            let jitter = link.jitter_s * 2.0 * random.part();
            arriving.push((t + (link.there)(t) + jitter, packet));
        }
        if queue.is_empty() {
            // What was not used is gone.
            served = served.min(PACKET as f64);
        }
        // What arrives, and is acknowledged.
        for (at, packet) in due(&mut arriving, t) {
            let back = match link.bunch_s > 0.0 {
                true => (at / link.bunch_s).ceil() * link.bunch_s,
                false => at,
            };
            acks.push((back + (link.back)(t), packet));
        }
        let mut delivered = 0.0;
        for (at, packet) in due(&mut acks, t) {
            highest = highest.max(packet.transmission);
            let sample = at - packet.sent;
            srtt = if srtt == 0.0 {
                sample
            } else {
                srtt + (sample - srtt) / 8.0
            };
            fresh = true;
            if let Some(last) = outstanding.remove(&packet.number) {
                if on_their_way.remove(&last).is_none() {
                    repairs.retain(|number| *number != packet.number);
                }
                delivered += PACKET as f64;
                reading.delivered_bits += PACKET;
            }
        }
        // What was sent before others that have arrived counts as lost.
        let reordering = 3 + (allowed * link.jitter_s * 2.0 / PACKET as f64) as u64;
        while let Some((&first, &number)) = on_their_way.first_key_value()
            && first + reordering <= highest
        {
            on_their_way.remove(&first);
            repairs.push_back(number);
        }
        reading.in_flight_bits = on_their_way.len() as u64 * PACKET;
        reading.lost_bits = repairs.len() as u64 * PACKET;
        reading.backlogged |= held || link.waits;
        if ms % reading_each_ms == 0 {
            reading.allowed_bps = estimator.rate_bps(now);
            reading.way_back = link
                .told_back
                .as_ref()
                .map(|queue| way_back(link, queue, t));
            reading.rtt = fresh.then(|| Duration::from_secs_f64(srtt));
            estimator.read(now, reading);
            credit = credit.min(4.0 * PACKET as f64 - estimator.drain_bits() as f64);
            fresh = false;
            reading.backlogged = false;
        }
        if (ms + 1) % 1_000 == 0 {
            course.reasons.push(estimator.reason());
        }
        let capacity = estimator.capacity_bps().map(|bps| bps as f64);
        let could = (rate - (link.others)(t)).max(0.0) * STEP_S;
        course
            .steps
            .push((could, delivered, queue_bits / rate, capacity));
    }
    course
}

/// What the last beacons that have come at `t` tell, at the most.
fn way_back(link: &Link, queue: &OverTime<f64>, t: f64) -> Duration {
    let number = (t / BEACON_S) as u64;
    let sent = (0..=number).rev().map(|number| number as f64 * BEACON_S);
    let mut come = sent.filter(|sent| sent + (link.back)(*sent) <= t);
    let Some(last) = come.next() else {
        return Duration::ZERO;
    };
    let before = (1..3).map(|ago| (last - f64::from(ago) * BEACON_S).max(0.0));
    let late = before.map(queue).fold(queue(last), f64::max);
    Duration::from_secs_f64(late)
}

/// Takes what is due at `t`, by its time.
fn due(waiting: &mut Vec<(f64, Packet)>, t: f64) -> Vec<(f64, Packet)> {
    let mut due: Vec<_> = waiting.extract_if(.., |(at, _)| *at <= t).collect();
    due.sort_by(|a, b| a.0.total_cmp(&b.0));
    due
}

fn enqueue(queue: &mut VecDeque<Packet>, bits: &mut f64, most: f64, packet: Packet) {
    if *bits + PACKET as f64 <= most.max(20.0 * PACKET as f64) {
        *bits += PACKET as f64;
        queue.push_back(packet);
    }
}
