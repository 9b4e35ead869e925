//! Where a node may dial to.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;

use super::own::OwnAddresses;
use crate::config::{DialConfig, PeerDialConfig, PortRange};
use crate::stream::{Failure, FailureCode};

/// Networks that a node does not dial on a client's behalf unless told to:
/// its own host, its link, private networks behind it, and what is no unicast
/// address (IANA special-purpose registries, RFC 6890).
const SPECIAL: [&str; 20] = [
    "0.0.0.0/8",       // this network
    "10.0.0.0/8",      // private, RFC 1918
    "100.64.0.0/10",   // carrier-grade NAT, RFC 6598
    "127.0.0.0/8",     // loopback
    "169.254.0.0/16",  // link-local, cloud metadata
    "172.16.0.0/12",   // private, RFC 1918
    "192.0.0.0/24",    // protocol assignments
    "192.168.0.0/16",  // private, RFC 1918
    "198.18.0.0/15",   // benchmarking of one's own network, RFC 2544
    "224.0.0.0/4",     // multicast
    "240.0.0.0/4",     // reserved, broadcast
    "::/96",           // unspecified, loopback, IPv4-compatible
    "64:ff9b:1::/48",  // local-use NAT64, RFC 8215
    "100::/64",        // discard only, RFC 6666
    "2001::/32",       // Teredo: hides an IPv4 address
    "fc00::/7",        // unique local, RFC 4193
    "fe80::/10",       // link-local
    "fec0::/10",       // site-local, deprecated
    "ff00::/8",        // multicast
    "::ffff:0:0:0/96", // IPv4-translated, RFC 2765
];

/// Addresses at which cloud providers give a host its credentials and configuration. Most lie in
/// the networks above. They are named separately so that a network that is allowed for its other
/// hosts does not open them.
const METADATA: [&str; 18] = [
    "100.100.100.200",    // Alibaba Cloud
    "100.100.2.136",      // Alibaba Cloud, DNS
    "100.100.2.138",      // Alibaba Cloud, DNS
    "168.63.129.16",      // Azure, "wire server" and DNS; public by its number
    "169.254.0.23",       // Tencent Cloud
    "169.254.42.42",      // Scaleway
    "169.254.169.123",    // AWS, time
    "169.254.169.249",    // Oracle Cloud, vnic
    "169.254.169.253",    // AWS, DNS
    "169.254.169.254",    // AWS, Azure, Google Cloud, Oracle Cloud, IBM, OpenStack, most others
    "169.254.170.2",      // AWS, credentials of containers
    "169.254.170.23",     // AWS, credentials of pods
    "192.0.0.192",        // Oracle Cloud Classic
    "fd00:42::42",        // Scaleway
    "fd00:c1::a9fe:a9fe", // Oracle Cloud
    "fd00:ec2::23",       // AWS, credentials of pods
    "fd00:ec2::254",      // AWS
    "fd20:ce::254",       // Google Cloud
];

/// Which addresses may be dialled.
#[derive(Clone, Debug)]
pub struct Policy {
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
    deny_ports: Vec<PortRange>,
    special: Vec<IpNet>,
    metadata: Vec<IpAddr>,
    /// Of this host, by the configuration.
    told_own: Vec<IpAddr>,
    own: OwnAddresses,
}

impl Policy {
    /// A policy that allows public unicast addresses of other hosts and
    /// what is allowed, and of these refuses what is denied.
    pub fn new(config: &DialConfig) -> Policy {
        Policy::with_own(config, OwnAddresses::of_system())
    }

    fn with_own(config: &DialConfig, own: OwnAddresses) -> Policy {
        let told_own = config.own_addresses.iter();
        Policy {
            allow: config.allow_networks.clone(),
            deny: config.deny_networks.clone(),
            deny_ports: config.deny_ports.clone(),
            told_own: told_own.map(IpAddr::to_canonical).collect(),
            special: SPECIAL.iter().filter_map(|net| net.parse().ok()).collect(),
            metadata: METADATA.iter().filter_map(|ip| ip.parse().ok()).collect(),
            own,
        }
    }

    /// The policy for a peer for which something differs.
    pub(super) fn for_peer(&self, peer: &PeerDialConfig) -> Policy {
        let mut policy = self.clone();
        if let Some(allow) = &peer.allow_networks {
            policy.allow.clone_from(allow);
        }
        policy.deny.extend_from_slice(&peer.deny_networks);
        if let Some(ports) = &peer.deny_ports {
            policy.deny_ports.clone_from(ports);
        }
        policy
    }

