//! The shell as the convergence layers see it.

use std::sync::Arc;

use bytes::Bytes;
use underpass_bundle::{Decoded, Sharding};
use underpass_cla::{Down, Intake, Node, Outcome, Refusal, Session, SessionId, SessionInfo};
use underpass_engine::{EngineConfig, EngineError};
use underpass_payloads::Spool;

use super::Shell;
use super::directory::{Directory, of_session, outside};
use super::shard::Inner;

impl Shell {
    /// Applies another configuration, with the neighbours that it names.
    ///
    /// # Errors
    /// When it contradicts itself; nothing has changed then.
    pub fn reconfigure(&self, config: &EngineConfig) -> Result<(), EngineError> {
        let count = self.shards.len();
        // All shards check first: what one shard has applied cannot be undone.
        for shard in self.numbers() {
            self.lock(shard).engine.check(config)?;
        }
        for shard in self.numbers() {
            self.with_inner(shard, |inner, now| {
                inner.engine.reconfigure(now, config.clone())?;
                let hops = inner.engine.hop_ids();
                inner.links.retain(&hops);
                Ok::<(), EngineError>(())
            })?;
        }
        *self.directory.write().unwrap() = Directory::new(config, count);
        Ok(())
    }

    pub(super) fn of_session(&self, id: SessionId) -> usize {
        of_session(self.shards.len(), id)
    }

    /// Takes a bundle that has come on a session.
    pub(super) fn receive(&self, id: SessionId, bundle: Decoded) -> Result<(), Refusal> {
        let shard = self.of_session(id);
        let counted = |inner: &mut Inner, outcome: Result<(), Refusal>| {
            inner.counts.refused_bundles += u64::from(outcome.is_err());
            outcome
        };
        let (mut taken, mut unopened) = self.with_inner(shard, |inner, now| {
            let taken = inner.engine.receive(now, id, bundle);
            (counted(inner, taken), inner.engine.take_unopened())
        });
        // The bundle in a BPDU may be a fragment that makes another one whole.
        while let Some(whole) = unopened {
            let opened = self.decoder.open_whole(whole);
            (taken, unopened) = self.with_inner(shard, |inner, now| {
                let taken = inner.engine.receive_opened(now, Some(id), opened);
                (counted(inner, taken), inner.engine.take_unopened())
            });
        }
        taken
    }
}

impl Node for Shell {
    fn session_up(
        &self,
        id: SessionId,
        mut info: SessionInfo,
        session: Arc<dyn Session>,
    ) -> SessionId {
        let neighbour = self.directory().neighbour(&info.peer_node_id);
        let (neighbour, shard) = neighbour.unzip();
        let shard = shard.unwrap_or_default();
        let hop = {
            let mut inner = self.lock(shard);
            let hop = neighbour.and_then(|number| inner.engine.hop_of(number, &info.path));
            hop.map(|hop| (hop, inner.links.activity(hop)))
        };
        let own = Sharding {
            own: shard,
            count: self.shards.len(),
        };
        let id = SessionId(outside(own, id.0));
        let (Some((hop, activity)), Some(neighbour)) = (hop, neighbour) else {
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
            receives_only = info.receives_only,
            tls = info.tls,
            congestion_control = info.congestion_control,
            "session up"
        );
        if let (Some(beacons), Some(key)) = (self.beacons.get(), &info.exported_key) {
            beacons.add_key(&info.path, hop, key);
        }
        if self.sleep.has_slept() {
            info.former_over_by = None;
        }
        session.share(activity.clone());
        let (peer, class) = (info.peer_node_id.clone(), info.class);
        let refused = self.with_inner(shard, |inner, now| {
            if let Some(class) = class.filter(|class| !inner.engine.has_class(*class)) {
                tracing::warn!(
                    peer,
                    class = class.0,
                    "the peer has a class that this node has not: both need the same [[class]] list"
                );
            }
            // A reload may have removed the hop by now.
            if inner.engine.hop_of(neighbour, &info.path) != Some(hop) {
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
        let shard = self.of_session(id);
        self.with_inner(shard, |inner, now| inner.engine.session_ready(now, id));
    }

    fn admit(&self, id: SessionId, length: Option<u64>) -> Result<(), Refusal> {
        // A payload on disk has its own reserved room.
        let in_memory = length.filter(|length| !self.is_long(*length));
        let shard = self.of_session(id);
        self.with_inner(shard, |inner, now| inner.engine.admit(now, id, in_memory))
    }

    fn intake(&self, id: SessionId, length: u64) -> Result<Option<Box<dyn Intake>>, Refusal> {
        match self.is_long(length) {
            true => self.long_intake(id, length),
            false => Ok(None),
        }
    }

    fn spool(&self, id: SessionId) -> Result<Spool, Refusal> {
        self.long_spool(id)
    }

    fn received(&self, id: SessionId, bundle: Bytes) -> Result<(), Refusal> {
        // Sessions decode in parallel; their engine serves one after the other.
        self.receive(id, self.decoder.decode(&bundle))
    }

    fn progress(&self, id: SessionId, key: u64, acknowledged: u64) {
        let mut inner = self.lock(self.of_session(id));
        inner.engine.transfer_progress(key, acknowledged);
    }

    fn finished(&self, id: SessionId, key: u64, outcome: Outcome) {
        self.with_inner(self.of_session(id), |inner, now| {
            inner.engine.transfer_finished(now, key, outcome);
        });
    }

    fn session_down(&self, id: SessionId, reason: Down) {
        let last = self.session_reading(id);
        self.with_inner(self.of_session(id), |inner, now| {
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
