//! Terminals' reports at their hub.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use underpass_engine::Message as Envelope;
use underpass_reports::{Body, Message, Report, SERVICE, Status};

use crate::shell::{Service, Shell};

/// A node's latest status.
#[derive(Clone, Debug)]
pub struct Latest {
    /// The node's run.
    pub incarnation: u64,
    /// For how long it had run, ms.
    pub uptime_ms: u64,
    /// The status.
    pub status: Status,
    /// When it was made.
    pub at: Instant,
}

/// The latest status of each terminal.
#[derive(Debug, Default)]
pub struct Intake {
    latest: Mutex<BTreeMap<u64, Latest>>,
}

impl Intake {
    /// Takes in what terminals send from now on.
    pub(in crate::run) fn start(shell: &Shell) -> Arc<Intake> {
        let intake = Arc::new(Intake::default());
        shell.register(SERVICE, intake.clone());
        intake
    }

    /// The latest status of each terminal that has sent any.
    pub fn latest(&self) -> BTreeMap<u64, Latest> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Latest>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, peer: u64, report: Report, at: Instant) {
        let Body::Status(status) = report.body else {
            return;
        };
        let next = Latest {
            incarnation: report.incarnation,
            uptime_ms: report.uptime_ms,
            status,
            at,
        };
        let mut latest = self.lock();
        // Late ones of a blockage come after the newest.
        let order = |latest: &Latest| (latest.incarnation, latest.uptime_ms);
        let known = latest.get(&peer);
        if known.is_none_or(|known| order(known) < order(&next)) {
            latest.insert(peer, next);
        }
    }
}

impl Service for Intake {
    fn message(&self, message: Envelope) {
        let peer = message.peer;
        match Message::decode(&message.payload) {
            Ok(decoded) => {
                let now = Instant::now();
                let at = now.checked_sub(message.age).unwrap_or(now);
                for report in decoded.reports {
                    self.take(peer, report, at);
                }
            }
            Err(error) => tracing::warn!(peer, %error, "reports refused"),
        }
    }

    fn peer_restarted(&self, _peer: u64) {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use underpass_cla::Class;

    use super::*;

    fn status(incarnation: u64, uptime_ms: u64) -> Report {
        let status = Status {
            time_ms: None,
            clock_offset_ms: None,
            synchronised: false,
            links: vec![],
        };
        Report {
            body: Body::Status(status),
            uptime_ms,
            incarnation,
        }
    }

    #[test]
    fn late_reports_do_not_replace_the_newest() {
        let intake = Intake::default();
        let now = Instant::now();
        for (incarnation, uptime_ms) in [(1, 9000), (1, 4000), (2, 1000), (1, 9500)] {
            intake.take(10, status(incarnation, uptime_ms), now);
        }
        let latest = &intake.latest()[&10];
        assert_eq!((latest.incarnation, latest.uptime_ms), (2, 1000));
    }

    #[test]
    fn nonsense_is_refused_and_changes_nothing() {
        let intake = Intake::default();
        intake.message(Envelope {
            peer: 10,
            service: SERVICE,
            class: Class::SIGNALLING,
            age: Duration::ZERO,
            payload: Bytes::from_static(b"{\"version\":1"),
        });
        assert!(intake.latest().is_empty());
    }
}
