//! Messages of the generic netlink family `mptcp_pm` (linux/mptcp_pm.h), as
//! far as endpoints and limits need them.

use std::net::IpAddr;

use netlink_packet_core::{
    DecodeError, Emitable, Nla, NlaBuffer, NlasIterator, ParseableParametrized,
};
use netlink_packet_generic::{GenlFamily, GenlHeader};

/// The family's name.
pub const FAMILY: &str = "mptcp_pm";
const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Command {
    /// Adds an endpoint.
    Add = 1,
    /// Removes the endpoint of an id.
    Remove = 2,
    /// Asks for endpoints.
    Get = 3,
    SetLimits = 5,
    /// Asks for the limits.
    GetLimits = 6,
}

/// One message, asked or answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub command: u8,
    pub attributes: Vec<Attribute>,
}

/// MPTCP_PM_ATTR_…
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    Endpoint(Vec<EndpointAttribute>),
    /// How many addresses of a peer one connection accepts.
    AcceptedAddresses(u32),
    /// How many subflows one connection has beside its first.
    Subflows(u32),
    /// Whatever else there is.
    Other(u16),
}

/// MPTCP_PM_ADDR_ATTR_…
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointAttribute {
    /// AF_INET or AF_INET6.
    Family(u16),
    /// Its number in this network namespace.
    Id(u8),
    Address(IpAddr),
    /// Where connections to it are accepted.
    Port(u16),
    /// MPTCP_PM_ADDR_FLAG_…
    Flags(u32),
    /// The number of its interface.
    Interface(i32),
    /// Whatever else there is.
    Other(u16),
}

impl Message {
    /// A question or order.
    pub fn new(command: Command, attributes: Vec<Attribute>) -> Message {
        Message {
            command: command as u8,
            attributes,
        }
    }
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        FAMILY
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        VERSION
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(buffer: &[u8], header: GenlHeader) -> Result<Message, DecodeError> {
        let attributes = NlasIterator::new(buffer).map(|each| Attribute::parse(&each?));
        Ok(Message {
            command: header.cmd,
            attributes: attributes.collect::<Result<_, DecodeError>>()?,
        })
    }
}

impl Attribute {
    fn parse(from: &NlaBuffer<&[u8]>) -> Result<Attribute, DecodeError> {
        Ok(match from.kind() {
            1 => {
                let each = NlasIterator::new(from.value());
                let each = each.map(|each| EndpointAttribute::parse(&each?));
                Attribute::Endpoint(each.collect::<Result<_, DecodeError>>()?)
            }
            2 => Attribute::AcceptedAddresses(u32::from_ne_bytes(bytes(from)?)),
            3 => Attribute::Subflows(u32::from_ne_bytes(bytes(from)?)),
            other => Attribute::Other(other),
        })
    }
}

impl Nla for Attribute {
    fn value_len(&self) -> usize {
        match self {
            Attribute::Endpoint(each) => each.as_slice().buffer_len(),
            Attribute::AcceptedAddresses(_) | Attribute::Subflows(_) => 4,
            Attribute::Other(_) => 0,
        }
    }

    fn kind(&self) -> u16 {
        match self {
            Attribute::Endpoint(_) => 1,
            Attribute::AcceptedAddresses(_) => 2,
            Attribute::Subflows(_) => 3,
            Attribute::Other(kind) => *kind,
        }
    }

    fn is_nested(&self) -> bool {
        matches!(self, Attribute::Endpoint(_))
    }

    fn emit_value(&self, buffer: &mut [u8]) {
        match self {
            Attribute::Endpoint(each) => each.as_slice().emit(buffer),
            Attribute::AcceptedAddresses(count) | Attribute::Subflows(count) => {
                buffer.copy_from_slice(&count.to_ne_bytes());
            }
            Attribute::Other(_) => {}
        }
    }
}

