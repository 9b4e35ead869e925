//! Events of the network: terminals leave, nodes restart, links are blocked.

use std::time::Duration;

use underpass_engine::HopId;

use crate::nodes::{HUB, config};
use crate::world::{Happening, Session, World};

/// Sessions survive a blockage of this length.
const SESSION_PATIENCE: Duration = Duration::from_secs(300);

/// Mean intervals between events of the whole network.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub exchange: Duration,
    pub leave: Duration,
    pub restart: Duration,
    pub blockage: Duration,
    pub hub_restart: Duration,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates {
            exchange: Duration::from_secs(60),
            leave: Duration::from_secs(3_000),
            restart: Duration::from_secs(2_000),
            blockage: Duration::from_secs(500),
            hub_restart: Duration::from_secs(14 * 3600),
        }
    }
}

/// A kind of recurring event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Exchange,
    Leave,
    Restart,
    Blockage,
    HubRestart,
}

pub const FATES: [Fate; 5] = [
    Fate::Exchange,
    Fate::Leave,
    Fate::Restart,
    Fate::Blockage,
    Fate::HubRestart,
];

impl World {
    pub fn fate(&mut self, number: usize) {
        let idle = Duration::from_secs(600);
        let Some(rates) = self.fates else {
            return self.at(self.now + idle, Happening::Fate(number));
        };
        let fate = FATES[number];
        let pause = match fate {
            Fate::Exchange => rates.exchange,
            Fate::Leave => rates.leave,
            Fate::Restart => rates.restart,
            Fate::Blockage => rates.blockage,
            Fate::HubRestart => rates.hub_restart,
        };
        let pause = self.random.ms(0, 2 * pause.as_millis() as u64);
        self.at(self.now + pause, Happening::Fate(number));
        let terminal = self.random.between(1, self.links.len() as u64 - 1) as usize;
        match fate {
            Fate::Exchange => self.exchange(),
            Fate::Leave => self.leave(terminal),
            Fate::Restart => self.stop_node(terminal),
            Fate::Blockage => self.block(terminal),
            Fate::HubRestart => self.stop_node(HUB),
        }
    }

    fn hops_of(&self, node: usize) -> Vec<(u64, usize)> {
        if node != HUB {
            return vec![(0, HUB)];
        }
        let links = self.links.iter().enumerate().skip(1);
        let joined = links.filter(|(_, link)| link.joined);
        joined
            .map(|(terminal, link)| (link.hop, terminal))
            .collect()
    }

    fn reconfigure_hub(&mut self) {
        let config = config(HUB, self.nodes[HUB].incarnation, &self.hops_of(HUB));
        let done = self.call(HUB, |engine, now| engine.reconfigure(now, config));
        assert!(matches!(done, None | Some(Ok(()))), "{done:?}");
    }

    fn leave(&mut self, terminal: usize) {
        if !std::mem::replace(&mut self.links[terminal].joined, false) {
            return;
        }
        self.meet("left");
        self.reconfigure_hub();
        let absence = self.random.ms(60_000, 3 * 3_600_000);
        self.at(self.now + absence, Happening::Join(terminal));
    }

    pub fn join(&mut self, terminal: usize) {
        self.meet("joined");
        self.links[terminal].joined = true;
        self.links[terminal].hop = self.next_number();
        self.reconfigure_hub();
        self.dial(terminal);
    }

    fn block(&mut self, terminal: usize) {
        if std::mem::replace(&mut self.links[terminal].blocked, true) {
            return;
        }
        self.meet("blocked");
        self.links[terminal].blockages += 1;
        let blockage = self.links[terminal].blockages;
        let time = match self.random.between(0, 99) {
            0..70 => self.random.ms(1_000, 60_000),
            70..95 => self.random.ms(60_000, 1_200_000),
            _ => self.random.ms(1_200_000, 3 * 3_600_000),
        };
        // The engines are not told of the other blockages.
        if self.random.chance(50) {
            self.tell_blocked(terminal, true);
        }
        let broken = Happening::Break { terminal, blockage };
        self.at(self.now + SESSION_PATIENCE, broken);
        self.at(self.now + time, Happening::Unblock(terminal));
    }

    pub fn unblock(&mut self, terminal: usize) {
        self.links[terminal].blocked = false;
        self.tell_blocked(terminal, false);
        for happening in std::mem::take(&mut self.links[terminal].held) {
            self.happen(happening);
        }
        self.dial(terminal);
    }

    fn tell_blocked(&mut self, terminal: usize, blocked: bool) {
        let hop = HopId(self.links[terminal].hop);
        self.call(HUB, |engine, now| engine.block(now, hop, blocked));
        self.call(terminal, |engine, now| engine.block(now, HopId(0), blocked));
    }

    fn stop_node(&mut self, number: usize) {
        if self.nodes[number].engine.is_none() {
            return;
        }
        self.meet(if number == HUB {
            "hub restarted"
        } else {
            "restarted"
        });
        // Half of the nodes are killed.
        if self.random.chance(50) {
            self.call(number, |engine, _| engine.flush_store());
        }
        let node = &mut self.nodes[number];
        (node.engine, node.worker) = (None, None);
        node.apps.clear();
        if let Some(due) = node.due.take() {
            self.deadlines.remove(&(due, number));
        }
        let of_node = |session: &Session| number == HUB || session.terminal == number;
        let sessions = self.sessions.iter().filter(|(_, state)| of_node(state));
        let mut sessions: Vec<u64> = sessions.map(|(id, _)| *id).collect();
        sessions.sort_unstable();
        self.end_sessions(&sessions);
        let pause = self.random.ms(2_000, 600_000);
        self.at(self.now + pause, Happening::Start(number));
    }

    pub fn start_node(&mut self, number: usize) {
        let hops = self.hops_of(number);
        self.nodes[number].start(number, &hops, self.now, self.start + self.now);
        self.call(number, |_, _| ());
        match number {
            HUB => (1..self.links.len()).for_each(|terminal| self.dial(terminal)),
            terminal => self.dial(terminal),
        }
    }
}
