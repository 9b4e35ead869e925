//! Another process takes over a node: its sessions end, its run goes on.

use underpass_engine::{Engine, NodeState};

use crate::nodes;
use crate::schedule::HowStopped;
use crate::world::World;

/// More bytes than any state here has.
const MOST_BYTES: u64 = 1 << 30;

impl World {
    /// Other processes take over a node, this many times in a row, unless it is off or
    /// its disk does not take what must be written first.
    pub fn upgrade(&mut self, number: usize, times: u32) {
        if !self.nodes[number].is_up() {
            return;
        }
        self.end_sessions(number);
        for _ in 0..times {
            if !self.settle(number) {
                self.count("upgrade put off", 1);
                break;
            }
            self.count("upgrade", 1);
            self.replace_process(number);
        }
        for link in 0..self.links.len() {
            if self.links[link].plan.ends.contains(&number) {
                self.dial_missing(link);
            }
        }
    }

    fn end_sessions(&mut self, number: usize) {
        self.call_all(number, |engine, now| engine.end_sessions(now));
        let node = &mut self.nodes[number];
        node.ready.clear();
        node.sessions.clear();
        for pair in 0..self.pairs.len() {
            let ends = self.links[self.pairs[pair].link].plan.ends;
            if let Some(end) = ends.iter().position(|end| *end == number) {
                self.pairs[pair].up[end] = false;
                self.break_pair(pair);
            }
        }
    }

    /// Completes all work in progress within the node; false if that fails.
    fn settle(&mut self, number: usize) -> bool {
        self.call_all(number, |engine, _| engine.flush_store());
        for _ in 0..100 {
            if let Some(work) = &mut self.nodes[number].work {
                work.drain();
            }
            self.call_all(number, |engine, now| engine.store_moved(now));
            let mailboxes: Vec<_> = self.nodes[number].mailboxes.keys().copied().collect();
            for (from, to) in mailboxes {
                while !self.nodes[number].mailboxes[&(from, to)].is_empty() {
                    self.take_passed(number, from, to);
                }
            }
            let node = &self.nodes[number];
            let engines = node.engines.iter();
            if engines.filter_map(Engine::handover_obstacle).count() == 0 && !node.is_passing() {
                return true;
            }
        }
        false
    }

    fn replace_process(&mut self, number: usize) {
        let now = self.instant();
        let before = std::mem::take(&mut self.nodes[number].engines);
        let state = Engine::hand_over(now, before);
        let mut bytes = Vec::new();
        underpass_handover::write(&state, &mut bytes).expect("memory takes all");
        let state: NodeState = underpass_handover::read(&*bytes, MOST_BYTES).expect("a state");
        assert_eq!(state.incarnation(), self.nodes[number].incarnation);
        self.crash_disk(number, HowStopped::InOrder, 0);
        let disk = self.nodes[number].disk.as_ref();
        let opened = disk.map(|disk| disk.open(&self.schedule, number, self.now, now));
        let (stores, work) = opened.unzip();
        self.nodes[number].work = work;
        let stores = stores.unwrap_or_else(|| nodes::in_memory(&self.schedule, number));
        // Run number and nonce come from the state.
        let config = nodes::config(&self.schedule, number, u64::MAX);
        let engines = Engine::take_over(now, &config, stores, state).expect("it agrees");
        self.nodes[number].engines = engines;
        self.nodes[number].deadline = None;
        // Carries out the pending actions.
        self.call_all(number, |_, _| ());
        self.tell_plans(number);
        self.set_rates(number);
    }
}
