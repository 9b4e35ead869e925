//! What operators and the plan set: rates and blockages.

use std::time::Instant;

use crate::engine::{Action, Engine};
use crate::hop::HopId;

impl Engine {
    /// The hop of a path or terminal.
    pub fn hop_named(&self, name: &str) -> Option<HopId> {
        let mut hops = self.hops.iter();
        hops.find(|(_, hop)| hop.config.name == name)
            .map(|(id, _)| *id)
    }

    /// All hops.
    pub fn hop_ids(&self) -> Vec<HopId> {
        self.hops.keys().copied().collect()
    }

    /// Sets the rate from this node, bit/s of IP bytes; `None` is unlimited.
    pub fn set_rate(&mut self, now: Instant, id: HopId, rate_bps: Option<u64>) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        hop.config.send_rate_bps = rate_bps;
        for session in hop.all_sessions() {
            self.actions.push_back(Action::SetRate {
                session,
                ip_bps: rate_bps.unwrap_or(0),
            });
        }
        self.scheduler.set_rate(now, id.terminal(), rate_bps);
        self.settle(now);
    }

    /// Sets the capacity that all hops share, bit/s of IP bytes.
    pub fn set_beam_rate(&mut self, now: Instant, rate_bps: Option<u64>) {
        self.scheduler.set_root_rate(now, rate_bps);
        self.settle(now);
    }

    /// Holds or releases what goes to a neighbour.
    pub fn set_blocked(&mut self, now: Instant, id: HopId, blocked: bool) {
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.blocked = blocked;
            self.scheduler.set_blocked(now, id.terminal(), blocked);
            self.settle(now);
        }
    }

    /// Takes traffic that the scheduler does not send (ACKs, plain IP) from a
    /// hop's rate, bit/s of IP bytes.
    pub fn subtract(&mut self, now: Instant, id: HopId, bps: u64) {
        if let Some(hop) = self.hops.get_mut(&id)
            && hop.subtracted_bps != bps
        {
            hop.subtracted_bps = bps;
            self.scheduler.subtract(now, id.terminal(), bps);
            self.settle(now);
        }
    }
}
