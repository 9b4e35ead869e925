//! The engines, each with a store on a disk that survives it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use underpass_bundle as bundle;
use underpass_cla::{Class, SessionInfo};
use underpass_engine::{Engine, EngineConfig, HopConfig, HopId, StreamKey};
use underpass_scheduler::{self as scheduler, ClassConfig};
use underpass_store::simulated::SimulatedDisk;
use underpass_store::{DiskStore, Identity, Limits, Worker};
use underpass_streams::Announcement;

use crate::streams::App;

pub const HUB: usize = 0;
pub const CLASSES: u8 = 3;
pub const SEGMENT_BYTES: u64 = 16 << 10;
/// How long names of bundles are remembered: at a rest only those of the last streams
/// are.
const REMEMBERED: Duration = Duration::from_secs(1800);

/// A node, and the state that survives its process.
pub struct Node {
    /// `None` while it is stopped.
    pub engine: Option<Engine>,
    pub worker: Option<Worker<SimulatedDisk>>,
    pub disk: SimulatedDisk,
    pub incarnation: u64,
    /// The next deadline of its engine, as the world has noted it.
    pub due: Option<Duration>,
    /// The applications at this end of the streams.
    pub apps: HashMap<StreamKey, App>,
}

/// A node's ipn node number by its index; the hub is 1.
pub fn number(node: usize) -> u64 {
    match node {
        HUB => 1,
        terminal => 100 + terminal as u64,
    }
}

pub fn place(number: u64) -> usize {
    match number {
        1 => HUB,
        terminal => terminal as usize - 100,
    }
}

fn hop(id: u64, neighbour: usize) -> HopConfig {
    HopConfig {
        send_rate_bps: Some(2_000_000),
        receive_rate_bps: Some(2_000_000),
        ..HopConfig::new(HopId(id), format!("hop{neighbour}"), number(neighbour))
    }
}

/// A node's configuration with these hops, each a number and a peer.
pub fn config(node: usize, incarnation: u64, hops: &[(u64, usize)]) -> EngineConfig {
    let class = |class: u8| ClassConfig {
        class: Class(class),
        priority: class,
        weight: 1,
    };
    let run = (number(node) << 20 | incarnation).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut agent = bundle::Config::new(number(node), run);
    agent.store_bytes = 1 << 20;
    agent.duplicates.age = REMEMBERED;
    EngineConfig {
        node: number(node),
        incarnation,
        agent,
        scheduler: scheduler::Config {
            classes: (0..CLASSES).map(class).collect(),
            utilisation: 0.985,
        },
        beam_rate_bps: None,
        hops: hops.iter().map(|(id, to)| hop(*id, *to)).collect(),
        routes: Vec::new(),
        max_streams: 64,
        window_bytes: None,
        send_buffer_bytes: None,
        lifetime: Duration::from_secs(2 * 3600),
        hold: Duration::from_secs(3600),
        edge: true,
        reaches: Announcement::default(),
        default_class: Class(2),
        policies: Default::default(),
    }
}

pub fn info(class: u8, incarnation: u64) -> SessionInfo {
    SessionInfo {
        class: Some(Class(class)),
        incarnation: Some(incarnation),
        resumes: true,
        transfer_mru_bytes: 1 << 20,
        tls: true,
        ..SessionInfo::new("tcpcl", SocketAddr::from((Ipv4Addr::LOCALHOST, 4556)))
    }
}

impl Node {
    pub fn stopped() -> Node {
        Node {
            engine: None,
            worker: None,
            disk: SimulatedDisk::default(),
            incarnation: 0,
            due: None,
            apps: HashMap::new(),
        }
    }

    /// Starts the node's next run at time `at` of the simulation.
    pub fn start(&mut self, node: usize, hops: &[(u64, usize)], at: Duration, now: Instant) {
        self.incarnation += 1;
        let at_ms = at.as_millis() as u64;
        let identity = Identity {
            node: number(node),
            boot: [0; 16],
            boot_ms: at_ms as i64,
            seed: number(node) << 20 | self.incarnation,
        };
        let limits = Limits {
            segment_bytes: SEGMENT_BYTES,
            memory_bytes: 1 << 20,
            write_behind: Duration::from_millis(250),
        };
        let opened = DiskStore::over(self.disk.clone(), identity, limits, now, || ());
        let (store, worker, report) = opened.expect("a disk of this node");
        assert!(report.damaged.is_empty(), "{:?}", report.damaged);
        let config = config(node, self.incarnation, hops);
        let made = Engine::with_store(now, config, Box::new(store));
        let mut engine = made.expect("a valid configuration");
        engine.set_clock(now, 800_000_000_000 + at_ms);
        (self.engine, self.worker) = (Some(engine), Some(worker));
    }
}
