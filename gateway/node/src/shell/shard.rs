//! One engine with its sessions and streams, behind a lock of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, broadcast, mpsc};
use underpass_applications::Report;
use underpass_bundle as bundle;
use underpass_bundle::{Passed, Sharding, Unopened};
use underpass_cla::{Session, SessionId, Transfer};
use underpass_engine::{Action, Engine, HopId, Message, Migration, PlanChange};

use super::applications::ApplicationDesk;
use super::links::{ClassMove, LinkEvent, LinkLedger, PathOrder};
use super::services::Service;
use super::streams::StreamTable;
use super::transport::TransportLedger;
use super::{Counts, Inbound, timer};

/// Forgeries are logged no more often than this.
const TELL_FORGERY_AFTER: Duration = Duration::from_secs(10);

/// One engine and what belongs to it.
pub(super) struct Shard {
    inner: Mutex<Inner>,
    /// Notified when something is due sooner than the timer is set to.
    pub timer: Notify,
}

pub(super) struct Inner {
    /// Which of the node's engines it is.
    pub own: Sharding,
    pub engine: Engine,
    /// The effects to carry out outside, in the engine's order.
    pub effects: VecDeque<Effect>,
    /// Whether a caller is at it.
    pub acting: bool,
    pub streams: StreamTable,
    pub sessions: HashMap<SessionId, Arc<dyn Session>>,
    /// Services of this node other than streams.
    pub services: HashMap<u64, Arc<dyn Service>>,
    /// Who takes what comes for applications.
    pub applications: Option<Arc<dyn ApplicationDesk>>,
    /// What the timer is set to.
    pub armed: Option<Instant>,
    /// When the engine was last called for a deadline.
    pub called: Instant,
    pub counts: Counts,
    /// What the sessions' transports have moved, for metrics.
    pub transport: TransportLedger,
    pub links: LinkLedger,
    /// When a forgery was last logged.
    forgery_told: Option<Instant>,
    /// Which moves of classes were logged.
    moves_told: MovesTold,
    /// Changes of links, and moves of classes, for followers.
    pub link_events: broadcast::Sender<LinkEvent>,
    pub class_moves: broadcast::Sender<ClassMove>,
    /// Orders for paths on demand.
    pub path_orders: mpsc::UnboundedSender<PathOrder>,
}

