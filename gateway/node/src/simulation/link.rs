//! The link between the nodes: its rate, delay and blockages, and the sessions
//! that are dialled over it, cut, and dialled again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use underpass_cla::Class;
use underpass_tcpcl::net::Side;

use super::connection;
use super::random::Random;
use super::shared::Shared;
use super::world::Running;

/// After a blockage TCP retransmits within this time, ms.
const RETRANSMITTED_IN: u64 = 1_000;

/// An interval in which nothing arrives.
#[derive(Clone, Copy, Debug)]
pub struct Blockage {
    /// ms from the start.
    pub at: u64,
    pub lasts: u64,
    /// The modems tell the nodes.
    pub told: bool,
}

#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// By the node that sends, bit/s.
    pub rates_bps: [u64; 2],
    /// One way, ms.
    pub delay: u64,
    pub blockages: Vec<Blockage>,
    /// When a connection is cut, ms from the start.
    pub breaks: Vec<u64>,
    /// The number of classes with their own sessions; with none, one session carries all.
    pub classes: u8,
    pub standby: bool,
}

pub struct Link {
    pub plan: LinkPlan,
    blocked: Shared<bool>,
    /// Until when the transmitters are busy, by node.
    busy_until: Mutex<[Instant; 2]>,
    ids: AtomicU64,
    random: Mutex<Random>,
    /// Tokens that cut the open connections, in the order of their dials.
    connections: Mutex<BTreeMap<u64, CancellationToken>>,
}

impl Link {
    pub fn new(plan: LinkPlan, seed: u64) -> Arc<Link> {
        Arc::new(Link {
            plan,
            blocked: Shared::new(false),
            busy_until: Mutex::new([Instant::now(); 2]),
            ids: AtomicU64::new(1),
            random: Mutex::new(Random::new(seed ^ 0x6c69_6e6b)),
            connections: Mutex::default(),
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

    pub fn chance(&self) -> u64 {
        self.random.lock().unwrap().next()
    }

    pub fn pick(&self, of: &[u64]) -> u64 {
        self.random.lock().unwrap().pick(of)
    }

    /// Cuts one of the connections.
    pub fn break_one(&self) {
        let dice = self.chance() as usize;
        let connections = self.connections.lock().unwrap();
        if let Some(cut) = connections.values().nth(dice % connections.len().max(1)) {
            cut.cancel();
        }
    }

    /// Cuts all: an end of them is gone.
    pub fn break_all(&self) {
        self.connections
            .lock()
            .unwrap()
            .values()
            .for_each(CancellationToken::cancel);
    }

    /// Occupies the line of node `from` until it has sent `bytes` bytes.
    pub async fn transmit(&self, from: usize, bytes: usize) {
        let taken = Duration::from_micros(bytes as u64 * 8_000_000 / self.plan.rates_bps[from]);
        let until = {
            let mut busy_until = self.busy_until.lock().unwrap();
            let busy_until = &mut busy_until[from];
            *busy_until = (*busy_until).max(Instant::now()) + taken;
            *busy_until
        };
        sleep_until(until).await;
    }

    /// Waits until something can pass. After a blockage, bytes are sent again only when a timer of
    /// TCP expires.
    pub async fn pass(&self) {
        if self.blocked.get() {
            self.free().await;
            sleep(Duration::from_millis(self.chance() % RETRANSMITTED_IN)).await;
        }
    }

    /// Keeps sessions between two nodes up. Runs until dropped.
    pub async fn run_sessions(
        self: Arc<Link>,
        class: Option<(Class, bool)>,
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

    /// One session, until the node that has dialled knows of its end. The other node may notice it
    /// later.
    async fn carry(self: &Arc<Link>, class: Option<(Class, bool)>, nodes: [Running; 2]) {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        let cut = CancellationToken::new();
        self.connections.lock().unwrap().insert(number, cut.clone());
        let [one, other] = connection::connect(self, cut);
        // Dropped with the task, also if that ends with its node.
        let (over, ended) = oneshot::channel::<()>();
        let [terminal, hub] = &nodes;
        let dialled = terminal.session(one, Side::Dialled(class));
        terminal.spawn(async move {
            dialled.await;
            drop(over);
        });
        hub.spawn(hub.session(other, Side::Accepted));
        let _ = ended.await;
        self.connections.lock().unwrap().remove(&number);
    }
}
