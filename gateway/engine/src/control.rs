//! What operators and the plan set: rates and blockages.

use std::collections::BTreeSet;
use std::time::Instant;

use underpass_bundle::BundleId;
use underpass_capacity::FirstFlight;
use underpass_cla::Class;

use crate::engine::{Action, Engine};
use crate::hop::{Hop, HopId};
use crate::leaves::Places;

/// Sessions are told only of changes above this part (1/n) of their rate; the scheduler follows
/// every change.
const PACING_STEPS: u64 = 500;

/// When a rate falls by more than this part (1/n), bytes that were granted at the higher rate and
/// are not sent yet take so long that they have to be counted.
const LOWERED_PART: u64 = 4;

/// While a queue is drained, the sessions of classes that wait have this part (1/n) of their rate:
/// they retransmit what was lost, for which the scheduler grants nothing.
const DRAINING_PART: u64 = 4;

impl Engine {
    /// The hop of a path or terminal.
    pub fn hop_named(&self, name: &str) -> Option<HopId> {
        self.ways.hop_named(name)
    }

    /// The name of a hop's path or terminal.
    pub fn hop_name(&self, id: HopId) -> Option<&str> {
        self.hops.get(&id).map(|hop| hop.config.name.as_str())
    }

    /// The neighbour that a hop leads to, by its ipn node number.
    pub fn neighbour_of(&self, id: HopId) -> Option<u64> {
        self.hops.get(&id).map(|hop| hop.config.neighbour)
    }

    /// All hops.
    pub fn hop_ids(&self) -> Vec<HopId> {
        self.hops.keys().copied().collect()
    }

