//! A neighbour of the hub that sends whatever bundles it is given: real sessions with real
//! certificates, and no engine behind them.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use underpass_bundle::wire::{CodePoints, DecodeLimits, decode};
use underpass_cla::{
    Class, Down, ExportedKey, Node, Outcome, Refusal, Session, SessionId, SessionInfo, Transfer,
};
use underpass_tcpcl::{Dialer, DialerConfig, SessionDefaults};

use crate::identity::{self, IdentityError};

/// How long to wait for the hub's answer to a bundle.
const ANSWER_TIME: Duration = Duration::from_secs(20);
/// Custody blocks of the hub's bundles that are remembered.
const REMEMBERED: usize = 1024;

/// What became of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The hub acknowledged it.
    Taken,
    /// The hub refused it for good.
    Refused,
    /// The hub had no room at present.
    NoRoom,
    /// The session ended first.
    Broken,
    /// Nothing came in time.
    Silent,
}

/// Sessions of one class each with the hub.
pub struct Line {
    hearer: Arc<Hearer>,
    _dialer: Dialer,
}

#[derive(Default)]
struct Hearer {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    sessions: HashMap<SessionId, Place>,
    waiting: HashMap<Class, VecDeque<Transfer>>,
    answers: HashMap<u64, oneshot::Sender<Answer>>,
    next_key: u64,
    hub_run: Option<u64>,
    keys: Vec<ExportedKey>,
    /// Sequence and number of bundles that the hub had custody of.
    custody: VecDeque<(u64, u64)>,
}

struct Place {
    class: Option<Class>,
    session: Arc<dyn Session>,
    ready: bool,
}

impl Line {
    /// Dials the hub as `node` with sessions for `classes`.
    ///
    /// # Errors
    /// When there is no certificate for the node.
    pub fn dial(
        hub: SocketAddr,
        pki: &Path,
        node: u64,
        run: u64,
        classes: u8,
    ) -> Result<Line, IdentityError> {
        let ids = Arc::new(AtomicU64::new(0));
        let mut session = SessionDefaults::new("hub", format!("ipn:{node}.0"), ids);
        session.config.incarnation = run;
        let mut config = DialerConfig::new(hub, session);
        config.tls = Some(identity::client(pki, node)?);
        config.classes = (0..classes).map(Class).collect();
        let hearer = Arc::new(Hearer::default());
        Ok(Line {
            _dialer: Dialer::spawn(config, hearer.clone()),
            hearer,
        })
    }

    /// Waits until so many sessions are up; says whether they are.
    pub async fn up(&self, sessions: usize, within: Duration) -> bool {
        let come = async {
            loop {
                let changed = self.hearer.changed.notified();
                if self.hearer.lock().sessions.len() >= sessions {
                    return;
                }
                changed.await;
            }
        };
        timeout(within, come).await.is_ok()
    }

    /// The incarnation that the hub has announced; 0 before it has.
    pub fn hub_run(&self) -> u64 {
        self.hearer.lock().hub_run.unwrap_or_default()
    }

    /// Keys of the sessions that have been up, the newest last.
    pub fn keys(&self) -> Vec<ExportedKey> {
        self.hearer.lock().keys.clone()
    }

    /// Sequences and numbers under which the hub had custody of what came.
    pub fn custody(&self) -> Vec<(u64, u64)> {
        self.hearer.lock().custody.iter().copied().collect()
    }

    /// Gives the hub a bundle on a session of `class`, and waits for its
    /// answer.
    pub async fn send(&self, class: Class, bundle: Bytes) -> Answer {
        let (key, answer) = self.hearer.lock().enqueue(class, bundle);
        match timeout(ANSWER_TIME, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Answer::Broken,
            Err(_) => {
                self.hearer.lock().forget(key);
                Answer::Silent
            }
        }
    }
}

impl Hearer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enqueue(&mut self, class: Class, bundle: Bytes) -> (u64, oneshot::Receiver<Answer>) {
        let (sender, answer) = oneshot::channel();
        let key = self.next_key;
        self.next_key += 1;
        self.answers.insert(key, sender);
        let waiting = self.waiting.entry(class).or_default();
        waiting.push_back(Transfer::new(key, vec![bundle]));
        self.offer();
        (key, answer)
    }

    /// Gives what waits to sessions that are ready.
    fn offer(&mut self) {
        for place in self.sessions.values_mut().filter(|place| place.ready) {
            let class = place.class.unwrap_or(Class::SIGNALLING);
            let waiting = self.waiting.get_mut(&class);
            if let Some(transfer) = waiting.and_then(VecDeque::pop_front) {
                place.ready = false;
                place.session.offer(transfer);
            }
        }
    }

    fn forget(&mut self, key: u64) {
        self.answers.remove(&key);
        for waiting in self.waiting.values_mut() {
            waiting.retain(|transfer| transfer.key != key);
        }
    }
}

impl Node for Hearer {
    fn session_up(&self, id: SessionId, info: SessionInfo, session: Arc<dyn Session>) -> SessionId {
        let mut state = self.lock();
        state.hub_run = info.incarnation.or(state.hub_run);
        state.keys.extend(info.exported_key);
        let place = Place {
            class: info.class,
            session,
            ready: false,
        };
        state.sessions.insert(id, place);
        drop(state);
        self.changed.notify_waiters();
        id
    }

    fn ready(&self, id: SessionId) {
        let mut state = self.lock();
        if let Some(place) = state.sessions.get_mut(&id) {
            place.ready = true;
        }
        state.offer();
    }

    fn admit(&self, _id: SessionId, _length: Option<u64>) -> Result<(), Refusal> {
        Ok(())
    }

    fn received(&self, _id: SessionId, bundle: Bytes) -> Result<(), Refusal> {
        let decoded = decode(&bundle, &DecodeLimits::default(), &CodePoints::default());
        if let Some((_, cteb)) = decoded.ok().and_then(|bundle| bundle.cteb) {
            let mut state = self.lock();
            if state.custody.len() == REMEMBERED {
                state.custody.pop_front();
            }
            state.custody.push_back((cteb.sequence, cteb.number));
        }
        Ok(())
    }

    fn progress(&self, _id: SessionId, _key: u64, _acknowledged: u64) {}

    fn finished(&self, _id: SessionId, key: u64, outcome: Outcome) {
        let answer = match outcome {
            Outcome::Acknowledged | Outcome::Refused(Refusal::Completed) => Answer::Taken,
            Outcome::Refused(Refusal::NotAcceptable) => Answer::Refused,
            Outcome::Refused(Refusal::NoResources) => Answer::NoRoom,
            Outcome::Broken { .. } => Answer::Broken,
        };
        if let Some(sender) = self.lock().answers.remove(&key) {
            // Who asked may have given up.
            let _ = sender.send(answer);
        }
    }

    fn session_down(&self, id: SessionId, _reason: Down) {
        self.lock().sessions.remove(&id);
        self.changed.notify_waiters();
    }
}
