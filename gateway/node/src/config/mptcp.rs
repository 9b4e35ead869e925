//! MPTCP of paths and listeners, and what it needs of the kernel's path manager.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use super::{Config, ConvergenceLayer};
use crate::path_manager::{Endpoint, EndpointKind, MOST_ENDPOINTS, Wanted};

/// The least limit of a connection's subflows beside the first, and of a peer's addresses: enough
/// for the usual number of paths.
const SUBFLOWS: u32 = 4;

/// An address of this node that MPTCP connections use beside that of their
/// first subflow.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
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
            // A listener at every address includes these, too.
            let at = listener.listen;
            let port = (!at.ip().is_unspecified()).then_some(at.port());
            let endpoints = listener.mptcp_endpoints.iter();
            endpoints.map(move |endpoint| endpoint.endpoint(EndpointKind::Signal(port)))
        });
        begun.chain(told)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::ConfigError;

    fn parse(path: &str, listener: &str) -> Result<Config, ConfigError> {
        let text = format!(
            r#"
node = {{ number = 5, role = "relay" }}
tls = {{ plain = true }}
terminal = [{{ node = 10 }}]
[[path]]
name = "both"
neighbour = 1
remote = "192.0.2.1:4556"
{path}
[[listener]]
name = "all"
{listener}
"#
        );
        Config::parse(&text, Path::new("node.toml"))
    }

    const EVERYWHERE: &str = "listen = \"0.0.0.0:4556\"\nmptcp = true\n\
         mptcp_endpoints = [{ address = \"203.0.113.1\", backup = true }]";
    const BEGINS: &str =
        "mptcp = true\nmptcp_endpoints = [{ address = \"203.0.113.9\", interface = \"wwan0\" }]";

    #[test]
    fn endpoints_of_paths_begin_subflows_and_those_of_listeners_are_told() {
        let wanted = parse(BEGINS, EVERYWHERE).unwrap().path_manager().unwrap();
        let kinds: Vec<_> = wanted.endpoints.iter().map(|each| each.kind).collect();
        assert_eq!(kinds, [EndpointKind::Subflow, EndpointKind::Signal(None)]);
        assert_eq!(wanted.endpoints[0].interface.as_deref(), Some("wwan0"));
        assert!(wanted.endpoints[1].backup);
        assert_eq!((wanted.subflows, wanted.accepted_addresses), (4, 4));
        // If the listener has one address only, the kernel listens at the endpoint.
        let one = EVERYWHERE.replace("0.0.0.0:4556", "192.0.2.7:4600");
        let wanted = parse("", &one).unwrap().path_manager().unwrap();
        assert_eq!(wanted.endpoints[0].kind, EndpointKind::Signal(Some(4600)));
        assert_eq!(wanted.accepted_addresses, 0, "it dials nobody");
        let plain = parse("", "listen = \"0.0.0.0:4556\"").unwrap();
        assert_eq!(plain.path_manager(), None);
    }

    #[test]
    fn what_mptcp_cannot_do_is_refused() {
        let nine = (1..=9).map(|n| format!("{{ address = \"203.0.113.{n}\" }}"));
        let nine = nine.collect::<Vec<_>>().join(", ");
        let nine = format!("mptcp = true\nmptcp_endpoints = [{nine}]");
        for (path, what) in [
            (
                "mptcp_endpoints = [{ address = \"203.0.113.9\" }]",
                "needs mptcp = true",
            ),
            (
                "mptcp = true\nconvergence_layer = \"quic\"",
                "is for convergence_layer tcpcl",
            ),
            (
                "mptcp = true\nmptcp_endpoints = [{ address = \"127.0.0.1\" }]",
                "no address that a peer can reach",
            ),
            (
                "mptcp = true\nmptcp_endpoints = [{ address = \"203.0.113.1\" }]",
                "is given twice",
            ),
            (&nine, "8 addresses at most"),
        ] {
            let error = parse(path, EVERYWHERE).unwrap_err().to_string();
            assert!(error.contains(what), "{path}: {error}");
        }
    }
}
