//! Configurations of the engines and their sessions.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use underpass_bundle as bundle;
use underpass_cla::{Class, SessionInfo};
use underpass_engine::{EngineConfig, HopConfig, HopId};
use underpass_scheduler::{self as scheduler, ClassConfig};
use underpass_streams::Announcement;

/// The hub's ipn node number; terminals have higher numbers.
pub const HUB: u64 = 1;
/// The number of classes of each node, and so of sessions of each hop.
pub const CLASSES: u64 = 3;
pub const STREAMS: Class = Class(2);

/// A node with a hop to each of the neighbours, by the neighbours' numbers.
pub fn engine(node: u64, neighbours: impl Iterator<Item = u64>) -> EngineConfig {
    let class = |class: u64| ClassConfig {
        class: Class(class as u8),
        priority: class as u8,
        weight: 1,
    };
    let mut agent = bundle::Config::new(node, node << 40);
    agent.store_bytes = 4 << 30;
    agent.store_bundles = 1 << 20;
    EngineConfig {
        node,
        incarnation: 1,
        agent,
        scheduler: scheduler::Config {
            classes: (0..CLASSES).map(class).collect(),
            utilisation: 1.0,
        },
        beam_rate_bps: Some(1_000_000_000_000),
        hops: neighbours.map(hop).collect(),
        routes: Vec::new(),
        max_streams: 100,
        window_bytes: None,
        send_buffer_bytes: Some(1 << 20),
        lifetime: Duration::from_secs(3600),
        hold: Duration::from_secs(60),
        edge: true,
        reaches: Announcement::default(),
        default_class: STREAMS,
        policies: Default::default(),
    }
}

fn hop(neighbour: u64) -> HopConfig {
    HopConfig {
        send_rate_bps: Some(100_000_000_000),
        receive_rate_bps: Some(1_000_000_000),
        ..HopConfig::new(HopId(neighbour), format!("hop{neighbour}"), neighbour)
    }
}

/// A session of a class, like one of TCPCLv4 over TLS.
pub fn session(class: Class) -> SessionInfo {
    SessionInfo {
        class: Some(class),
        resumes: true,
        transfer_mru_bytes: 1 << 30,
        tls: true,
        ..SessionInfo::new("tcpcl", SocketAddr::from((Ipv4Addr::LOCALHOST, 4556)))
    }
}
