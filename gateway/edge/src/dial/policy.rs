//! Where a node may dial to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;

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

/// Which addresses may be dialled.
#[derive(Clone, Debug)]
pub struct Policy {
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
    special: Vec<IpNet>,
}

impl Policy {
    /// A policy that allows public unicast addresses and `allow`, and of
    /// these refuses `deny`.
    pub fn new(allow: Vec<IpNet>, deny: Vec<IpNet>) -> Policy {
        let special = SPECIAL.iter().filter_map(|net| net.parse().ok()).collect();
        Policy {
            allow,
            deny,
            special,
        }
    }

    /// Whether `destination` may be dialled.
    ///
    /// # Errors
    /// [`FailureCode::Forbidden`], naming the reason.
    pub fn check(&self, destination: SocketAddr) -> Result<(), Failure> {
        let address = destination.ip().to_canonical();
        let within = |list: &[IpNet], ip: IpAddr| list.iter().any(|net| net.contains(&ip));
        if destination.port() == 0 {
            return Err(forbidden(address, "port 0 is no destination"));
        }
        if within(&self.deny, address) {
            return Err(forbidden(address, "denied by this node's configuration"));
        }
        if within(&self.allow, address) {
            return Ok(());
        }
        let embedded = embedded_ipv4(address);
        if within(&self.special, address) || embedded.is_some_and(|v4| within(&self.special, v4)) {
            return Err(forbidden(
                address,
                "private, local or multicast addresses are not dialled",
            ));
        }
        Ok(())
    }
}

fn forbidden(address: IpAddr, why: &str) -> Failure {
    Failure::new(FailureCode::Forbidden, format!("{address}: {why}"))
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
    use super::*;

    fn check(policy: &Policy, address: &str) -> bool {
        let ip: IpAddr = address.parse().unwrap();
        policy.check(SocketAddr::new(ip, 80)).is_ok()
    }

    #[test]
    fn every_special_network_is_parsed() {
        assert_eq!(Policy::new(vec![], vec![]).special.len(), SPECIAL.len());
    }

    #[test]
    fn own_and_private_networks_are_refused_in_every_spelling() {
        let policy = Policy::new(vec![], vec![]);
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
        let nets = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect();
        let policy = Policy::new(
            nets(&["10.0.0.0/8"]),
            nets(&["10.9.0.0/16", "192.0.2.0/24"]),
        );
        assert!(check(&policy, "10.1.1.1"));
        assert!(check(&policy, "::ffff:10.1.1.1"));
        assert!(!check(&policy, "10.9.1.1"));
        assert!(!check(&policy, "192.0.2.7"));
        assert!(!check(&policy, "127.0.0.1"));
    }
}
