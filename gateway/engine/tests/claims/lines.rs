//! Two nodes over lines with a rate and a delay each, in virtual time: each offer takes
//! its time on the line, and arrives.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::{Outcome, SessionId};
use underpass_engine::{HopId, Sign};

use crate::bench::Node;

/// How often applications read and write.
const STEP: Duration = Duration::from_millis(2);
/// A session takes the next bundle once it has no more than this left to send.
const NEXT_AT_BYTES: u64 = 16 << 10;

/// One of the lines between both nodes; its sessions have numbers from 100 × its index +
/// 100 on.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub rate_bps: u64,
    pub delay: Duration,
}

impl Line {
    fn time_of(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 * 8.0 / self.rate_bps as f64)
    }
}

/// An event at a node.
enum Happening {
    Arrives(SessionId, Bytes, u64),
    Acknowledged(SessionId, u64),
    Ready(SessionId),
}

/// Both nodes, and the bundles on the lines.
pub struct Lines {
    pub nodes: [Node; 2],
    lines: Vec<Line>,
    /// When each line is free again, by sending node.
    free: Vec<[Instant; 2]>,
    coming: BTreeMap<(Instant, u64), (usize, Happening)>,
    next: u64,
    /// A line, and the node at whose antenna it is blocked.
    blocked: Option<(usize, usize)>,
    /// A line, and the node that it no longer carries anything to.
    deaf: Option<(usize, usize)>,
    /// Whether nodes are told of acknowledgements that their transports hear.
    pub tells_signs: bool,
}

fn line_of(session: SessionId) -> usize {
    session.0 as usize / 100 - 1
}

impl Lines {
    pub fn new(nodes: [Node; 2], lines: &[Line]) -> Lines {
        let now = nodes[0].now;
        Lines {
            nodes,
            lines: lines.to_vec(),
            free: vec![[now; 2]; lines.len()],
            coming: BTreeMap::new(),
            next: 0,
            blocked: None,
            deaf: None,
            tells_signs: false,
        }
    }

    /// Blocks a line at a node's antenna: bundles that have passed it go on.
    pub fn block(&mut self, line: usize, node: usize) {
        self.blocked = Some((line, node));
    }

    /// Stops a line in the direction to a node; the other direction goes on.
    pub fn deafen(&mut self, line: usize, node: usize) {
        self.deaf = Some((line, node));
    }

    pub fn now(&self) -> Instant {
        self.nodes[0].now
    }

    /// Lets time pass; `each` is called often, for the actions of applications.
    pub fn live(&mut self, time: Duration, mut each: impl FnMut(&mut [Node; 2])) {
        let end = self.now() + time;
        let mut step = self.now();
        while self.now() < end {
            self.send();
            let coming = self.coming.first_key_value();
            let due = coming.map(|((at, _), _)| *at).into_iter();
            let timeouts = self.nodes.iter();
            let timeouts = timeouts.filter_map(|node| node.engine.next_timeout());
            let at = due.chain(timeouts).chain([step, end]).min();
            let at = at.expect("an end").max(self.now());
            for node in &mut self.nodes {
                node.pass(at);
            }
            self.arrive(at);
            if at >= step {
                step = at + STEP;
                each(&mut self.nodes);
            }
        }
    }

    /// Puts the offered bundles on the lines.
    fn send(&mut self) {
        for from in 0..2 {
            for (session, transfer) in self.nodes[from].offers() {
                let place = line_of(session);
                let (line, now) = (self.lines[place], self.now());
                let bytes = transfer.len();
                let left = self.free[place][from].max(now) + line.time_of(bytes);
                self.free[place][from] = left;
                let raw = Bytes::from(transfer.chunks.concat());
                let arrives = Happening::Arrives(session, raw, transfer.key);
                if self.blocked != Some((place, from)) {
                    self.happens(left + line.delay, 1 - from, arrives);
                }
                let early = line.time_of(NEXT_AT_BYTES.min(bytes / 2));
                self.happens((left - early).max(now), from, Happening::Ready(session));
            }
        }
    }

    fn happens(&mut self, at: Instant, node: usize, happening: Happening) {
        self.coming.insert((at, self.next), (node, happening));
        self.next += 1;
    }

    fn arrive(&mut self, now: Instant) {
        while let Some(first) = self.coming.first_entry()
            && first.key().0 <= now
        {
            let (place, happening) = first.remove();
            match happening {
                Happening::Arrives(session, ..) | Happening::Acknowledged(session, _)
                    if [self.blocked, self.deaf].contains(&Some((line_of(session), place))) => {}
                Happening::Arrives(session, raw, key) => {
                    let taken = self.nodes[place].receive(session, raw);
                    assert_eq!(taken, Ok(()));
                    let back = self.lines[line_of(session)].delay;
                    let acknowledged = Happening::Acknowledged(session, key);
                    self.happens(now + back, 1 - place, acknowledged);
                }
                Happening::Acknowledged(session, key) => {
                    let node = &mut self.nodes[place];
                    if self.tells_signs {
                        let hop = HopId(line_of(session) as u64);
                        node.engine.heard(now, hop, now, Sign::Session);
                    }
                    node.finish(key, Outcome::Acknowledged);
                }
                Happening::Ready(session) => self.nodes[place].ready(session),
            }
        }
    }
}
