//! A return link whose capacity must be requested (volume-based dynamic capacity,
//! EN 301 545-2), as satlink models it.

use std::collections::VecDeque;

use crate::model::STEP_S;

/// How capacity is requested and granted.
#[derive(Clone, Copy)]
pub struct Demand {
    /// Capacity is granted for frames of this length, s.
    pub frame_s: f64,
    /// A request is granted in the first frame that begins this much later, s.
    pub grant_s: f64,
    /// This part of each frame needs no request.
    pub constant: f64,
}

/// What a terminal may send, and when.
#[derive(Default)]
pub struct Slots {
    /// The present frame, and the time when its slots end, s. Unused slots lapse.
    frame: u64,
    end: f64,
    /// Requests that are not granted yet: the earliest time of the grant, s, and bits.
    requests: VecDeque<(f64, f64)>,
}

impl Slots {
    /// The bits that may be sent in the step at `t`, while `waiting` bits wait.
    pub fn pass(&mut self, demand: &Demand, t: f64, rate: f64, waiting: f64) -> f64 {
        let frame = ((t + STEP_S / 2.0) / demand.frame_s) as u64;
        if frame > self.frame || t == 0.0 {
            self.open(demand, frame, rate, waiting);
        }
        (self.end - t).clamp(0.0, STEP_S) * rate
    }

    /// A frame begins: the terminal requests capacity for waiting bits without a request.
    fn open(&mut self, demand: &Demand, frame: u64, rate: f64, waiting: f64) {
        self.frame = frame;
        let begin = frame as f64 * demand.frame_s;
        let whole = demand.frame_s * rate;
        let constant = demand.constant * whole;
        let slots = constant + self.grant(begin, whole - constant);
        self.end = begin + slots / rate;
        let asked: f64 = self.requests.iter().map(|(_, bits)| bits).sum();
        let more = waiting - slots - asked;
        if more > 0.0 {
            self.requests.push_back((begin + demand.grant_s, more));
        }
    }

    /// The bits granted in the frame that begins at `begin`, at most `most`.
    fn grant(&mut self, begin: f64, most: f64) -> f64 {
        let mut left = most;
        while let Some((at, bits)) = self.requests.front_mut()
            && *at <= begin + STEP_S / 2.0
            && left > 0.0
        {
            let granted = left.min(*bits);
            (*bits, left) = (*bits - granted, left - granted);
            if *bits <= 0.0 {
                self.requests.pop_front();
            }
        }
        most - left
    }
}
