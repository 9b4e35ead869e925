//! A terminal's side of the messages that bring plans.

use std::sync::{Arc, Weak};
use std::time::Instant;

use underpass_engine::Message as Envelope;
use underpass_plans::{Message, Refused};

use super::{Plans, TakeError};
use crate::config::{Config, PathConfig, Role};
use crate::shell::Service;

/// The service that takes plans. It has only a weak reference, since the plans own the shell, and
/// the shell has this service.
pub struct Receiver(Weak<Plans>);

impl Receiver {
    /// The receiver of a node's plans.
    pub fn of(plans: &Arc<Plans>) -> Receiver {
        Receiver(Arc::downgrade(plans))
    }
}

impl Service for Receiver {
    fn message(&self, message: Envelope) {
        if let Some(plans) = self.0.upgrade() {
            plans.received(&message);
        }
    }

    fn peer_restarted(&self, peer: u64) {
        if let Some(plans) = self.0.upgrade() {
            plans.parts().restarted(peer);
            plans.due.notify_one();
        }
    }
}

impl Plans {
    fn received(&self, envelope: &Envelope) {
        let peer = envelope.peer;
        let Some(neighbour) = way_of(&self.config.get(), peer) else {
            tracing::warn!(peer, "a plan from a node that gives this one none");
            return;
        };
        let message = match Message::decode(&envelope.payload) {
            Ok(message) => message,
            Err(error) => {
                tracing::warn!(peer, %error, "plan refused");
                return;
            }
        };
        let hop = self.path_for(message.plan.beam(), Some(neighbour));
        let rtt = hop.and_then(|(name, hop)| {
            let config = self.config.get();
            let configured = config.paths.iter().find(|path| path.name == name);
            let measured = self.shell.least_rtt(hop);
            measured.or_else(|| configured.map(PathConfig::rtt))
        });
        let on_way = envelope.age + rtt.unwrap_or_default() / 2;
        let on_way_ms = u64::try_from(on_way.as_millis()).unwrap_or(u64::MAX);
        let control_ms = message.control_ms.saturating_add(on_way_ms);
        self.clock.heard(Instant::now(), control_ms);
        let plan = Arc::new(message.plan);
        let version = plan.version();
        match self.follow_return(&plan, Some(neighbour)) {
            Ok(()) => tracing::info!(
                beam = plan.beam(),
                version,
                age_ms = envelope.age.as_millis(),
                clock_offset_ms = self.clock.offset_ms(),
                "plan taken"
            ),
            // After a restart a plan comes again; control must learn that it is followed.
            Err(TakeError::Refused(Refused::Old { known, .. })) if known == version => {
                self.acknowledge(&plan, Some(self.config.get().node.number));
            }
            Err(error) => tracing::info!(peer, version, %error, "plan not followed"),
        }
    }
}

/// The neighbour by which messages of `hub` come, if that hub gives this terminal its plans and
/// settings: it must be a node to which a path leads, or the one that gets the reports.
pub(in crate::run) fn way_of(config: &Config, hub: u64) -> Option<u64> {
    if config.node.role != Role::Terminal {
        return None;
    }
    let routed = config.routes.iter().find(|route| route.node == Some(hub));
    let neighbour = routed.map_or(hub, |route| route.via);
    let direct = config.paths.iter().any(|path| path.neighbour == hub);
    let reported = config.reports.as_ref().is_some_and(|to| to.to == hub);
    (direct || reported).then_some(neighbour)
}
