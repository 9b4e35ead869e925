//! Beacons: a socket for each path and for each listener.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use underpass_beacon::{Beacons, Endpoint, Key, PeerConfig, PeerId, SocketConfig, bind};

use super::RunError;
use crate::config::{Config, PathConfig};
use crate::shell::{Ear, LinkBeacons, Shell};

/// Opens the sockets. Beacons begin when sessions bring keys, or at once under
/// a configured key.
pub(super) fn open(
    config: &Config,
    incarnation: u64,
    shell: &Arc<Shell>,
) -> Result<LinkBeacons, RunError> {
    let key = configured_key(config)?;
    let mut opened = LinkBeacons::default();
    if !config.beacons.enabled || config.tls.plain && key.is_none() {
        if !config.paths.is_empty() || !config.listeners.is_empty() {
            tracing::info!("no beacons: blockages are known only from plan, modem and operator");
        }
        return Ok(opened);
    }
    let endpoint = || Endpoint::new(number(config.node.number), incarnation);
    let ear = Arc::new(Ear::of(shell));
    let start = |name: &str, socket: &SocketConfig| {
        bind(socket)
            .and_then(|bound| Beacons::spawn(bound, endpoint(), ear.clone()))
            .map_err(|source| RunError::Beacons {
                name: name.to_owned(),
                address: socket.local,
                source,
            })
    };
    let add = |beacons: &Beacons, name: &str, peer: PeerConfig| {
        let hop = shell.read(|engine| engine.hop_named(name));
        let Some(hop) = hop else { return };
        beacons.add_peer(PeerId(hop.0), peer);
        if let Some(key) = &key {
            beacons.add_key(PeerId(hop.0), key.clone());
        }
    };
    for path in &config.paths {
        let beacons = start(&path.name, &dialling(config, path))?;
        let port = config.beacons.port.unwrap_or(path.remote.port());
        let peer = PeerConfig {
            node: number(path.neighbour),
            rtt: Duration::from_millis(path.rtt_ms),
            address: Some(SocketAddr::new(path.remote.ip(), port)),
            // Who has an address to call goes on: the other end waits for it.
            patience: Duration::MAX,
        };
        add(&beacons, &path.name, peer);
        opened.insert(&path.name, beacons);
    }
    for listener in &config.listeners {
        let mut local = listener.listen;
        local.set_port(config.beacons.port.unwrap_or(local.port()));
        let socket = SocketConfig {
            local,
            interface: None,
            mark: config.tcp.mark,
        };
        let beacons = start(&listener.name, &socket)?;
        tracing::info!(listener = listener.name, address = %beacons.local_addr(), "hearing beacons");
        for terminal in &config.terminals {
            let peer = PeerConfig {
                node: number(terminal.node),
                rtt: Duration::from_millis(terminal.rtt_ms),
                address: None,
                patience: Duration::from_secs(config.tcp.hold_s),
            };
            add(&beacons, &terminal.name(), peer);
        }
        opened.insert(&listener.name, beacons);
    }
    Ok(opened)
}

/// Node numbers are below 2³² as the configuration is checked.
fn number(node: u64) -> u32 {
    u32::try_from(node).unwrap_or(u32::MAX)
}

/// The same way out as the path's sessions have.
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
