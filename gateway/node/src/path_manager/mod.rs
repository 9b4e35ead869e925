//! Endpoints and limits of the kernel's own MPTCP path manager. A node adds its own and later
//! removes what it has added (mptcp(7) of Linux: Documentation/networking/mptcp.rst).

mod message;
mod netlink;

use std::io;
use std::net::IpAddr;

use nix::net::if_::if_nametoindex;
use serde::{Deserialize, Serialize};

use message::{Attribute, Command, EndpointAttribute, Message};
use netlink::Netlink;

/// The kernel's maximum of endpoints in a network namespace, and of subflows of a connection beside
/// its first (MPTCP_PM_ADDR_MAX).
pub const MOST_ENDPOINTS: usize = 8;

/// MPTCP_PM_ADDR_FLAG_…
const SIGNAL: u32 = 1;
const SUBFLOW: u32 = 2;
const BACKUP: u32 = 4;

/// An address of this machine that MPTCP connections may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub address: IpAddr,
    /// The interface by which its packets leave; without one, routing decides.
    pub interface: Option<String>,
    /// Used only while no other subflow carries.
    pub backup: bool,
    pub kind: EndpointKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndpointKind {
    /// Subflows to the peer begin here.
    Subflow,
    /// The address is announced so that the peer begins subflows to it: at this port, on which the
    /// kernel listens, or at that of the connection.
    Signal(Option<u16>),
}

/// What a node wants of the path manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Its endpoints, each address once.
    pub endpoints: Vec<Endpoint>,
    /// The least limit of subflows beside the first.
    pub subflows: u32,
    /// The least limit of addresses that are taken from a peer.
    pub accepted_addresses: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    accepted_addresses: u32,
    subflows: u32,
}

/// The path manager, with what was set here. Dropping it undoes that.
#[derive(Debug, Default)]
pub struct PathManager {
    /// The connection, once anything was wanted.
    netlink: Option<Netlink>,
    /// Endpoints that were made here, with their ids.
    made: Vec<(u8, Endpoint)>,
    /// The limits before and since they were raised here.
    raised: Option<(Limits, Limits)>,
}

impl PathManager {
    /// Sets what is wanted, and removes what was set here before and is no longer wanted. Returns
    /// what could not be set, for an operator to read.
    pub fn set(&mut self, wanted: &Wanted) -> Vec<String> {
        if self.netlink.is_none() {
            match Netlink::open() {
                Ok(netlink) => self.netlink = Some(netlink),
                Err(error) => return vec![format!("the kernel's MPTCP path manager: {error}")],
            }
        }
        let mut problems = Vec::new();
        let gone = |(_, endpoint): &(u8, Endpoint)| !wanted.endpoints.contains(endpoint);
        let old: Vec<_> = self.made.extract_if(.., |made| gone(made)).collect();
        for (id, endpoint) in old {
            if let Err(error) = self.remove(id, &endpoint) {
                problems.push(format!("endpoint {}: {error}", endpoint.address));
            }
        }
        if let Err(error) = self.raise_limits(wanted) {
            problems.push(format!("limits: {error}"));
        }
        for endpoint in &wanted.endpoints {
            if self.made.iter().any(|(_, made)| made == endpoint) {
                continue;
            }
            match self.add(endpoint) {
                Ok(id) => self.made.push((id, endpoint.clone())),
                Err(error) => problems.push(format!("endpoint {}: {error}", endpoint.address)),
            }
        }
        problems
    }

    fn ask(&self, message: Message) -> io::Result<Option<Message>> {
        let netlink = self.netlink.as_ref();
        netlink.ok_or(io::ErrorKind::NotConnected)?.ask(message)
    }