/// An effect to carry out once the engine is released.
pub(super) enum Effect {
    Offer(Arc<dyn Session>, Transfer),
    SetRate(Arc<dyn Session>, Option<u64>),
    Suspend(Arc<dyn Session>, bool),
    Ask(Arc<dyn Session>),
    Renew(Arc<dyn Session>),
    Abort(Arc<dyn Session>, &'static str),
    Wake(Waker),
    /// A hop's link may rest, or does not any more.
    Rest(HopId, bool),
    /// The same, for one of its sessions.
    RestOfSession(Arc<dyn Session>, bool),
    Inbound(Inbound),
    Message(Arc<dyn Service>, Message),
    Restarted(Arc<dyn Service>, u64),
    Application(Arc<dyn ApplicationDesk>, Box<bundle::Delivery>),
    ApplicationReport(Arc<dyn ApplicationDesk>, Report),
    /// For the shard of this number.
    Passed(usize, Passed),
    /// A bundle on the disk for the shard of this number, still to be judged.
    Judge(usize, Unopened),
}

impl Shard {
    pub fn new(
        own: Sharding,
        engine: Engine,
        link_events: broadcast::Sender<LinkEvent>,
        class_moves: broadcast::Sender<ClassMove>,
        path_orders: mpsc::UnboundedSender<PathOrder>,
    ) -> Shard {
        let inner = Inner {
            own,
            engine,
            effects: VecDeque::new(),
            acting: false,
            streams: StreamTable::default(),
            sessions: HashMap::new(),
            services: HashMap::new(),
            applications: None,
            armed: None,
            called: timer::now(),
            counts: Counts::default(),
            transport: TransportLedger::default(),
            links: LinkLedger::default(),
            forgery_told: None,
            moves_told: MovesTold::default(),
            link_events,
            class_moves,
            path_orders,
        };
        Shard {
            inner: Mutex::new(inner),
            timer: Notify::new(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic ends the process (`panics`): no call finds a poisoned state.
        self.inner.lock().unwrap()
    }
}

/// How many moves of classes are logged at once; each second allows one more. A hub's terminals may
/// all move at the same time.
const MOVES_TOLD_AT_ONCE: f64 = 20.0;

pub(super) struct MovesTold {
    left: f64,
    at: Instant,
    untold: u64,
}

impl Default for MovesTold {
    fn default() -> Self {
        MovesTold {
            left: MOVES_TOLD_AT_ONCE,
            at: timer::now(),
            untold: 0,
        }
    }
}

/// Another plan holds, or none any more.
fn plan_changed(change: &PlanChange) {
    let PlanChange {
        beam,
        link,
        version,
        over,
    } = change;
    match over {
        false => tracing::info!(beam, link = link.name(), version, "plan in force"),
        true => tracing::warn!(
            beam,
            link = link.name(),
            version,
            "the plan is over and there is no newer one: the guaranteed rate counts"
        ),
    }
}

impl Inner {
    /// A class has moved to another path.
    fn migrated(&mut self, migration: &Migration) {
        let now = timer::now();
        let named = |hop| self.engine.hop_name(hop).unwrap_or_default().to_owned();
        // There may be no follower.
        let _ = self.class_moves.send(ClassMove {
            class: migration.class,
            from: named(migration.from),
            to: named(migration.to),
            reason: migration.reason,
        });
        let told = &mut self.moves_told;
        let earned = now.saturating_duration_since(told.at).as_secs_f64();
        told.left = (told.left + earned).min(MOVES_TOLD_AT_ONCE);
        told.at = now;
        if told.left < 1.0 {
            told.untold += 1;
            return;
        }
        told.left -= 1.0;
        let untold = std::mem::take(&mut told.untold);
        let name = |hop| self.engine.hop_name(hop).unwrap_or_default();
        tracing::info!(
            class = migration.class.0,
            neighbour = migration.neighbour,
            from = name(migration.from),
            to = name(migration.to),
            reason = migration.reason.name(),
            untold,
            "class goes by another path"
        );
    }

    /// Takes up what the engine wants done.
    pub fn gather(&mut self) {
        let mut effects = Vec::new();
        while let Some(action) = self.engine.poll_action() {
            match action {
                Action::Offer { session, transfer } => {
                    if let Some(session) = self.sessions.get(&session) {
                        effects.push(Effect::Offer(session.clone(), transfer));
                    }
                }
                Action::SetRate { session, ip_bps } => {
                    if let Some(session) = self.sessions.get(&session) {
                        effects.push(Effect::SetRate(session.clone(), ip_bps));
                    }
                }
                Action::Suspend { session, blocked } => {
                    if let Some(session) = self.sessions.get(&session) {
                        effects.push(Effect::Suspend(session.clone(), blocked));
                    }
                }
                Action::Ask { session } => {
                    let known = self.sessions.get(&session);
                    effects.extend(known.cloned().map(Effect::Ask));
                }
                Action::Renew { session } => {
                    tracing::warn!(
                        session = session.0,
                        "nothing is answered on the session, though the link carries"
                    );
                    let known = self.sessions.get(&session);
                    effects.extend(known.cloned().map(Effect::Renew));
                }
                Action::Plan(change) => plan_changed(&change),
                Action::Path { hop, change } => self.path_ordered(hop, change),
                Action::Migrated(migration) => self.migrated(&migration),
                Action::Passed { shard, passed } => effects.push(Effect::Passed(shard, passed)),
                Action::Link { hop, change } => self.link_changed(hop, change),
                Action::Rest { hop, rests } => {
                    effects.push(Effect::Rest(hop, rests));
                    let sessions = self.sessions_of(hop).into_iter();
                    effects.extend(sessions.map(|one| Effect::RestOfSession(one, rests)));
                }
                Action::Abort { session, reason } => {
                    if let Some(session) = self.sessions.get(&session) {
                        effects.push(Effect::Abort(session.clone(), reason));
                    }
                }
                Action::Stream { peer, epoch, event } => {
                    self.stream_event(peer, epoch, event, &mut effects);
                }
                Action::Message(message) => self.message(message, &mut effects),
                Action::Application(delivery) => {
                    self.application_bundle(delivery, &mut effects);
                }
                Action::Bundle(event) => {
                    self.application_report(&event, &mut effects);
                    self.bundle_event(event);
                }
                Action::Discarded {
                    source,
                    created,
                    outlived,
                } => tracing::debug!(
                    %source,
                    ?created,
                    ?outlived,
                    "a bundle that nobody wants is forgotten"
                ),
                Action::BadPayload { peer, error } => {
                    self.counts.bad_payloads += 1;
                    tracing::warn!(peer, %error, "payload of streams refused");
                }
            }
        }
        while let Some(unopened) = self.engine.take_unjudged() {
            effects.push(Effect::Judge(self.own.own, unopened));
        }
        self.effects.extend(effects);
    }

    /// Logs events of bundles that concern no stream.
    fn bundle_event(&mut self, event: bundle::Event) {
        match event {
            bundle::Event::Deliver(delivery) => tracing::debug!(
                source = %delivery.source,
                service = delivery.service,
                bytes = delivery.payload.len(),
                "no service takes this bundle"
            ),
            bundle::Event::Forged {
                from,
                source,
                forgery,
            } => {
                self.counts.forged_bundles += 1;
                // A neighbour that forges does so again and again: the metric counts each.
                let now = Instant::now();
                let told = self.forgery_told.replace(now);
                if told.is_none_or(|told| now - told >= TELL_FORGERY_AFTER) {
                    tracing::warn!(neighbour = from.0, %source, %forgery, "bundle refused");
                } else {
                    self.forgery_told = told;
                }
            }
            bundle::Event::Deleted { source, reason, .. } => {
                self.counts.deleted_bundles += 1;
                tracing::warn!(%source, ?reason, "bundle deleted");
            }
            bundle::Event::StatusReport { reporter, report } => {
                tracing::info!(%reporter, bundle = report.refbundle(), "status report");
            }
            bundle::Event::CompressedReport { reporter, .. } => {
                tracing::info!(%reporter, "compressed status report");
            }
            bundle::Event::Restored {
                destination,
                service,
                ..
            } => {
                tracing::debug!(%destination, service, "a message of a former run is in custody");
            }
            bundle::Event::Unreadable(id) => {
                tracing::error!(bundle = id.0, "in the store, but not of this version");
            }
            bundle::Event::StoreStalled(reason) => {
                tracing::error!(reason, "custody cannot be stored: sources are slowed");
            }
            bundle::Event::StoreResumed => tracing::info!("custody can be stored again"),
            // These stay inside the engine.
            bundle::Event::Released { .. }
            | bundle::Event::Passed { .. }
            | bundle::Event::GivenUp { .. }
            | bundle::Event::Woken { .. } => {}
        }
    }
}
