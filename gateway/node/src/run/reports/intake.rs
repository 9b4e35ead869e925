//! Terminals' reports at their hub.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use underpass_cla::Class;
use underpass_control_client::{Lane, Posting, Taken};
use underpass_engine::Message as Envelope;
use underpass_reports::{
    Body, Message, MessageError, Position, Report, SERVICE, SettingsOutcome, Status,
};

use crate::run::control::lane;

use crate::shell::{Service, Shell};

/// A node's latest report of a kind.
#[derive(Clone, Debug)]
pub struct Latest<T> {
    /// The node's run.
    pub incarnation: u64,
    /// For how long it had run, ms.
    pub uptime_ms: u64,
    /// What it says.
    pub body: T,
    /// When it was made.
    pub at: Instant,
}

/// What a terminal has said last.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Of its links.
    pub status: Option<Latest<Status>>,
    /// Of where it is.
    pub position: Option<Latest<Position>>,
    /// Of what a provider has set.
    pub settings: Option<Latest<SettingsOutcome>>,
}

/// The latest status and position of each terminal. Their reports are passed on to the control
/// service, if there is one.
#[derive(Debug, Default)]
pub struct Intake {
    heard: Mutex<BTreeMap<u64, Heard>>,
    posting: Option<Posting>,
}

impl Intake {
    /// Takes in what terminals send from now on.
    pub(in crate::run) fn start(shell: &Shell, posting: Option<Posting>) -> Arc<Intake> {
        let intake = Arc::new(Intake {
            posting,
            ..Intake::default()
        });
        shell.register(SERVICE, intake.clone());
        intake
    }

    /// The latest reports of each terminal that has sent any.
    pub fn heard(&self) -> BTreeMap<u64, Heard> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Heard>> {
        self.heard.lock().unwrap()
    }

    fn take(&self, peer: u64, report: Report, at: Instant) {
        let place = (report.incarnation, report.uptime_ms);
        let mut heard = self.lock();
        let heard = heard.entry(peer).or_default();
        match report.body {
            Body::Status(status) => keep_newer(&mut heard.status, place, status, at),
            Body::Position(position) => keep_newer(&mut heard.position, place, position, at),
            Body::Settings(outcome) => keep_newer(&mut heard.settings, place, outcome, at),
            Body::Announcement(_) | Body::Blockage(_) | Body::Plan(_) => {}
        }
    }
}

/// Late reports from a blockage may come after the newest one. `place` is incarnation and uptime,
/// ms.
fn keep_newer<T>(known: &mut Option<Latest<T>>, place: (u64, u64), body: T, at: Instant) {
    let older = |known: &Latest<T>| (known.incarnation, known.uptime_ms) < place;
    if known.as_ref().is_none_or(older) {
        let (incarnation, uptime_ms) = place;
        *known = Some(Latest {
            incarnation,
            uptime_ms,
            body,
            at,
        });
    }
}

impl Intake {
    /// Takes in what a message says; as it goes on.
    fn read(&self, message: &Envelope) -> Result<Vec<Taken>, MessageError> {
        let decoded = Message::decode(&message.payload)?;
        let texts = Message::texts(&message.payload)?;
        let now = Instant::now();
        let sealed = now.checked_sub(message.age).unwrap_or(now);
        // Reports that waited for others in the bundle are older than the bundle.
        let mut taken = Vec::with_capacity(texts.len());
        let last = decoded.reports.last().map(|report| report.uptime_ms);
        for (report, text) in decoded.reports.into_iter().zip(texts) {
            let before = last.unwrap_or(0).saturating_sub(report.uptime_ms);
            let made = sealed.checked_sub(Duration::from_millis(before));
            let made = made.unwrap_or(sealed);
            let lane = match message.class {
                Class::SIGNALLING => lane(report.kind()),
                _ => Lane::Routine,
            };
            taken.push(Taken {
                lane,
                made,
                report: text.into(),
            });
            self.take(message.peer, report, made);
        }
        Ok(taken)
    }
}

impl Service for Intake {
    fn message(&self, message: Envelope) {
        let peer = message.peer;
        let taken = self.read(&message).unwrap_or_else(|error| {
            tracing::warn!(peer, %error, "reports refused");
            Vec::new()
        });
        if let Some(posting) = &self.posting {
            posting.take(peer, taken, message.ticket);
        }
    }

    fn peer_restarted(&self, _peer: u64) {}
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use underpass_cla::Class;

    use super::*;

    fn status(incarnation: u64, uptime_ms: u64) -> Report {
        let status = Status::default();
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
        let heard = &intake.heard()[&10];
        let latest = heard.status.as_ref().unwrap();
        assert_eq!((latest.incarnation, latest.uptime_ms), (2, 1000));
        assert!(heard.position.is_none(), "each kind has its own order");
    }

    #[test]
    fn nonsense_is_refused_and_changes_nothing() {
        let intake = Intake::default();
        intake.message(Envelope::new(
            10,
            SERVICE,
            Class::SIGNALLING,
            Bytes::from_static(b"{\"version\":1"),
        ));
        assert!(intake.heard().is_empty());
    }
}
