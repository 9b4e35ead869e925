//! Sessions that come up before this process has the node.
//!
//! They carry nothing. A peer sends on the oldest session of a class, which the running process
//! still has. Bytes that come here all the same stay unread in the transport, which slows their
//! sender and loses nothing. Once this process has taken the node over, the node gets all sessions
//! that are up, and those that come later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::{
    Class, Down, ExportedKey, Intake, Node, Outcome, Refusal, Session, SessionId, SessionInfo,
};
use underpass_payloads::Spool;

/// Numbers of waiting sessions, above those that a node gives.
const WAITING: u64 = 1 << 63;

/// How much later than a round trip an acknowledgement may come (TCP_DELACK_MIN of Linux, and a
/// margin for the peer).
const DELAYED_ACK: Duration = Duration::from_millis(60);

/// How long the last word of sessions that end may take to leave.
const FAREWELL: Duration = Duration::from_millis(100);

/// A key that a session has brought, with its path and the peer's node id.
pub type NewKey = (String, String, ExportedKey);

/// Where sessions wait until the node is there.
#[derive(Default)]
pub struct EarlySessions {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    node: OnceLock<Arc<dyn Node>>,
}

#[derive(Default)]
struct Waiting {
    sessions: BTreeMap<SessionId, EarlySession>,
    /// How many sessions of each path and class a peer has here.
    lanes: BTreeMap<String, Lanes>,
    /// How many lanes are waited for, of each peer.
    wanted: BTreeMap<String, usize>,
    /// The peers that have fewer.
    missing: BTreeSet<String>,
    /// When the last message of each handshake is acknowledged. Before that, a congestion control
    /// does not let the next bytes begin at the allocated rate, so a stream that is handed over
    /// earlier waits for another round trip.
    acknowledged_at: Option<Instant>,
    /// Keys that the other process has not been told.
    keys: Vec<NewKey>,
    /// The node's numbers of sessions that have waited and do not know them yet.
    numbers: BTreeMap<SessionId, SessionId>,
}

type Lanes = BTreeMap<(String, Option<Class>), usize>;

struct EarlySession {
    info: SessionInfo,
    handle: Arc<dyn Session>,
    waker: Option<Waker>,
}

impl EarlySessions {
    /// Waits, at most `patience`, until each of these peers, by their node ids, has this many
    /// sessions of different classes or paths, with acknowledged handshakes. Returns how many peers
    /// do not. `tell` gets each key.
    ///
    /// # Errors
    /// That of `tell`.
    pub fn wait<E>(
        &self,
        sessions: BTreeMap<String, usize>,
        patience: Duration,
        mut tell: impl FnMut(NewKey) -> Result<(), E>,
    ) -> Result<usize, E> {
        let until = Instant::now() + patience;
        let mut waiting = self.waiting();
        let peers: Vec<String> = sessions.keys().cloned().collect();
        waiting.wanted = sessions;
        waiting.missing.clear();
        peers.iter().for_each(|peer| waiting.judge(peer));
        loop {
            let keys = std::mem::take(&mut waiting.keys);
            if !keys.is_empty() {
                drop(waiting);
                keys.into_iter().try_for_each(&mut tell)?;
                waiting = self.waiting();
                continue;
            }
            let now = Instant::now();
            let due = match waiting.missing.is_empty() {
                true => waiting.acknowledged_at.unwrap_or(now).min(until),
                false => until,
            };
            let left = due.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(waiting.missing.len());
            }
            waiting = self.changed.wait_timeout(waiting, left).unwrap().0;
        }
    }

    /// Gives the node its sessions, and all that come from now on.
    pub fn open(&self, node: &Arc<dyn Node>) {
        let mut waiting = self.waiting();
        // Sessions that come meanwhile wait for this.
        let node = self.node.get_or_init(|| node.clone());
        let mut wakers = Vec::new();
        for (id, session) in std::mem::take(&mut waiting.sessions) {
            // In order, since the oldest session of a class carries.
            let number = SessionId(id.0 & !WAITING);
            let number = node.session_up(number, session.info, session.handle);
            waiting.numbers.insert(id, number);
            wakers.extend(session.waker);
        }
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends what waits, since this process does not get the node. Over QUIC no kernel tells the
    /// peers when a process ends. Blocks while the runtime sends that.
    pub fn give_up(&self) {
        let waiting: Vec<_> = {
            let waiting = self.waiting();
            let sessions = waiting.sessions.values();
            sessions.map(|session| session.handle.clone()).collect()
        };
        if waiting.is_empty() {
            return;
        }
        for session in waiting {
            // An orderly end waits until the session is in use.
            session.abort("another process keeps the node");
        }
        std::thread::sleep(FAREWELL);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap()
    }
}

