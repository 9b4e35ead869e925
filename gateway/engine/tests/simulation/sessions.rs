//! Sessions come up, carry bundles, break and go down.

use std::time::Duration;

use bytes::Bytes;
use underpass_cla::{Class, EXPRESS_ROOM_BYTES, Outcome, Refusal, SessionId, Transfer};
use underpass_engine::HopId;

use crate::custody::Name;
use crate::line::{Flow, Moving, Pair};
use crate::nodes;
use crate::random::Random;
use crate::schedule::CLASSES;
use crate::world::{Happening, World};

/// How often the ends of a broken session check whether it is broken.
const NOTICE: Duration = Duration::from_millis(700);

impl World {
    pub fn node_at(&self, pair: usize, end: usize) -> usize {
        self.links[self.pairs[pair].link].plan.ends[end]
    }

    pub fn offered(&mut self, node: usize, shard: usize, session: SessionId, transfer: Transfer) {
        let room = self.nodes[node].ready.get_mut(&session);
        let left = room.and_then(|room| match transfer.len() <= *room {
            true => Some(*room - transfer.len()),
            // Nothing goes behind a long bundle, and a long bundle only goes first.
            false => (*room == EXPRESS_ROOM_BYTES).then_some(0),
        });
        let Some(left) = left else {
            panic!("node {node} offers to {session:?}, which is not ready");
        };
        self.nodes[node].ready.insert(session, left);
        let (pair, end) = self.nodes[node].sessions[&session];
        let length = transfer.len();
        let left_out = transfer.resume.map_or(0, |resume| resume.offset);
        self.keep_to_plans(node, self.pairs[pair].link, length - left_out);
        let link = &self.links[self.pairs[pair].link];
        assert!(length <= link.plan.mru_bytes, "a bundle beyond the MRU");
        let taken = link.transmission_time(length);
        let delay = link.plan.delay;
        let eager = link.plan.eager;
        // A session that is going down may ignore what arrives.
        let swallowed = self.pairs[pair].broken && self.random.chance(50);
        let flow = &mut self.pairs[pair].flows[end];
        if !swallowed {
            flow.unfinished.insert(transfer.key, length);
        }
        let begins = flow.busy_until.max(self.now);
        flow.busy_until = begins + taken;
        flow.last_arrival = flow.last_arrival.max(flow.busy_until + delay);
        let (arrival, sent) = (flow.last_arrival, flow.busy_until);
        self.links[self.pairs[pair].link].sent[end] = Some(self.now);
        self.bundles_offered += 1;
        self.note(length);
        let raw = Bytes::from(transfer.chunks.concat());
        let key = transfer.key;
        let encoded = &mut self.nodes[node].encoded;
        let (name, destination) = match transfer.resume {
            // The neighbour has the bytes of the earlier transfer.
            Some(resume) => {
                assert!(resume.offset < length);
                let (before, name, destination) = &encoded[&(shard, resume.key)];
                assert!(*before == raw, "other bytes are resumed");
                let named = (*name, *destination);
                self.count("resumption", 1);
                named
            }
            None => {
                let (name, destination) = self.ledger.offered(&raw);
                let before = encoded.insert((shard, key), (raw.clone(), name, destination));
                assert!(before.is_none());
                (name, destination)
            }
        };
        if swallowed {
            self.pairs[pair].flows[end].cut = true;
            return;
        }
        let link = self.pairs[pair].link;
        for arrival in self.arrivals(link, arrival) {
            self.at(
                arrival,
                Happening::Move(Moving::Bundle {
                    pair,
                    from: end,
                    key,
                    raw: raw.clone(),
                    name,
                    destination,
                }),
            );
        }
        if self.links[link].plan.datagrams {
            // Such a session can only report that it has sent the bundle.
            let outcome = Outcome::Acknowledged;
            let to = end;
            let answer = Moving::Answer {
                pair,
                to,
                key,
                outcome,
            };
            self.at(sent, Happening::Move(answer));
        }
        let ready = if eager { begins } else { sent };
        self.at(ready, Happening::Ready { pair, end });
    }

    /// Notes that a node was given a datagram.
    fn note_order(&mut self, pair: usize, from: usize, key: u64) {
        let pair = &mut self.pairs[pair];
        if self.links[pair.link].plan.datagrams {
            let arrived = &mut pair.flows[from].arrived;
            let overtaken = arrived.last().is_some_and(|last| *last > key);
            let doubled = !arrived.insert(key);
            self.count("duplicate", doubled.into());
            self.count("reordered", (overtaken && !doubled).into());
        }
    }

