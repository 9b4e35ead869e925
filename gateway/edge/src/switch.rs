//! On and off while the node runs.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::PortRange;
use crate::stream::Target;

/// What is switched off while the node runs. Connections that are not taken in pass as plain IP;
/// open ones continue.
///
/// Interception has one switch, by which the kernel diverts. The proxies have another: their
/// clients have no other way out, so the proxies dial themselves what they do not take in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Whether anything is taken in.
    pub enabled: bool,
    /// Clients of these networks are not.
    pub off_clients: Vec<IpNet>,
    /// Connections to these networks are not.
    pub off_networks: Vec<IpNet>,
    /// Connections to these ports are not.
    pub off_ports: Vec<PortRange>,
}

impl Default for Switch {
    fn default() -> Switch {
        Switch {
            enabled: true,
            off_clients: Vec::new(),
            off_networks: Vec::new(),
            off_ports: Vec::new(),
        }
    }
}

impl Switch {
    /// Whether a new connection of `client` to `target` is taken in. A target
    /// that is a name is of no network.
    pub fn takes_in(&self, client: IpAddr, target: &Target) -> bool {
        let within = |nets: &[IpNet], ip: IpAddr| {
            let ip = ip.to_canonical();
            nets.iter().any(|net| net.contains(&ip))
        };
        let port = target.port();
        self.enabled
            && !within(&self.off_clients, client)
            && !target.ip().is_some_and(|ip| within(&self.off_networks, ip))
            && !self.off_ports.iter().any(|range| range.contains(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_off_by_its_client_its_destination_its_port_or_with_all() {
        let client = "::ffff:10.0.0.5".parse().unwrap();
        let target = Target::parse("192.0.2.1", 443).unwrap();
        let name = Target::parse("example.org", 443).unwrap();
        let on = Switch::default();
        assert!(on.takes_in(client, &target));
        let off = Switch {
            enabled: false,
            ..on.clone()
        };
        assert!(!off.takes_in(client, &target));
        let off = Switch {
            off_clients: vec!["10.0.0.0/29".parse().unwrap()],
            ..on.clone()
        };
        assert!(!off.takes_in(client, &target));
        assert!(off.takes_in("10.0.0.9".parse().unwrap(), &target));
        let off = Switch {
            off_networks: vec!["192.0.2.0/24".parse().unwrap()],
            ..on.clone()
        };
        assert!(!off.takes_in(client, &target));
        assert!(off.takes_in(client, &name));
        let off = Switch {
            off_ports: vec![PortRange {
                first: 400,
                last: 500,
            }],
            ..on
        };
        assert!(!off.takes_in(client, &name));
    }
}
