//! A node of the simulation: the real shell around a real engine, the relays
//! over model sockets, and a disk that outlives it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use underpass_bundle::{MemoryStore, Store};
use underpass_cla::Class;
use underpass_edge::config::DialConfig;
use underpass_edge::dial::{Dialler, Families};
use underpass_edge::direct::DirectOutlet;
use underpass_edge::relay::relay;
use underpass_edge::stream::{OpenRequest, Outlet, Protocol, Target};
use underpass_engine::Engine;
use underpass_streams as streams;
use underpass_tcpcl::SessionDefaults;
use underpass_tcpcl::net::{Side, run_session};

use super::connection::Connection;
use super::disk::Disk;
use super::plan::Plan;
use super::random::Random;
use super::session::Ends;
use super::tcp::ModelSocket;
use crate::config::Config;
use crate::run::engine::configure;
use crate::shell::{self, Inbound, Shell, StreamOutlet};

/// By place in the world.
const NUMBERS: [u64; 2] = [10, 1];
/// What each calls the way to the other.
pub const HOPS: [&str; 2] = ["sat", "terminal-10"];
pub const TERMINAL: usize = 0;
pub const HUB: usize = 1;

/// The address of all origins; the port is the number of the connection.
const ORIGINS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A node in one of its runs.
#[derive(Clone)]
pub struct Running {
    pub number: u64,
    pub incarnation: u64,
    pub shell: Arc<Shell>,
    /// The shell as its sessions know it.
    pub ends: Arc<Ends>,
    defaults: Arc<SessionDefaults>,
    /// Ends all tasks of this run.
    end: CancellationToken,
    pub relays: TaskTracker,
}

/// What a node holds in memory or custody for connections, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub unsealed_bytes: u64,
    pub unread_bytes: u64,
    pub custody_bytes: u64,
}

impl Load {
    /// The larger of each.
    pub fn max(self, other: Load) -> Load {
        Load {
            unsealed_bytes: self.unsealed_bytes.max(other.unsealed_bytes),
            unread_bytes: self.unread_bytes.max(other.unread_bytes),
            custody_bytes: self.custody_bytes.max(other.custody_bytes),
        }
    }
}

/// Where streams that the peer opens come out.
pub type Streams = mpsc::UnboundedReceiver<Inbound>;

impl Running {
    /// Starts a run of the node at `place`.
    pub fn start(
        place: usize,
        incarnation: u64,
        plan: &Plan,
        disk: Option<&Disk>,
        start: Instant,
    ) -> (Running, Streams) {
        let config = config(place, plan);
        let mut engine = configure(&config, incarnation, Families::BOTH);
        let run = plan.seed ^ (place as u64) << 32 ^ incarnation << 40;
        engine.agent.run_nonce = Random::new(run).next();
        let now = Instant::now().into_std();
        let shards = match place {
            HUB => plan.hub_shards,
            _ => 1,
        };
        let opened = disk.map(|disk| disk.open(NUMBERS[place], shards));
        let (stores, work) = opened.unzip();
        let in_memory = || (0..shards).map(|_| in_memory()).collect();
        let stores: Vec<Box<dyn Store>> = stores.unwrap_or_else(in_memory);
        let engines = Engine::of_shards(now, &engine, stores).expect("a valid configuration");
        let (sender, streams) = mpsc::unbounded_channel();
        let shell = Shell::new(engines, &engine, sender);
        let operations = &plan.operations[place];
        let number = NUMBERS[place];
        let ids = Arc::new(AtomicU64::new(1));
        let mut defaults = SessionDefaults::new("sat", format!("ipn:{number}.0"), ids);
        defaults.config.incarnation = incarnation;
        defaults.config.alone_since = Some(now);
        defaults.config.segment_bytes = 16 << 10;
        let running = Running {
            number,
            incarnation,
            ends: Ends::new(shell.clone(), HOPS[place], start, operations),
            defaults: Arc::new(defaults),
            shell,
            end: CancellationToken::new(),
            relays: TaskTracker::new(),
        };
        for driver in shell::drivers(&running.shell) {
            running.spawn(driver);
        }
        running.spawn(running.ends.clone().operate());
        if let Some(work) = work {
            running.spawn(work.run(running.shell.clone()));
        }
        (running, streams)
    }