impl Waiting {
    fn insert(&mut self, id: SessionId, session: EarlySession) {
        let info = &session.info;
        let lanes = self.lanes.entry(info.peer_node_id.clone()).or_default();
        *lanes.entry((info.path.clone(), info.class)).or_default() += 1;
        self.judge(&info.peer_node_id);
        self.sessions.insert(id, session);
    }

    /// Whether it was there.
    fn remove(&mut self, id: SessionId) -> bool {
        let Some(EarlySession { info, .. }) = self.sessions.remove(&id) else {
            return false;
        };
        if let Some(lanes) = self.lanes.get_mut(&info.peer_node_id) {
            let lane = (info.path, info.class);
            if let Some(count) = lanes.get_mut(&lane) {
                *count -= 1;
                if *count == 0 {
                    lanes.remove(&lane);
                }
            }
        }
        self.judge(&info.peer_node_id);
        true
    }

    /// Notes whether a peer has the lanes that are waited for.
    fn judge(&mut self, peer: &str) {
        let there = self.lanes.get(peer).map_or(0, BTreeMap::len);
        match self.wanted.get(peer) {
            Some(wanted) if there < *wanted => self.missing.insert(peer.to_owned()),
            _ => self.missing.remove(peer),
        };
    }
}

impl Node for EarlySessions {
    fn session_up(&self, id: SessionId, info: SessionInfo, session: Arc<dyn Session>) -> SessionId {
        let round_trip = session.figures().rtt;
        let mut waiting = self.waiting();
        if let Some(node) = self.node.get() {
            drop(waiting);
            return node.session_up(id, info, session);
        }
        let at = Instant::now() + round_trip + DELAYED_ACK;
        waiting.acknowledged_at = waiting.acknowledged_at.max(Some(at));
        let key = info.exported_key;
        let key = key.map(|key| (info.path.clone(), info.peer_node_id.clone(), key));
        waiting.keys.extend(key);
        let id = SessionId(id.0 | WAITING);
        let session = EarlySession {
            info,
            handle: session,
            waker: None,
        };
        waiting.insert(id, session);
        self.changed.notify_all();
        id
    }

