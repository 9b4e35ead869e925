//! Reports: a terminal makes and sends them, a hub takes them in.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};
use underpass_bundle::SendError;
use underpass_cla::Class;
use underpass_engine::{HopSnapshot, Message as Envelope};
use underpass_reports::{
    Direction, LinkReport, LinkState, Message, Outbox, Report, SERVICE, Status, Urgency,
};

use crate::clock;
use crate::config::{Config, ReportsConfig, Role};
use crate::shell::{Service, Shell};

/// Waiting reports that are kept in memory.
const WAITING: usize = 4096;

/// Whether this node takes reports in.
pub(crate) fn takes_in(config: &Config) -> bool {
    config.node.role == Role::Hub
}

/// What a node says of its links.
pub struct Reporter {
    shell: Arc<Shell>,
    direction: Direction,
    /// The terminal that this node is; a hub's neighbours are its terminals.
    terminal: Option<u64>,
    incarnation: u64,
    started: Instant,
}

impl Reporter {
    /// The reporter of this node.
    pub fn new(shell: Arc<Shell>, config: &Config, incarnation: u64, started: Instant) -> Self {
        let is_terminal = config.node.role == Role::Terminal;
        Reporter {
            shell,
            direction: match is_terminal {
                true => Direction::Return,
                false => Direction::Forward,
            },
            terminal: is_terminal.then_some(config.node.number),
            incarnation,
            started,
        }
    }

    /// How the links are now.
    pub fn status(&self) -> Status {
        let sent = self.shell.transport_totals();
        let links = self.shell.read(|engine| {
            let hops = engine.hops();
            let described = hops.iter().map(|hop| {
                let demand = engine.demand(hop.id);
                let of_hop = sent.iter().filter(|((id, _), _)| *id == hop.id);
                LinkReport {
                    terminal: self.terminal.unwrap_or(hop.neighbour),
                    path: hop.name.clone(),
                    direction: self.direction,
                    state: state_of(hop),
                    offered_bytes: demand.offered_bytes,
                    backlogged_bytes: demand.backlogged_bytes,
                    sent_bytes: of_hop.map(|(_, total)| total.sent_ip_bytes).sum(),
                    streams: demand.streams,
                    rate_bps: hop.send_rate_bps,
                }
            });
            described.collect()
        });
        Status {
            time_ms: clock::utc_ms(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            incarnation: self.incarnation,
            links,
        }
    }
}

fn state_of(hop: &HopSnapshot) -> LinkState {
    match (hop.blocked, hop.up) {
        (true, _) => LinkState::Blocked,
        (false, true) => LinkState::Up,
        (false, false) => LinkState::Down,
    }
}

/// What became of a terminal's reports, for metrics.
#[derive(Debug, Default)]
pub struct Sent {
    dropped: AtomicU64,
    waiting: AtomicU64,
}

impl Sent {
    /// Reports given up for want of room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Reports that wait.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Makes and sends reports until dropped.
pub(super) async fn send(
    reporter: Arc<Reporter>,
    settings: ReportsConfig,
    lowest: Class,
    lifetime: Duration,
    sent: Arc<Sent>,
) {
    let mut outbox = Outbox::new(WAITING);
    let mut ticks = interval(settings.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let status = reporter.status();
        let open = status.links.iter().any(|link| link.state == LinkState::Up);
        outbox.push(Report::Status(status));
        while let Some((urgency, reports)) = outbox.poll(open) {
            let class = match urgency {
                Urgency::Newest => Class::SIGNALLING,
                Urgency::Late => lowest,
            };
            if !hand_over(&reporter.shell, settings.to, class, lifetime, &reports) {
                outbox.take_back(urgency, reports);
                break;
            }
        }
        sent.dropped.store(outbox.dropped(), Ordering::Relaxed);
        sent.waiting.store(outbox.len() as u64, Ordering::Relaxed);
    }
}

/// Gives reports to custody; false if it has no room at present.
fn hand_over(
    shell: &Shell,
    peer: u64,
    class: Class,
    lifetime: Duration,
    reports: &[Report],
) -> bool {
    let payload = match Message::new(reports.to_vec()).encode() {
        Ok(payload) => Bytes::from(payload),
        Err(error) => {
            tracing::error!(%error, "reports not sent");
            return true;
        }
    };
    let envelope = Envelope {
        peer,
        service: SERVICE,
        class,
        age: Duration::ZERO,
        payload,
    };
    match shell.send_message(envelope, lifetime, None) {
        Ok(_) => true,
        Err(SendError::NoRoom) => false,
        Err(error) => {
            tracing::warn!(peer, %error, "reports not sent");
            true
        }
    }
}

/// A node's latest report.
#[derive(Clone, Debug)]
pub struct Latest {
    /// The report.
    pub status: Status,
    /// When it arrived.
    pub at: Instant,
}

/// The latest report of each terminal.
#[derive(Debug, Default)]
pub struct Intake {
    latest: Mutex<BTreeMap<u64, Latest>>,
}

impl Intake {
    /// Takes in what terminals send from now on.
    pub(super) fn start(shell: &Shell) -> Arc<Intake> {
        let intake = Arc::new(Intake::default());
        shell.register(SERVICE, intake.clone());
        intake
    }

    /// The latest report of each terminal that has sent any.
    pub fn latest(&self) -> BTreeMap<u64, Latest> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Latest>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, peer: u64, report: Report, at: Instant) {
        let Report::Status(status) = report;
        let mut latest = self.lock();
        // Late ones of a blockage come after the newest.
        let order = |status: &Status| (status.incarnation, status.uptime_ms);
        let newer = latest
            .get(&peer)
            .is_none_or(|known| order(&known.status) < order(&status));
        if newer {
            latest.insert(peer, Latest { status, at });
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
    use super::*;

    fn status(incarnation: u64, uptime_ms: u64) -> Report {
        Report::Status(Status {
            time_ms: None,
            uptime_ms,
            incarnation,
            links: vec![],
        })
    }

    #[test]
    fn late_reports_do_not_replace_the_newest() {
        let intake = Intake::default();
        let now = Instant::now();
        for (incarnation, uptime_ms) in [(1, 9000), (1, 4000), (2, 1000), (1, 9500)] {
            intake.take(10, status(incarnation, uptime_ms), now);
        }
        let latest = &intake.latest()[&10].status;
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
