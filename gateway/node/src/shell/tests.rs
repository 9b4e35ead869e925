//! A hub of one shard, and one of several: which calls reach which shard, and what the shards show
//! together.

mod closed;
mod concurrent;
mod listed;
mod logged;
mod long;
mod opened;
mod reached;
mod reloaded;
mod resting;
mod signed;
mod unanswered;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use underpass_bundle::{MemoryStore, Store};
use underpass_bundle::{NeighbourId, Sharding};
use underpass_cla::{Class, Node, PathFigures, Session, SessionId, SessionInfo, Transfer};
use underpass_edge::dial::Families;
use underpass_engine::{Action, Engine, EngineConfig, HopId, Message};

use super::{Inbound, Service, Shell};
use crate::config::Config;
use crate::run::engine::configure;

const HUB: u64 = 1;
/// A node behind the first terminal.
const BEYOND: u64 = 999;
/// A service of the hub that confirms itself when a message is safe.
const SERVICE: u64 = 100;
/// The numbers of shards that the tests run with.
const COUNTS: [usize; 2] = [1, 3];

/// A hub's configuration with a hop to each of these terminals, in order, and a route to
/// [`BEYOND`] through the first of them.
fn hub(terminals: &[u64]) -> EngineConfig {
    let tables = terminals.iter().map(|node| {
        format!("[[terminal]]\nnode = {node}\nsend_rate_bps = 8000000\nreceive_rate_bps = 8000000\nrtt_ms = 600\n")
    });
    let text = format!(
        "[node]\nnumber = {HUB}\nrole = \"hub\"\n[tls]\nplain = true\n\
         [[listener]]\nname = \"beam\"\nlisten = \"[::]:4556\"\n\
         [[route]]\nnode = {BEYOND}\nvia = {}\n{}",
        terminals[0],
        tables.collect::<String>()
    );
    let mut config = engine_config(&text);
    config.agent.services.insert(SERVICE);
    config.agent.confirming.insert(SERVICE);
    config
}

fn engine_config(text: &str) -> EngineConfig {
    let config = Config::parse(text, Path::new("node.toml"));
    let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
    configure(&config, 1, Families::BOTH)
}

/// Numbers of terminals, with several in each of three shards.
fn terminals() -> Vec<u64> {
    let terminals: Vec<u64> = (10..19).collect();
    for shard in Sharding::all(3) {
        let own = terminals.iter();
        let own = own.filter(|node| shard.shard_of(NeighbourId(**node)) == shard.own);
        assert!(own.count() > 1, "terminals of shard {}", shard.own);
    }
    terminals
}

fn in_memory(count: usize) -> Vec<Box<dyn Store>> {
    let store = || Box::new(MemoryStore::default()) as Box<dyn Store>;
    (0..count).map(|_| store()).collect()
}

fn shell(config: &EngineConfig, count: usize) -> (Arc<Shell>, mpsc::UnboundedReceiver<Inbound>) {
    let engines = Engine::of_shards(Instant::now(), config, in_memory(count));
    let engines = engines.expect("a valid configuration");
    let (sender, inbound) = mpsc::unbounded_channel();
    (Shell::new(engines, config, sender), inbound)
}

fn shard_of(shell: &Shell, node: u64) -> usize {
    let count = shell.shards.len();
    Sharding { own: 0, count }.shard_of(NeighbourId(node))
}

/// A call of a session; calls are recorded in order.
#[derive(Debug)]
enum Told {
    Offer(Transfer),
    Suspend(bool),
    Abort,
}

/// A session that records its calls.
#[derive(Default)]
struct Recorded {
    told: Mutex<Vec<Told>>,
}

impl Recorded {
    fn tell(&self, told: Told) {
        self.told.lock().unwrap().push(told);
    }

    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.told.lock().unwrap())
    }

    /// The bundles that it was offered; it may then be offered another.
    fn offers(&self) -> Vec<Transfer> {
        let offers = self.take().into_iter().filter_map(|told| match told {
            Told::Offer(transfer) => Some(transfer),
            Told::Suspend(_) | Told::Abort => None,
        });
        offers.collect()
    }
}

impl Session for Recorded {
    fn offer(&self, transfer: Transfer) {
        self.tell(Told::Offer(transfer));
    }

    fn set_rate(&self, _: Option<u64>) {}

    fn figures(&self) -> PathFigures {
        PathFigures {
            min_rtt: Duration::from_millis(600),
            sent_bytes: 1_000,
            ..PathFigures::default()
        }
    }

    fn suspend(&self, blocked: bool) {
        self.tell(Told::Suspend(blocked));
    }

    fn close(&self) {}

    fn abort(&self, _: &str) {
        self.tell(Told::Abort);
    }
}

fn info(peer: u64) -> SessionInfo {
    SessionInfo {
        peer_node_id: format!("ipn:{peer}.0"),
        path: "beam".to_owned(),
        incarnation: Some(1),
        resumes: true,
        transfer_mru_bytes: 64 << 20,
        tls: true,
        congestion_control: "model".to_owned(),
        ..SessionInfo::new("tcpcl", SocketAddr::from(([192, 0, 2, 1], 4556)))
    }
}

/// A session with a terminal, by the number that its shell gives it.
fn session(shell: &Shell, number: u64, peer: u64) -> (SessionId, Arc<Recorded>) {
    let session = Arc::new(Recorded::default());
    let id = shell.session_up(SessionId(number), info(peer), session.clone());
    (id, session)
}

/// The first bundle that a terminal sends with this message to the hub's
/// service.
fn bundle_of(terminal: u64, payload: &'static [u8]) -> Bytes {
    let text = format!(
        "[node]\nnumber = {terminal}\nrole = \"terminal\"\n[tls]\nplain = true\n\
         [[path]]\nname = \"sat\"\nneighbour = {HUB}\nremote = \"192.0.2.1:4556\"\n"
    );
    let now = Instant::now();
    let mut engine = Engine::new(now, engine_config(&text)).expect("a valid configuration");
    engine.session_up(now, SessionId(0), HopId(0), info(HUB));
    let message = message(HUB, payload);
    let sent = engine.send_message(now, message, Duration::from_secs(60));
    sent.expect("room for it");
    let mut first = None;
    while first.is_none() {
        engine.session_ready(now, SessionId(0));
        while let Some(action) = engine.poll_action() {
            if let Action::Offer { transfer, .. } = action {
                let bundle: Bytes = transfer.chunks.concat().into();
                // The hub's greeting comes first.
                let is_message = bundle.windows(payload.len()).any(|part| part == payload);
                first = is_message.then_some(bundle).or(first);
            }
        }
    }
    first.expect("the message")
}

fn message(peer: u64, payload: &'static [u8]) -> Message {
    Message::new(peer, SERVICE, Class(2), Bytes::from_static(payload))
}

/// A service that keeps its messages.
#[derive(Default)]
struct Kept {
    messages: Mutex<Vec<Message>>,
}

impl Service for Kept {
    fn message(&self, message: Message) {
        self.messages.lock().unwrap().push(message);
    }

    fn peer_restarted(&self, _: u64) {}
}
