//! From the edge into streams: decides to which node a connection goes.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use ipnet::IpNet;
use tokio::net::TcpStream;
use underpass_deferred::Handle;
use underpass_edge::direct::{self, DirectOutlet};
use underpass_edge::stream::{
    Conduit, Failure, FailureCode, OpenRequest, Outlet, StreamName, Target,
};
use underpass_streams::{self as streams, Announcement, Open};

use super::Shell;
use super::conduit::{StreamConduit, name_of};
use super::streams::Entry;
use crate::upgrade::{self, Channel};

/// Opens streams to the node that is configured for a destination; without one, this node dials.
pub struct StreamOutlet {
    shell: Arc<Shell>,
    ways: RwLock<Ways>,
    direct: DirectOutlet,
    /// Where requests are kept for later.
    deferred: Option<Handle>,
    /// The process that has taken the streams over, if any.
    next: OnceLock<Arc<Mutex<Channel>>>,
}

/// Which node is for which destination.
#[derive(Debug, Default)]
struct Ways {
    /// By length of the prefix, the longest first.
    networks: Vec<(IpNet, u64)>,
    /// For names, and for addresses in no network.
    default: Option<u64>,
}

impl Ways {
    fn new(outlets: impl IntoIterator<Item = (u64, Vec<IpNet>)>) -> Ways {
        let mut networks = Vec::new();
        let mut default = None;
        for (node, destinations) in outlets {
            if destinations.is_empty() {
                default.get_or_insert(node);
            }
            networks.extend(destinations.into_iter().map(|network| (network, node)));
        }
        networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix_len()));
        Ways { networks, default }
    }
}

impl StreamOutlet {
    /// An outlet by networks and their nodes; an entry without networks is
    /// for all destinations and names.
    pub fn new(
        shell: Arc<Shell>,
        outlets: impl IntoIterator<Item = (u64, Vec<IpNet>)>,
        direct: DirectOutlet,
        deferred: Option<Handle>,
    ) -> StreamOutlet {
        StreamOutlet {
            shell,
            ways: RwLock::new(Ways::new(outlets)),
            direct,
            deferred,
            next: OnceLock::new(),
        }
    }

    /// Sets other nodes for the next connections.
    pub fn set_outlets(&self, outlets: impl IntoIterator<Item = (u64, Vec<IpNet>)>) {
        *self.ways.write().unwrap() = Ways::new(outlets);
    }

    /// From now on another process opens the streams of clients that this process still serves.
    pub fn lead_to(&self, next: Arc<Mutex<Channel>>) {
        // A node is handed over once.
        let _ = self.next.set(next);
    }

    fn node_for(&self, target: &Target) -> Option<u64> {
        let ways = self.ways.read().unwrap();
        let inside = target.ip().and_then(|ip| {
            let mut networks = ways.networks.iter();
            networks.find(|(network, _)| network.contains(&ip))
        });
        inside.map(|(_, node)| *node).or(ways.default)
    }
}

impl Outlet for StreamOutlet {
    fn deferred(&self) -> Option<&Handle> {
        self.deferred.as_ref()
    }

    fn dispatcher(&self, target: &Target) -> Option<u64> {
        self.node_for(target)
    }

    fn open(&self, request: OpenRequest) -> Result<Box<dyn Conduit>, Failure> {
        let Some(peer) = self.node_for(&request.target) else {
            return self.direct.open(request);
        };
        let open = Open {
            class: request.class,
            target: match request.target {
                Target::Address(address) => streams::Target::Address(address),
                Target::Name { host, port } => streams::Target::Name {
                    host: host.as_str().to_owned(),
                    port,
                },
            },
            client: Some(request.client),
            report_connected: request.awaits_outcome,
            trace: request.trace.map(|trace| streams::TraceContext {
                trace_id: trace.trace_id,
                span_id: trace.span_id,
            }),
        };
        if let Some(next) = self.next.get() {
            return lead(&mut next.lock().unwrap(), peer, &open);
        }
        let stream = self.shell.open_stream(peer, open)?;
        Ok(self.shell.conduit_again(stream, false))
    }
}

/// Lets the next process open a stream, and connects to it.
fn lead(next: &mut Channel, peer: u64, open: &Open) -> Result<Box<dyn Conduit>, Failure> {
    let led = upgrade::lead(next, peer, open);
    let led = led.and_then(TcpStream::from_std).map(direct::over);
    led.map_err(|error| {
        let text = format!("the next process of this node opens no stream: {error}");
        Failure::new(FailureCode::Unavailable, text)
    })
}

/// An address family that the peer has announced as not reached is refused at once, without a round
/// trip, so that the client tries its other address.
fn reachable(announcement: Option<Announcement>, ip: IpAddr) -> Result<(), Failure> {
    let reached = announcement.is_none_or(|announced| match ip {
        IpAddr::V4(_) => announced.ipv4,
        IpAddr::V6(_) => announced.ipv6,
    });
    if reached {
        Ok(())
    } else {
        let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        let text = format!("the far node does not reach {family} destinations");
        Err(Failure::new(FailureCode::Unreachable, text))
    }
}

impl Shell {
    /// Opens a stream to a node.
    ///
    /// # Errors
    /// When there are too many, or the node does not reach the target.
    pub fn open_stream(&self, peer: u64, open: Open) -> Result<StreamName, Failure> {
        let shard = self.directory().of_peer(peer);
        self.with_inner(shard, |inner, now| {
            if let streams::Target::Address(address) = &open.target {
                reachable(inner.engine.announcement_of(peer), address.ip())?;
            }
            let entry = Entry::to(&open.target);
            let key = inner
                .engine
                .open(now, peer, open)
                .map_err(|error| Failure::new(FailureCode::Exhausted, error.to_string()))?;
            inner.streams.insert(key, entry);
            Ok(name_of(key))
        })
    }

    /// The conduit of a stream that a peer has opened.
    pub fn conduit(self: &Arc<Self>, inbound: &super::Inbound) -> Box<dyn Conduit> {
        Box::new(StreamConduit::new(self.clone(), inbound.shard, inbound.key))
    }
}
