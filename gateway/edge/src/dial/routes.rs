//! Tells when the routes of this host may have changed.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Bits of the multicast groups of rtnetlink(7): links (IPv4 routes vanish with their link without
/// a message), routes and rules of both families.
const GROUPS: u32 = bit(libc::RTNLGRP_LINK)
    | bit(libc::RTNLGRP_IPV4_ROUTE)
    | bit(libc::RTNLGRP_IPV6_ROUTE)
    | bit(libc::RTNLGRP_IPV4_RULE)
    | bit(libc::RTNLGRP_IPV6_RULE);

const fn bit(group: libc::c_uint) -> u32 {
    1 << (group - 1)
}

/// Messages of the kernel about routes. Their content is not parsed: the caller reads the routes
/// again, so no message can be missed or misunderstood.
#[derive(Debug)]
pub struct RouteChanges(AsyncFd<OwnedFd>);

impl RouteChanges {
    /// Listens from now on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the system does not allow such a socket.
    pub fn listen() -> io::Result<RouteChanges> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let family = AddressFamily::Netlink;
        let socket = socket(family, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        // SAFETY: the descriptor stays the same and open until the socket is
        // dropped, and it is dropped with the `AsyncFd` or after it.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(RouteChanges(socket))
    }

    /// Waits for the next change.
    ///
    /// # Errors
    /// When the socket breaks.
    pub async fn changed(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            let mut ready = self.0.readable().await?;
            let mut told = false;
            let drained = loop {
                match recv(
                    ready.get_inner().as_raw_fd(),
                    &mut buffer,
                    MsgFlags::MSG_DONTWAIT,
                ) {
                    Ok(0) | Err(Errno::EAGAIN) => break Ok(()),
                    // ENOBUFS: there were more than the socket holds.
                    Ok(_) | Err(Errno::ENOBUFS) => told = true,
                    Err(Errno::EINTR) => {}
                    Err(error) => break Err(error),
                }
            };
            ready.clear_ready();
            drained?;
            if told {
                return Ok(());
            }
        }
    }
}
