//! MPTCP of paths and listeners, and what it needs of the kernel's path manager.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use super::{Config, ConvergenceLayer};
use crate::path_manager::{Endpoint, EndpointKind, MOST_ENDPOINTS, Wanted};

/// Subflows beside the first, and addresses of a peer, that a connection is
/// allowed at least: by as many paths as there usually are.
const SUBFLOWS: u32 = 4;

/// An address of this node that MPTCP connections use beside that of their
/// first subflow.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// The address.
    pub address: IpAddr,
    /// Interface that its packets leave by. Default: as routing decides.
    pub interface: Option<String>,
    /// true: used only while no other subflow carries. Default false.
    #[serde(default)]
    pub backup: bool,
}

impl EndpointConfig {
    fn endpoint(&self, kind: EndpointKind) -> Endpoint {
        Endpoint {
            address: self.address,
            interface: self.interface.clone(),
            backup: self.backup,
            kind,
        }
    }
}

/// The keys of one path or listener.
pub(super) fn check(
    at: &str,
    layer: ConvergenceLayer,
    mptcp: bool,
    endpoints: &[EndpointConfig],
    problems: &mut Vec<String>,
) {
    if mptcp && layer != ConvergenceLayer::Tcpcl {
        problems.push(format!("{at}: mptcp = true is for convergence_layer tcpcl"));
    }
    if !mptcp && !endpoints.is_empty() {
        problems.push(format!("{at}: mptcp_endpoints needs mptcp = true"));
    }
    for EndpointConfig { address, .. } in endpoints {
        if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
            problems.push(format!(
                "{at}: mptcp_endpoints: {address} is no address that a peer can reach"
            ));
        }
    }
}

impl Config {
    /// Whether sessions of a path or listener are over MPTCP.
    pub fn uses_mptcp(&self) -> bool {
        self.paths.iter().any(|path| path.mptcp) || self.listeners.iter().any(|l| l.mptcp)
    }

    /// Whether sessions that come by a listener may be over MPTCP.
    pub fn is_mptcp(&self, listener: &str) -> bool {
        let mut listeners = self.listeners.iter();
        listeners.any(|each| each.name == listener && each.mptcp)
    }

    /// What is wanted of the kernel's path manager; none without MPTCP.
    pub fn path_manager(&self) -> Option<Wanted> {
        self.uses_mptcp().then(|| {
            let mut endpoints = Vec::new();
            for endpoint in self.endpoints() {
                if !endpoints.contains(&endpoint) {
                    endpoints.push(endpoint);
                }
            }
            let count = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
            let dials = self.paths.iter().any(|path| path.mptcp);
            Wanted {
                endpoints,
                subflows: SUBFLOWS.max(count),
                accepted_addresses: if dials { SUBFLOWS } else { 0 },
            }
        })
    }

    /// The kernel has one list of endpoints for the whole machine.
    pub(super) fn check_endpoints(&self, problems: &mut Vec<String>) {
        let mut of_address = BTreeMap::new();
        for endpoint in self.endpoints() {
            let first = of_address
                .entry(endpoint.address)
                .or_insert_with(|| endpoint.clone());
            if *first != endpoint {
                problems.push(format!(
                    "mptcp_endpoints: {} is given twice, and not with the same keys, or for both a path and a listener",
                    endpoint.address
                ));
            }
        }
        if of_address.len() > MOST_ENDPOINTS {
            problems.push(format!(
                "mptcp_endpoints: there may be {MOST_ENDPOINTS} addresses at most, of all paths and listeners"
            ));
        }
    }

    fn endpoints(&self) -> impl Iterator<Item = Endpoint> + '_ {
        let begun = self.paths.iter().flat_map(|path| &path.mptcp_endpoints);
        let begun = begun.map(|endpoint| endpoint.endpoint(EndpointKind::Subflow));
        let told = self.listeners.iter().flat_map(|listener| {
            // One that listens at every address has these, too.
            let at = listener.listen;
            let port = (!at.ip().is_unspecified()).then_some(at.port());
            let endpoints = listener.mptcp_endpoints.iter();
            endpoints.map(move |endpoint| endpoint.endpoint(EndpointKind::Signal(port)))
        });
        begun.chain(told)
    }
}
