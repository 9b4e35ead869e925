//! UDP sockets.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};

/// Options of a path's sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// The interface to use.
    pub interface: Option<String>,
    /// SO_MARK, by which packet filter rules know the node's own traffic.
    pub mark: Option<u32>,
}

/// What may arrive while the process is busy, bytes: a tenth of a second of a
/// fast link. Windows need none of it, since QUIC has its own.
const BUFFER_BYTES: usize = 4 << 20;

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
        set_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)?;
        set_buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)?;
        socket.bind(&local.into())?;
        Ok(socket.into())
    }
}

/// Beyond the system's limit if this process may (CAP_NET_ADMIN), else up to it.
fn set_buffer(socket: &Socket, force: libc::c_int, plain: libc::c_int) -> io::Result<()> {
    if set(socket, force).is_ok() {
        return Ok(());
    }
    set(socket, plain)
}

fn set(socket: &Socket, option: libc::c_int) -> io::Result<()> {
    let bytes = BUFFER_BYTES as libc::c_int;
    // SAFETY: the option's value is one int that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
