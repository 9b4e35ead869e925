//! What beacons tell the two ends of a hop of its queues.

use std::collections::VecDeque;
use std::time::Duration;

use underpass_capacity::WayThere;

use crate::model::{Link, OverTime, Way};

/// Time from one beacon to the next, s.
const BEACON_S: f64 = 0.15;
/// A sender's have at most this part (1/n) of its rate, but come as often as this, s.
const BEACON_PART: f64 = 200.0;
const BEACON_BITS: f64 = 720.0;
const RAREST_BEACON_S: f64 = 0.8;

/// Beacons in both directions; by the end that sends them.
#[derive(Default)]
pub struct Exchanged {
    /// When each arrives, how late, and what it tells of those of the other end, s.
    on_their_way: [VecDeque<(f64, f64, f64)>; 2],
    /// When the last one left, and how far apart they are, s.
    sent: [f64; 2],
    each: [f64; 2],
    /// By the end that hears them: how late the last ones were, and what they told, s.
    late: [VecDeque<f64>; 2],
    told: [Option<f64>; 2],
}

impl Exchanged {
    /// A millisecond passes at `t` for what `end` sends, while so much is allowed.
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

    /// What an end knows of the way back to it, and of that to the other end.
    pub fn heard(&self, end: usize) -> (Option<Duration>, Option<WayThere>) {
        let back = self.late[end].iter().copied().reduce(f64::max);
        let there = self.told[end].map(|late| WayThere {
            late: Duration::from_secs_f64(late),
            each: Duration::from_secs_f64(self.each[0] + self.each[1]),
        });
        (back.map(Duration::from_secs_f64), there)
    }
}

/// How far apart a sender's beacons are while so much is allowed, s.
fn beacons_apart(allowed: f64) -> f64 {
    (BEACON_BITS * BEACON_PART / allowed).clamp(BEACON_S, RAREST_BEACON_S)
}

/// What keeps a beacon on its way by itself, s.
fn beacon_noise(link: &Link, t: f64) -> f64 {
    let noise = (t * 977.0).fract();
    0.003 * noise + link.beacon_noise_s * (noise * 31.0).fract().powi(3)
}

/// How late, s, as beacons carry it: in steps of a seventh.
fn stepped(late: f64) -> f64 {
    let steps = ((late * 1e3).max(0.5).ln() / 1.14_f64.ln()).round();
    1.14_f64.powf(steps) / 1e3
}

/// How late the sender's beacons are, and the peer's that tell it.
#[derive(Default)]
pub struct Beacons {
    /// When each arrives, and how late, s.
    there: VecDeque<(f64, f64)>,
    /// When each of the peer's arrives, and what it tells, s.
    back: VecDeque<(f64, f64)>,
    /// What the peer knows, s.
    known: f64,
    told: Option<WayThere>,
    /// When the sender's last one left, and the peer's, s.
    sent: f64,
    sent_back: f64,
}

impl Beacons {
    pub fn new() -> Beacons {
        Beacons {
            // The ends do not send at the same moment.
            sent_back: -0.08,
            ..Beacons::default()
        }
    }

    /// What the sender has been told last.
    pub fn told(&self) -> Option<WayThere> {
        self.told
    }

    /// A millisecond passes at `t`, with the queue as it is, while so much is allowed.
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

/// What the next beacon tells, if it has come at `t`.
fn come(beacons: &mut VecDeque<(f64, f64)>, t: f64) -> Option<f64> {
    let (at, _) = beacons.front()?;
    if *at > t {
        return None;
    }
    beacons.pop_front().map(|(_, late)| late)
}

/// What the last beacons that have come at `t` tell, at the most.
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
