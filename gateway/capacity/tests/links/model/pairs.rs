//! Two senders: one at each end of a hop, or both into one queue.

use std::time::{Duration, Instant};

use super::{Link, STEP_S, Sender, Way};
use crate::beacons::Exchanged;
use crate::course::Course;

/// Runs a sender at each end of a hop: the queue of each direction delays the
/// acknowledgements of the other, and beacons tell both ends about both queues.
pub fn run_both(
    links: [&Link; 2],
    senders: [&Sender; 2],
    seconds: f64,
    each_ms: u64,
) -> [Course; 2] {
    let start = Instant::now();
    let mut ways = [
        Way::new(links[0], senders[0]),
        Way::new(links[1], senders[1]),
    ];
    let mut beacons = Exchanged::default();
    for ms in 0..(seconds * 1e3) as u64 {
        let t = ms as f64 * STEP_S;
        let now = start + Duration::from_millis(ms);
        let queues = [ways[0].queue_s(t), ways[1].queue_s(t)];
        for (end, way) in ways.iter_mut().enumerate() {
            way.pass(t, now, queues[1 - end]);
            beacons.go_on(end, t, way, way.allowed(t, now));
            if ms % each_ms == 0 {
                (way.reading.way_back, way.reading.way_there) = beacons.heard(end);
                way.read(now);
            }
            way.note(t, ms);
        }
        for end in 0..2 {
            let arrived = std::mem::take(&mut ways[1 - end].arrived);
            ways[end].acknowledge_others(t, arrived);
        }
    }
    ways.map(|way| way.course)
}

/// Runs two senders into one queue: what one sends is others' traffic to the other. The links
/// differ only in what is offered.
pub fn run_beside(
    links: [&Link; 2],
    sender: &Sender,
    seconds: f64,
    reading_each_ms: u64,
) -> [Course; 2] {
    let start = Instant::now();
    let mut ways = links.map(|link| Way::new(link, sender));
    for ms in 0..(seconds * 1e3) as u64 {
        let t = ms as f64 * STEP_S;
        let now = start + Duration::from_millis(ms);
        for end in 0..2 {
            let before = ways[end].reading.sent_bits;
            ways[end].pass(t, now, 0.0);
            let sent = ways[end].reading.sent_bits - before;
            ways[1 - end].others += sent as f64;
            if ms % reading_each_ms == 0 {
                ways[end].read(now);
            }
            ways[end].note(t, ms);
        }
    }
    ways.map(|way| way.course)
}
