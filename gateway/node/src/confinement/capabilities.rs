//! Capabilities (capabilities(7)): the process keeps those that the configuration needs at run
//! time.

use std::collections::HashSet;
use std::io;

use caps::errors::CapsError;
use caps::{CapSet, Capability};
use underpass_edge::config::{ListenerProtocol, OriginSource};

use crate::config::{Config, Source};

/// The last port that needs CAP_NET_BIND_SERVICE (ip_unprivileged_port_start).
const LAST_PRIVILEGED_PORT: u16 = 1023;

/// The capabilities that a node of this configuration needs after its start.
pub fn needed(config: &Config) -> HashSet<Capability> {
    let mut needed = HashSet::new();
    if administers_sockets(config) {
        needed.insert(Capability::CAP_NET_ADMIN);
    }
    let low = |port: u16| (1..=LAST_PRIVILEGED_PORT).contains(&port);
    if ports(config).into_iter().any(low) {
        needed.insert(Capability::CAP_NET_BIND_SERVICE);
    }
    needed
}

/// Whether its sockets have options that need CAP_NET_ADMIN: restricted congestion controls,
/// buffers above the system's bound, marks, addresses of others.
fn administers_sockets(config: &Config) -> bool {
    let edge = &config.edge;
    let sessions = !config.paths.is_empty() || !config.listeners.is_empty();
    let listens = edge.listener.iter().any(|listener| {
        listener.protocol == ListenerProtocol::Transparent
            || !listener.congestion_control.is_empty()
    });
    let dials = edge.dial.mark.is_some()
        || edge.dial.origin_source == OriginSource::Client
        || !edge.dial.congestion_control.is_empty();
    sessions || listens || dials
}

/// Every local port that the configuration names.
fn ports(config: &Config) -> Vec<u16> {
    let positions = config.positions.as_ref().and_then(|p| match p.source {
        Source::Udp { listen, .. } => Some(listen.port()),
        _ => None,
    });
    let sessions = config.listeners.iter().map(|l| l.listen.port());
    let neighbours = config.paths.iter().filter_map(|path| path.listen);
    let edge = config.edge.listener.iter().map(|l| l.address.port());
    let modems = config.modems.iter().map(|m| m.listen.port());
    sessions
        .chain(neighbours.map(|listen| listen.port()))
        .chain(edge)
        .chain(modems)
        .chain(positions)
        .chain(config.api.listen.map(|address| address.port()))
        .chain(config.beacons.port)
        .collect()
}

/// Drops every capability from every set, except those of `wanted` that this thread has.
///
/// # Errors
/// When the kernel refuses.
pub fn limit_to(wanted: &HashSet<Capability>) -> Result<(), CapsError> {
    // The bounding set is what an executed program could have. Without
    // CAP_SETPCAP it stays, and no_new_privs has the last word.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::read(None, CapSet::Bounding)?.difference(wanted) {
            caps::drop(None, CapSet::Bounding, *capability)?;
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    let permitted = caps::read(None, CapSet::Permitted)?;
    let limited: HashSet<Capability> = permitted.intersection(wanted).copied().collect();
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &limited)?;
    caps::set(None, CapSet::Permitted, &limited)
}

/// Passes this thread's capabilities on to programs that it executes.
///
/// # Errors
/// When the kernel refuses.
pub fn raise_ambient() -> Result<(), CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    caps::set(None, CapSet::Inheritable, &permitted)?;
    caps::set(None, CapSet::Ambient, &permitted)
}

/// Prevents executed programs from gaining rights by their files.
pub fn forbid_new() -> io::Result<()> {
    // SAFETY: the call takes numbers alone.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What this thread may use, by name.
pub fn permitted() -> Vec<String> {
    let permitted = caps::read(None, CapSet::Permitted).unwrap_or_default();
    let mut names: Vec<String> = permitted.iter().map(ToString::to_string).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_neighbour_that_is_known_by_its_address_may_send_to_a_low_port() {
        let binds = |port: u16| {
            let text = format!(
                "[node]\nnumber = 10\nrole = \"terminal\"\n\
                 [[path]]\nname = \"ion\"\nneighbour = 1\nremote = \"10.9.0.1:1113\"\n\
                 convergence_layer = \"ltp\"\nlisten = \"10.9.0.2:{port}\"\n\
                 send_rate_bps = 2000000\n"
            );
            let config = Config::parse(&text, Path::new("node.toml")).expect("it is valid");
            needed(&config).contains(&Capability::CAP_NET_BIND_SERVICE)
        };
        assert!(binds(113));
        assert!(!binds(1113));
    }
}
