//! Which address families the host reaches.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::config::Family;

/// The address families with a route to the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// The ones the host has a route for. Connecting a UDP socket looks the
    /// route up and sends nothing; the addresses are the documentation ones
    /// (RFC 5737, RFC 3849), which only a default route leads to.
    pub fn detect() -> Families {
        let routed = |local: IpAddr, remote: IpAddr| {
            UdpSocket::bind((local, 0)).is_ok_and(|socket| socket.connect((remote, 9)).is_ok())
        };
        Families {
            ipv4: routed(
                Ipv4Addr::UNSPECIFIED.into(),
                Ipv4Addr::new(192, 0, 2, 1).into(),
            ),
            ipv6: routed(
                Ipv6Addr::UNSPECIFIED.into(),
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            ),
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