    /// Sets the rate from this node, bit/s of IP bytes, by an operator's order; `None` is
    /// unlimited. It takes precedence over plan and configuration.
    pub fn set_rate(&mut self, now: Instant, id: HopId, rate_bps: Option<u64>) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        hop.by_operator = Some(rate_bps);
        let risen = Hop::raise(&mut hop.ceiling.send_rate_bps, rate_bps);
        self.apply_rate(now, id);
        if risen {
            self.widen(id);
        }
        self.after_change(now);
    }

    /// Keeps the rate from this node as it is, over any plan, by an operator's order. Returns the
    /// rate.
    pub fn freeze_rate(&mut self, now: Instant, id: HopId) -> Option<u64> {
        let rate_bps = self.hops.get(&id).and_then(Hop::rate_bps);
        self.set_rate(now, id, rate_bps);
        rate_bps
    }

    /// Leaves the rate from this node to plan and configuration again.
    pub fn reset_rate(&mut self, now: Instant, id: HopId) {
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.by_operator = None;
            self.apply_rate(now, id);
            self.after_change(now);
        }
    }

    /// Puts a hop's rate into force.
    pub(crate) fn apply_rate(&mut self, now: Instant, id: HopId) {
        if let Some(hop) = self.hops.get_mut(&id) {
            let first = hop.first_flight();
            self.scheduler
                .set_rate(now, id.terminal(), hop.granted_bps());
            if hop.flight != first {
                let ip_bytes = first.map_or(0, |flight| flight.bits / 8);
                let number = |flight: Option<FirstFlight>| flight.map(|flight| flight.number);
                if number(hop.flight) == number(first) {
                    self.scheduler.resize_burst(now, id.terminal(), ip_bytes);
                } else {
                    self.scheduler.set_burst(now, id.terminal(), ip_bytes);
                    hop.before_flight_bytes = hop.given_bytes;
                }
                hop.flight = first;
            }
            self.pace(id);
        }
    }

    /// Sets the rate to this node, bit/s of IP bytes; `None` is unlimited.
    /// The credit given to the peers grows with it, and never shrinks.
    pub fn set_receive_rate(&mut self, now: Instant, id: HopId, rate_bps: Option<u64>) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        hop.config.receive_rate_bps = rate_bps;
        if Hop::raise(&mut hop.ceiling.receive_rate_bps, rate_bps) {
            self.widen(id);
            self.after_change(now);
        }
    }

    /// Tells the sessions of a hop the rate that is theirs.
    fn pace(&mut self, id: HopId) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let usable = hop.pace_bps();
        // The turns among the hops to a neighbour leave out those that may send nothing.
        let stops_or_begins = (usable == Some(0)) != (hop.paced_bps == Some(0));
        let neighbour = hop.config.neighbour;
        let before = hop.paced_bps.unwrap_or(u64::MAX);
        hop.lowered |= usable.is_some_and(|bps| bps < before - before / LOWERED_PART);
        hop.paced_bps = usable;
        let drains = |class| self.scheduler.makes_up_for(id.terminal(), class);
        let slowed = match hop.draining {
            true => hop.sessions_for(drains),
            false => BTreeSet::new(),
        };
        for session in hop.all_sessions() {
            let part = match slowed.contains(&session) {
                true => DRAINING_PART,
                false => 1,
            };
            self.actions.push_back(Action::SetRate {
                session,
                ip_bps: usable.map(|bps| bps / part),
            });
        }
        if stops_or_begins {
            self.leaves_to_changed(neighbour, Places::MAX);
        }
    }

    /// The capacity that all hops on the beam share, bit/s of IP bytes; `None` is
    /// unlimited.
    pub fn beam_rate_bps(&self) -> Option<u64> {
        self.beam_rate_bps
    }

    /// The part of that which operator, plan or configuration allow.
    pub fn beam_allowed_bps(&self) -> Option<u64> {
        self.beam_allowed_bps
    }

    /// What the beam was measured to carry, if that is less.
    pub fn beam_measured_bps(&self) -> Option<u64> {
        self.beam_measured_bps
    }

    /// Whether an operator has set that rate, over plan and configuration.
    pub fn beam_rate_by_operator(&self) -> bool {
        self.beam_by_operator.is_some()
    }

    /// Sets the capacity that all hops on the beam share, bit/s of IP bytes, by an operator's
    /// order; `None` is unlimited. It takes precedence over plan and configuration.
    pub fn set_beam_rate(&mut self, now: Instant, rate_bps: Option<u64>) {
        self.beam_by_operator = Some(rate_bps);
        self.apply_beam_rate(now);
        self.after_change(now);
    }

    /// Leaves that capacity to plan and configuration again.
    pub fn reset_beam_rate(&mut self, now: Instant) {
        self.beam_by_operator = None;
        self.apply_beam_rate(now);
        self.after_change(now);
    }

    pub(crate) fn set_blocked(&mut self, now: Instant, id: HopId, blocked: bool) {
        if let Some(hop) = self.hops.get_mut(&id) {
            let was_blocked = std::mem::replace(&mut hop.blocked, blocked);
            if blocked && !was_blocked {
                hop.heard_before_blockage = hop.link.last_heard();
            }
            let neighbour = hop.config.neighbour;
            for session in hop.all_sessions() {
                self.actions.push_back(Action::Suspend { session, blocked });
                // An answer that is owed in a blockage shows nothing about the session.
                if let Some(answering) = self.sessions.answering_mut(session) {
                    answering.forget();
                }
            }
            self.scheduler.set_blocked(id.terminal(), blocked);
            if was_blocked && !blocked {
                self.link_unblocked(now, id);
            }
            self.hops_have_changed(now, neighbour);
            self.reconsider_reading(now, neighbour);
            self.after_change(now);
        }
    }

    /// Takes traffic that the scheduler does not send (ACKs, plain IP) from a
    /// hop's rate, bit/s of IP bytes.
    pub fn subtract(&mut self, now: Instant, id: HopId, bps: u64) {
        if let Some(hop) = self.hops.get_mut(&id)
            && hop.subtracted_bps != bps
        {
            hop.subtracted_bps = bps;
            let paced = hop.paced_bps.unwrap_or(0);
            let moved = hop.pace_bps().unwrap_or(0).abs_diff(paced) > paced / PACING_STEPS;
            self.scheduler.subtract(now, id.terminal(), bps);
            if moved {
                self.pace(id);
            }
            self.after_change(now);
        }
    }

    /// Takes how many bytes each session of a hop has not sent yet, with its class; a session
    /// without a class carries all. After the hop's rate was lowered, more may wait in the sessions
    /// than the scheduler has charged: classes of their priority and below are granted nothing more
    /// until these bytes could be sent at the new rate.
    pub fn observe_unsent(
        &mut self,
        now: Instant,
        id: HopId,
        sessions: impl IntoIterator<Item = (Option<Class>, u64)>,
    ) {
        if let Some(hop) = self.hops.get_mut(&id)
            && std::mem::take(&mut hop.lowered)
        {
            let unsent = sessions.into_iter().filter(|(_, bytes)| *bytes > 0);
            // In a session of all classes, every class waits behind all that is in it.
            let of_class = |(class, bytes): (Option<Class>, u64)| {
                (class.unwrap_or(Class::SIGNALLING), hop.wire.ip_bytes(bytes))
            };
            let unsent: Vec<(Class, u64)> = unsent.map(of_class).collect();
            self.scheduler.wait_for_unsent(now, id.terminal(), &unsent);
        }
    }

    /// Gives up a stored bundle; streams of this node whose bytes are in it are reset. Returns
    /// whether there was such a bundle.
    pub fn cancel(&mut self, now: Instant, id: BundleId) -> bool {
        let found = self.agent.cancel(now, id);
        self.after_change(now);
        found
    }
}
