//! What `check-config` says of the machine.

use caps::{CapSet, Capability};
use underpass_hybla::Loader;

use super::congestion_controls::preferences;
use super::links::{accepted_socket, dialled_socket};
use crate::config::{AcceptedHop, Config, ControlConfig, ConvergenceLayer};
use crate::upgrade;

/// What this machine lacks for a configuration, a line each.
pub fn advice(config: &Config) -> Vec<String> {
    let mut lines = config.unreached();
    for (whom, list) in preferences(config) {
        let choice = Loader::new().choose(&list);
        lines.push(format!("congestion control for {whom}: {choice}"));
    }
    if config
        .control
        .as_ref()
        .is_some_and(ControlConfig::is_exposed)
    {
        lines.push(
            "control.url: the token goes with each request for all to read; https hides it"
                .to_owned(),
        );
    }
    for listener in &config.edge.listener {
        if listener.users.iter().any(|user| user.password.is_some()) {
            lines.push(format!(
                "edge.listener {:?}: passwords stand in the configuration as they are; \
                 `underpass hash-password` makes hashes",
                listener.name
            ));
        }
    }
    if config.uses_mptcp() {
        let missing = super::mptcp::missing().into_iter();
        lines.extend(missing.map(|line| format!("mptcp = true: {line}")));
    }
    lines.push(super::custody::choose(config).to_string());
    lines.extend(small_buffers(config));
    lines.extend(no_probing(config));
    let obstacle = upgrade::lasting_obstacle(std::process::id());
    lines.extend(obstacle.map(|obstacle| format!("no upgrade in place: {obstacle}")));
    lines
}

/// Bounds of the system that give a process without CAP_NET_ADMIN smaller buffers.
pub(super) fn lacking_buffers(config: &Config) -> Vec<String> {
    let forces = caps::has_cap(None, CapSet::Effective, Capability::CAP_NET_ADMIN);
    match forces.unwrap_or(false) {
        true => Vec::new(),
        false => small_buffers(config),
    }
}

/// Bounds of the system below the buffers that sessions need.
fn small_buffers(config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let hops: Vec<AcceptedHop> = config.accepted_hops().collect();
    let needed = config
        .paths
        .iter()
        .map(|path| dialled_socket(config, path))
        .chain((!config.listeners.is_empty()).then(|| accepted_socket(config, &hops)));
    let largest = needed
        .flat_map(|socket| [socket.receive_buffer_bytes, socket.send_buffer_bytes])
        .flatten()
        .max()
        .unwrap_or(0);
    for key in ["rmem_max", "wmem_max"] {
        let path = format!("/proc/sys/net/core/{key}");
        let allowed = std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok());
        if let Some(allowed) = allowed
            && allowed < largest
        {
            lines.push(format!(
                "net.core.{key} = {allowed}: without CAP_NET_ADMIN, socket buffers of {largest} \
                 bytes need it raised; with smaller ones less is on its way than the path holds, \
                 and sessions are slower for it"
            ));
        }
    }
    lines
}

/// A TCP that never tries smaller packets.
fn no_probing(config: &Config) -> Option<String> {
    let dialled = config.paths.iter().map(|path| path.convergence_layer);
    let accepted = config.listeners.iter().map(|one| one.convergence_layer);
    let is_tcp = |layer| {
        use ConvergenceLayer::{Mtcp, Stcp, Tcpcl};
        matches!(layer, Tcpcl | Stcp | Mtcp)
    };
    let over_tcp = dialled.chain(accepted).any(is_tcp);
    let probing = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_mtu_probing");
    let never = over_tcp && probing.is_ok_and(|text| text.trim() == "0");
    never.then(|| {
        "net.ipv4.tcp_mtu_probing = 0: where a network on the way drops packets that have \
         become too large for it, sessions of TCP stand still; with 1 they become smaller"
            .to_owned()
    })
}
