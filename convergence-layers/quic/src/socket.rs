//! UDP sockets.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};
use underpass_cla::set_buffers;

/// Options of a path's sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// The interface to use.
    pub interface: Option<String>,
    /// SO_MARK, by which packet filter rules recognise the node's own traffic.
    pub mark: Option<u32>,
}

/// Bytes that may arrive while the process is busy: a tenth of a second of a fast link. Windows do
/// not need it, since QUIC has its own buffers.
const BUFFER_BYTES: u32 = 4 << 20;

impl SocketOptions {
    /// A socket bound to `local`; an IPv6 one takes IPv4 peers in as well,
    /// whatever the host's default.
    pub(crate) fn bind(&self, local: SocketAddr) -> io::Result<UdpSocket> {
        let domain = Domain::for_address(local);
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if let Some(interface) = &self.interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        if let Some(mark) = self.mark {
            socket.set_mark(mark)?;
        }
        if local.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        set_buffers(socket.as_fd(), BUFFER_BYTES)?;
        socket.bind(&local.into())?;
        Ok(socket.into())
    }
}
