//! Sessions between the hub and the terminals come up, are renewed and break.

use std::time::Duration;

use underpass_cla::SessionId;
use underpass_engine::HopId;

use crate::nodes::{CLASSES, HUB, info};
use crate::world::{Happening, Session, World};

const REDIAL: Duration = Duration::from_secs(2);
/// The lifetime of a certificate.
pub const RENEWAL: Duration = Duration::from_secs(12 * 3600);

impl World {
    pub fn dial(&mut self, terminal: usize) {
        if !std::mem::replace(&mut self.links[terminal].dialling, true) {
            self.at(self.now + REDIAL, Happening::Dial(terminal));
        }
    }

    fn is_reachable(&self, terminal: usize) -> bool {
        let link = &self.links[terminal];
        let up = |node: usize| self.nodes[node].engine.is_some();
        link.joined && !link.blocked && up(HUB) && up(terminal)
    }

    pub fn connect(&mut self, terminal: usize) {
        self.links[terminal].dialling = false;
        if self.is_reachable(terminal) && self.links[terminal].sessions.is_empty() {
            self.set_up(terminal);
        }
    }

    fn set_up(&mut self, terminal: usize) {
        for class in 0..CLASSES {
            let id = self.next_number();
            let session = Session {
                terminal,
                in_flight: [None; 2],
            };
            self.sessions.insert(id, session);
            self.links[terminal].sessions.push(id);
            let hop = self.links[terminal].hop;
            for (node, peer, hop) in [(HUB, terminal, hop), (terminal, HUB, 0)] {
                let info = info(class, self.nodes[peer].incarnation);
                self.call(node, |engine, now| {
                    engine.session_up(now, SessionId(id), HopId(hop), info);
                    engine.session_ready(now, SessionId(id));
                });
            }
        }
    }

    pub fn forget_session(&mut self, id: u64) -> Option<usize> {
        let terminal = self.sessions.remove(&id)?.terminal;
        self.links[terminal].sessions.retain(|other| *other != id);
        Some(terminal)
    }

    /// Breaks sessions at both ends, some in the middle of a bundle.
    pub fn end_sessions(&mut self, sessions: &[u64]) {
        for &id in sessions {
            let Some(state) = self.sessions.get(&id) else {
                continue;
            };
            let (terminal, in_flight) = (state.terminal, state.in_flight);
            for (node, in_flight) in [HUB, terminal].into_iter().zip(in_flight) {
                let half = self.random.chance(50);
                if let Some((key, bytes)) = in_flight.filter(|_| half) {
                    self.call(node, |engine, _| engine.transfer_progress(key, bytes / 2));
                }
            }
            self.forget_session(id);
            for node in [HUB, terminal] {
                self.call(node, |engine, now| engine.session_down(now, SessionId(id)));
            }
            if self.links[terminal].sessions.is_empty() {
                self.dial(terminal);
            }
        }
    }

    /// Certificates are renewed: new sessions come up, and the old ones go down.
    pub fn renew(&mut self, terminal: usize) {
        self.at(self.now + RENEWAL, Happening::Renew(terminal));
        let old = self.links[terminal].sessions.clone();
        if !old.is_empty() && self.is_reachable(terminal) {
            self.meet("renewed");
            self.set_up(terminal);
            let after = self.random.ms(0, 5_000);
            self.at(self.now + after, Happening::RenewalOver(old));
        }
    }
}
