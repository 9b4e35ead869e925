//! The shell as the convergence layers see it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use underpass_cla::{Down, Node, Outcome, Refusal, Session, SessionId, SessionInfo};
use underpass_engine::{EngineConfig, EngineError, HopId};

use super::{Inner, Shell};

/// Which node ids the neighbours announce.
#[derive(Clone, Debug, Default)]
pub struct NeighbourNames {
    numbers: HashMap<String, u64>,
}

impl NeighbourNames {
    /// Names of the form `ipn:N.0` for each neighbour (RFC 9758).
    pub fn new(neighbours: impl IntoIterator<Item = u64>) -> NeighbourNames {
        NeighbourNames {
            numbers: neighbours
                .into_iter()
                .map(|number| (format!("ipn:{number}.0"), number))
                .collect(),
        }
    }

    /// The ipn node number of a node id.
    pub fn number(&self, node_id: &str) -> Option<u64> {
        self.numbers.get(node_id).copied()
    }
}

impl Inner {
    /// The hop of a session that comes up; none if its peer is no neighbour.
    fn hop_of(&self, info: &SessionInfo) -> Option<HopId> {
        let neighbour = self.names.number(&info.peer_node_id)?;
        self.engine.hop_of(neighbour, &info.path)
    }
}

impl Shell {
    /// Takes another configuration over, with the neighbours that it names.
    ///
    /// # Errors
    /// When it contradicts itself; nothing has changed then.
    pub fn reconfigure(
        &self,
        config: EngineConfig,
        names: NeighbourNames,
    ) -> Result<(), EngineError> {
        self.with_inner(|inner, now| {
            inner.engine.reconfigure(now, config)?;
            inner.names = names;
            let hops = inner.engine.hop_ids();
            inner.links.retain(&hops);
            Ok(())
        })
    }
}

impl Node for Shell {
    fn session_up(&self, id: SessionId, info: SessionInfo, session: Arc<dyn Session>) -> SessionId {
        let hop = {
            let mut inner = self.lock();
            let hop = inner.hop_of(&info);
            hop.map(|hop| (hop, inner.links.activity(hop)))
        };
        let Some((hop, activity)) = hop else {
            tracing::warn!(peer = info.peer_node_id, remote = %info.remote, "not a configured neighbour");
            session.abort("not a configured neighbour");
            return id;
        };
        tracing::info!(
            peer = info.peer_node_id,
            remote = %info.remote,
            path = info.path,
            class = info.class.map(|class| class.0),
            standby = info.standby,
            tls = info.tls,
            congestion_control = info.congestion_control,
            "session up"
        );
        if let (Some(beacons), Some(key)) = (self.beacons.get(), &info.exported_key) {
            beacons.add_key(&info.path, hop, key);
        }
        session.share(activity.clone());
        let refused = self.with_inner(|inner, now| {
            // A reload may have removed the hop by now.
            if inner.hop_of(&info) != Some(hop) {
                return Some(session);
            }
            inner.sessions.insert(id, session);
            inner.engine.session_up(now, id, hop, info);
            activity.moved();
            None
        });
        if let Some(session) = refused {
            session.abort("not a configured neighbour any more");
        }
        id
    }

    fn ready(&self, id: SessionId) {
        self.with(|engine, now| engine.session_ready(now, id));
    }

    fn admit(&self, id: SessionId, length: Option<u64>) -> Result<(), Refusal> {
        self.with(|engine, now| engine.admit(now, id, length))
    }

    fn received(&self, id: SessionId, bundle: Bytes) -> Result<(), Refusal> {
        // Many sessions decode at once; the engine serves one after the other.
        let bundle = self.decoder.decode(&bundle);
        self.with_inner(|inner, now| {
            let outcome = inner.engine.receive(now, id, bundle);
            if outcome.is_err() {
                inner.counts.refused_bundles += 1;
            }
            outcome
        })
    }

    fn progress(&self, _id: SessionId, key: u64, acknowledged: u64) {
        self.lock().engine.transfer_progress(key, acknowledged);
    }

    fn finished(&self, _id: SessionId, key: u64, outcome: Outcome) {
        self.with(|engine, now| engine.transfer_finished(now, key, outcome));
    }

    fn session_down(&self, id: SessionId, reason: Down) {
        let last = self.session_reading(id);
        self.with_inner(|inner, now| {
            if inner.sessions.remove(&id).is_some() {
                if let Some(last) = last {
                    inner.transport.observe(&last);
                }
                inner.transport.forget(id);
                tracing::info!(session = id.0, ?reason, "session down");
                inner.engine.session_down(now, id);
            }
        });
    }
}
