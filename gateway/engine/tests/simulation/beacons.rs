//! Beacons beside the sessions, and planned blockages: how nodes learn that a link is
//! silent although no session notices.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use underpass_beacon::{BEACON_BYTES, Endpoint, Event, Key, PeerConfig, PeerId, Signs};
use underpass_engine::{HopId, PlannedBlockage, Sign};

use crate::world::{Happening, World};

/// There is only one peer at the other end of a link.
const PEER: PeerId = PeerId(0);
/// The time of day at the start of the simulation, ms since 1970.
pub const EPOCH_MS: u64 = 1_700_000_000_000;

fn address(node: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, node as u16))
}

impl World {
    /// A node has started: gives it beacons, the time of day, and its plan.
    pub fn watch_links(&mut self, number: usize) {
        let now = self.instant();
        self.nodes[number].beacons.clear();
        for link in 0..self.links.len() {
            let plan = self.links[link].plan.clone();
            let Some(end) = plan.ends.iter().position(|end| *end == number) else {
                continue;
            };
            if plan.beacons {
                let own = self.schedule.nodes[number].number as u32;
                let other = plan.ends[1 - end];
                let mut endpoint = Endpoint::new(own, self.nodes[number].incarnation, now);
                let peer = PeerConfig {
                    node: self.schedule.nodes[other].number as u32,
                    rtt: plan.delay * 2,
                    // The dialling side knows the other's address.
                    address: (end == 1).then(|| address(other)),
                    patience: std::time::Duration::MAX,
                };
                endpoint.add_peer(now, PEER, peer);
                self.nodes[number].beacons.insert(link, endpoint);
            }
        }
        self.tell_plans(number);
    }

    /// A process of a node has started: gives it the time of day and its plan.
    pub fn tell_plans(&mut self, number: usize) {
        for link in 0..self.links.len() {
            let plan = self.links[link].plan.clone();
            if plan.ends.contains(&number) && !plan.planned.is_empty() {
                let at = |time: Duration| EPOCH_MS + time.as_millis() as u64;
                let planned = plan.planned.iter().map(|(entry, exit)| PlannedBlockage {
                    entry_ms: at(*entry),
                    exit_ms: at(*exit),
                });
                let planned: Vec<PlannedBlockage> = planned.collect();
                let (hop, ms) = (HopId(link as u64), at(self.now));
                self.call_all(number, |engine, now| engine.set_utc(now, Some(ms)));
                self.call_at(number, link, |engine, now| {
                    engine.plan_blockages(now, hop, planned);
                });
            }
        }
        self.follow_plans(number);
    }

    /// A session gives both ends a key.
    pub fn add_key(&mut self, pair: usize, end: usize) {
        let now = self.instant();
        let (node, link) = (self.node_at(pair, end), self.pairs[pair].link);
        let mut secret = [7; 32];
        secret[..8].copy_from_slice(&(pair as u64).to_be_bytes());
        if let Some(endpoint) = self.nodes[node].beacons.get_mut(&link) {
            endpoint.add_key(now, PEER, Key::new(&secret));
        }
        self.send_beacons(node, link);
    }

    /// When the next beacon is due.
    pub fn next_beacon(&self) -> Option<Duration> {
        let endpoints = self.nodes.iter().flat_map(|node| node.beacons.values());
        let due = endpoints.filter_map(Endpoint::next_timeout).min()?;
        Some(due.saturating_duration_since(self.start))
    }

    pub fn beacons_due(&mut self) {
        let now = self.instant();
        for number in 0..self.nodes.len() {
            let due = |endpoint: &Endpoint| endpoint.next_timeout().is_some_and(|at| at <= now);
            let beacons = self.nodes[number].beacons.iter();
            let due: Vec<usize> = beacons
                .filter(|(_, endpoint)| due(endpoint))
                .map(|(link, _)| *link)
                .collect();
            for link in due {
                let hop = HopId(link as u64);
                let mut engines = self.nodes[number].engines.iter();
                let signs = Signs {
                    heard: engines.find_map(|engine| engine.last_heard(hop)),
                    sent: self.links[link].sent[self.end_of(link, number)]
                        .map(|at| self.start + at),
                };
                if let Some(endpoint) = self.nodes[number].beacons.get_mut(&link) {
                    endpoint.note(PEER, signs);
                    endpoint.handle_timeout(now);
                }
                self.send_beacons(number, link);
            }
        }
    }

    fn end_of(&self, link: usize, node: usize) -> usize {
        usize::from(self.links[link].plan.ends[1] == node)
    }

    /// Sends datagrams, which may be lost, duplicated and reordered.
    fn send_beacons(&mut self, node: usize, link: usize) {
        let end = self.end_of(link, node);
        let Some(endpoint) = self.nodes[node].beacons.get_mut(&link) else {
            return;
        };
        let transmits: Vec<_> = std::iter::from_fn(|| endpoint.poll_transmit()).collect();
        let plan = &self.links[link].plan;
        let (delay, lost) = (plan.delay, plan.loss_percent);
        for transmit in transmits {
            if self.links[link].blocked || self.random.chance(lost) {
                continue;
            }
            let copies = 1 + u64::from(self.random.chance(lost));
            for _ in 0..copies {
                let late = match lost {
                    0 => Duration::ZERO,
                    _ => self.random.ms(0, 20),
                };
                let datagram = Happening::Datagram {
                    link,
                    to: 1 - end,
                    datagram: transmit.datagram,
                };
                self.at(self.now + delay + late, datagram);
            }
        }
    }

    pub fn datagram_arrives(&mut self, link: usize, to: usize, datagram: &[u8; BEACON_BYTES]) {
        let ends = self.links[link].plan.ends;
        let (node, now) = (ends[to], self.instant());
        let Some(endpoint) = self.nodes[node].beacons.get_mut(&link) else {
            return;
        };
        if self.links[link].blocked {
            return;
        }
        endpoint.handle_datagram(now, address(ends[1 - to]), datagram);
        while let Some(event) = self.nodes[node]
            .beacons
            .get_mut(&link)
            .and_then(Endpoint::poll_event)
        {
            match event {
                Event::Heard(_) | Event::Deaf(_) | Event::Resting(_) => {
                    let hop = HopId(link as u64);
                    let sign = match event {
                        Event::Deaf(_) => Sign::Deaf,
                        Event::Resting(_) => Sign::Resting,
                        _ => Sign::Beacon,
                    };
                    self.call_at(node, link, |engine, now| engine.heard(now, hop, now, sign));
                }
                // The other end has restarted: the sessions are gone there.
                Event::KeyUnknown(_) => {
                    for pair in 0..self.pairs.len() {
                        if self.pairs[pair].link == link && self.pairs[pair].up[to] {
                            self.break_pair(pair);
                        }
                    }
                }
            }
        }
        self.send_beacons(node, link);
    }
}

#[test]
fn silence_is_judged_by_the_times_that_beacons_keep() {
    assert_eq!(underpass_engine::SILENCE, underpass_beacon::SILENCE);
    let rest = underpass_engine::REST_SILENCE;
    assert_eq!(rest, underpass_beacon::REST_SILENCE);
    let interval = underpass_engine::REST_INTERVAL;
    assert_eq!(interval, underpass_beacon::REST_INTERVAL);
}