    /// Whether `destination` may be dialled.
    ///
    /// # Errors
    /// [`FailureCode::Forbidden`], naming the reason.
    pub fn check(&self, destination: SocketAddr) -> Result<(), Failure> {
        let (address, port) = (destination.ip().to_canonical(), destination.port());
        self.check_port(address, port)?;
        let embedded = embedded_ipv4(address);
        let either = |is: &dyn Fn(IpAddr) -> bool| is(address) || embedded.is_some_and(is);
        if either(&|ip| within(&self.deny, ip)) {
            return Err(forbidden(address, "denied by this node's configuration"));
        }
        if either(&|ip| self.metadata.contains(&ip)) && !self.names(address) {
            return Err(forbidden(
                address,
                "metadata services of cloud providers are not dialled",
            ));
        }
        if either(&|ip| self.is_own(ip)) && !self.names_own(address) {
            return Err(forbidden(
                address,
                "this node's own addresses are not dialled",
            ));
        }
        if within(&self.allow, address) {
            return Ok(());
        }
        if either(&|ip| within(&self.special, ip)) {
            return Err(forbidden(
                address,
                "private, local or multicast addresses are not dialled",
            ));
        }
        Ok(())
    }

    /// Whether `port` may be dialled at any host; the error names `host`.
    pub(super) fn check_port(&self, host: impl Display, port: u16) -> Result<(), Failure> {
        if port == 0 {
            return Err(forbidden(host, "port 0 is no destination"));
        }
        if self.deny_ports.iter().any(|range| range.contains(port)) {
            let text = format!("port {port} is denied by this node's configuration");
            return Err(forbidden(host, &text));
        }
        Ok(())
    }

    /// Whether an address leads to this host; the unspecified one does on Linux.
    fn is_own(&self, address: IpAddr) -> bool {
        address.is_loopback()
            || address.is_unspecified()
            || self.told_own.contains(&address)
            || self.own.contain(address)
    }

    /// Whether `allow` opens an address of this host. Whoever allows a network means its other
    /// hosts, unless it is a loopback network, which has none.
    fn names_own(&self, address: IpAddr) -> bool {
        let mut loopback = self.allow.iter().filter(|net| net.network().is_loopback());
        loopback.any(|net| net.contains(&address)) || self.names(address)
    }

    /// Whether `allow` names this very address.
    fn names(&self, address: IpAddr) -> bool {
        let lone = IpNet::from(address);
        self.allow.contains(&lone)
    }
}

fn within(list: &[IpNet], ip: IpAddr) -> bool {
    list.iter().any(|net| net.contains(&ip))
}

fn forbidden(host: impl Display, why: &str) -> Failure {
    Failure::new(FailureCode::Forbidden, format!("{host}: {why}"))
}

