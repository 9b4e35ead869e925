//! A hub's messages to its terminals.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::SendError;
use underpass_cla::Class;
use underpass_engine::Message as Envelope;
use underpass_plans::{Message, SERVICE};

use super::Plans;
use super::parts::DuePart;

/// How long a part is useful after its plan's end: it still gives the guaranteed rate.
const USE_AFTER_END: Duration = Duration::from_secs(60);

/// How long to wait when custody has no room, or the time is not known.
const RETRY: Duration = Duration::from_secs(1);

/// Sends the terminals what is due. Runs until dropped.
pub async fn run(plans: Arc<Plans>) {
    loop {
        match plans.tell() {
            Some(next) => {
                let _ = tokio::time::timeout_at(next.into(), plans.due.notified()).await;
            }
            None => plans.due.notified().await,
        }
    }
}

impl Plans {
    /// Tells what is due; when to look again.
    fn tell(&self) -> Option<Instant> {
        let now = Instant::now();
        let (due, mut next) = self.parts().due(now);
        for part in due {
            match self.tell_terminal(&part) {
                Ok(bundle) => self.parts().told(now, &part, bundle),
                Err(Later) => next = Some(next.map_or(now + RETRY, |at| at.min(now + RETRY))),
            }
        }
        next
    }

    /// Replaces the previous part if that has not left: a terminal that was blocked for an hour
    /// then gets one plan, not all of them.
    fn tell_terminal(&self, due: &DuePart) -> Result<Option<underpass_bundle::BundleId>, Later> {
        let terminal = due.terminal;
        let (Some(control_ms), Some(plan)) = (self.clock.now_ms(), due.plan.part(terminal)) else {
            return Err(Later);
        };
        let left = plan.end_ms().saturating_sub(control_ms);
        let longest = Duration::from_secs(self.config.get().custody.lifetime_s);
        let lifetime = (Duration::from_millis(left) + USE_AFTER_END).min(longest);
        let message = Message { control_ms, plan };
        let envelope = Envelope::new(
            terminal,
            SERVICE,
            Class::SIGNALLING,
            Bytes::from(message.encode()),
        );
        let version = due.plan.version();
        match self.shell.send_message(envelope, lifetime, due.before) {
            Ok(bundle) => Ok(Some(bundle)),
            Err(SendError::NoRoom) => Err(Later),
            Err(error) => {
                tracing::warn!(terminal, version, %error, "plan not passed on");
                Ok(None)
            }
        }
    }
}

/// It cannot be done at present.
struct Later;
