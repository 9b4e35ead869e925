//! The task of one session.

mod coded;
mod control;
mod handle;
mod keepalive;
mod receiving;
mod sending;
mod writing;

use std::future::poll_fn;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use quinn::Connection;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::debug;
use underpass_cla::{Down, Node, Outcome, Session, SessionId, SessionInfo};
use underpass_identity::{Ending, Registry};

use crate::code;
use crate::congestion::Flow;
use crate::contact::Contact;
use crate::defaults::{SessionDefaults, down_of};
use crate::incoming::Room;
use crate::outgoing::Outgoing;
use crate::wire::Message;
use handle::Handle;
pub(crate) use keepalive::Intervals;
use keepalive::{Due, Keepalive};

/// Most messages that wait for the control stream. A receiver that is faster than it takes no more
/// bundles meanwhile.
const MESSAGES: usize = 1024;
/// How often the peer is asked for an answer after a blockage, and how many times.
const NUDGE_EACH: Duration = Duration::from_millis(250);
const NUDGES: u32 = 40;

/// Asks for another session in place of one.
pub(crate) type Renew = Box<dyn Fn() + Send + Sync>;

/// What the parts of a session's task and its handle share.
struct Link {
    connection: Connection,
    node: Arc<dyn Node>,
    /// The node's number for the session.
    id: OnceLock<SessionId>,
    flow: Arc<Flow>,
    outgoing: Mutex<Outgoing>,
    /// The pace of all that is sent.
    line: Mutex<sending::Line>,
    /// Places for bundles that wait while others go on.
    aside: Arc<Semaphore>,
    coded: coded::Coded,
    /// Room for what the peer has in transfer on this session and others.
    room: Arc<Room>,
    /// The turn of the one bundle that waits for room.
    waits_for_room: Semaphore,
    room_timeout: Duration,
    /// Bundles, a stream for each, that have begun and not ended; and those of them of which the
    /// peer owes more.
    begun_bundles: AtomicUsize,
    owed_bundles: AtomicUsize,
    transfer_mru_bytes: u64,
    whole_mru_bytes: u64,
    messages: mpsc::Sender<Message>,
    /// Notifies the tasks that write bundles of a change. Each begins to listen before it checks.
    writable: Notify,
    /// The link is back.
    resumed: Notify,
    /// Whether the link rests; and that this has changed.
    rests: AtomicBool,
    rest_changed: Notify,
    /// Signs of life in numbers.
    pings_sent: AtomicU64,
    pings_received: AtomicU64,
    /// Where this end has dialled.
    renew: Option<Renew>,
    /// The session is to end in order.
    closing: Notify,
    /// Why this node has ended the session.
    reason: OnceLock<Down>,
}

/// What a session has around it.
pub(crate) struct Surroundings {
    pub(crate) defaults: Arc<SessionDefaults>,
    pub(crate) node: Arc<dyn Node>,
    pub(crate) flow: Arc<Flow>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) renew: Option<Renew>,
}

/// Runs a session from the moment when both sides have identified each other to its end.
pub(crate) async fn run(contact: Contact, around: Surroundings) -> Down {
    let defaults = &around.defaults;
    let (messages, to_say) = mpsc::channel(MESSAGES);
    let peer = &contact.peer.node_id;
    let room = defaults.rooms.of(peer, defaults.room_bytes());
    let coded = coded::Coded::new(&contact.peer, defaults, &room);
    if let Some(open) = coded.open() {
        // Nothing else waits yet.
        let _ = messages.try_send(Message::Coded(open));
    }
    let link = Arc::new(Link {
        connection: contact.connection.clone(),
        node: around.node.clone(),
        id: OnceLock::new(),
        flow: around.flow,
        outgoing: Mutex::default(),
        line: Mutex::new(sending::Line::new(Instant::now())),
        aside: Arc::new(Semaphore::new(sending::MOST_ASIDE)),
        coded,
        room,
        waits_for_room: Semaphore::new(1),
        room_timeout: defaults.room_timeout,
        begun_bundles: AtomicUsize::new(0),
        owed_bundles: AtomicUsize::new(0),
        transfer_mru_bytes: defaults.transfer_mru_bytes,
        whole_mru_bytes: defaults.whole_mru_bytes,
        messages,
        writable: Notify::new(),
        resumed: Notify::new(),
        rests: AtomicBool::new(false),
        rest_changed: Notify::new(),
        pings_sent: AtomicU64::new(0),
        pings_received: AtomicU64::new(0),
        renew: around.renew,
        closing: Notify::new(),
        reason: OnceLock::new(),
    });
    let handle = Arc::new(Handle(link.clone()));
    let number = defaults.next_id();
    let ended_by = handle.clone();
    let end = Box::new(move |ending: Ending<'_>| match ending {
        Ending::InOrder => ended_by.close(),
        Ending::AtOnce(reason) => ended_by.abort(reason),
    });
    let info = info(&contact, defaults);
    around
        .registry
        .insert(number, Some(contact.identity.into()), end);
    // It may have been revoked since the handshake.
    around.registry.close_if(number, &*contact.is_revoked);
    let id = around.node.session_up(number, info, handle);
    let mut readers = JoinSet::new();
    let down = tokio::select! {
        biased;
        error = contact.connection.closed() => link.down(&error),
        down = link.carry(
            id,
            (contact.send, to_say),
            (contact.receive, contact.unread),
            &mut readers,
            defaults,
        ) => down,
    };
    readers.shutdown().await;
    link.finish(&down, id);
    around.registry.remove(number);
    down
}

