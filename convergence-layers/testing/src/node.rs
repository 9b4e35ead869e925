//! A node that records the calls of its sessions.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use underpass_cla::{Down, Node, Outcome, Refusal, Session, SessionId, SessionInfo, Transfer};

/// The node's numbers of sessions are higher than the sessions' own by this much.
const RENAMED: u64 = 1 << 32;

/// An event that takes longer than this never comes, however loaded the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

pub enum Told {
    Up(SessionId, SessionInfo, Arc<dyn Session>),
    Ready(SessionId),
    Received(SessionId, Bytes),
    Progress(u64),
    Finished(u64, Outcome),
    Down(SessionId, Down),
}

/// The node's side for its sessions.
struct Recorder {
    told: UnboundedSender<Told>,
    verdict: Arc<Mutex<Result<(), Refusal>>>,
    unused: Arc<Mutex<Unused>>,
    supply: Arc<Mutex<Supply>>,
    /// Sessions on which only the peer sends end when nobody holds them, and most tests do not.
    receiving: Mutex<HashMap<SessionId, Arc<dyn Session>>>,
}

/// The transfers for the session that came up last, one each time it is ready.
#[derive(Default)]
struct Supply {
    transfers: VecDeque<Transfer>,
    session: Option<Arc<dyn Session>>,
}

impl Supply {
    fn offer_next(&mut self) {
        if let Some(session) = &self.session
            && let Some(transfer) = self.transfers.pop_front()
        {
            session.offer(transfer);
        }
    }
}

/// Whether sessions are not used yet, and the tasks that wait for that.
#[derive(Default)]
struct Unused {
    yet: bool,
    wakers: Vec<Waker>,
}

impl Recorder {
    fn tell(&self, told: Told) {
        let _ = self.told.send(told);
    }
}

impl Node for Recorder {
    fn session_up(&self, id: SessionId, info: SessionInfo, session: Arc<dyn Session>) -> SessionId {
        let id = SessionId(id.0 + RENAMED);
        if info.receives_only {
            let mut receiving = self.receiving.lock().expect("no test panics with it");
            receiving.insert(id, session.clone());
        } else {
            let mut supply = self.supply.lock().expect("no test panics with it");
            supply.session = Some(session.clone());
        }
        self.tell(Told::Up(id, info, session));
        id
    }

