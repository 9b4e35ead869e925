//! Two endpoints and the hop between them, which can be blocked at the
//! terminal's antenna.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use underpass_beacon::{Endpoint, Event, Key, PeerConfig, PeerId, Transmit};

pub const PEER: PeerId = PeerId(7);
pub const TERMINAL: usize = 0;
pub const HUB: usize = 1;
/// The hub's patience; a terminal keeps calling.
pub const PATIENCE: Duration = Duration::from_secs(600);

pub fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub fn key(byte: u8) -> Key {
    Key::new(&[byte; 32])
}

/// A terminal (node 2) that knows where its hub (node 1) is.
pub fn terminal(now: Instant, rtt: Duration) -> Endpoint {
    let mut endpoint = Endpoint::new(2, 1, now);
    let config = PeerConfig {
        node: 1,
        rtt,
        address: Some(address("[2001:db8::1]:4556")),
        patience: Duration::MAX,
    };
    endpoint.add_peer(now, PEER, config);
    endpoint
}

/// A hub (node 1) that learns where its terminal (node 2) is.
pub fn hub(now: Instant, rtt: Duration) -> Endpoint {
    let mut endpoint = Endpoint::new(1, 1, now);
    let config = PeerConfig {
        node: 2,
        rtt,
        address: None,
        patience: PATIENCE,
    };
    endpoint.add_peer(now, PEER, config);
    endpoint
}

#[derive(Clone, Copy, Debug)]
pub struct Heard {
    pub by: usize,
    pub at: Instant,
    /// Whether the sender says that it hears nothing itself.
    pub deaf: bool,
}

pub struct Hop {
    pub now: Instant,
    pub start: Instant,
    pub ends: [Endpoint; 2],
    pub heard: Vec<Heard>,
    pub sent: [Vec<Instant>; 2],
    /// The start and end of the blockage.
    pub blockage: Option<(Instant, Instant)>,
    /// The end whose beacons are lost.
    pub dead: Option<usize>,
    /// The end that runs an older build, which drops beacons that let a link rest.
    pub old: Option<usize>,
    /// How many of the next beacons the link loses.
    pub losses: u32,
    /// One-way delays, by sender.
    pub delays: [Duration; 2],
    flying: Vec<(Instant, usize, Transmit)>,
}

impl Hop {
    pub fn new(rtt: Duration) -> Hop {
        let now = Instant::now();
        let mut ends = [terminal(now, rtt), hub(now, rtt)];
        for end in &mut ends {
            end.add_key(now, PEER, key(1));
        }
        Hop {
            now,
            start: now,
            ends,
            heard: Vec::new(),
            sent: [Vec::new(), Vec::new()],
            blockage: None,
            dead: None,
            old: None,
            losses: 0,
            delays: [rtt / 2; 2],
            flying: Vec::new(),
        }
    }

    /// Whether the antenna sees no satellite at `at`.
    fn is_blocked(&self, at: Instant) -> bool {
        self.blockage
            .is_some_and(|(from, until)| (from..until).contains(&at))
    }

    /// Lets `time` pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.send();
            let timers = self.ends.iter().filter_map(Endpoint::next_timeout);
            let arrivals = self.flying.iter().map(|(at, ..)| *at);
            let next = timers.chain(arrivals).min().filter(|at| *at <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            self.deliver();
            for end in &mut self.ends {
                end.handle_timeout(self.now);
            }
        }
        self.now = end;
    }

    fn send(&mut self) {
        for from in [TERMINAL, HUB] {
            while let Some(transmit) = self.ends[from].poll_transmit() {
                self.sent[from].push(self.now);
                if from == TERMINAL && self.is_blocked(self.now) || self.dead == Some(from) {
                    continue;
                }
                if self.losses > 0 {
                    self.losses -= 1;
                    continue;
                }
                let arrival = self.now + self.delays[from];
                self.flying.push((arrival, 1 - from, transmit));
            }
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.flying)
            .into_iter()
            .partition(|(at, ..)| *at <= now);
        self.flying = later;
        for (at, to, transmit) in due {
            if to == TERMINAL && self.is_blocked(at) {
                continue;
            }
            if self.old == Some(to) && transmit.datagram[0] == 0xb3 {
                continue;
            }
            let from = address("[2001:db8::2]:40000");
            self.ends[to].handle_datagram(at, from, &transmit.datagram);
            while let Some(event) = self.ends[to].poll_event() {
                let deaf = event == Event::Deaf(PEER);
                let heard = [Event::Heard(PEER), Event::Resting(PEER)];
                assert!(deaf || heard.contains(&event), "{event:?}");
                self.heard.push(Heard { by: to, at, deaf });
            }
        }
    }

    /// The longest time that an end heard nothing, from `since` to now.
    pub fn longest_silence(&self, by: usize, since: Instant) -> Duration {
        let times = self.heard.iter().filter(|heard| heard.by == by);
        let times = times.map(|heard| heard.at).filter(|at| *at >= since);
        let (mut last, mut longest) = (since, Duration::ZERO);
        for at in times.chain([self.now]) {
            longest = longest.max(at - last);
            last = at;
        }
        longest
    }

    /// When an end first heard anything after `since`.
    pub fn first_heard(&self, by: usize, since: Instant) -> Instant {
        let mut heard = self.heard.iter();
        let found = heard.find(|heard| heard.by == by && heard.at > since);
        found.expect("nothing was heard").at
    }
}
