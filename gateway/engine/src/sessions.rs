//! Sessions of the convergence layers come, take bundles, and go.

use std::collections::BTreeSet;
use std::time::Instant;

use underpass_bundle::NeighbourId;
use underpass_cla::{EXPRESS_ROOM_BYTES, Outcome, SessionId, SessionInfo};

use crate::engine::{Action, Engine};
use crate::hop::{Hop, HopId};
use crate::link::Sign;

/// What the engine knows of a session.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub hop: HopId,
    pub info: SessionInfo,
    /// It can take a bundle.
    pub ready: bool,
    /// Bytes of short bundles that it takes until it is ready again.
    pub room_bytes: u64,
    /// Transfers offered and not ended.
    pub in_flight: BTreeSet<u64>,
    /// Of these the long ones, whose lost segments hold up what follows.
    pub long_in_flight: BTreeSet<u64>,
    /// The link was lost and came back since its transfers began: unless they
    /// move, they go to the next session that comes up.
    pub stale: bool,
}

/// A transfer that is not ended.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub session: SessionId,
    /// Bytes of its bundle that the peer has acknowledged.
    pub acknowledged: u64,
}

impl InFlight {
    pub fn on(session: SessionId) -> InFlight {
        InFlight {
            session,
            acknowledged: 0,
        }
    }
}

impl Engine {
    /// The hop a session belongs to: the one of its path if it was dialled,
    /// else the one to its neighbour.
    pub fn hop_of(&self, neighbour: u64, path: &str) -> Option<HopId> {
        let hops = self.hops_to(neighbour);
        let named = self.hop_named(path).filter(|id| hops.contains(id));
        named.or_else(|| hops.first().copied())
    }

    /// A session is up on `hop`.
    pub fn session_up(&mut self, now: Instant, id: SessionId, hop: HopId, info: SessionInfo) {
        let Some(state) = self.hops.get_mut(&hop) else {
            return;
        };
        let neighbour = state.config.neighbour;
        let (class, incarnation) = (info.class, info.incarnation);
        let was_up = state.is_up();
        state.insert(info.class, id);
        state.mru_bytes = Some(info.transfer_mru_bytes);
        state.runs_over(info.remote.ip().to_canonical().is_ipv6());
        self.actions.push_back(Action::SetRate {
            session: id,
            ip_bps: state.paced_bps,
        });
        if state.blocked {
            self.actions.push_back(Action::Suspend {
                session: id,
                blocked: true,
            });
        }
        self.sessions.insert(
            id,
            SessionState {
                hop,
                info,
                ready: false,
                room_bytes: 0,
                in_flight: BTreeSet::new(),
                long_in_flight: BTreeSet::new(),
                stale: false,
            },
        );
        // Its class may have been carried by another's until now.
        self.leaves_changed(hop);
        self.replace_old(now, hop, class, incarnation);
        if was_up {
            self.heard(now, hop, now, Sign::Session);
        } else {
            if let Some(state) = self.hops.get_mut(&hop) {
                state.link.renew(now);
            }
            self.judge(now, hop);
            self.agent.neighbour_up(now, NeighbourId(neighbour));
            self.greet(neighbour);
        }
        if let Some(run) = incarnation {
            self.change_streams(neighbour, |streams| streams.peer_announced(now, run));
            self.ask_about_withheld(now, neighbour);
        }
        self.after_change(now);
    }

    /// A session can take a bundle.
    pub fn session_ready(&mut self, now: Instant, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.ready = true;
            session.room_bytes = EXPRESS_ROOM_BYTES;
            self.session_changed(id);
            self.after_change(now);
        }
    }

    /// The peer's convergence layer has acknowledged so many bytes of the
    /// bundle of transfer `key`.
    pub fn transfer_progress(&mut self, key: u64, acknowledged: u64) {
        if let Some(transfer) = self.transfers.get_mut(&key) {
            transfer.acknowledged = acknowledged;
            if let Some(session) = self.sessions.get_mut(&transfer.session) {
                session.stale = false;
            }
        }
    }

    /// A transfer ended.
    pub fn transfer_finished(&mut self, now: Instant, key: u64, outcome: Outcome) {
        // One that was given up is on another session by now.
        let Some(transfer) = self.transfers.remove(&key) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(&transfer.session) {
            session.in_flight.remove(&key);
            session.long_in_flight.remove(&key);
            session.stale &= matches!(outcome, Outcome::Broken { .. });
        }
        self.agent.transfer_finished(now, key, outcome);
        self.after_change(now);
    }

    /// A session is gone. Most of its transfers have been reported; one that
    /// was offered while it went down may have been seen by nobody there.
    pub fn session_down(&mut self, now: Instant, id: SessionId) {
        self.requeue_transfers(now, id);
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        let Some(hop) = self.hops.get_mut(&session.hop) else {
            return;
        };
        hop.remove(session.info.class, id);
        let neighbour = hop.config.neighbour;
        self.leaves_changed(session.hop);
        let hops = self.hops_to(neighbour);
        let up = |id: &HopId| self.hops.get(id).is_some_and(Hop::is_up);
        if !hops.iter().any(up) {
            self.agent.neighbour_down(now, NeighbourId(neighbour));
        }
        self.after_change(now);
    }

    /// Takes all that was offered to a session and not ended from it: it is
    /// sent again, on another one.
    pub(crate) fn requeue_transfers(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        session.ready = false;
        session.room_bytes = 0;
        session.long_in_flight.clear();
        for key in std::mem::take(&mut session.in_flight) {
            let transfer = self.transfers.remove(&key);
            let acknowledged = transfer.map_or(0, |transfer| transfer.acknowledged);
            let outcome = Outcome::Broken { acknowledged };
            self.agent.transfer_finished(now, key, outcome);
        }
    }

    /// The edge nodes that a neighbour leads to get their streams, and with
    /// them its greeting. A neighbour that others are routed over may be a
    /// relay without streams; if it has any, it greets first.
    fn greet(&mut self, neighbour: u64) {
        if !self.config.edge {
            return;
        }
        let mut behind = self.ways.routed_by(neighbour);
        if behind.is_empty() || self.peers.contains(neighbour) {
            behind.push(neighbour);
        }
        for peer in behind {
            self.meet(peer);
            self.change_streams(peer, |_| ());
        }
    }
}
