//! The engine's shell: moves what it says between it, the convergence layers,
//! the edge, and the clock.
//!
//! One mutex holds the engine; every call into it is short and never waits.
//! What the engine wants done outside is done after the mutex is released, so
//! that no convergence layer or edge task is ever called under it.

mod beacons;
mod conduit;
mod figures;
mod links;
mod operator;
mod outlet;
mod services;
mod sessions;
mod streams;
mod timer;
mod transport;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, broadcast, mpsc};
use underpass_bundle as bundle;
use underpass_cla::{Class, Session, SessionId, Transfer};
use underpass_engine::{Action, Engine, HopSnapshot, Message, PlanChange, StreamKey, StreamTotals};
use underpass_streams::Open;

pub use beacons::{BeaconReceiver, LinkBeacons};
pub use figures::{SessionReading, watch as watch_figures};
pub use links::LinkEvent;
pub use outlet::StreamOutlet;
pub use services::Service;
pub use sessions::NeighbourNames;
pub use timer::drive;
pub use transport::TransportTotals;

use links::LinkLedger;
use streams::StreamTable;
use transport::TransportLedger;

/// A stream that a peer has opened, to be dialled by the edge.
#[derive(Debug)]
pub struct Inbound {
    /// The stream.
    pub key: StreamKey,
    /// What it asks for.
    pub open: Open,
}

/// The engine and all that its shell shares.
pub struct Shell {
    inner: Mutex<Inner>,
    decoder: bundle::Decoder,
    timer: Notify,
    inbound: mpsc::UnboundedSender<Inbound>,
    beacons: OnceLock<LinkBeacons>,
}

struct Inner {
    engine: Engine,
    names: NeighbourNames,
    /// What is to be done outside, in the order in which the engine wanted it.
    effects: VecDeque<Effect>,
    /// Whether a caller is at it.
    acting: bool,
    streams: StreamTable,
    sessions: HashMap<SessionId, Arc<dyn Session>>,
    /// Services of this node other than streams.
    services: HashMap<u64, Arc<dyn Service>>,
    /// What the timer is set to.
    armed: Option<Instant>,
    /// Counts for metrics.
    counts: Counts,
    /// What the sessions' transports have moved, for metrics.
    transport: TransportLedger,
    /// What was seen of the links.
    links: LinkLedger,
    /// When the log was last told of a forgery.
    forgery_told: Option<Instant>,
    /// Their changes, for whoever follows them.
    link_events: broadcast::Sender<LinkEvent>,
}

/// Forgeries are told to the log so seldom.
const TELL_FORGERY_AFTER: Duration = Duration::from_secs(10);

/// Hops or peers that are looked at under the lock at one time.
const PORTION: usize = 32;

/// What the shell has seen in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Bundles deleted without having been delivered or handed on.
    pub deleted_bundles: u64,
    /// Payloads that were no frames.
    pub bad_payloads: u64,
    /// Bundles received and refused.
    pub refused_bundles: u64,
    /// Of these, those that say what their neighbour may not say.
    pub forged_bundles: u64,
}

/// What remains to be done once the engine is released.
enum Effect {
    Offer(Arc<dyn Session>, Transfer),
    SetRate(Arc<dyn Session>, Option<u64>),
    Suspend(Arc<dyn Session>, bool),
    Abort(Arc<dyn Session>, &'static str),
    Wake(Waker),
    Inbound(Inbound),
    Message(Arc<dyn Service>, Message),
    Restarted(Arc<dyn Service>, u64),
}

impl Shell {
    /// A shell around `engine`; streams opened by peers come out of `inbound`.
    pub fn new(
        engine: Engine,
        names: NeighbourNames,
        inbound: mpsc::UnboundedSender<Inbound>,
    ) -> Arc<Shell> {
        Arc::new(Shell {
            decoder: engine.decoder(),
            inner: Mutex::new(Inner {
                engine,
                names,
                effects: VecDeque::new(),
                acting: false,
                streams: StreamTable::default(),
                sessions: HashMap::new(),
                services: HashMap::new(),
                armed: None,
                counts: Counts::default(),
                transport: TransportLedger::default(),
                links: LinkLedger::default(),
                forgery_told: None,
                link_events: broadcast::channel(links::EVENTS).0,
            }),
            timer: Notify::new(),
            inbound,
            beacons: OnceLock::new(),
        })
    }

    /// Calls into the engine, and does what it then wants done.
    pub fn with<R>(&self, call: impl FnOnce(&mut Engine, Instant) -> R) -> R {
        self.with_inner(|inner, now| call(&mut inner.engine, now))
    }

