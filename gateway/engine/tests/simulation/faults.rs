//! Faults, and their repair.

use underpass_cla::Class;
use underpass_engine::{Engine, HopId, StreamKey};
use underpass_streams::ResetCode;

use crate::apps::Ended;
use crate::custody::{Name, custody_of};
use crate::disk::DiskWork;
use crate::nodes;
use crate::schedule::{Fault, HowStopped};
use crate::world::{Happening, World};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An application gives up what is never answered after this time.
const PATIENCE: Duration = Duration::from_secs(1_200);

impl World {
    pub fn fault(&mut self, fault: Fault) {
        if self.calm && !matches!(fault, Fault::Unblock { .. } | Fault::Start { .. }) {
            return;
        }
        match fault {
            Fault::Break { link, class, all } => {
                let class = self.links[link].plan.classes.then_some(Class(class));
                let of_class: Vec<usize> = (0..self.pairs.len())
                    .filter(|number| {
                        let pair = &self.pairs[*number];
                        pair.link == link && pair.class == class && !pair.broken
                    })
                    .collect();
                let count = if all { of_class.len() } else { 1 };
                for pair in of_class.into_iter().take(count) {
                    self.break_pair(pair);
                }
            }
            Fault::Block { link, told, breaks } => self.block(link, told, breaks),
            Fault::Unblock { link } => self.unblock(link),
            Fault::Refuse {
                link,
                side,
                percent,
            } => self.links[link].refuse_percent[side] = percent,
            Fault::Rate { link, rate_bps } => {
                self.links[link].plan.rate_bps = rate_bps;
                self.override_plans(link);
                for node in self.links[link].plan.ends {
                    let hop = HopId(link as u64);
                    self.call_at(node, link, |engine, now| {
                        engine.set_rate(now, hop, rate_bps)
                    });
                }
            }
            Fault::Stop { node, how, dice } => self.stop(node, how, dice),
            Fault::DiskFails { node, room_bytes } => self.disk_fails(node, room_bytes),
            Fault::DiskMended { node } => self.mend_disk(node),
            Fault::Start { node } => self.start(node),
            Fault::Upgrade { node, times } => self.upgrade(node, times),
        }
    }

    pub fn block(&mut self, link: usize, told: bool, breaks: bool) {
        self.links[link].blocked = true;
        self.note_progress(link);
        if told {
            for node in self.links[link].plan.ends {
                let hop = HopId(link as u64);
                self.call_at(node, link, |engine, now| engine.block(now, hop, true));
            }
        }
        if breaks {
            for pair in 0..self.pairs.len() {
                if self.pairs[pair].link == link && self.random.chance(70) {
                    self.break_pair(pair);
                }
            }
        }
    }

    pub fn unblock(&mut self, link: usize) {
        if !std::mem::replace(&mut self.links[link].blocked, false) {
            return;
        }
        // TCP retransmits lost bytes in order when its own timer fires.
        let delay = self.links[link].plan.delay;
        let stalled = std::mem::take(&mut self.links[link].stalled);
        let mut timers = BTreeMap::new();
        for moving in stalled {
            let waits = *timers
                .entry(moving.pair())
                .or_insert_with(|| self.random.ms(0, 8_000));
            self.at(self.now + delay + waits, Happening::Move(moving));
        }
        for (pair, waits) in timers {
            for flow in &mut self.pairs[pair].flows {
                flow.last_arrival = flow.last_arrival.max(self.now + delay + waits);
            }
        }
        for node in self.links[link].plan.ends {
            let hop = HopId(link as u64);
            self.call_at(node, link, |engine, now| engine.block(now, hop, false));
        }
        self.dial_missing(link);
    }

    fn disk_fails(&mut self, node: usize, room_bytes: Option<u64>) {
        if let Some(disk) = &self.nodes[node].disk {
            let room = room_bytes.map(|room| disk.media.used_bytes() + room);
            disk.media.set_capacity(room);
            disk.media.set_broken(room.is_none());
        }
    }

    fn mend_disk(&mut self, node: usize) {
        if let Some(disk) = &self.nodes[node].disk {
            disk.media.set_capacity(None);
            disk.media.set_broken(false);
        }
    }

    pub fn stop(&mut self, number: usize, how: HowStopped, dice: u64) {
        self.note_unheard(number);
        let custody = custody_of(&self.nodes[number].engines, self.instant());
        self.note_durable(number, custody);
        self.note_promises(number);
        self.note_custody(number);
        // A crash during a write needs something to write.
        if let HowStopped::InOrder | HowStopped::Crash { torn: true, .. } = how {
            self.nodes[number]
                .engines
                .iter_mut()
                .for_each(Engine::flush_store);
        }
        self.crash_disk(number, how, dice);
        let node = &mut self.nodes[number];
        node.engines.clear();
        node.deadline = None;
        node.mailboxes.clear();
        node.ready.clear();
        node.sessions.clear();
        node.encoded.clear();
        node.streams.clear();
        node.beacons.clear();
        for stream in &mut self.streams {
            for end in 0..2 {
                let here = stream.node_of(end) == number;
                let own = &mut stream.ends[end];
                if here && own.key.take().is_some() && own.ended.is_none() {
                    own.ended = Some(Ended::NodeStopped);
                    stream.interrupted = true;
                }
            }
        }
        for pair in 0..self.pairs.len() {
            let ends = self.links[self.pairs[pair].link].plan.ends;
            if let Some(end) = ends.iter().position(|end| *end == number) {
                self.pairs[pair].up[end] = false;
                self.break_pair(pair);
            }
        }
    }

