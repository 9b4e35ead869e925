//! Beacons: a socket for each path and for each listener.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use underpass_beacon::{Beacons, Endpoint, Key, PeerConfig, PeerId, SocketConfig, bind};
use underpass_engine::HopId;

use super::{RunError, on_demand};
use crate::config::{AcceptedHop, Config, ListenerConfig, PathConfig};
use crate::shell::{BeaconReceiver, LinkBeacons, Shell};
use crate::upgrade::Sockets;

/// Opens sockets, as this run's configuration says.
pub(super) struct Opener {
    incarnation: u64,
    started: Instant,
    receiver: Arc<BeaconReceiver>,
    sockets: Arc<Sockets>,
}

impl Opener {
    /// Of a run that began at `started`.
    pub fn new(
        incarnation: u64,
        started: Instant,
        shell: &Arc<Shell>,
        sockets: &Arc<Sockets>,
    ) -> Opener {
        Opener {
            sockets: sockets.clone(),
            incarnation,
            started,
            receiver: Arc::new(BeaconReceiver::of(shell)),
        }
    }

    /// Opens all sockets. Beacons begin when sessions bring keys, or at once
    /// under a configured key.
    pub fn open(
        &self,
        config: &Config,
        shell: &Shell,
        opened: &LinkBeacons,
    ) -> Result<(), RunError> {
        let Some(key) = usable_key(config)? else {
            if !config.paths.is_empty() || !config.listeners.is_empty() {
                tracing::info!(
                    "no beacons: blockages are known only from plan, modem and operator"
                );
            }
            return Ok(());
        };
        let hop_of = |name: &str| shell.hop_named(name);
        // Nodes of other implementations send none.
        let ours = |path: &&PathConfig| !path.convergence_layer.is_bare();
        // A released path has none.
        let up = |path: &&PathConfig| on_demand::is_up(shell, &path.name);
        for path in config.paths.iter().filter(ours).filter(up) {
            if let Some(hop) = hop_of(&path.name) {
                let beacons = self.open_path(config, path, hop, key.as_ref())?;
                opened.insert(&path.name, beacons);
            }
        }
        for listener in &config.listeners {
            let beacons = self.start(config, &listener.name, &listening(config, listener))?;
            tracing::info!(listener = listener.name, address = %beacons.local_addr(), "hearing beacons");
            let accepted = config.accepted_hops();
            for accepted in accepted.filter(|hop| hop.comes_by(&listener.name)) {
                if let Some(hop) = hop_of(&accepted.name) {
                    add_accepted(&beacons, config, &accepted, hop, key.as_ref());
                }
            }
            opened.insert(&listener.name, beacons);
        }
        Ok(())
    }

    /// The next socket of a path is another one.
    pub fn forget(&self, path: &str) {
        self.sockets.forget(&format!("beacons {path}"));
    }

    /// Opens the socket of one path, whose hop has this number.
    pub fn open_path(
        &self,
        config: &Config,
        path: &PathConfig,
        hop: HopId,
        key: Option<&Key>,
    ) -> Result<Beacons, RunError> {
        let beacons = self.start(config, &path.name, &dialling(config, path))?;
        let beside = path.convergence_layer.beacon_port(path.remote.port());
        let port = config.beacons.port.unwrap_or(beside);
        let peer = PeerConfig {
            node: number(path.neighbour),
            rtt: path.rtt(),
            address: Some(SocketAddr::new(path.remote.ip(), port)),
            // An end that has an address to send to keeps trying; the other end waits for it.
            patience: Duration::MAX,
        };
        // A neighbour that speaks no TLS is no Underpass node, and has no beacons.
        add(&beacons, hop, peer, key.filter(|_| !path.plain));
        Ok(beacons)
    }

    fn start(
        &self,
        config: &Config,
        name: &str,
        socket: &SocketConfig,
    ) -> Result<Beacons, RunError> {
        let node = number(config.node.number);
        let endpoint = Endpoint::new(node, self.incarnation, self.started);
        let bound = bound(&self.sockets, name, socket)?;
        Beacons::spawn(bound, endpoint, self.receiver.clone())
            .map_err(|source| unusable(name, socket, source))
    }
}

/// Binds the sockets that the previous process has not bound; of the paths on demand only those
/// that are `up`.
///
/// # Errors
/// When the key cannot be used or an address is taken.
pub(super) fn bind_all(
    config: &Config,
    up: &BTreeSet<String>,
    sockets: &Sockets,
) -> Result<(), RunError> {
    if usable_key(config)?.is_none() {
        return Ok(());
    }
    let paths = on_demand::dialled(config, up);
    for path in paths.filter(|path| !path.convergence_layer.is_bare()) {
        bound(sockets, &path.name, &dialling(config, path))?;
    }
    for listener in &config.listeners {
        bound(sockets, &listener.name, &listening(config, listener))?;
    }
    Ok(())
}

/// The socket of a path or listener: the existing one, otherwise a new one.
fn bound(sockets: &Sockets, name: &str, socket: &SocketConfig) -> Result<UdpSocket, RunError> {
    let place = format!("beacons {name}");
    let bound = sockets.bind(&place, socket.local, || bind(socket));
    bound.map_err(|source| unusable(name, socket, source))
}

fn unusable(name: &str, socket: &SocketConfig, source: io::Error) -> RunError {
    RunError::Beacons {
        name: name.to_owned(),
        address: socket.local,
        source,
    }
}

/// Hears the beacons of a terminal's hop.
pub(super) fn add_accepted(
    beacons: &Beacons,
    config: &Config,
    accepted: &AcceptedHop,
    hop: HopId,
    key: Option<&Key>,
) {
    let peer = PeerConfig {
        node: number(accepted.node),
        rtt: accepted.rtt,
        address: None,
        patience: Duration::from_secs(config.tcp.hold_s),
    };
    add(beacons, hop, peer, key);
}

fn add(beacons: &Beacons, hop: HopId, peer: PeerConfig, key: Option<&Key>) {
    beacons.add_peer(PeerId(hop.0), peer);
    if let Some(key) = key {
        beacons.add_key(PeerId(hop.0), key.clone());
    }
}

/// The configured key, if there is one; the outer none means that there can be no beacons.
pub(super) fn usable_key(config: &Config) -> Result<Option<Option<Key>>, RunError> {
    let key = configured_key(config)?;
    Ok(config.has_beacons().then_some(key))
}

/// Node numbers are below 2³² as the configuration is checked.
fn number(node: u64) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

/// Beside the address that the sessions come to.
fn listening(config: &Config, listener: &ListenerConfig) -> SocketConfig {
    let mut local = listener.listen;
    let beside = listener.convergence_layer.beacon_port(local.port());
    local.set_port(config.beacons.port.unwrap_or(beside));
    SocketConfig {
        local,
        interface: None,
        mark: config.tcp.mark,
    }
}

/// By the same local address and interface as the path's sessions.
fn dialling(config: &Config, path: &PathConfig) -> SocketConfig {
    let any = match path.remote {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketConfig {
        local: SocketAddr::new(path.local.unwrap_or(any), 0),
        interface: path.interface.clone(),
        mark: config.tcp.mark,
    }
}

fn configured_key(config: &Config) -> Result<Option<Key>, RunError> {
    let Some(path) = &config.beacons.key_file else {
        return Ok(None);
    };
    let failed = |reason: String| RunError::BeaconKey {
        path: path.clone(),
        reason,
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let key = Key::from_hex(text.trim()).map_err(|error| failed(error.to_string()))?;
    Ok(Some(key))
}
