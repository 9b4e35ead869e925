//! What operators may see of an engine.

use serde::{Deserialize, Serialize};
use underpass_cla::{Class, SessionId};
use underpass_streams::{StreamInfo, StreamState};

use crate::engine::Engine;
use crate::hop::HopId;

/// A hop at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HopSnapshot {
    /// The path's or terminal's name.
    pub name: String,
    /// The neighbour's ipn node number.
    pub neighbour: u64,
    /// Whether any session is up.
    pub up: bool,
    /// Whether sending is held, by an operator or the plan.
    pub blocked: bool,
    /// Rate from this node, bit/s of IP bytes; none is unlimited.
    pub send_rate_bps: Option<u64>,
    /// Traffic that the scheduler does not send and takes from the rate, bit/s.
    pub subtracted_bps: u64,
    /// The sessions.
    pub sessions: Vec<SessionSnapshot>,
}

/// A session at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionSnapshot {
    /// Its number.
    pub id: u64,
    /// Its class; none carries all.
    pub class: Option<u8>,
    /// Whether it was set up as a standby.
    pub standby: bool,
    /// Whether it carries its class at present.
    pub carrying: bool,
    /// Remote address.
    pub remote: String,
    /// Whether TLS authenticates the peer.
    pub tls: bool,
    /// Congestion control in use.
    pub congestion_control: String,
}

/// Streams of one class in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// Streams with both directions open.
    pub open: u64,
    /// Streams with one direction ended.
    pub half_closed: u64,
    /// Streams closed here whose peer has not confirmed all.
    pub draining: u64,
    /// Bytes sealed in all.
    pub sent_bytes: u64,
    /// Bytes received in all.
    pub received_bytes: u64,
    /// Bytes that wait to be sealed.
    pub backlog_bytes: u64,
}

impl Engine {
    /// The hop a session runs on, and what one of its ACKs weighs, IP bytes.
    pub fn session_hop(&self, id: SessionId) -> Option<(HopId, u64)> {
        let hop = self.sessions.get(&id)?.hop;
        let state = self.hops.get(&hop)?;
        Some((hop, state.wire.ack_bytes()))
    }

    /// Every hop.
    pub fn hops(&self) -> Vec<HopSnapshot> {
        self.hops
            .values()
            .map(|hop| HopSnapshot {
                name: hop.config.name.clone(),
                neighbour: hop.config.neighbour,
                up: hop.is_up(),
                blocked: hop.blocked,
                send_rate_bps: hop.config.send_rate_bps,
                subtracted_bps: hop.subtracted_bps,
                sessions: hop
                    .all_sessions()
                    .filter_map(|id| self.session(id))
                    .collect(),
            })
            .collect()
    }

    fn session(&self, id: SessionId) -> Option<SessionSnapshot> {
        let session = self.sessions.get(&id)?;
        let hop = self.hops.get(&session.hop)?;
        let carrying = match session.info.class {
            Some(class) => hop.carrier(class) == Some(id),
            None => self.classes.iter().any(|c| hop.carrier(*c) == Some(id)),
        };
        Some(SessionSnapshot {
            id: id.0,
            class: session.info.class.map(|class| class.0),
            standby: session.info.standby,
            carrying,
            remote: session.info.remote.to_string(),
            tls: session.info.tls,
            congestion_control: session.info.congestion_control.clone(),
        })
    }

    /// All streams with their peers, in no order, at most `limit`.
    pub fn streams(&self, limit: usize) -> Vec<(u64, StreamInfo)> {
        self.muxes
            .iter()
            .flat_map(|(peer, mux)| mux.streams().map(|info| (*peer, info)))
            .take(limit)
            .collect()
    }

    /// Streams and their bytes in numbers, for each class in turn.
    pub fn stream_totals(&self) -> Vec<(Class, StreamTotals)> {
        let mut totals: Vec<_> = self
            .classes
            .iter()
            .map(|class| (*class, StreamTotals::default()))
            .collect();
        for mux in self.muxes.values() {
            for info in mux.streams() {
                let place = totals.iter_mut().find(|(class, _)| *class == info.class);
                if let Some((_, total)) = place {
                    match info.state {
                        StreamState::Early | StreamState::Open => total.open += 1,
                        StreamState::HalfClosedLocal | StreamState::HalfClosedRemote => {
                            total.half_closed += 1;
                        }
                        StreamState::Draining => total.draining += 1,
                    }
                }
            }
            let counters = mux.counters();
            for (class, total) in &mut totals {
                let place = usize::from(class.0);
                total.sent_bytes += counters.sent_bytes.get(place).copied().unwrap_or(0);
                total.received_bytes += counters.received_bytes.get(place).copied().unwrap_or(0);
                total.backlog_bytes += mux.backlog(*class).bytes;
            }
        }
        totals
    }
}
