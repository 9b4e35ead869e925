//! The side that dials: a terminal.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use underpass_backoff::Backoff;
use underpass_cla::{Class, Node};
use underpass_identity::{ClientTls, Registry};

use super::SessionDefaults;
use super::lane::Lane;
use super::offering::Offering;

/// What a dialer is to do.
#[derive(Clone, Debug)]
pub struct DialerConfig {
    /// Whom to dial.
    pub remote: SocketAddr,
    /// The local address to dial from; port 0 for any.
    pub local: Option<SocketAddr>,
    /// What its sessions have in common.
    pub session: SessionDefaults,
    /// TLS, or `None` for plain TCP.
    pub tls: Option<ClientTls>,
    /// The classes, the most important first; each has its own session. With none, or with a peer
    /// that does not support classes, there is one session for all.
    pub classes: Vec<Class>,
    /// Whether each class has a standby session beside its active one.
    pub standby: bool,
    /// How long a TCP connection may take; meanwhile others are begun.
    pub connect_timeout: Duration,
    /// When to dial again after a refusal. If nobody answers, a connection is begun each `base`,
    /// without back-off. In a blockage, spare connections are begun at somewhat longer intervals.
    pub backoff: Backoff,
}

impl DialerConfig {
    /// A dialer to `remote` with the usual values, plain TCP and no classes.
    pub fn new(remote: SocketAddr, session: SessionDefaults) -> Self {
        Self {
            remote,
            local: None,
            session,
            tls: None,
            classes: Vec::new(),
            standby: false,
            connect_timeout: Duration::from_secs(10),
            backoff: Backoff::default(),
        }
    }
}

/// How far one session of a dialer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotStatus {
    /// Not there and not being dialled.
    #[default]
    Down,
    /// Being set up.
    Dialling,
    /// Established.
    Up,
}

/// The sessions of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneStatus {
    /// The session in use.
    pub active: SlotStatus,
    /// The session that waits.
    pub standby: SlotStatus,
    /// Why the last attempt or session ended.
    pub last_error: Option<String>,
}

/// The sessions of a dialer, by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DialerStatus {
    /// By class; `None` where no classes are configured.
    pub lanes: BTreeMap<Option<Class>, LaneStatus>,
    /// Whether the peer ends sessions that offer extension items: it then gets one session for all
    /// classes, which offers none.
    pub without_items: bool,
}

/// Keeps sessions to one peer over one path. Dropping it stops dialling; sessions continue.
#[derive(Debug)]
pub struct Dialer {
    shared: Arc<Shared>,
    tracker: TaskTracker,
}

/// What the lanes of a dialer share.
pub(super) struct Shared {
    /// What does not change.
    pub(super) config: DialerConfig,
    session: RwLock<Arc<SessionDefaults>>,
    pub(super) node: Arc<dyn Node>,
    pub(super) registry: Arc<Registry>,
    pub(super) stop: CancellationToken,
    /// Whether the peer supports classes; `None` until it was asked.
    pub(super) peer_has_classes: watch::Sender<Option<bool>>,
    /// Whether the peer is offered extension items.
    pub(super) offering: Mutex<Offering>,
    /// Nobody answers: all classes dial, so that they need not do so one after the other when the
    /// link is back.
    pub(super) dark: watch::Sender<bool>,
    /// The link is believed to be blocked: the sessions are suspended.
    pub(super) blocked: watch::Sender<bool>,
    /// Nothing is dialled.
    pub(super) held: watch::Sender<bool>,
    status: Mutex<DialerStatus>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("remote", &self.config.remote)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// What sessions have in common that begin now.
    pub(super) fn session(&self) -> Arc<SessionDefaults> {
        self.session.read().unwrap().clone()
    }

    pub(super) fn set_status(&self, class: Option<Class>, status: LaneStatus) {
        let mut all = self.status.lock().unwrap();
        all.lanes.insert(class, status);
    }
}

impl Dialer {
    /// Begins to dial. Must be called within a tokio runtime.
    pub fn spawn(config: DialerConfig, node: Arc<dyn Node>) -> Self {
        let mut classes: Vec<_> = config.classes.iter().copied().map(Some).collect();
        if classes.is_empty() {
            classes.push(None);
        }
        let shared = Arc::new(Shared {
            session: RwLock::new(Arc::new(config.session.clone())),
            config,
            node,
            registry: Arc::new(Registry::default()),
            stop: CancellationToken::new(),
            peer_has_classes: watch::Sender::new(None),
            offering: Mutex::default(),
            dark: watch::Sender::new(false),
            blocked: watch::Sender::new(false),
            held: watch::Sender::new(false),
            status: Mutex::default(),
        });
        let tracker = TaskTracker::new();
        for (index, class) in classes.into_iter().enumerate() {
            let lane = Lane::new(shared.clone(), tracker.clone(), class, index == 0);
            tracker.spawn(lane.run());
        }
        tracker.close();
        Self { shared, tracker }
    }

    /// Sets the settings of sessions that begin from now on.
    pub fn set_session(&self, session: SessionDefaults) {
        let shared = &self.shared.session;
        *shared.write().unwrap() = Arc::new(session);
    }

    /// While held, dials nothing more; sessions continue, and so do those that are being set up.
    pub fn hold(&self, held: bool) {
        self.shared.held.send_replace(held);
    }

    /// How far the sessions are.
    pub fn status(&self) -> DialerStatus {
        let mut status = self.shared.status.lock().unwrap().clone();
        status.without_items = !self.shared.offering.lock().unwrap().has_items();
        status
    }

    /// Its sessions at present.
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Stops dialling, ends all sessions in order and waits for their end.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.registry.close_all();
        self.tracker.wait().await;
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}
