//! The link between the nodes, and a model of the convergence layer over it:
//! sessions that carry bundles at a rate, stall in blockages, break and are
//! set up again.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use underpass_cla::{
    Class, Down, Node, Outcome, PathFigures, Session, SessionId, SessionInfo, Transfer,
};

use super::random::Random;
use super::shared::Shared;
use super::world::Running;
use crate::shell::Shell;

/// An interval in which nothing arrives.
#[derive(Clone, Copy, Debug)]
pub struct Blockage {
    /// ms from the start.
    pub at: u64,
    pub lasts: u64,
    /// The modems tell the nodes.
    pub told: bool,
}

/// A link and what happens to it.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// By the node that sends, bit/s.
    pub rates_bps: [u64; 2],
    /// One way, ms.
    pub delay: u64,
    pub blockages: Vec<Blockage>,
    /// When a session breaks, ms from the start.
    pub breaks: Vec<u64>,
    /// Of the classes, and one session for all if there are none.
    pub classes: u8,
    pub standby: bool,
}

/// A link at work.
pub struct Link {
    pub plan: LinkPlan,
    blocked: Shared<bool>,
    /// Until when the transmitters are busy, by node.
    busy_until: Mutex<[Instant; 2]>,
    ids: AtomicU64,
    random: Mutex<Random>,
    /// Sessions that are up, in the order of their setting up.
    pairs: Mutex<BTreeMap<u64, CancellationToken>>,
}

impl Link {
    pub fn new(plan: LinkPlan, seed: u64) -> Arc<Link> {
        Arc::new(Link {
            plan,
            blocked: Shared::new(false),
            busy_until: Mutex::new([Instant::now(); 2]),
            ids: AtomicU64::new(1),
            random: Mutex::new(Random::new(seed ^ 0x6c69_6e6b)),
            pairs: Mutex::default(),
        })
    }

    pub fn set_blocked(&self, blocked: bool) {
        self.blocked.replace(blocked);
    }

    async fn free(&self) {
        self.blocked
            .wait_for(|blocked| (!blocked).then_some(()))
            .await;
    }

    fn chance(&self) -> u64 {
        self.random.lock().unwrap().next()
    }

    /// Breaks one of the sessions.
    pub fn break_one(&self) {
        let dice = self.chance() as usize;
        let pairs = self.pairs.lock().unwrap();
        if let Some(broken) = pairs.values().nth(dice % pairs.len().max(1)) {
            broken.cancel();
        }
    }

    /// Breaks all: an end of them is gone.
    pub fn break_all(&self) {
        self.pairs
            .lock()
            .unwrap()
            .values()
            .for_each(CancellationToken::cancel);
    }

    /// Keeps up the sessions of a class between two nodes; runs until dropped.
    pub async fn run_sessions(
        self: Arc<Link>,
        class: Option<Class>,
        nodes: Arc<[Shared<Option<Running>>; 2]>,
    ) {
        loop {
            self.free().await;
            sleep(Duration::from_millis(
                2 * self.plan.delay + self.chance() % 300,
            ))
            .await;
            let alive = nodes.each_ref().map(Shared::get);
            if let [Some(one), Some(other)] = alive
                && !self.blocked.get()
            {
                self.carry(class, [one, other]).await;
            }
        }
    }

    /// One session, from its setting up to its end.
    async fn carry(self: &Arc<Link>, class: Option<Class>, nodes: [Running; 2]) {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        let broken = CancellationToken::new();
        self.pairs.lock().unwrap().insert(number, broken.clone());
        let ends = [0, 1].map(|from| {
            let (offers, offered) = mpsc::unbounded_channel();
            let session = Arc::new(ModelSession {
                offers,
                aborted: broken.clone(),
            });
            let info = session_info(&nodes[1 - from], class);
            let shell = nodes[from].shell.clone();
            let id = shell.session_up(SessionId(number), info, session);
            (End { shell, id }, offered)
        });
        let [(terminal, one_offered), (hub, other_offered)] = ends;
        let flow = |from, ends| Flow {
            link: self.clone(),
            from,
            ends,
            unfinished: Mutex::default(),
        };
        let one = flow(0, [terminal.clone(), hub.clone()]);
        let other = flow(1, [hub, terminal]);
        for flow in [&one, &other] {
            flow.ends[0].ready();
        }
        tokio::select! {
            biased;
            () = broken.cancelled() => {}
            () = one.run(one_offered) => {}
            () = other.run(other_offered) => {}
        }
        self.pairs.lock().unwrap().remove(&number);
        for flow in [&one, &other] {
            // Each end notices in its time.
            sleep(Duration::from_millis(self.chance() % 700)).await;
            flow.end();
        }
    }
}

