//! Which address families the host reaches.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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
    /// 3849), to which only a default route leads.
    pub fn detect(mark: Option<u32>) -> Families {
        let four = Ipv4Addr::new(192, 0, 2, 1);
        let six = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        let own = own_networks();
        Families {
            ipv4: own.ipv4 || is_routed(four.into(), mark),
            ipv6: own.ipv6 || is_routed(six.into(), mark),
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
/// laboratory or a closed network all origins may be there. Loopback, link-local addresses and
/// addresses without a network do not count.
fn own_networks() -> Families {
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
        if let (Some(four), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
            own.ipv4 |= !four.ip().is_link_local() && mask.ip() != Ipv4Addr::BROADCAST;
        } else if let (Some(six), Some(mask)) = (address.as_sockaddr_in6(), mask.as_sockaddr_in6())
        {
            own.ipv6 |= !six.ip().is_unicast_link_local() && mask.ip().to_bits() != u128::MAX;
        }
    }
    own
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
    fn what_a_dial_could_not_reach_has_no_route() {
        assert!(is_routed(Ipv4Addr::LOCALHOST.into(), None));
        // The kernel refuses a broadcast address like one without a route.
        assert!(!is_routed(Ipv4Addr::new(255, 255, 255, 255).into(), None));
    }
}