    /// Runs a task until the node ends.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(self.end.clone().run_until_cancelled_owned(task));
    }

    /// A session over a connection, from its beginning to its end.
    pub fn session(&self, connection: Connection, side: Side) -> impl Future<Output = ()> + use<> {
        let (ends, defaults) = (self.ends.clone(), self.defaults.clone());
        async move {
            run_session(connection, side, &defaults, ends).await;
        }
    }

    /// The node is killed: its sockets are closed as its kernel closes them.
    pub fn kill(&self) {
        self.end.cancel();
    }

    /// Takes in a client's connection, number `number`; without room for it, resets it. `ended` is
    /// called when it has ended in order.
    pub fn take_in(
        &self,
        number: usize,
        socket: ModelSocket,
        ended: impl FnOnce() + Send + 'static,
    ) {
        let dialler = Arc::new(Dialler::new(DialConfig::default()));
        let direct = DirectOutlet::new(dialler);
        let outlets = [(NUMBERS[HUB], Vec::new())];
        let outlet = StreamOutlet::new(self.shell.clone(), outlets, direct, None);
        let port = u16::try_from(number).expect("as many connections as ports");
        let conduit = outlet.open(OpenRequest {
            target: Target::Address((ORIGINS, port).into()),
            client: SocketAddr::from((Ipv4Addr::new(198, 51, 100, 1), port)),
            listener: "model".into(),
            protocol: Protocol::Transparent,
            class: Class(1 + (number % 3) as u8),
            awaits_outcome: false,
            trace: None,
        });
        let conduit = conduit.expect("room for the streams of a run");
        let relaying = async move {
            if relay(socket, conduit, Bytes::new()).await.1.is_ok() {
                ended();
            }
        };
        self.spawn(self.relays.track_future(relaying));
    }

    /// Dials the origin of a stream from the peer; `connect` is the dial.
    /// `ended` is called when its relay has ended in order.
    pub fn serve<D>(
        &self,
        stream: Inbound,
        connect: impl FnOnce(usize) -> D,
        ended: impl FnOnce(usize) + Send + 'static,
    ) where
        D: Future<Output = ModelSocket> + Send + 'static,
    {
        let streams::Target::Address(origin) = stream.open.target else {
            panic!("a name as the target");
        };
        let mut conduit = self.shell.conduit(&stream);
        let number = usize::from(origin.port());
        let connecting = connect(number);
        let relaying = async move {
            let socket = connecting.await;
            conduit.connected(underpass_edge::stream::Connected::default());
            if relay(socket, conduit, Bytes::new()).await.1.is_ok() {
                ended(number);
            }
        };
        self.spawn(self.relays.track_future(relaying));
    }

    /// What it has in memory or custody for connections.
    pub fn load(&self) -> Load {
        let now = Instant::now().into_std();
        let streams = self.shell.streams(usize::MAX);
        let custody = self.shell.custody(now);
        let infos = || streams.iter().map(|(_, _, info)| info);
        Load {
            unsealed_bytes: infos().map(|info| info.send_buffered_bytes).sum(),
            unread_bytes: infos().map(|info| info.unread_bytes).sum(),
            custody_bytes: custody.used_bytes,
        }
    }

    /// Leftovers of connections; nothing once all have ended.
    pub fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let now = Instant::now().into_std();
        let streams = self.shell.streams(usize::MAX);
        let custody = self.shell.custody(now);
        if !streams.is_empty() {
            left.push(format!("node {}: streams {streams:?}", self.number));
        }
        if custody.bundles > 0 || custody.used_bytes > 0 {
            left.push(format!("node {}: custody {custody:?}", self.number));
        }
        if !self.relays.is_empty() {
            left.push(format!(
                "node {}: {} relays",
                self.number,
                self.relays.len()
            ));
        }
        left
    }
}

fn in_memory() -> Box<dyn Store> {
    Box::new(MemoryStore::default())
}

/// The configuration of a node, as an operator would write it.
fn config(place: usize, plan: &Plan) -> Config {
    let link = &plan.link;
    let [own, other] = [NUMBERS[place], NUMBERS[1 - place]];
    let [send, receive] = [link.rates_bps[place], link.rates_bps[1 - place]];
    let rtt = Duration::from_millis(2 * link.delay).as_millis();
    let figures = format!("send_rate_bps = {send}\nreceive_rate_bps = {receive}\nrtt_ms = {rtt}\n");
    let hop = match place {
        TERMINAL => format!(
            "[[path]]\nname = \"sat\"\nneighbour = {other}\nremote = \"203.0.113.1:4556\"\n{figures}\
             [[outlet]]\nnode = {other}\n"
        ),
        _ => format!(
            "[beam]\nrate_bps = {send}\n[[listener]]\nname = \"beam\"\nlisten = \"[::]:4556\"\n\
             [[terminal]]\nnode = {other}\n{figures}"
        ),
    };
    let role = ["terminal", "hub"][place];
    let text = format!(
        "[node]\nnumber = {own}\nrole = \"{role}\"\n[tls]\nplain = true\n\
         [streams]\nwindow_bytes = {}\n{hop}",
        plan.window_bytes
    );
    Config::parse(&text, Path::new("node.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}