/// The IPv4 address that a translator or tunnel would turn `address` into:
/// NAT64 (RFC 6052) and 6to4 (RFC 3056).
fn embedded_ipv4(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let octets = address.octets();
    let at = if octets[..12] == [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0] {
        12
    } else if octets[..2] == [0x20, 0x02] {
        2
    } else {
        return None;
    };
    let v4: [u8; 4] = octets[at..at + 4].try_into().ok()?;
    Some(Ipv4Addr::from(v4).into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn check(policy: &Policy, address: &str) -> bool {
        let ip: IpAddr = address.parse().unwrap();
        policy.check(SocketAddr::new(ip, 80)).is_ok()
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_peer_has_networks_and_ports_of_its_own() {
        let all = policy(&["10.1.0.0/16"], &["198.51.100.0/24"]);
        let own = all.for_peer(&PeerDialConfig {
            allow_networks: Some(nets(&["10.2.0.0/16"])),
            deny_networks: nets(&["192.0.2.0/24"]),
            deny_ports: Some(vec![PortRange {
                first: 80,
                last: 80,
            }]),
        });
        let at = |policy: &Policy, address: &str, port| {
            let ip: IpAddr = address.parse().unwrap();
            policy.check(SocketAddr::new(ip, port)).is_ok()
        };
        for (address, for_all, for_it) in [
            ("10.1.0.1", true, false),
            ("10.2.0.1", false, true),
            ("192.0.2.1", true, false),
            ("198.51.100.1", false, false),
            // The node's own address.
            ("203.0.113.7", false, false),
            ("203.0.113.9", true, true),
        ] {
            assert_eq!(at(&all, address, 443), for_all, "{address}");
            assert_eq!(at(&own, address, 443), for_it, "{address}");
        }
        assert!(at(&all, "203.0.113.9", 80));
        assert!(!at(&own, "203.0.113.9", 80));
        let same = all.for_peer(&PeerDialConfig::default());
        assert!(at(&same, "10.1.0.1", 80));
    }

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        let own = || {
            let of_interfaces = ["203.0.113.7", "10.1.2.3", "127.0.0.1", "fd00:1::7"];
            HashSet::from(of_interfaces.map(|ip| ip.parse().unwrap()))
        };
        let config = DialConfig {
            allow_networks: nets(allow),
            deny_networks: nets(deny),
            deny_ports: vec![],
            own_addresses: vec!["198.51.100.9".parse().unwrap()],
            ..DialConfig::default()
        };
        Policy::with_own(&config, OwnAddresses::told_by(own))
    }

    #[test]
    fn every_special_network_and_address_is_parsed() {
        let policy = policy(&[], &[]);
        assert_eq!(policy.special.len(), SPECIAL.len());
        assert_eq!(policy.metadata.len(), METADATA.len());
    }

    #[test]
    fn the_nodes_own_addresses_open_only_by_their_very_address() {
        let wide = [
            "203.0.113.0/24",
            "198.51.100.0/24",
            "10.0.0.0/8",
            "fd00::/8",
        ];
        for allowed in [&[][..], &wide[..]] {
            let policy = policy(allowed, &[]);
            for spelling in [
                "203.0.113.7",
                "::ffff:203.0.113.7",
                "64:ff9b::203.0.113.7",
                "198.51.100.9",
                "10.1.2.3",
                "fd00:1::7",
            ] {
                assert!(!check(&policy, spelling), "{spelling}");
            }
            assert!(check(&policy, "203.0.113.8"));
        }
        let named = policy(&["10.1.2.3/32", "198.51.100.9/32", "fd00:1::7/128"], &[]);
        for address in ["10.1.2.3", "198.51.100.9", "fd00:1::7"] {
            assert!(check(&named, address), "{address}");
        }
        assert!(!check(&named, "203.0.113.7"));
        let all = policy(&["0.0.0.0/0", "::/0"], &[]);
        let loopback = policy(&["127.0.0.0/8", "::1/128"], &[]);
        for address in ["127.0.0.1", "::1"] {
            assert!(!check(&all, address) && check(&loopback, address));
        }
        assert!(!check(&all, "0.0.0.0") && !check(&all, "::"));
    }

    #[test]
    fn metadata_services_open_only_by_their_very_address() {
        let wide = policy(&["0.0.0.0/0", "::/0"], &[]);
        for address in METADATA {
            assert!(!check(&policy(&[], &[]), address), "{address}");
            assert!(!check(&wide, address), "{address}");
        }
        assert!(!check(&wide, "::ffff:169.254.169.254"));
        assert!(!check(&wide, "64:ff9b::169.254.169.254"));
        let named = policy(&["169.254.169.254/32"], &[]);
        assert!(check(&named, "169.254.169.254"));
        assert!(!check(&named, "168.63.129.16"));
    }

    #[test]
    fn denied_ports_are_refused_wherever_they_are() {
        let ports = vec!["25".parse().unwrap(), "6000-6063".parse().unwrap()];
        let policy = Policy::new(&DialConfig {
            allow_networks: nets(&["10.0.0.0/8"]),
            deny_ports: ports,
            ..DialConfig::default()
        });
        let port = |port| policy.check(SocketAddr::new("10.1.1.1".parse().unwrap(), port));
        assert!(port(25).is_err() && port(6063).is_err());
        assert!(port(24).is_ok() && port(587).is_ok() && port(6064).is_ok());
        let refused = port(25).unwrap_err();
        assert_eq!(refused.code, FailureCode::Forbidden);
        assert!(refused.text.contains("port 25"), "{refused}");
    }

    #[test]
    fn own_and_private_networks_are_refused_in_every_spelling() {
        let policy = policy(&[], &[]);
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.0.1",
            "100.64.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001:0:1::1",
            "fe80::1",
            "fec0::1",
            "fd00::1",
            "ff02::1",
        ] {
            assert!(!check(&policy, address), "{address}");
        }
        for address in ["192.0.2.1", "8.8.4.4", "2606:4700::1", "64:ff9b::808:404"] {
            assert!(check(&policy, address), "{address}");
        }
    }

    #[test]
    fn allowed_networks_open_and_denied_ones_win() {
        let policy = policy(&["10.0.0.0/8"], &["10.9.0.0/16", "192.0.2.0/24"]);
        assert!(check(&policy, "10.1.1.1"));
        assert!(check(&policy, "::ffff:10.1.1.1"));
        assert!(!check(&policy, "10.9.1.1"));
        for spelling in ["192.0.2.7", "64:ff9b::192.0.2.7", "2002:c000:207::1"] {
            assert!(!check(&policy, spelling), "{spelling}");
        }
        assert!(check(&policy, "64:ff9b::192.0.3.7"));
        assert!(!check(&policy, "127.0.0.1"));
    }
}
