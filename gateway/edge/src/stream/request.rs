//! What a taken-in connection asks for.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use thiserror::Error;
use underpass_cla::Class;

use crate::traces::TraceContext;

/// How a connection came in. Rules may classify by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// SOCKS5 CONNECT (RFC 1928).
    Socks5,
    /// HTTP CONNECT (RFC 9110 §9.3.6), or an upgraded forward exchange.
    HttpConnect,
    /// HTTP/1.1 forward proxy request.
    HttpForward,
    /// TPROXY.
    Transparent,
}

/// A request to carry one connection to its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// Where the far edge connects to.
    pub target: Target,
    /// The client's own address, which the origin may see or be told.
    pub client: SocketAddr,
    /// Name of the listener that took the connection in.
    pub listener: Arc<str>,
    /// How it came in.
    pub protocol: Protocol,
    /// The class its bytes travel in.
    pub class: Class,
    /// Whether the taker waits for [`super::Conduit::poll_outcome`]; else the far
    /// edge need not report a dial that succeeds.
    pub awaits_outcome: bool,
    /// The span that the far edge's spans are children of, if it is traced.
    pub trace: Option<TraceContext>,
}

/// A destination. Names travel unresolved and are resolved where the origin
/// is dialled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An address and port.
    Address(SocketAddr),
    /// A name and port.
    Name {
        /// The name, not an address literal.
        host: Host,
        /// TCP port.
        port: u16,
    },
}

impl Target {
    /// A target from the text of a host (name, IPv4, or IPv6 with or without
    /// brackets) and a port. Address literals become [`Target::Address`].
    pub fn parse(host: &str, port: u16) -> Result<Target, HostError> {
        let bare = match host.strip_prefix('[') {
            Some(rest) => {
                let inner = rest.strip_suffix(']').ok_or(HostError::Bracket)?;
                let address: Ipv6Addr = inner.parse().map_err(|_| HostError::Bracket)?;
                return Ok(Target::Address(SocketAddr::new(address.into(), port)));
            }
            None => host,
        };
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Target::Address(SocketAddr::new(address, port)));
        }
        Ok(Target::Name {
            host: Host::new(bare)?,
            port,
        })
    }

    /// The target whose `Display` is this text.
    pub fn from_display(text: &str) -> Option<Target> {
        let (host, port) = text.rsplit_once(':')?;
        Target::parse(host, port.parse().ok()?).ok()
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        match self {
            Target::Address(address) => address.port(),
            Target::Name { port, .. } => *port,
        }
    }

    /// The name, if the target is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Target::Address(_) => None,
            Target::Name { host, .. } => Some(host.as_str()),
        }
    }

    /// The address, if the target is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Target::Address(address) => Some(address.ip().to_canonical()),
            Target::Name { .. } => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Address(address) => address.fmt(f),
            Target::Name { host, port } => write!(f, "{}:{port}", host.as_str()),
        }
    }
}

/// A host name fit to be handed to a resolver: 1 to 253 octets of letters,
/// digits, hyphen, underscore and dot, labels of 1 to 63 octets, and not one
/// of the many spellings of an IPv4 address that resolvers take ("127.1",
/// "0x7f000001"), since those would be a second way to write an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host(Arc<str>);

/// Why a text is no host.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum HostError {
    #[error("a host name has 1 to 253 octets")]
    Length,
    #[error("a label of a host name has 1 to 63 octets")]
    Label,
    #[error("a host name consists of letters, digits, '-', '_' and '.'")]
    Octet,
    #[error("a host name does not end in a number")]
    Numeric,
    #[error("brackets must hold an IPv6 address")]
    Bracket,
}

impl Host {
    /// Checks `name`; one trailing dot (the DNS root) is allowed.
    pub fn new(name: &str) -> Result<Host, HostError> {
        if name.is_empty() || name.len() > 253 {
            return Err(HostError::Length);
        }
        let bare = name.strip_suffix('.').unwrap_or(name);
        let mut last = "";
        for label in bare.split('.') {
            if label.is_empty() || label.len() > 63 {
                return Err(HostError::Label);
            }
            if !label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            {
                return Err(HostError::Octet);
            }
            last = label;
        }
        // WHATWG URL §3.5 "ends in a number": such a host is an IPv4 address
        // in some spelling, never a name.
        let hexadecimal = last
            .strip_prefix("0x")
            .or_else(|| last.strip_prefix("0X"))
            .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        if hexadecimal || last.bytes().all(|b| b.is_ascii_digit()) {
            return Err(HostError::Numeric);
        }
        Ok(Host(name.to_ascii_lowercase().into()))
    }

    /// The name in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_addresses_and_names_stay_names() {
        assert_eq!(
            Target::parse("[2001:db8::1]", 80),
            Ok(Target::Address("[2001:db8::1]:80".parse().unwrap()))
        );
        assert_eq!(
            Target::parse("192.0.2.1", 443),
            Ok(Target::Address("192.0.2.1:443".parse().unwrap()))
        );
        assert!(matches!(
            Target::parse("Example.ORG", 80),
            Ok(Target::Name { host, port: 80 }) if host.as_str() == "example.org"
        ));
    }

    #[test]
    fn what_is_shown_of_a_target_names_it() {
        for (host, port) in [
            ("192.0.2.1", 443),
            ("2001:db8::1", 1),
            ("a.example", 65_535),
        ] {
            let target = Target::parse(host, port).unwrap();
            assert_eq!(Target::from_display(&target.to_string()), Some(target));
        }
        for text in [
            "",
            "a.example",
            "a.example:",
            "a.example:65536",
            ":1",
            "a b:1",
        ] {
            assert_eq!(Target::from_display(text), None, "{text:?}");
        }
    }

    #[test]
    fn other_spellings_of_an_address_are_no_names() {
        for name in [
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.0.0.1",
            "1.2.3.0X",
        ] {
            assert_eq!(Target::parse(name, 80), Err(HostError::Numeric), "{name}");
        }
    }

    #[test]
    fn names_with_foreign_octets_are_refused() {
        for name in [
            "a b",
            "a\r\nb",
            "ex%61mple",
            "ü.org",
            "a..b",
            "",
            ".",
            "[::1",
            "[x]",
        ] {
            assert!(Target::parse(name, 80).is_err(), "{name}");
        }
    }
}
