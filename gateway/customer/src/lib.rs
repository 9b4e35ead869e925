//! Identifies the customer behind an address, by which limits for clients count.

use std::net::{IpAddr, Ipv6Addr};

/// The identity of the customer at an address: an IPv4 address itself, or the /64 of an IPv6
/// address. Such a network belongs to one customer (RFC 6177), and a host in it can use all of its
/// addresses.
pub fn customer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        ipv4 => ipv4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_customers_and_a_mapped_address_is_ipv4() {
        for (address, of) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::"),
            ("2001:db8::ffff:ffff:ffff:ffff", "2001:db8::"),
            ("2001:db8:0:1::1", "2001:db8:0:1::"),
            ("::1", "::"),
        ] {
            let (address, of): (IpAddr, IpAddr) = (address.parse().unwrap(), of.parse().unwrap());
            assert_eq!(customer(address), of);
            assert_eq!(customer(of), of);
        }
    }
}
