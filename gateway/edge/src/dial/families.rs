//! Which address families the host reaches.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use nix::net::if_::InterfaceFlags;
use socket2::{Domain, Socket, Type};

use serde::{Deserialize, Serialize};

use crate::config::Family;

/// Address families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Families {
    /// IPv4 is reached.
    pub ipv4: bool,
    /// IPv6 is reached.
    pub ipv6: bool,
}

impl Families {
    /// Both families.
    pub const BOTH: Families = Families {
        ipv4: true,
        ipv6: true,
    };

    /// The listed ones.
    pub fn listed(list: &[Family]) -> Families {
        Families {
            ipv4: list.contains(&Family::Ipv4),
            ipv6: list.contains(&Family::Ipv6),
        }
    }

    /// The families for which the host has a default route at this moment, or a network of its own:
    /// it may announce these to others. The addresses are those for documentation (RFC 5737, RFC
    /// 3849), to which only a default route leads. Unique-local networks (RFC 4193) count only if
    /// they are `allowed` to be dialled: containers and tunnels have them on hosts that reach no
    /// origin by IPv6.
    pub fn detect(mark: Option<u32>, allowed: &[IpNet]) -> Families {
        let four = Ipv4Addr::new(192, 0, 2, 1);
        let six = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        let own = own_networks(allowed);
        let mut local = allowed.iter().filter(|net| is_unique_local(net.addr()));
        Families {
            ipv4: own.ipv4 || is_routed(four.into(), mark),
            ipv6: own.ipv6
                || is_routed(six.into(), mark)
                || local.any(|net| is_routed(net.addr(), mark)),
        }
    }

    /// Whether `address` is of a family that is reached. Loopback always is.
    pub fn reach(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_loopback()
            || match address {
                IpAddr::V4(_) => self.ipv4,
                IpAddr::V6(_) => self.ipv6,
            }
    }
}

/// The families in which an interface of this host shares a network with other hosts: in a
/// laboratory or a closed network all origins may be there.
fn own_networks(allowed: &[IpNet]) -> Families {
    let mut own = Families::listed(&[]);
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else {
        return own;
    };
    for interface in interfaces {
        let up = interface.flags.contains(InterfaceFlags::IFF_UP);
        if !up || interface.flags.contains(InterfaceFlags::IFF_LOOPBACK) {
            continue;
        }
        let (Some(address), Some(mask)) = (interface.address, interface.netmask) else {
            continue;
        };
        let four = address.as_sockaddr_in().zip(mask.as_sockaddr_in());
        let six = address.as_sockaddr_in6().zip(mask.as_sockaddr_in6());
        let network = match (four, six) {
            (Some((ip, mask)), _) => IpNet::with_netmask(ip.ip().into(), mask.ip().into()),
            (_, Some((ip, mask))) => IpNet::with_netmask(ip.ip().into(), mask.ip().into()),
            (None, None) => continue,
        };
        if let Ok(network) = network
            && may_hold_origins(network, allowed)
        {
            own.ipv4 |= four.is_some();
            own.ipv6 |= six.is_some();
        }
    }
    own
}

/// Whether origins may be in a network of this host: link-local addresses and addresses without a
/// network do not count, unique-local ones only where some are allowed.
fn may_hold_origins(network: IpNet, allowed: &[IpNet]) -> bool {
    let is_link_local = match network.addr() {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    let overlaps = |net: &IpNet| net.contains(&network) || network.contains(net);
    let is_closed = is_unique_local(network.addr()) && !allowed.iter().any(overlaps);
    !is_link_local && !is_closed && network.prefix_len() < network.max_prefix_len()
}

fn is_unique_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(six) if six.is_unique_local())
}

/// Whether the host has a route to an address now, for sockets with a mark.
/// Connecting a UDP socket looks the route up as a dial would, rules of policy
/// routing included, and sends nothing.
pub(super) fn is_routed(address: IpAddr, mark: Option<u32>) -> bool {
    let address = SocketAddr::new(address, 9);
    let connect = || {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
        if let Some(mark) = mark {
            socket.set_mark(mark)?;
        }
        socket.connect(&address.into())
    };
    connect().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_local_network_holds_origins_where_it_is_allowed() {
        let holds = |network: &str, allowed: &[&str]| {
            let allowed: Vec<IpNet> = allowed.iter().map(|net| net.parse().unwrap()).collect();
            may_hold_origins(network.parse().unwrap(), &allowed)
        };
        for network in ["10.1.2.3/16", "198.51.100.2/24", "2001:db8:18::1/64"] {
            assert!(holds(network, &[]), "{network}");
        }
        for network in [
            "169.254.3.1/16",
            "192.0.2.1/32",
            "fe80::1/64",
            "2001:db8::1/128",
        ] {
            assert!(!holds(network, &["0.0.0.0/0", "::/0"]), "{network}");
        }
        assert!(!holds("fd00:1::2/64", &[]));
        assert!(!holds("fd00:1::2/64", &["fd00:2::/32", "10.0.0.0/8"]));
        for allowed in ["fd00:1::/32", "fc00::/7", "::/0", "fd00:1::80/128"] {
            assert!(holds("fd00:1::2/64", &[allowed]), "{allowed}");
        }
    }

    #[test]
    fn what_a_dial_could_not_reach_has_no_route() {
        assert!(is_routed(Ipv4Addr::LOCALHOST.into(), None));
        // The kernel refuses a broadcast address like one without a route.
        assert!(!is_routed(Ipv4Addr::new(255, 255, 255, 255).into(), None));
    }
}
