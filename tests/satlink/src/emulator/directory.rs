//! Which terminal a packet from the hub is for.

use std::net::IpAddr;

use ipnet::IpNet;

/// Where a packet goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To the terminal of this index.
    Terminal(usize),
    /// To nobody on the beam.
    Unrouted,
    /// Nowhere: link-local traffic of the network stack, which a satellite link does not carry and
    /// which would use up draws of the loss pattern.
    LinkLocal,
}

/// The terminals' prefixes, longest first.
#[derive(Debug)]
pub(super) struct Directory {
    prefixes: Vec<(IpNet, usize)>,
}

impl Directory {
    pub(super) fn new(mut prefixes: Vec<(IpNet, usize)>) -> Self {
        prefixes.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
        Directory { prefixes }
    }

    /// Where a packet from the hub goes.
    pub(super) fn resolve(&self, packet: &[u8]) -> Destination {
        match destination(packet) {
            Some(address) if is_link_local(address) => Destination::LinkLocal,
            Some(address) => self
                .prefixes
                .iter()
                .find(|(net, _)| net.contains(&address))
                .map_or(Destination::Unrouted, |(_, terminal)| {
                    Destination::Terminal(*terminal)
                }),
            None => Destination::Unrouted,
        }
    }

    /// Whether a packet from a terminal goes to the hub.
    pub(super) fn is_for_hub(packet: &[u8]) -> bool {
        destination(packet).is_some_and(|address| !is_link_local(address))
    }
}

fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(*packet.get(16..)?.first_chunk::<4>()?)),
        6 => Some(IpAddr::from(*packet.get(24..)?.first_chunk::<16>()?)),
        _ => None,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_multicast() || address.is_link_local() || address.is_broadcast()
        }
        IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet_to(address: &str) -> Vec<u8> {
        match address.parse().unwrap() {
            IpAddr::V4(address) => [&[0x45; 16][..], &address.octets()].concat(),
            IpAddr::V6(address) => [&[0x60; 24][..], &address.octets()].concat(),
        }
    }

    fn directory() -> Directory {
        let nets = [("10.0.0.0/8", 0), ("10.1.0.0/16", 1), ("fd01::/64", 1)];
        Directory::new(nets.map(|(net, to)| (net.parse().unwrap(), to)).to_vec())
    }

    #[test]
    fn longest_prefix_decides() {
        let to = |address| directory().resolve(&packet_to(address));
        assert_eq!(to("10.2.0.1"), Destination::Terminal(0));
        assert_eq!(to("10.1.0.1"), Destination::Terminal(1));
        assert_eq!(to("fd01::5"), Destination::Terminal(1));
        assert_eq!(to("192.0.2.1"), Destination::Unrouted);
    }

    #[test]
    fn link_local_talk_stays_off_the_beam() {
        for address in ["ff02::2", "224.0.0.22", "fe80::1"] {
            assert_eq!(
                directory().resolve(&packet_to(address)),
                Destination::LinkLocal
            );
            assert!(!Directory::is_for_hub(&packet_to(address)));
        }
    }

    #[test]
    fn short_or_strange_packets_are_unrouted() {
        for packet in [&[][..], &[0x45], &[0x60; 39], &[0x10; 60]] {
            assert_eq!(directory().resolve(packet), Destination::Unrouted);
            assert!(!Directory::is_for_hub(packet));
        }
    }
}