impl EndpointAttribute {
    fn parse(from: &NlaBuffer<&[u8]>) -> Result<EndpointAttribute, DecodeError> {
        Ok(match from.kind() {
            1 => EndpointAttribute::Family(u16::from_ne_bytes(bytes(from)?)),
            2 => EndpointAttribute::Id(u8::from_ne_bytes(bytes(from)?)),
            3 => EndpointAttribute::Address(IpAddr::from(bytes::<4>(from)?)),
            4 => EndpointAttribute::Address(IpAddr::from(bytes::<16>(from)?)),
            5 => EndpointAttribute::Port(u16::from_ne_bytes(bytes(from)?)),
            6 => EndpointAttribute::Flags(u32::from_ne_bytes(bytes(from)?)),
            7 => EndpointAttribute::Interface(i32::from_ne_bytes(bytes(from)?)),
            other => EndpointAttribute::Other(other),
        })
    }
}

impl Nla for EndpointAttribute {
    fn value_len(&self) -> usize {
        match self {
            EndpointAttribute::Family(_) | EndpointAttribute::Port(_) => 2,
            EndpointAttribute::Id(_) => 1,
            EndpointAttribute::Address(IpAddr::V4(_)) => 4,
            EndpointAttribute::Address(IpAddr::V6(_)) => 16,
            EndpointAttribute::Flags(_) | EndpointAttribute::Interface(_) => 4,
            EndpointAttribute::Other(_) => 0,
        }
    }

    fn kind(&self) -> u16 {
        match self {
            EndpointAttribute::Family(_) => 1,
            EndpointAttribute::Id(_) => 2,
            EndpointAttribute::Address(IpAddr::V4(_)) => 3,
            EndpointAttribute::Address(IpAddr::V6(_)) => 4,
            EndpointAttribute::Port(_) => 5,
            EndpointAttribute::Flags(_) => 6,
            EndpointAttribute::Interface(_) => 7,
            EndpointAttribute::Other(kind) => *kind,
        }
    }

    fn emit_value(&self, buffer: &mut [u8]) {
        match self {
            EndpointAttribute::Family(value) | EndpointAttribute::Port(value) => {
                buffer.copy_from_slice(&value.to_ne_bytes());
            }
            EndpointAttribute::Id(value) => buffer.copy_from_slice(&[*value]),
            EndpointAttribute::Address(IpAddr::V4(value)) => {
                buffer.copy_from_slice(&value.octets());
            }
            EndpointAttribute::Address(IpAddr::V6(value)) => {
                buffer.copy_from_slice(&value.octets());
            }
            EndpointAttribute::Flags(value) => buffer.copy_from_slice(&value.to_ne_bytes()),
            EndpointAttribute::Interface(value) => buffer.copy_from_slice(&value.to_ne_bytes()),
            EndpointAttribute::Other(_) => {}
        }
    }
}

fn bytes<const N: usize>(from: &NlaBuffer<&[u8]>) -> Result<[u8; N], DecodeError> {
    let value = from.value();
    let wrong = |_| DecodeError::invalid_number(N, value.len());
    value.try_into().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let message = Message::new(
            Command::Add,
            vec![
                Attribute::Endpoint(vec![
                    EndpointAttribute::Family(2),
                    EndpointAttribute::Id(7),
                    EndpointAttribute::Address("192.0.2.1".parse().unwrap()),
                    EndpointAttribute::Address("2001:db8::1".parse().unwrap()),
                    EndpointAttribute::Port(4556),
                    EndpointAttribute::Flags(1),
                    EndpointAttribute::Interface(-3),
                ]),
                Attribute::AcceptedAddresses(4),
                Attribute::Subflows(5),
            ],
        );
        let mut buffer = vec![0; message.buffer_len()];
        message.emit(&mut buffer);
        let header = GenlHeader { cmd: 1, version: 1 };
        let read = Message::parse_with_param(&buffer, header).unwrap();
        assert_eq!(read, message);
        for length in 1..buffer.len() {
            // A truncated message parses as a shorter one or as an error, without a panic.
            if let Ok(read) = Message::parse_with_param(&buffer[..length], header) {
                assert_ne!(read, message);
            }
        }
    }
}