    /// Notes which of a node's sealed bundles and stream bytes are on its disk, or were
    /// handed over. `custody` is what it has custody of now.
    pub fn note_durable(&mut self, number: usize, custody: BTreeSet<Name>) {
        let node = &mut self.nodes[number];
        let quiet = node.work.as_ref().map(DiskWork::is_quiet);
        if quiet != Some(true) || !node.is_up() {
            return;
        }
        node.durable = custody;
        let engines = node.engines.iter();
        for (peer, epoch, info) in engines.flat_map(|engine| engine.streams(usize::MAX)) {
            let id = info.id;
            if let Some((stream, end)) = node.streams.get(&StreamKey { peer, epoch, id }) {
                self.streams[*stream].ends[*end].durable = info.sent_bytes;
            }
        }
    }

    /// When a node stops, the other ends that live on are still due what it has made
    /// durable. What it has for a former run of another node is due to nobody: the
    /// sockets there are gone.
    fn note_promises(&mut self, number: usize) {
        let stopped = (
            self.schedule.nodes[number].number,
            self.nodes[number].incarnation,
        );
        let schedule = &self.schedule;
        let stopping = &self.nodes[number].engines;
        for stream in &mut self.streams {
            for end in 0..2 {
                let other = self.schedule.nodes[stream.node_of(1 - end)].number;
                let own = stopping.get(nodes::shard_to(schedule, number, other));
                let former = stream.ends[end].key.zip(own);
                let former = former.is_some_and(|(key, own)| key.epoch != own.epoch_of(other));
                if stream.node_of(end) == number && former {
                    stream.ends[end].durable = 0;
                    continue;
                }
                // A side that has reset a stream wants none of its bytes.
                let reset = matches!(stream.ends[end].ended, Some(Ended::Reset(_)));
                // The other end may have its stream with an earlier run.
                let other = stream.node_of(1 - end);
                let shard = nodes::shard_to(schedule, other, stopped.0);
                let met = self.nodes[other].engines.get(shard).is_none_or(|engine| {
                    let run = engine.run_of(stopped.0);
                    let epoch = stream.ends[1 - end].key.map(|key| key.epoch);
                    run.is_none_or(|run| run == stopped.1)
                        && epoch.is_none_or(|epoch| epoch == engine.epoch_of(stopped.0))
                });
                if stream.node_of(end) == number && !reset && met {
                    stream.ends[1 - end].promised = stream.ends[end].durable;
                    stream.ends[end].promised = 0;
                }
            }
        }
    }

    /// What a node receives before it is ever heard is lost to its next run, unless
    /// sessions tell of its runs: the applications give up in the end.
    fn note_unheard(&mut self, number: usize) {
        let stopped = self.schedule.nodes[number].number;
        for stream in 0..self.streams.len() {
            for end in 0..2 {
                let run = &self.streams[stream];
                let other = &self.nodes[run.node_of(end)];
                let heard = |engine: &Engine| engine.announcement_of(stopped).is_some();
                let unheard = other.is_up() && !other.engines.iter().any(heard);
                if run.node_of(1 - end) == number && run.ends[end].key.is_some() && unheard {
                    self.streams[stream].unheard = true;
                    self.at(PATIENCE, Happening::GiveUp { stream, end });
                }
            }
        }
    }

    /// Bundles that a flipped bit has destroyed in custody never arrive: the applications
    /// give up in the end.
    pub fn expect_losses(&mut self) {
        for stream in 0..self.streams.len() {
            for end in 0..2 {
                self.at(PATIENCE, Happening::GiveUp { stream, end });
            }
        }
    }

    pub fn give_up(&mut self, stream: usize, end: usize) {
        let node = self.streams[stream].node_of(end);
        let own = &mut self.streams[stream].ends[end];
        if let Some(key) = own.key.filter(|_| own.ended.is_none()) {
            own.ended = Some(Ended::Given);
            let reset = |engine: &mut Engine, now| {
                let _ = engine.reset(now, key, ResetCode::Cancelled, "no answer");
            };
            self.call_for(node, key.peer, reset);
        }
    }

    pub fn start(&mut self, number: usize) {
        let now = self.instant();
        self.nodes[number].incarnation += 1;
        let incarnation = self.nodes[number].incarnation;
        let disk = self.nodes[number].disk.as_ref();
        let opened = disk.map(|disk| disk.open(&self.schedule, number, self.now, now));
        let (stores, work) = opened.unzip();
        self.nodes[number].work = work;
        let engines = nodes::engines(&self.schedule, number, incarnation, stores, now);
        self.nodes[number].engines = engines;
        self.nodes[number].deadline = None;
        self.wake_disk(number);
        self.watch_links(number);
        self.forgive(number);
        self.set_rates(number);
        for link in 0..self.links.len() {
            if self.links[link].plan.ends.contains(&number) {
                self.dial_missing(link);
            }
        }
    }

    /// A process of a node has started: gives it the rates that operators have set.
    pub fn set_rates(&mut self, number: usize) {
        for link in 0..self.links.len() {
            let told_rate = self.links[link].plan.rate_bps;
            if self.links[link].plan.ends.contains(&number) && self.links[link].overridden {
                let hop = HopId(link as u64);
                self.call_at(number, link, |engine, now| {
                    engine.set_rate(now, hop, told_rate)
                });
                self.override_plans(link);
            }
        }
    }

    pub fn become_calm(&mut self) {
        self.calm = true;
        for node in 0..self.nodes.len() {
            self.mend_disk(node);
        }
        for link in 0..self.links.len() {
            self.links[link].refuse_percent = [0, 0];
            self.unblock(link);
        }
    }
}