fn info(contact: &Contact, defaults: &SessionDefaults) -> SessionInfo {
    SessionInfo {
        peer_node_id: contact.peer.node_id.clone(),
        path: defaults.path.clone(),
        remote: contact.connection.remote_address(),
        class: contact.peer.class,
        standby: contact.peer.standby,
        receives_only: false,
        hears_refusals: true,
        acknowledges: true,
        incarnation: Some(contact.peer.incarnation),
        former_over_by: None,
        resumes: false,
        transfer_mru_bytes: contact.peer.transfer_mru_bytes,
        takes_files: true,
        tls: true,
        exported_key: Some(contact.exported_key),
        convergence_layer: "quic",
        congestion_control: defaults.algorithm.name().to_owned(),
    }
}

impl Link {
    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap()
    }

    /// The node's number for the session; it is set before it is first needed.
    fn id(&self) -> SessionId {
        self.id.get().copied().unwrap_or(SessionId(u64::MAX))
    }

    /// Moves bundles both ways until the session is over.
    async fn carry(
        self: &Arc<Self>,
        id: SessionId,
        saying: control::Saying,
        hearing: control::Hearing,
        readers: &mut JoinSet<Result<(), receiving::Violation>>,
        defaults: &SessionDefaults,
    ) -> Down {
        let id = poll_fn(|cx| self.node.poll_in_use(id, cx)).await;
        // Nobody else sets it.
        let _ = self.id.set(id);
        tokio::select! {
            down = self.send_bundles() => down,
            down = self.receive_bundles(readers) => down,
            down = self.receive_symbols() => down,
            down = self.say(saying) => down,
            down = self.hear(hearing) => down,
            down = self.watch(defaults.keepalives()) => down,
            down = self.end_in_time(defaults.ending_timeout) => down,
        }
    }

    /// Wakes QUIC up, after the window may have opened.
    fn wake(&self) {
        let window = self.flow.window(Instant::now());
        self.connection
            .set_send_window(sending::send_window(window));
    }

    /// Lets QUIC send something that the peer acknowledges. After a blockage, the acknowledgement
    /// shows all that was lost in it, which timers would detect much later.
    fn nudge(&self) {
        // It is owed before it can leave. A full queue has something to send.
        self.flow.ask(Instant::now());
        if self.messages.try_send(Message::Ping).is_ok() {
            self.pings_sent.fetch_add(1, Relaxed);
        }
        self.wake();
    }

    /// Sends keepalives, and detects that the peer is gone; asks for an answer after a blockage.
    async fn watch(&self, intervals: Option<Intervals>) -> Down {
        let mut keepalive = Keepalive::new(intervals, Instant::now());
        let datagrams = || self.connection.stats().udp_rx.datagrams;
        let mut counted = datagrams();
        loop {
            let (now, count) = (Instant::now(), datagrams());
            if count != counted {
                counted = count;
                keepalive.seen(now);
            }
            if let Some(at) = self.flow.heard() {
                keepalive.heard(at);
            }
            // While the link is blocked, silence says nothing about the peer.
            if self.flow.is_blocked() {
                keepalive.heard(now);
            }
            // A peer with room for a bundle in transfer must not keep that room after it is gone.
            // Bundles on sessions of other paths do not count: their own sessions watch them.
            let receives = self.begun_bundles.load(Relaxed) > 0 || self.coded.has_begun();
            let rests = self.rests.load(Relaxed) && !receives;
            keepalive.set_rests(now, rests);
            match keepalive.due(now) {
                Due::Silent => return Down::Broken("the peer is silent".into()),
                Due::Ask => self.nudge(),
                Due::At(at) => tokio::select! {
                    () = self.resumed.notified() => {
                        self.ask_resumed().await;
                        keepalive.heard(Instant::now());
                    }
                    () = self.rest_changed.notified() => {}
                    () = sleep(at.saturating_duration_since(now)) => {}
                },
            }
        }
    }

    /// After a blockage, asks for an answer until there is one.
    async fn ask_resumed(&self) {
        for _ in 0..NUDGES {
            if self.flow.is_blocked() || self.flow.is_heard_again() {
                break;
            }
            self.nudge();
            sleep(NUDGE_EACH).await;
        }
    }

    /// Bounds the time of an orderly end.
    async fn end_in_time(&self, time: Duration) -> Down {
        self.closing.notified().await;
        sleep(time).await;
        Down::Closed
    }

    /// What the end of the connection means.
    fn down(&self, error: &quinn::ConnectionError) -> Down {
        let own = self.reason.get().cloned();
        own.unwrap_or_else(|| down_of(error))
    }

    /// The session is over: tells the node.
    fn finish(&self, down: &Down, id: SessionId) {
        let (code, reason) = match down {
            Down::Closed => (code::CLOSED, ""),
            Down::Broken(reason) => (code::ABORTED, reason.as_str()),
            Down::Protocol(reason) => (code::PROTOCOL, reason.as_str()),
        };
        debug!(?down, "a session is over");
        self.connection.close(code, reason.as_bytes());
        let id = self.id.get().copied().unwrap_or(id);
        let unended = self.outgoing().end();
        for transfer in unended {
            let acknowledged = transfer.acknowledged;
            let outcome = Outcome::Broken { acknowledged };
            self.node.finished(id, transfer.key, outcome);
        }
        self.node.session_down(id, down.clone());
    }
}