    /// The arrivals of a bundle that would arrive in order at `arrival`: a datagram may
    /// arrive never, twice, or later than those behind it.
    fn arrivals(&mut self, link: usize, arrival: Duration) -> Vec<Duration> {
        let plan = &self.links[link].plan;
        let percent = plan.loss_percent;
        if !plan.datagrams {
            return vec![arrival];
        }
        let copies = match self.random.next() % 100 {
            dice if dice < percent => 0,
            dice if dice < 2 * percent => 2,
            _ => 1,
        };
        self.count("lost", (copies == 0).into());
        let late = |random: &mut Random| match random.chance(20) {
            true => random.ms(0, 400),
            false => Duration::ZERO,
        };
        (0..copies)
            .map(|_| arrival + late(&mut self.random))
            .collect()
    }

    /// Dials the sessions that a link lacks.
    pub fn dial_missing(&mut self, link: usize) {
        let wanted = self.links[link].wanted();
        let ends = self.links[link].plan.ends;
        let dead = ends.iter().any(|end| !self.nodes[*end].is_up());
        if self.links[link].blocked || dead {
            return;
        }
        for class in self.links[link].kinds(CLASSES) {
            let here = |pair: &&Pair| pair.link == link && pair.class == class && !pair.broken;
            let alive = self.pairs.iter().filter(here).count();
            let dialling = self.links[link].dialling.get(&class).copied().unwrap_or(0);
            for _ in alive + dialling..wanted {
                *self.links[link].dialling.entry(class).or_default() += 1;
                let round_trip = self.links[link].plan.delay * 2;
                let pause = self.random.ms(0, 500);
                self.at(
                    self.now + round_trip + pause,
                    Happening::Dial { link, class },
                );
            }
        }
    }

    pub fn dialled(&mut self, link: usize, class: Option<Class>) {
        if let Some(count) = self.links[link].dialling.get_mut(&class) {
            *count -= 1;
        }
        let ends = self.links[link].plan.ends;
        if self.links[link].blocked || ends.iter().any(|end| !self.nodes[*end].is_up()) {
            return;
        }
        self.numbers += 1;
        let id = SessionId(self.numbers);
        self.pairs.push(Pair {
            link,
            class,
            ids: [id, id],
            up: [false, false],
            broken: false,
            flows: [Flow::default(), Flow::default()],
        });
        let pair = self.pairs.len() - 1;
        let delay = self.links[link].plan.delay;
        self.at(self.now, Happening::Up { pair, end: 1 });
        self.at(self.now + delay, Happening::Up { pair, end: 0 });
    }

    pub fn session_up(&mut self, pair: usize, end: usize) {
        if self.pairs[pair].broken {
            return;
        }
        let node = self.node_at(pair, end);
        let other = self.node_at(pair, 1 - end);
        let Pair {
            link, class, ids, ..
        } = &self.pairs[pair];
        let (link, class) = (*link, *class);
        let (hop, id) = (HopId(link as u64), ids[end]);
        let mru = self.links[link].plan.mru_bytes;
        let incarnation = class.map(|_| self.nodes[other].incarnation);
        let number = self.schedule.nodes[other].number;
        let info = nodes::session_info(number, class, mru, incarnation);
        self.pairs[pair].up[end] = true;
        self.nodes[node].sessions.insert(id, (pair, end));
        self.add_key(pair, end);
        self.call_at(node, link, |engine, now| {
            engine.session_up(now, id, hop, info)
        });
        self.session_ready(pair, end);
    }

    pub fn session_ready(&mut self, pair: usize, end: usize) {
        if !self.pairs[pair].up[end] || self.pairs[pair].broken && self.random.chance(50) {
            return;
        }
        let node = self.node_at(pair, end);
        let link = self.pairs[pair].link;
        let id = self.pairs[pair].ids[end];
        self.nodes[node].ready.insert(id, EXPRESS_ROOM_BYTES);
        self.call_at(node, link, |engine, now| engine.session_ready(now, id));
    }

    /// Breaks a session; each end notices in its own time.
    pub fn break_pair(&mut self, pair: usize) {
        if std::mem::replace(&mut self.pairs[pair].broken, true) {
            return;
        }
        for end in 0..2 {
            let late = self.random.ms(0, 1_500);
            self.at(self.now + late, Happening::Down { pair, end });
        }
    }

    /// The bytes of a bundle that were acknowledged when its session broke.
    fn part_of(&mut self, length: u64) -> u64 {
        match self.parts.chance(50) {
            true => self.parts.next() % length,
            false => 0,
        }
    }

