//! What a terminal is made from, and its parts: engine, dialer, beacons.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::net::UdpSocket;
use underpass_beacon::{Endpoint, PeerConfig, PeerId, SocketConfig, bind};
use underpass_cla::Class;
use underpass_engine::{EngineConfig, HopConfig};
use underpass_scheduler::ClassConfig;
use underpass_streams::Announcement;
use underpass_tcpcl::{DialerConfig, SessionDefaults};

use super::{HOP, NORMAL};
use crate::identity::{self, IdentityError};

/// What a terminal is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the hub listens.
    pub hub: SocketAddr,
    /// The hub's node number.
    pub hub_node: u64,
    /// The folder of the authority.
    pub pki: std::path::PathBuf,
    /// Round-trip time of the hop, as the terminal is told.
    pub rtt: Duration,
    /// How much later than at the sockets everything happens, one way.
    pub delay: Duration,
    /// Rate from the hub, bit/s.
    pub receive_rate_bps: Option<u64>,
    /// Rate to the hub, bit/s.
    pub send_rate_bps: Option<u64>,
    /// The local address of the first terminal; each next one has the next.
    /// None where the system is to choose.
    pub first_address: Option<Ipv4Addr>,
    /// The first terminal's node number.
    pub first_node: u64,
    /// This process' incarnation.
    pub run: u64,
}

impl Config {
    /// A terminal's own address.
    pub fn address(&self, node: u64) -> Option<Ipv4Addr> {
        let further = u32::try_from(node.saturating_sub(self.first_node)).unwrap_or(u32::MAX);
        let first = u32::from(self.first_address?);
        Some(Ipv4Addr::from(first.saturating_add(further)))
    }
}

/// Why a terminal cannot be made.
#[derive(Debug, Error)]
pub enum TerminalError {
    /// It has no certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The engine does not want its configuration.
    #[error(transparent)]
    Engine(#[from] underpass_engine::EngineError),
    #[error("beacons: {0}")]
    Beacons(#[from] std::io::Error),
}

pub fn engine(config: &Config, node: u64) -> EngineConfig {
    let class = |number, priority, weight| ClassConfig {
        class: Class(number),
        priority,
        weight,
    };
    EngineConfig {
        node,
        incarnation: config.run,
        agent: underpass_bundle::Config::new(node, config.run ^ node << 32),
        scheduler: underpass_scheduler::Config {
            classes: vec![
                class(0, 0, 1),
                class(1, 1, 1),
                class(2, 2, 4),
                class(3, 2, 1),
            ],
            utilisation: 0.994,
        },
        beam_rate_bps: None,
        hops: vec![HopConfig {
            send_rate_bps: config.send_rate_bps,
            receive_rate_bps: config.receive_rate_bps,
            rtt: config.rtt,
            ipv6: config.hub.is_ipv6(),
            ..HopConfig::new(HOP, "satellite".to_owned(), config.hub_node)
        }],
        routes: Vec::new(),
        max_streams: 1000,
        window_bytes: None,
        send_buffer_bytes: None,
        lifetime: Duration::from_secs(7200),
        hold: Duration::from_secs(3600),
        edge: true,
        reaches: Announcement::default(),
        default_class: NORMAL,
        policies: Default::default(),
    }
}

pub fn dialer(config: &Config, node: u64) -> Result<DialerConfig, IdentityError> {
    let ids = Arc::new(AtomicU64::new(0));
    let mut session = SessionDefaults::new("satellite", format!("ipn:{node}.0"), ids);
    session.config.incarnation = config.run;
    session.config.accepted_peers = Some([format!("ipn:{}.0", config.hub_node)].into());
    let mut dialer = DialerConfig::new(config.hub, session);
    dialer.local = config
        .address(node)
        .map(|own| SocketAddr::new(own.into(), 0));
    dialer.tls = Some(identity::client(&config.pki, node)?);
    dialer.classes = (0..4).map(Class).collect();
    dialer.standby = true;
    Ok(dialer)
}

pub fn socket(config: &Config, node: u64) -> std::io::Result<UdpSocket> {
    let any = match (config.address(node), config.hub) {
        (Some(own), _) => IpAddr::V4(own),
        (None, SocketAddr::V4(_)) => IpAddr::from([0; 4]),
        (None, SocketAddr::V6(_)) => IpAddr::from([0; 16]),
    };
    UdpSocket::from_std(bind(&SocketConfig {
        local: SocketAddr::new(any, 0),
        interface: None,
        mark: None,
    })?)
}

pub fn endpoint(config: &Config, now: Instant, node: u64) -> Endpoint {
    let number = |node| u32::try_from(node).unwrap_or(u32::MAX);
    let mut endpoint = Endpoint::new(number(node), config.run, now);
    let peer = PeerConfig {
        node: number(config.hub_node),
        rtt: config.rtt,
        address: Some(config.hub),
        patience: Duration::MAX,
    };
    endpoint.add_peer(now, PeerId(HOP.0), peer);
    endpoint
}
