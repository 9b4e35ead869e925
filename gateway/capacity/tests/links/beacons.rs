//! What beacons tell both ends of a hop about its queues.

use std::collections::VecDeque;
use std::time::Duration;

use underpass_capacity::WayThere;

use crate::model::{Link, OverTime, Way};

/// The time from one beacon to the next, s.
const BEACON_S: f64 = 0.15;
/// A sender's beacons take at most this part (1/n) of its rate, but come at least once in
/// this time, s.
const BEACON_PART: f64 = 200.0;
const BEACON_BITS: f64 = 720.0;
const RAREST_BEACON_S: f64 = 0.8;

/// Beacons in both directions, indexed by the sending end.
#[derive(Default)]
pub struct Exchanged {
    /// For each beacon in flight: its arrival, its delay, and the delay of the other
    /// end's beacons that it reports, s.
    on_their_way: [VecDeque<(f64, f64, f64)>; 2],
    /// When the last one left, and the interval between them, s.
    sent: [f64; 2],
    each: [f64; 2],
    /// By receiving end: the delays of the last beacons, and the delays that they
    /// reported, s.
    late: [VecDeque<f64>; 2],
    told: [Option<f64>; 2],
}

impl Exchanged {
    /// One millisecond of the beacons of `end` at `t`, while `allowed` may be sent.
    pub fn go_on(&mut self, end: usize, t: f64, way: &Way, allowed: f64) {
        let each = beacons_apart(allowed);
        self.each[end] = each;
        if t >= self.sent[end] + each {
            self.sent[end] = t;
            let late = way.queue_s(t) + beacon_noise(way.link, t);
            let tells = stepped(self.late[end].back().copied().unwrap_or_default());
            self.on_their_way[end].push_back((t + late + (way.link.there)(t), late, tells));
        }
        while let Some((at, late, tells)) = self.on_their_way[end].front().copied()
            && at <= t
        {
            self.on_their_way[end].pop_front();
            let other = 1 - end;
            self.late[other].push_back(late);
            if self.late[other].len() > 3 {
                self.late[other].pop_front();
            }
            self.told[other] = Some(tells);
        }
    }

    /// What an end knows of the way back to it, and of the way to the other end.
    pub fn heard(&self, end: usize) -> (Option<Duration>, Option<WayThere>) {
        let back = self.late[end].iter().copied().reduce(f64::max);
        let there = self.told[end].map(|late| WayThere {
            late: Duration::from_secs_f64(late),
            each: Duration::from_secs_f64(self.each[0] + self.each[1]),
        });
        (back.map(Duration::from_secs_f64), there)
    }
}

/// The interval between a sender's beacons while `allowed` may be sent, s.
fn beacons_apart(allowed: f64) -> f64 {
    (BEACON_BITS * BEACON_PART / allowed).clamp(BEACON_S, RAREST_BEACON_S)
}

/// The random delay of a single beacon, s.
fn beacon_noise(link: &Link, t: f64) -> f64 {
    let noise = (t * 977.0).fract();
    0.003 * noise + link.beacon_noise_s * (noise * 31.0).fract().powi(3)
}

/// A delay as beacons carry it: in steps of a seventh, s.
fn stepped(late: f64) -> f64 {
    let steps = ((late * 1e3).max(0.5).ln() / 1.14_f64.ln()).round();
    1.14_f64.powf(steps) / 1e3
}

/// The sender's beacons with their delays, and the peer's beacons that report these
/// delays.
#[derive(Default)]
pub struct Beacons {
    /// The arrival and delay of each, s.
    there: VecDeque<(f64, f64)>,
    /// The arrival of each of the peer's beacons, and the delay that it reports, s.
    back: VecDeque<(f64, f64)>,
    /// The delay that the peer knows, s.
    known: f64,
    told: Option<WayThere>,
    /// When the sender's last beacon left, and the peer's, s.
    sent: f64,
    sent_back: f64,
}

impl Beacons {
    pub fn new() -> Beacons {
        Beacons {
            // Both ends do not send at the same moment.
            sent_back: -0.08,
            ..Beacons::default()
        }
    }

    /// The delay that the sender was last told.
    pub fn told(&self) -> Option<WayThere> {
        self.told
    }

    /// One millisecond at `t` with this queue, while `allowed` may be sent.
    pub fn go_on(&mut self, link: &Link, t: f64, (queue_s, allowed): (f64, f64)) {
        let Some(tells) = &link.tells_there else {
            return;
        };
        let each = beacons_apart(allowed);
        if t >= self.sent + each {
            self.sent = t;
            let late = queue_s + beacon_noise(link, t);
            self.there.push_back((t + late + (link.there)(t), late));
        }
        while let Some(late) = come(&mut self.there, t) {
            self.known = stepped(tells(t, late));
        }
        if t >= self.sent_back + BEACON_S {
            self.sent_back = t;
            self.back.push_back((t + (link.back)(t), self.known));
        }
        while let Some(late) = come(&mut self.back, t) {
            self.told = Some(WayThere {
                late: Duration::from_secs_f64(late),
                each: Duration::from_secs_f64(each + BEACON_S),
            });
        }
    }
}

/// The content of the next beacon, if it has arrived by `t`.
fn come(beacons: &mut VecDeque<(f64, f64)>, t: f64) -> Option<f64> {
    let (at, _) = beacons.front()?;
    if *at > t {
        return None;
    }
    beacons.pop_front().map(|(_, late)| late)
}

/// The largest delay in the last beacons that have arrived by `t`.
pub fn way_back(link: &Link, queue: &OverTime<f64>, t: f64) -> Duration {
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
