//! Standby sessions take over.
//!
//! TCP repeats what a blockage has swallowed when its own timer says so, which may be a minute
//! after the link is back. A session with nothing in flight sends at once. So when the link
//! returns, all that was offered to a session and not acknowledged goes to the standby, and the old
//! session is ended.
//!
//! Both ends may do so at once, each by itself, and agree afterwards: the
//! session that carries a class is the oldest one left, and a peer that
//! begins a transfer on a younger one has given up those before it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use underpass_cla::{SessionId, SessionInfo};

use crate::engine::{Action, Engine};
use crate::hop::{Hop, HopId};
use crate::transfers::Session;

const LINK_UNBLOCKED: &str = "the link is back and the standby goes on";
pub(crate) const UNANSWERED: &str = "nothing is answered on it, and the link carries";
const PEER_MOVED: &str = "the peer goes on with another session";
const PEER_RESTARTED: &str = "the peer has started anew";
const ADDRESS_MOVED: &str = "the peer goes on from another address";
const TOO_MANY: &str = "the peer has newer sessions, and no room for this one";

impl Engine {
    /// The link of a hop is back: what was in flight goes on elsewhere.
    pub(crate) fn link_unblocked(&mut self, now: Instant, id: HopId) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        let groups: Vec<Vec<SessionId>> = hop
            .sessions
            .iter()
            .map(|set| set.iter().copied().collect())
            .collect();
        // A peer that does not know classes has one session, and another one
        // only once that is gone.
        let classless: Vec<SessionId> = hop.classless.iter().copied().collect();
        for sessions in groups {
            let (waiting, idle): (Vec<_>, Vec<_>) =
                sessions.into_iter().partition(|id| self.has_in_flight(*id));
            for session in waiting {
                match idle.is_empty() {
                    false => self.give_up_session(now, session, LINK_UNBLOCKED),
                    true => self.sessions.mark_stale(session),
                }
            }
        }
        for session in classless {
            if self.has_in_flight(session) {
                self.give_up_session(now, session, LINK_UNBLOCKED);
            }
        }
    }

    fn has_in_flight(&self, id: SessionId) -> bool {
        self.sessions.get(id).is_some_and(Session::has_in_flight)
    }

    /// Notes that a session came up. It replaces all sessions of an earlier incarnation of the
    /// peer. It also replaces those of its class that are dead, or have moved nothing since the
    /// link came back or since a session came up from another address. The idle ones from the same
    /// address as these go with them.
    pub(crate) fn replace_old(&mut self, now: Instant, id: HopId, newcomer: &SessionInfo) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        let (class, incarnation) = (newcomer.class, newcomer.incarnation);
        let mut left = BTreeSet::new();
        let sessions: Vec<SessionId> = hop.all_sessions().collect();
        let blocked = hop.blocked;
        for session_id in sessions {
            let Some(session) = self.sessions.get(session_id) else {
                continue;
            };
            let earlier = session.info.incarnation;
            let dead = self.is_dead(now, id, session_id);
            if earlier.is_some() && earlier < incarnation {
                self.give_up_session(now, session_id, PEER_RESTARTED);
            } else if (session.is_stale() || dead) && session.info.class == class && !blocked {
                let address = session.info.remote.ip();
                if address != newcomer.remote.ip() {
                    left.insert(address);
                }
                let reason = if dead { UNANSWERED } else { LINK_UNBLOCKED };
                self.give_up_session(now, session_id, reason);
            }
        }
        self.leave_addresses(now, id, newcomer, &left);
        self.end_surplus(now, id);
    }

    /// Ends a session if a peer has more than it may, since one peer could take the connections of
    /// all others. The newest stay: older ones are mostly dead, and neither end has noticed.
    pub(crate) fn end_surplus(&mut self, now: Instant, id: HopId) {
        if let Some(session) = self.hops.get(&id).and_then(Hop::surplus) {
            self.give_up_session(now, session, TOO_MANY);
        }
    }

    /// Ends the sessions of a newcomer's class from addresses that the peer has left. A session to
    /// any address but the newcomer's that has something in flight becomes stale unless it moves
    /// before the next session comes up: the peer may have left that address, too.
    fn leave_addresses(
        &mut self,
        now: Instant,
        id: HopId,
        newcomer: &SessionInfo,
        left: &BTreeSet<IpAddr>,
    ) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        let sessions: Vec<SessionId> = hop.all_sessions().collect();
        for id in sessions {
            let Some(session) = self.sessions.get(id) else {
                continue;
            };
            let (address, class) = (session.info.remote.ip(), session.info.class);
            if class == newcomer.class && left.contains(&address) {
                self.give_up_session(now, id, ADDRESS_MOVED);
            } else if address != newcomer.remote.ip() && session.has_in_flight() {
                self.sessions.mark_stale(id);
            }
        }
    }

    /// The peer begins a transfer on a session.
    pub(crate) fn peer_uses(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let (Some(class), Some(hop)) = (session.info.class, self.hops.get(&session.hop)) else {
            return;
        };
        if !hop.has(class, id) {
            return;
        }
        let given_up = hop.older(class, id);
        for older in &given_up {
            self.give_up_session(now, *older, PEER_MOVED);
        }
        if !given_up.is_empty() {
            self.after_change(now);
        }
    }

    /// Ends a session. What was in flight on it is the first to go on the next one.
    pub(crate) fn give_up_session(&mut self, now: Instant, id: SessionId, reason: &'static str) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let hop = session.hop;
        self.requeue_transfers(now, id);
        if let (Some(state), Some(session)) = (self.hops.get_mut(&hop), self.sessions.get(id)) {
            state.remove(&session.info, id);
        }
        self.actions.push_back(Action::Abort {
            session: id,
            reason,
        });
        self.leaves_changed(hop);
    }
}
