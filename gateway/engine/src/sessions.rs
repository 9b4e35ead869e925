//! Sessions of the convergence layers come, take bundles, and go.

use std::time::Instant;

use underpass_bundle::NeighbourId;
use underpass_cla::{Class, Outcome, SessionId, SessionInfo};
use underpass_plans::Direction;

use crate::engine::{Action, Engine};
use crate::hop::{Hop, HopId};
use crate::link::Sign;
use crate::transfers::InFlight;

impl Engine {
    /// Whether this node has a class.
    pub fn has_class(&self, class: Class) -> bool {
        self.classes.contains(&class)
    }

    /// The hop a session belongs to: the one of its path if it was dialled,
    /// else the one to its neighbour that comes in by its listener.
    pub fn hop_of(&self, neighbour: u64, path: &str) -> Option<HopId> {
        self.ways.hop_of(neighbour, path)
    }

    /// The neighbour that a session is with.
    pub fn session_neighbour(&self, id: SessionId) -> Option<u64> {
        self.neighbour_of(self.sessions.get(id)?.hop)
    }

    /// A session is up on `hop`. A session that only receives lets this node hear the peer, but not
    /// reach it.
    pub fn session_up(&mut self, now: Instant, id: SessionId, hop: HopId, info: SessionInfo) {
        let Some(state) = self.hops.get_mut(&hop) else {
            return;
        };
        if info.receives_only {
            state.insert(&info, id);
            self.sessions.insert(id, hop, info);
            self.end_surplus(now, hop);
            self.heard(now, hop, now, Sign::Session);
            self.after_change(now);
            return;
        }
        let neighbour = state.config.neighbour;
        let announced = info.incarnation.map(|run| (run, info.former_over_by));
        let was_up = state.is_up();
        state.insert(&info, id);
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
        self.sessions.insert(id, hop, info.clone());
        // Another class's session may have carried its class until now.
        self.leaves_changed(hop);
        self.replace_old(now, hop, &info);
        self.hops_have_changed(now, neighbour);
        self.path_connected(now, hop);
        self.wake(now, hop);
        if was_up {
            self.heard(now, hop, now, Sign::Session);
        } else {
            if let Some(state) = self.hops.get_mut(&hop) {
                state.link.renew(now);
                // The peer has answered. Whether it sends beacons, which would show that, too, is
                // not known any more.
                state.doubt.hears();
            }
            self.judge(now, hop);
            self.agent.neighbour_up(now, NeighbourId(neighbour));
            self.greet(neighbour);
        }
        if let Some((run, over_by)) = announced {
            self.change_streams(neighbour, |streams| {
                streams.peer_announced(now, run, over_by);
            });
            self.ask_about_withheld(now, neighbour);
        }
        self.after_change(now);
    }

    /// A session can take a bundle.
    pub fn session_ready(&mut self, now: Instant, id: SessionId) {
        if self.sessions.set_ready(id) {
            self.session_changed(id);
            self.after_change(now);
        }
    }

    /// The peer's convergence layer has acknowledged so many bytes of the
    /// bundle of transfer `key`.
    pub fn transfer_progress(&mut self, key: u64, acknowledged: u64) {
        self.peer_has_heard(key);
        self.sessions.progress(key, acknowledged);
    }

    /// Notes that the peer has acknowledged a transfer, or a part of it: it hears what was sent
    /// since the transfer was offered. On a transport without acknowledgements, the end of a transfer
    /// does not show that.
    fn peer_has_heard(&mut self, key: u64) {
        let Some((id, offered)) = self.sessions.offer_of(key) else {
            return;
        };
        let session = self.sessions.get(id);
        let session = session.filter(|session| session.info.acknowledges);
        let hop = session.and_then(|session| self.hops.get_mut(&session.hop));
        if let Some(hop) = hop {
            hop.link.answered(offered);
            hop.doubt.answered(offered);
        }
    }

    /// A transfer ended.
    pub fn transfer_finished(&mut self, now: Instant, key: u64, outcome: Outcome) {
        let session = self.sessions.offer_of(key).map(|(id, _)| id);
        let taken = session.filter(|_| outcome == Outcome::Acknowledged);
        if let Some(session) = taken {
            self.peer_has_heard(key);
            self.learn_lag(now, session, key);
        }
        let kept = session.and_then(|id| self.sessions.get(id));
        let kept = kept.is_some_and(|session| session.info.resumes);
        let outcome = match outcome {
            // A peer that does not resume transfers keeps no part of a broken one.
            Outcome::Broken { .. } if !kept => Outcome::Broken { acknowledged: 0 },
            told => told,
        };
        // A transfer that was given up is on another session by now.
        if self.sessions.finish(key, &outcome) {
            self.agent.transfer_finished(now, key, outcome);
            if let Some(session) = taken {
                self.relieve_standing(now, session);
            }
            self.after_change(now);
        }
    }

    /// Notes that a session is gone. Most of its transfers have ended already, but it may never
    /// have seen one that was offered while it went down.
    pub fn session_down(&mut self, now: Instant, id: SessionId) {
        self.requeue_transfers(now, id);
        let Some(session) = self.sessions.remove(id) else {
            return;
        };
        let Some(hop) = self.hops.get_mut(&session.hop) else {
            return;
        };
        hop.remove(&session.info, id);
        if session.info.receives_only {
            return;
        }
        let neighbour = hop.config.neighbour;
        self.leaves_changed(session.hop);
        self.hops_have_changed(now, neighbour);
        self.path_connected(now, session.hop);
        let hops = self.hops_to(neighbour);
        let up = |id: &HopId| self.hops.get(id).is_some_and(Hop::is_up);
        if !hops.iter().any(up) {
            self.agent.neighbour_down(now, NeighbourId(neighbour));
        }
        self.after_change(now);
    }

    /// Takes all unfinished transfers from a session, to send them again on another one.
    ///
    /// A blockage is at the terminal's antenna. What left the terminal before it last heard the hub
    /// has arrived; only the answers, a round trip later, were lost. So after a blockage these
    /// bundles are sent last: the hub waits for those behind them. When a bundle has left is
    /// estimated with the usual lag of its session.
    pub(crate) fn requeue_transfers(&mut self, now: Instant, id: SessionId) {
        let through = self.sessions.get(id).and_then(|session| {
            let hop = self.hops.get(&session.hop)?;
            hop.follows(Direction::Return)?;
            let lag = hop.lags.most(session.info.class);
            hop.heard_before_blockage?.checked_sub(lag)
        });
        for (key, transfer) in self.sessions.give_back(id) {
            let InFlight {
                left_by,
                acknowledged,
                ..
            } = transfer;
            if through.is_some_and(|heard| left_by <= heard) {
                self.agent.transfer_unanswered(key, acknowledged);
            } else {
                let outcome = Outcome::Broken { acknowledged };
                self.agent.transfer_finished(now, key, outcome);
            }
        }
    }

    /// Creates the streams with the edge nodes that a neighbour leads to, which greets them. A
    /// neighbour that others are routed over may be a relay without streams; if it has streams, it
    /// greets first.
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