    fn add(&self, endpoint: &Endpoint) -> io::Result<u8> {
        let id = self.free_id(endpoint.address)?;
        let (kind, port) = match endpoint.kind {
            EndpointKind::Subflow => (SUBFLOW, None),
            EndpointKind::Signal(port) => (SIGNAL, port),
        };
        let backup = if endpoint.backup { BACKUP } else { 0 };
        let mut attributes = address(endpoint.address, id);
        attributes.push(EndpointAttribute::Flags(kind | backup));
        if let Some(interface) = &endpoint.interface {
            let index = if_nametoindex(interface.as_str())?;
            let index = i32::try_from(index).map_err(io::Error::other)?;
            attributes.push(EndpointAttribute::Interface(index));
        }
        attributes.extend(port.map(EndpointAttribute::Port));
        self.ask(Message::new(
            Command::Add,
            vec![Attribute::Endpoint(attributes)],
        ))?;
        Ok(id)
    }

    fn remove(&self, id: u8, endpoint: &Endpoint) -> io::Result<()> {
        let attributes = address(endpoint.address, id);
        let message = Message::new(Command::Remove, vec![Attribute::Endpoint(attributes)]);
        self.ask(message).map(|_| ())
    }

    /// A free endpoint id; an error if the address has an endpoint that was not made here.
    fn free_id(&self, address: IpAddr) -> io::Result<u8> {
        let netlink = self.netlink.as_ref();
        let netlink = netlink.ok_or(io::ErrorKind::NotConnected)?;
        let listed = netlink.list(Message::new(Command::Get, Vec::new()))?;
        let endpoints = listed.into_iter().flat_map(|message| message.attributes);
        let mut taken = Vec::new();
        for attribute in endpoints {
            let Attribute::Endpoint(endpoint) = attribute else {
                continue;
            };
            if endpoint.contains(&EndpointAttribute::Address(address)) {
                return Err(io::Error::other(
                    "the system has one already, which is left as it is",
                ));
            }
            taken.extend(endpoint.into_iter().filter_map(|part| match part {
                EndpointAttribute::Id(id) => Some(id),
                _ => None,
            }));
        }
        let free = (1..=u8::MAX).find(|id| !taken.contains(id));
        free.ok_or_else(|| io::Error::other("there are too many endpoints"))
    }

    fn limits(&self) -> io::Result<Limits> {
        let answer = self.ask(Message::new(Command::GetLimits, Vec::new()))?;
        let mut limits = Limits {
            accepted_addresses: 0,
            subflows: 0,
        };
        for attribute in answer.into_iter().flat_map(|answer| answer.attributes) {
            match attribute {
                Attribute::AcceptedAddresses(count) => limits.accepted_addresses = count,
                Attribute::Subflows(count) => limits.subflows = count,
                Attribute::Endpoint(_) | Attribute::Other(_) => {}
            }
        }
        Ok(limits)
    }

    fn set_limits(&self, limits: Limits) -> io::Result<()> {
        let attributes = vec![
            Attribute::AcceptedAddresses(limits.accepted_addresses),
            Attribute::Subflows(limits.subflows),
        ];
        self.ask(Message::new(Command::SetLimits, attributes))
            .map(|_| ())
    }

    fn raise_limits(&mut self, wanted: &Wanted) -> io::Result<()> {
        let before = self.limits()?;
        let raised = Limits {
            accepted_addresses: before.accepted_addresses.max(wanted.accepted_addresses),
            subflows: before.subflows.max(wanted.subflows),
        };
        if raised != before {
            self.set_limits(raised)?;
            let first = self.raised.map_or(before, |(first, _)| first);
            self.raised = Some((first, raised));
        }
        Ok(())
    }
}

impl Drop for PathManager {
    fn drop(&mut self) {
        for (id, endpoint) in &self.made {
            if let Err(error) = self.remove(*id, endpoint) {
                tracing::warn!(%error, address = %endpoint.address, "an MPTCP endpoint stays");
            }
        }
        // Another program may have changed them since.
        if let Some((before, raised)) = self.raised
            && self.limits().is_ok_and(|now| now == raised)
        {
            let _ = self.set_limits(before);
        }
    }
}

fn address(address: IpAddr, id: u8) -> Vec<EndpointAttribute> {
    let family = match address {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    vec![
        EndpointAttribute::Family(u16::try_from(family).unwrap_or_default()),
        EndpointAttribute::Id(id),
        EndpointAttribute::Address(address),
    ]
}

#[cfg(test)]
mod tests;