    fn poll_in_use(&self, id: SessionId, cx: &mut Context<'_>) -> Poll<SessionId> {
        let mut unused = self.unused.lock().expect("no test panics with it");
        if unused.yet {
            unused.wakers.push(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(id)
    }

    fn ready(&self, id: SessionId) {
        self.tell(Told::Ready(id));
        let mut supply = self.supply.lock().expect("no test panics with it");
        supply.offer_next();
    }

    fn admit(&self, _id: SessionId, _length: Option<u64>) -> Result<(), Refusal> {
        *self.verdict.lock().expect("no test panics with it")
    }

    fn received(&self, id: SessionId, bundle: Bytes) -> Result<(), Refusal> {
        self.tell(Told::Received(id, bundle));
        Ok(())
    }

    fn progress(&self, _id: SessionId, _key: u64, acknowledged: u64) {
        self.tell(Told::Progress(acknowledged));
    }

    fn finished(&self, _id: SessionId, key: u64, outcome: Outcome) {
        self.tell(Told::Finished(key, outcome));
    }

    fn session_down(&self, id: SessionId, reason: Down) {
        let mut receiving = self.receiving.lock().expect("no test panics with it");
        receiving.remove(&id);
        self.tell(Told::Down(id, reason));
    }
}

/// A test's hold on its node.
pub struct TestNode {
    pub node: Arc<dyn Node>,
    pub verdict: Arc<Mutex<Result<(), Refusal>>>,
    unused: Arc<Mutex<Unused>>,
    supply: Arc<Mutex<Supply>>,
    told: UnboundedReceiver<Told>,
}

impl TestNode {
    pub fn new() -> Self {
        let (sender, told) = unbounded_channel();
        let verdict = Arc::new(Mutex::new(Ok(())));
        let unused = Arc::<Mutex<Unused>>::default();
        let supply = Arc::<Mutex<Supply>>::default();
        Self {
            node: Arc::new(Recorder {
                told: sender,
                verdict: verdict.clone(),
                unused: unused.clone(),
                supply: supply.clone(),
                receiving: Mutex::default(),
            }),
            verdict,
            unused,
            supply,
            told,
        }
    }

    /// Offers these to the session that is ready and came up last: the first one at
    /// once, each of the others when it is ready again.
    pub fn supply(&self, transfers: impl IntoIterator<Item = Transfer>) {
        let mut supply = self.supply.lock().expect("no test panics with it");
        supply.transfers.extend(transfers);
        supply.offer_next();
    }

    /// Uses its sessions, or does not yet.
    pub fn uses_sessions(&self, used: bool) {
        let mut unused = self.unused.lock().expect("no test panics with it");
        unused.yet = !used;
        unused.wakers.drain(..).for_each(Waker::wake);
    }

    /// The next event that `pick` accepts; others are skipped.
    pub async fn next<T>(&mut self, mut pick: impl FnMut(Told) -> Option<T>) -> T {
        let wanted = async {
            loop {
                let told = self.told.recv().await.expect("the node keeps the sender");
                if let Some(wanted) = pick(told) {
                    return wanted;
                }
            }
        };
        tokio::time::timeout(PATIENCE, wanted)
            .await
            .expect("the session tells what is awaited")
    }

    /// The next session that can be offered something.
    pub async fn up(&mut self) -> (SessionId, SessionInfo, Arc<dyn Session>) {
        self.next(|told| match told {
            Told::Up(id, info, session) if !info.receives_only => Some((id, info, session)),
            _ => None,
        })
        .await
    }

    /// The next session on which only the peer sends.
    pub async fn receiving_up(&mut self) -> (SessionId, SessionInfo, Arc<dyn Session>) {
        self.next(|told| match told {
            Told::Up(id, info, session) if info.receives_only => Some((id, info, session)),
            _ => None,
        })
        .await
    }

    /// Whether no session has come up since the last event that was taken.
    pub fn never_up(&mut self) -> bool {
        std::iter::from_fn(|| self.told.try_recv().ok()).all(|told| !matches!(told, Told::Up(..)))
    }

    pub async fn ready(&mut self, wanted: SessionId) {
        self.next(|told| matches!(told, Told::Ready(id) if id == wanted).then_some(()))
            .await;
    }

    /// Whether the session gets ready within `time`.
    pub async fn try_ready(&mut self, wanted: SessionId, time: Duration) -> bool {
        tokio::time::timeout(time, self.ready(wanted)).await.is_ok()
    }

    pub async fn received(&mut self) -> (SessionId, Bytes) {
        self.next(|told| match told {
            Told::Received(id, bundle) => Some((id, bundle)),
            _ => None,
        })
        .await
    }

    pub async fn progress(&mut self) -> u64 {
        self.next(|told| match told {
            Told::Progress(acknowledged) => Some(acknowledged),
            _ => None,
        })
        .await
    }

    pub async fn finished(&mut self) -> (u64, Outcome) {
        self.next(|told| match told {
            Told::Finished(key, outcome) => Some((key, outcome)),
            _ => None,
        })
        .await
    }

    pub async fn down(&mut self) -> (SessionId, Down) {
        self.next(|told| match told {
            Told::Down(id, reason) => Some((id, reason)),
            _ => None,
        })
        .await
    }
}

/// A bundle's bytes in chunks of uneven size.
pub fn transfer(key: u64, length: usize) -> (Transfer, Bytes) {
    let whole: Bytes = (0..length).map(|i| (7 * i + 3 + i / 251) as u8).collect();
    let first = length / 3;
    let chunks = vec![whole.slice(..first), whole.slice(first..)];
    (Transfer::new(key, chunks), whole)
}
