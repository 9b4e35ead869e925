//! Sessions of the convergence layer in the simulation: the real ones over model connections.
//! Between two effects of the shell, an operation of another thread may take place.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};
use underpass_cla::{
    Activity, Down, Node, Outcome, PathFigures, Refusal, Session, SessionId, SessionInfo, Transfer,
};
use underpass_engine::{Engine, HopId};

use super::plan::{Change, Operation};
use crate::shell::Shell;

/// If no effect comes within this time, an operation is done without one.
const PATIENCE: Duration = Duration::from_millis(500);

/// A shell as its sessions know it.
pub struct Ends {
    own: Weak<Ends>,
    shell: Arc<Shell>,
    hop: HopId,
    start: Instant,
    operations: Mutex<VecDeque<Operation>>,
    sessions: Mutex<BTreeMap<SessionId, Arc<Watched>>>,
    /// Operations that came between two effects.
    between: Mutex<u64>,
}

/// What a session was told last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    ip_bps: Option<u64>,
    blocked: bool,
}

struct Watched {
    session: Arc<dyn Session>,
    ends: Weak<Ends>,
    told: Mutex<Told>,
}

impl Ends {
    /// The sessions of a shell whose only hop is `hop`. `operations` are done in turn; their times
    /// count from `start`.
    pub fn new(
        shell: Arc<Shell>,
        hop: &str,
        start: Instant,
        operations: &[Operation],
    ) -> Arc<Ends> {
        let hop = shell.hop_named(hop).expect("a configured hop");
        // A run that begins late has missed the earlier ones.
        let due =
            |operation: &&Operation| start + Duration::from_millis(operation.at) >= Instant::now();
        Arc::new_cyclic(|own| Ends {
            own: own.clone(),
            hop,
            start,
            operations: Mutex::new(operations.iter().filter(due).copied().collect()),
            sessions: Mutex::default(),
            between: Mutex::default(),
            shell,
        })
    }

    /// Does the operations for which no effect came in time. Runs until all are done.
    pub async fn operate(self: Arc<Self>) {
        loop {
            let Some(next) = self.operations.lock().unwrap().front().copied() else {
                return;
            };
            sleep_until(self.start + Duration::from_millis(next.at) + PATIENCE).await;
            self.catch_up();
        }
    }

    /// Does what is due; whether that was anything.
    fn catch_up(&self) -> bool {
        let mut any = false;
        while let Some(operation) = self.take_due() {
            any = true;
            self.shell.with_hop(self.hop, |engine: &mut Engine, now| {
                match operation.change {
                    Change::Rate(rate) => engine.set_rate(now, self.hop, Some(rate)),
                    Change::UsualRate => engine.reset_rate(now, self.hop),
                    Change::Block(blocked) => engine.block(now, self.hop, blocked),
                }
            });
        }
        any
    }

    fn take_due(&self) -> Option<Operation> {
        let mut operations = self.operations.lock().unwrap();
        let due = operations.front()?.at;
        let is_due = self.start + Duration::from_millis(due) <= Instant::now();
        is_due.then(|| operations.pop_front()).flatten()
    }

    /// Operations that came between two effects.
    pub fn between(&self) -> u64 {
        *self.between.lock().unwrap()
    }

    /// Faults in what the sessions were told: it must be what their engine has decided last.
    pub fn faults(&self) -> Vec<String> {
        let hops = self.shell.hops();
        let hop = hops
            .iter()
            .find(|hop| hop.id == self.hop)
            .expect("the one hop");
        let decided = Told {
            ip_bps: hop.send_rate_bps,
            blocked: hop.blocked,
        };
        let sessions = self.sessions.lock().unwrap();
        let wrong = sessions.iter().filter_map(|(id, session)| {
            let told = *session.told.lock().unwrap();
            let text = || {
                format!(
                    "session {} was told {told:?}, last decided {decided:?}",
                    id.0
                )
            };
            (told != decided).then(text)
        });
        wrong.collect()
    }
}

impl Watched {
    /// Before an effect is carried out, another thread's operation comes first.
    fn overtaken(&self) {
        if let Some(ends) = self.ends.upgrade()
            && ends.catch_up()
        {
            *ends.between.lock().unwrap() += 1;
        }
    }
}

impl Session for Watched {
    fn offer(&self, transfer: Transfer) {
        self.overtaken();
        self.session.offer(transfer);
    }

    fn set_rate(&self, ip_bps: Option<u64>) {
        self.overtaken();
        self.told.lock().unwrap().ip_bps = ip_bps;
        self.session.set_rate(ip_bps);
    }

    fn figures(&self) -> PathFigures {
        self.session.figures()
    }

    fn share(&self, activity: Arc<Activity>) {
        self.session.share(activity);
    }

    fn suspend(&self, blocked: bool) {
        self.overtaken();
        self.told.lock().unwrap().blocked = blocked;
        self.session.suspend(blocked);
    }

    fn rest(&self, rests: bool) {
        self.session.rest(rests);
    }

    fn ask(&self) {
        self.session.ask();
    }

    fn renew(&self) {
        self.session.renew();
    }

    fn close(&self) {
        self.session.close();
    }

    fn abort(&self, reason: &str) {
        self.session.abort(reason);
    }
}

impl Node for Ends {
    fn session_up(&self, id: SessionId, info: SessionInfo, session: Arc<dyn Session>) -> SessionId {
        let watched = Arc::new(Watched {
            session,
            ends: self.own.clone(),
            told: Mutex::default(),
        });
        let id = self.shell.session_up(id, info, watched.clone());
        self.sessions.lock().unwrap().insert(id, watched);
        id
    }

    fn ready(&self, id: SessionId) {
        self.shell.ready(id);
    }

    fn admit(&self, id: SessionId, length: Option<u64>) -> Result<(), Refusal> {
        self.shell.admit(id, length)
    }

    fn received(&self, id: SessionId, bundle: Bytes) -> Result<(), Refusal> {
        self.shell.received(id, bundle)
    }

    fn progress(&self, id: SessionId, key: u64, acknowledged: u64) {
        self.shell.progress(id, key, acknowledged);
    }

    fn finished(&self, id: SessionId, key: u64, outcome: Outcome) {
        self.shell.finished(id, key, outcome);
    }

    fn session_down(&self, id: SessionId, reason: Down) {
        self.sessions.lock().unwrap().remove(&id);
        self.shell.session_down(id, reason);
    }
}
