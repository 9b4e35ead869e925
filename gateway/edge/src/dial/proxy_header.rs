//! The PROXY protocol, version 2, binary: tells the origin who the client is.

use std::net::{IpAddr, SocketAddr};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const VERSION_2_PROXY: u8 = 0x21;
const VERSION_2_LOCAL: u8 = 0x20;
const UNSPECIFIED: u8 = 0;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// The header for a connection of `client` to `destination`. Where the families differ, both are
/// written as IPv6, the IPv4 one mapped. Without a client's address (`0.0.0.0`, `::`) the header
/// declares the connection the node's own.
pub fn header(client: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    if client.ip().to_canonical().is_unspecified() {
        header.extend([VERSION_2_LOCAL, UNSPECIFIED, 0, 0]);
        return header;
    }
    header.push(VERSION_2_PROXY);
    match (client.ip().to_canonical(), destination.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend([TCP_OVER_IPV4, 0, 12]);
            header.extend(from.octets());
            header.extend(to.octets());
        }
        (from, to) => {
            header.extend([TCP_OVER_IPV6, 0, 36]);
            header.extend(as_ipv6(from));
            header.extend(as_ipv6(to));
        }
    }
    header.extend(client.port().to_be_bytes());
    header.extend(destination.port().to_be_bytes());
    header
}

fn as_ipv6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_has_the_bytes_of_the_specification() {
        let header = header(
            "192.0.2.1:56324".parse().unwrap(),
            "198.51.100.2:443".parse().unwrap(),
        );
        let expected = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x11\x00\x0c\
            \xc0\x00\x02\x01\xc6\x33\x64\x02\xdc\x04\x01\xbb";
        assert_eq!(header, expected);
    }

    #[test]
    fn a_connection_for_no_client_is_the_nodes_own() {
        let destination = "198.51.100.2:443".parse().unwrap();
        for client in ["0.0.0.0:0", "[::]:0"] {
            let header = header(client.parse().unwrap(), destination);
            assert_eq!(header, [&SIGNATURE[..], &[0x20, 0, 0, 0]].concat());
        }
    }

    #[test]
    fn mixed_families_are_told_as_ipv6() {
        let header = header(
            "192.0.2.1:1".parse().unwrap(),
            "[2001:db8::1]:2".parse().unwrap(),
        );
        assert_eq!(header.len(), 16 + 36);
        assert_eq!(&header[13..16], [0x21, 0, 36]);
        assert_eq!(&header[26..32], [0xff, 0xff, 192, 0, 2, 1]);
    }
}
