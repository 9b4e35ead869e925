//! A terminal's reports on their way to its hub, as bundles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::broadcast;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use underpass_bundle::SendError;
use underpass_cla::Class;
use underpass_engine::Message as Envelope;
use underpass_reports::{Batch, Message, Outbox, SERVICE, Urgency};

use super::Made;
use crate::config::Config;
use crate::run::engine::lowest_class;
use crate::shell::{LinkEvent, Shell};

/// Waiting reports that are kept in memory.
const WAITING: usize = 4096;

/// How old a report becomes before it is handed to durable custody.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often custody is asked for room, and whether a session is up.
const INTERVAL: Duration = Duration::from_secs(1);

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

    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Sends a terminal's reports.
pub struct Sending {
    sent: Arc<Sent>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Sending {
    /// Sends what comes out of `made` to `hub` from now on.
    pub(in crate::run) fn start(
        config: &Config,
        hub: u64,
        shell: Arc<Shell>,
        made: mpsc::Receiver<Made>,
    ) -> Sending {
        let durable = config.custody.is_durable();
        let carriage = Carriage {
            links: shell.link_events(),
            shell,
            hub,
            lowest: lowest_class(config),
            lifetime: Duration::from_secs(config.custody.lifetime_s),
            outbox: Outbox::new(WAITING, durable.then_some(PATIENCE)),
            sent: Arc::default(),
        };
        let sent = carriage.sent.clone();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(carriage.run(made, stopped));
        Sending { sent, stop, task }
    }

    /// What became of the reports.
    pub fn sent(&self) -> Arc<Sent> {
        self.sent.clone()
    }

    /// Ends, leaving to custody what could not be sent.
    pub(in crate::run) async fn finish(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

struct Carriage {
    shell: Arc<Shell>,
    links: broadcast::Receiver<LinkEvent>,
    hub: u64,
    lowest: Class,
    lifetime: Duration,
    outbox: Outbox,
    sent: Arc<Sent>,
}

impl Carriage {
    async fn run(mut self, mut made: mpsc::Receiver<Made>, mut stopped: oneshot::Receiver<()>) {
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            let waits = !self.outbox.is_empty();
            tokio::select! {
                _ = &mut stopped => break,
                next = made.recv() => match next {
                    Some(made) => self.outbox.push(made.at, made.report),
                    None => break,
                },
                // A missed change is one more reason to check.
                _ = self.links.recv() => {}
                _ = ticks.tick(), if waits => {}
            }
            self.forward();
        }
        while let Ok(made) = made.try_recv() {
            self.outbox.push(made.at, made.report);
        }
        while let Some(batch) = self.outbox.flush() {
            if self.hand_over(&batch) == Handed::NoRoom {
                tracing::warn!(
                    reports = batch.reports.len(),
                    "no room in custody for reports"
                );
                break;
            }
        }
    }

    /// Hands over what may leave, as long as custody has room.
    fn forward(&mut self) {
        let hops = self.shell.hops();
        let open = hops.iter().any(|hop| hop.up && !hop.blocked);
        while let Some(batch) = self.outbox.poll(Instant::now(), open) {
            if self.hand_over(&batch) == Handed::NoRoom {
                self.outbox.take_back(batch);
                break;
            }
        }
        let dropped = self.outbox.dropped();
        self.sent.dropped.store(dropped, Ordering::Relaxed);
        let waiting = self.outbox.len() as u64;
        self.sent.waiting.store(waiting, Ordering::Relaxed);
    }

    fn hand_over(&self, batch: &Batch) -> Handed {
        let payload = match Message::new(batch.reports.clone()).encode() {
            Ok(payload) => Bytes::from(payload),
            Err(error) => {
                tracing::error!(%error, "reports not sent");
                return Handed::Over;
            }
        };
        let class = match batch.urgency {
            Urgency::Newest => Class::SIGNALLING,
            Urgency::Late => self.lowest,
        };
        let envelope = Envelope::new(self.hub, SERVICE, class, payload);
        match self.shell.send_message(envelope, self.lifetime, None) {
            Ok(_) => Handed::Over,
            Err(SendError::NoRoom) => Handed::NoRoom,
            Err(error) => {
                tracing::warn!(hub = self.hub, %error, "reports not sent");
                Handed::Over
            }
        }
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handed {
    /// It is in custody, or nothing can be done for it.
    Over,
    /// Custody has no room for it at present.
    NoRoom,
}