    /// Some transfers in flight on a link have been acknowledged in part.
    pub fn note_progress(&mut self, link: usize) {
        for number in 0..self.pairs.len() {
            if self.pairs[number].link != link {
                continue;
            }
            for end in 0..2 {
                // What a run hears that is over, no later one does.
                if !self.pairs[number].up[end] {
                    continue;
                }
                let node = self.node_at(number, end);
                for (key, length) in self.pairs[number].flows[end].unfinished.clone() {
                    let part = self.part_of(length);
                    self.call_at(node, link, |engine, _| engine.transfer_progress(key, part));
                }
            }
        }
    }

    pub fn session_down(&mut self, pair: usize, end: usize) {
        let link = self.pairs[pair].link;
        // While the link is silent, nobody learns that the other end has gone.
        if self.links[link].blocked && self.pairs[pair].up[end] && self.random.chance(70) {
            self.at(self.now + NOTICE, Happening::Down { pair, end });
            return;
        }
        if std::mem::replace(&mut self.pairs[pair].up[end], false) {
            let node = self.node_at(pair, end);
            let id = self.pairs[pair].ids[end];
            // A bundle may still be offered while others of the session are reported.
            while let Some((key, length)) = self.pairs[pair].flows[end].unfinished.pop_first() {
                let acknowledged = self.part_of(length);
                let outcome = Outcome::Broken { acknowledged };
                self.call_at(node, link, |engine, now| {
                    engine.transfer_finished(now, key, outcome)
                });
            }
            self.nodes[node].ready.remove(&id);
            self.nodes[node].sessions.remove(&id);
            self.call_at(node, link, |engine, now| engine.session_down(now, id));
        }
        self.dial_missing(link);
    }

    pub fn arrive(&mut self, moving: Moving) {
        let number = moving.pair();
        let pair = &mut self.pairs[number];
        let link = &mut self.links[pair.link];
        if link.blocked && !pair.broken {
            // Nobody retransmits a datagram.
            let local = matches!(moving, Moving::Answer { .. });
            match link.plan.datagrams {
                false => return link.stalled.push(moving),
                true if !local => return,
                true => {}
            }
        }
        match moving {
            Moving::Bundle {
                pair,
                from,
                key,
                raw,
                name,
                destination,
            } => self.bundle_arrives(pair, from, key, raw, name, destination),
            Moving::Answer {
                pair,
                to,
                key,
                outcome,
            } => {
                let pair = &mut self.pairs[pair];
                let link = pair.link;
                if !pair.broken && pair.flows[to].unfinished.remove(&key).is_some() {
                    let node = self.node_at(number, to);
                    self.call_at(node, link, |engine, now| {
                        engine.transfer_finished(now, key, outcome)
                    });
                }
            }
        }
    }

    pub fn bundle_arrives(
        &mut self,
        number: usize,
        from: usize,
        key: u64,
        raw: Bytes,
        name: Name,
        destination: u64,
    ) {
        let to = 1 - from;
        let pair = &mut self.pairs[number];
        if pair.broken && (!pair.up[to] || pair.flows[from].cut || self.random.chance(50)) {
            pair.flows[from].cut = true;
            return;
        }
        let node = self.node_at(number, to);
        let link = self.pairs[number].link;
        let id = self.pairs[number].ids[to];
        let length = raw.len() as u64;
        let percent = self.links[link].refuse_percent[to];
        let outcome = if self.random.chance(percent) {
            Err(Refusal::NoResources)
        } else {
            let taken = self.call_at(node, link, |engine, now| {
                engine.admit(now, id, Some(length))?;
                engine.receive(now, id, engine.decoder().decode(&raw))
            });
            self.note_order(number, from, key);
            taken.unwrap_or(Err(Refusal::NoResources))
        };
        assert_ne!(
            outcome,
            Err(Refusal::NotAcceptable),
            "a good bundle is refused"
        );
        self.note(length + u64::from(outcome.is_ok()));
        if outcome.is_ok() && destination == self.schedule.nodes[node].number {
            self.delivered(name);
        }
        if self.links[link].plan.datagrams {
            return;
        }
        let outcome = outcome.map_or_else(Outcome::Refused, |()| Outcome::Acknowledged);
        let back = self.now + self.links[link].plan.delay;
        self.at(
            back,
            Happening::Move(Moving::Answer {
                pair: number,
                to: from,
                key,
                outcome,
            }),
        );
    }
}