    /// Something of each hop. The engine is released between portions, so that
    /// many hops hold up nobody.
    pub fn of_each_hop<R>(&self, look: impl Fn(&Engine, HopSnapshot) -> R) -> Vec<R> {
        let ids = self.read(Engine::hop_ids);
        let portions = ids.chunks(PORTION).map(|portion| {
            self.read(|engine| {
                let hops = portion.iter().filter_map(|id| engine.hop(*id));
                hops.map(|hop| look(engine, hop)).collect::<Vec<R>>()
            })
        });
        portions.flatten().collect()
    }

    /// Every hop; as [`Shell::of_each_hop`].
    pub fn hops(&self) -> Vec<HopSnapshot> {
        self.of_each_hop(|_, hop| hop)
    }

    /// Streams and their bytes in numbers, for each class in turn; the engine
    /// is released between portions of the peers.
    pub fn stream_totals(&self) -> Vec<(Class, StreamTotals)> {
        let peers = self.read(Engine::peers);
        let mut totals = self.read(|engine| engine.stream_totals(&[]));
        for portion in peers.chunks(PORTION) {
            let of_portion = self.read(|engine| engine.stream_totals(portion));
            for ((_, total), (_, more)) in totals.iter_mut().zip(of_portion) {
                total.add(&more);
            }
        }
        totals
    }

    /// Reads the engine without changing it.
    pub fn read<R>(&self, look: impl FnOnce(&Engine) -> R) -> R {
        look(&self.lock().engine)
    }

    /// What the shell has seen in all.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    fn with_inner<R>(&self, call: impl FnOnce(&mut Inner, Instant) -> R) -> R {
        let mut inner = self.lock();
        let result = call(&mut inner, timer::now());
        inner.gather();
        let deadline = inner.engine.next_timeout();
        let earlier = match (deadline, inner.armed) {
            (Some(deadline), Some(armed)) => deadline < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if earlier {
            inner.armed = deadline;
        }
        let act = !inner.effects.is_empty() && !std::mem::replace(&mut inner.acting, true);
        drop(inner);
        if earlier {
            self.timer.notify_one();
        }
        if act {
            self.act();
        }
        result
    }

    /// Does what the engine wants done, until there is nothing left. One caller
    /// at a time: what two of them did at once could come in the wrong order,
    /// and a session be left with a rate or blockage of the past.
    fn act(&self) {
        loop {
            let mut inner = self.lock();
            if inner.effects.is_empty() {
                inner.acting = false;
                return;
            }
            let effects = std::mem::take(&mut inner.effects);
            drop(inner);
            for effect in effects {
                self.run(effect);
            }
        }
    }

    fn run(&self, effect: Effect) {
        match effect {
            Effect::Offer(session, transfer) => session.offer(transfer),
            Effect::SetRate(session, ip_bps) => session.set_rate(ip_bps),
            Effect::Suspend(session, blocked) => session.suspend(blocked),
            Effect::Abort(session, reason) => session.abort(reason),
            Effect::Wake(waker) => waker.wake(),
            // The receiver lives as long as the node runs; while it shuts
            // down, streams are reset by their conduits' absence.
            Effect::Message(service, message) => service.message(message),
            Effect::Restarted(service, peer) => service.peer_restarted(peer),
            Effect::Inbound(inbound) => drop(self.inbound.send(inbound)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic ends the process (`panics`): no call finds a poisoned state.
        self.inner.lock().unwrap()
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
    /// Takes up what the engine wants done.
    fn gather(&mut self) {
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
                Action::Plan(change) => plan_changed(&change),
                Action::Link { hop, change } => self.link_changed(hop, change),
                Action::Abort { session, reason } => {
                    if let Some(session) = self.sessions.get(&session) {
                        effects.push(Effect::Abort(session.clone(), reason));
                    }
                }
                Action::Stream { peer, epoch, event } => {
                    self.stream_event(peer, epoch, event, &mut effects);
                }
                Action::Message(message) => self.message(message, &mut effects),
                Action::Bundle(event) => self.bundle_event(event),
                Action::BadPayload { peer, error } => {
                    self.counts.bad_payloads += 1;
                    tracing::warn!(peer, %error, "payload of streams refused");
                }
            }
        }
        self.effects.extend(effects);
    }

    /// Bundles that concern no stream are told to the log.
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
                // One that forges does so again and again: the metric counts.
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
            bundle::Event::Discarded { source, timestamp } => {
                tracing::debug!(%source, ?timestamp, "a bundle that nobody wants is forgotten");
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