fn session_info(peer: &Running, class: Option<Class>) -> SessionInfo {
    SessionInfo {
        peer_node_id: format!("ipn:{}.0", peer.number),
        path: "sat".to_owned(),
        remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 4556)),
        class,
        standby: false,
        incarnation: class.map(|_| peer.incarnation),
        resumes: true,
        transfer_mru_bytes: 64 << 20,
        tls: true,
        exported_key: None,
        congestion_control: "model".to_owned(),
    }
}

struct ModelSession {
    offers: mpsc::UnboundedSender<Transfer>,
    aborted: CancellationToken,
}

impl Session for ModelSession {
    fn offer(&self, transfer: Transfer) {
        // A session that has ended takes nothing; its end says so.
        let _ = self.offers.send(transfer);
    }

    fn set_rate(&self, _: Option<u64>) {}

    fn figures(&self) -> PathFigures {
        PathFigures::default()
    }

    fn close(&self) {
        self.aborted.cancel();
    }

    fn abort(&self, _: &str) {
        self.aborted.cancel();
    }
}

/// A session as the node at one of its ends knows it.
#[derive(Clone)]
struct End {
    shell: Arc<Shell>,
    id: SessionId,
}

impl End {
    fn ready(&self) {
        self.shell.ready(self.id);
    }

    fn finished(&self, key: u64, outcome: Outcome) {
        self.shell.finished(self.id, key, outcome);
    }
}

/// One direction of a session.
struct Flow {
    link: Arc<Link>,
    from: usize,
    /// The end that sends, and the other.
    ends: [End; 2],
    /// Transfers whose end the sender has not heard of, and their length.
    unfinished: Mutex<BTreeMap<u64, u64>>,
}

impl Flow {
    async fn run(&self, mut offered: mpsc::UnboundedReceiver<Transfer>) {
        let (sent, arriving) = mpsc::unbounded_channel();
        let (answers, answered) = mpsc::unbounded_channel();
        let sending = async {
            while let Some(transfer) = offered.recv().await {
                self.send(&transfer).await;
                let at = Instant::now() + self.delay();
                let _ = sent.send((at, transfer));
                self.ends[0].ready();
            }
        };
        tokio::join!(
            sending,
            self.deliver(arriving, answers),
            self.hear(answered)
        );
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(self.link.plan.delay)
    }

    /// Waits until the last byte has left.
    async fn send(&self, transfer: &Transfer) {
        let length = transfer.len();
        self.unfinished.lock().unwrap().insert(transfer.key, length);
        let left_out = transfer.resume.map_or(0, |resume| resume.offset);
        let bits = (length - left_out) * 8;
        let taken = Duration::from_micros(bits * 1_000_000 / self.link.plan.rates_bps[self.from]);
        let until = {
            let mut busy_until = self.link.busy_until.lock().unwrap();
            let busy_until = &mut busy_until[self.from];
            *busy_until = (*busy_until).max(Instant::now()) + taken;
            *busy_until
        };
        sleep_until(until).await;
        self.link.free().await;
    }

    async fn deliver(
        &self,
        mut arriving: mpsc::UnboundedReceiver<(Instant, Transfer)>,
        answers: mpsc::UnboundedSender<(Instant, u64, Outcome)>,
    ) {
        while let Some((at, transfer)) = arriving.recv().await {
            sleep_until(at).await;
            self.link.free().await;
            let End { shell, id } = &self.ends[1];
            let raw = match &transfer.chunks[..] {
                [whole] => whole.clone(),
                chunks => Bytes::from(chunks.concat()),
            };
            let taken = shell
                .admit(*id, Some(transfer.len()))
                .and_then(|()| shell.received(*id, raw));
            let outcome = match taken {
                Ok(()) => Outcome::Acknowledged,
                Err(refusal) => Outcome::Refused(refusal),
            };
            let _ = answers.send((Instant::now() + self.delay(), transfer.key, outcome));
        }
    }

    async fn hear(&self, mut answered: mpsc::UnboundedReceiver<(Instant, u64, Outcome)>) {
        while let Some((at, key, outcome)) = answered.recv().await {
            sleep_until(at).await;
            self.link.free().await;
            self.unfinished.lock().unwrap().remove(&key);
            self.ends[0].finished(key, outcome);
        }
    }

    /// The session is down.
    fn end(&self) {
        let unfinished = std::mem::take(&mut *self.unfinished.lock().unwrap());
        for (key, length) in unfinished {
            let acknowledged = match self.link.chance() {
                dice if dice % 2 == 0 => 0,
                dice => dice % length,
            };
            let outcome = Outcome::Broken { acknowledged };
            self.ends[0].finished(key, outcome);
        }
        let reason = Down::Broken("the session broke".to_owned());
        let End { shell, id } = &self.ends[0];
        shell.session_down(*id, reason);
    }
}