    fn poll_in_use(&self, id: SessionId, cx: &mut Context<'_>) -> Poll<SessionId> {
        if id.0 & WAITING == 0 {
            return Poll::Ready(id);
        }
        let mut waiting = self.waiting();
        if let Some(session) = waiting.sessions.get_mut(&id) {
            session.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(waiting.numbers.remove(&id).unwrap_or(id))
    }

    fn ready(&self, id: SessionId) {
        if let Some(node) = self.node.get() {
            node.ready(id);
        }
    }

    fn admit(&self, id: SessionId, length: Option<u64>) -> Result<(), Refusal> {
        let node = self.node.get().ok_or(Refusal::NoResources)?;
        node.admit(id, length)
    }

    fn intake(&self, id: SessionId, length: u64) -> Result<Option<Box<dyn Intake>>, Refusal> {
        let node = self.node.get().ok_or(Refusal::NoResources)?;
        node.intake(id, length)
    }

    fn spool(&self, id: SessionId) -> Result<Spool, Refusal> {
        let node = self.node.get().ok_or(Refusal::NoResources)?;
        node.spool(id)
    }

    fn received(&self, id: SessionId, bundle: Bytes) -> Result<(), Refusal> {
        let node = self.node.get().ok_or(Refusal::NoResources)?;
        node.received(id, bundle)
    }

    fn progress(&self, id: SessionId, key: u64, acknowledged: u64) {
        if let Some(node) = self.node.get() {
            node.progress(id, key, acknowledged);
        }
    }

    fn finished(&self, id: SessionId, key: u64, outcome: Outcome) {
        if let Some(node) = self.node.get() {
            node.finished(id, key, outcome);
        }
    }

    fn session_down(&self, id: SessionId, reason: Down) {
        let number = {
            let mut waiting = self.waiting();
            if waiting.remove(id) {
                return;
            }
            waiting.numbers.remove(&id).unwrap_or(id)
        };
        if let Some(node) = self.node.get() {
            node.session_down(number, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use underpass_cla::{PathFigures, Transfer};

    use super::*;

    /// A session with this round trip, and whether it was aborted.
    #[derive(Default)]
    struct Silent(Duration, AtomicBool);

    impl Session for Silent {
        fn offer(&self, _: Transfer) {}
        fn set_rate(&self, _: Option<u64>) {}
        fn figures(&self) -> PathFigures {
            PathFigures {
                rtt: self.0,
                ..PathFigures::default()
            }
        }
        fn suspend(&self, _: bool) {}
        fn close(&self) {}
        fn abort(&self, _: &str) {
            self.1.store(true, Ordering::SeqCst);
        }
    }

    /// Gives each session its number plus 1000.
    #[derive(Default)]
    struct Recorder(Mutex<Vec<(&'static str, u64)>>);

    impl Recorder {
        fn note(&self, what: &'static str, id: SessionId) {
            self.0.lock().unwrap().push((what, id.0));
        }
    }

    impl Node for Recorder {
        fn session_up(&self, id: SessionId, _: SessionInfo, _: Arc<dyn Session>) -> SessionId {
            self.note("up", id);
            SessionId(id.0 + 1000)
        }
        fn ready(&self, id: SessionId) {
            self.note("ready", id);
        }
        fn admit(&self, _: SessionId, _: Option<u64>) -> Result<(), Refusal> {
            Ok(())
        }
        fn received(&self, _: SessionId, _: Bytes) -> Result<(), Refusal> {
            Ok(())
        }
        fn progress(&self, _: SessionId, _: u64, _: u64) {}
        fn finished(&self, _: SessionId, _: u64, _: Outcome) {}
        fn session_down(&self, id: SessionId, _: Down) {
            self.note("down", id);
        }
    }

    fn info(peer: u64, class: u8) -> SessionInfo {
        SessionInfo {
            peer_node_id: format!("ipn:{peer}.0"),
            path: "beam".to_owned(),
            remote: SocketAddr::from(([192, 0, 2, 1], 4556)),
            class: Some(Class(class)),
            standby: true,
            receives_only: false,
            hears_refusals: true,
            acknowledges: true,
            incarnation: Some(1),
            former_over_by: None,
            resumes: true,
            transfer_mru_bytes: 1 << 20,
            takes_files: false,
            tls: true,
            exported_key: Some(ExportedKey([class; 32])),
            convergence_layer: "tcpcl",
            congestion_control: String::new(),
        }
    }

    fn come(early: &EarlySessions, number: u64, peer: u64, class: u8) -> SessionId {
        let session = Arc::<Silent>::default();
        early.session_up(SessionId(number), info(peer, class), session)
    }

    /// Whether the wanted sessions are up, by peer and number.
    fn is_complete(early: &EarlySessions, wanted: &[(u64, usize)]) -> bool {
        let wanted = wanted.iter();
        let wanted = wanted.map(|(peer, count)| (format!("ipn:{peer}.0"), *count));
        let told = |_| Ok::<(), ()>(());
        early.wait(wanted.collect(), Duration::ZERO, told) == Ok(0)
    }

    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn sessions_wait_for_the_node_and_then_are_its_own_in_their_order() {
        let early = EarlySessions::default();
        let flag = Arc::new(Flag(false.into()));
        let waker = Waker::from(flag.clone());
        let cx = &mut Context::from_waker(&waker);
        let waiting = [7, 8, 9].map(|number| come(&early, number, 10, 0));
        for id in waiting {
            assert!(early.poll_in_use(id, cx).is_pending());
            assert!(early.received(id, Bytes::new()).is_err());
        }
        early.session_down(waiting[1], Down::Closed);
        let recorder = Arc::new(Recorder::default());
        let node: Arc<dyn Node> = recorder.clone();
        early.open(&node);
        assert!(flag.0.load(Ordering::SeqCst));
        assert_eq!(
            early.poll_in_use(waiting[0], cx),
            Poll::Ready(SessionId(1007))
        );
        early.ready(SessionId(1007));
        // This session ends before it learns its number.
        early.session_down(waiting[2], Down::Closed);
        // This session comes up when the node is there.
        let late = come(&early, 11, 10, 0);
        assert_eq!(early.poll_in_use(late, cx), Poll::Ready(SessionId(1011)));
        early.session_down(late, Down::Closed);
        let told = recorder.0.lock().unwrap().clone();
        let expected = [
            ("up", 7),
            ("up", 9),
            ("ready", 1007),
            ("down", 1009),
            ("up", 11),
            ("down", 1011),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn all_that_still_waits_is_aborted_when_the_node_does_not_come() {
        let early = EarlySessions::default();
        let sessions = [0, 1, 2].map(|number| {
            let session = Arc::<Silent>::default();
            let id = early.session_up(SessionId(number), info(10, 0), session.clone());
            (id, session)
        });
        early.session_down(sessions[0].0, Down::Closed);
        early.give_up();
        let aborted = sessions.map(|(_, session)| session.1.load(Ordering::SeqCst));
        assert_eq!(aborted, [false, true, true]);
    }

    #[test]
    fn a_peer_stands_for_itself_and_for_sessions_that_are_up() {
        let early = EarlySessions::default();
        let wanted = [(10, 2), (11, 1)];
        assert!(!is_complete(&early, &wanted));
        // Many sessions of one class count as one.
        let many: Vec<SessionId> = (0..50).map(|n| come(&early, n, 10, 0)).collect();
        assert!(!is_complete(&early, &[(10, 2)]));
        come(&early, 50, 10, 1);
        assert!(is_complete(&early, &[(10, 2)]));
        // They do not count for another peer.
        assert!(!is_complete(&early, &wanted));
        come(&early, 51, 11, 0);
        assert!(is_complete(&early, &wanted));
        // A peer whose sessions have ended is missing.
        for id in many {
            early.session_down(id, Down::Closed);
        }
        assert!(!is_complete(&early, &wanted));
    }

    #[test]
    fn what_a_session_has_said_last_is_acknowledged_before_it_is_used() {
        let wait = |round_trip: Duration, patience: Duration| {
            let early = EarlySessions::default();
            let begun = Instant::now();
            let session = Arc::new(Silent(round_trip, false.into()));
            early.session_up(SessionId(0), info(10, 0), session);
            let wanted = BTreeMap::from([("ipn:10.0".to_owned(), 1)]);
            let missing = early.wait(wanted, patience, |_| Ok::<(), ()>(()));
            assert_eq!(missing, Ok(0));
            begun.elapsed()
        };
        let round_trip = Duration::from_millis(100);
        assert!(wait(round_trip, Duration::from_secs(60)) >= round_trip);
        // A peer that is slow to acknowledge does not delay the hand-over further.
        let patience = Duration::from_millis(50);
        assert!(wait(Duration::from_secs(60), patience) < Duration::from_secs(30));
    }

    #[test]
    fn each_key_is_told_once() {
        let early = EarlySessions::default();
        come(&early, 0, 10, 3);
        let mut told = Vec::new();
        for _ in 0..2 {
            let tell = |key: NewKey| {
                told.push((key.0, key.1, key.2.0));
                Ok::<(), ()>(())
            };
            early.wait(BTreeMap::new(), Duration::ZERO, tell).unwrap();
        }
        let key = ("beam".to_owned(), "ipn:10.0".to_owned(), [3; 32]);
        assert_eq!(told, [key]);
    }
}
