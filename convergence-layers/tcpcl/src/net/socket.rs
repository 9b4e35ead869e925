//! Options of TCP sockets, set before connect and listen.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tracing::{debug, warn};

use super::mptcp::is_mptcp;

/// The receive buffer of an accepted connection whose peer has not proved its identity, bytes: what
/// Linux allows a peer to send at first.
const UNPROVEN_RECEIVE_BYTES: u32 = 64 << 10;

/// Options of a path's sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Receive buffer, bytes of payload; the kernel doubles it for its own
    /// use. `None` leaves it to autotuning.
    pub receive_buffer_bytes: Option<u32>,
    /// Send buffer, as above.
    pub send_buffer_bytes: Option<u32>,
    /// Congestion controls in order of preference; the first that the kernel
    /// takes is used, or else its default.
    pub congestion_control: Vec<String>,
    /// The most unsent bytes in the kernel while no rate is set.
    pub notsent_lowat_bytes: u32,
    /// How long sent bytes may stay unacknowledged before TCP gives up: at
    /// least the time for which a blocked link is held.
    pub user_timeout: Option<Duration>,
    /// The interface to use.
    pub interface: Option<String>,
    /// SO_MARK, by which packet filter rules recognise the node's own traffic.
    pub mark: Option<u32>,
    /// MPTCP, where the kernel has it, and plain TCP where not.
    pub mptcp: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
            congestion_control: Vec::new(),
            notsent_lowat_bytes: 128 << 10,
            user_timeout: None,
            interface: None,
            mark: None,
            mptcp: false,
        }
    }
}

impl SocketOptions {
    /// A socket for `peer` or to listen at `peer`, with all options set.
    pub(super) fn socket(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = self.open(Domain::for_address(address))?;
        if let Some(interface) = &self.interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        if let Some(mark) = self.mark {
            socket.set_mark(mark)?;
        }
        let fd = socket.as_fd();
        if let Some(bytes) = self.receive_buffer_bytes {
            set_receive_buffer(fd, bytes)?;
        }
        if let Some(bytes) = self.send_buffer_bytes {
            set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, bytes)?;
        }
        self.choose_congestion_control(&socket);
        self.tune(fd)?;
        Ok(socket)
    }

    fn open(&self, domain: Domain) -> io::Result<Socket> {
        let open = |protocol| Socket::new(domain, Type::STREAM.nonblocking(), Some(protocol));
        if !self.mptcp {
            return open(Protocol::TCP);
        }
        open(Protocol::MPTCP).or_else(|error| {
            debug!(%error, "no MPTCP: the socket is one of plain TCP");
            open(Protocol::TCP)
        })
    }

    /// The options that are set again on an accepted connection.
    pub(super) fn tune(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let socket = SockRef::from(&fd);
        socket.set_tcp_nodelay(true)?;
        if is_mptcp(fd) {
            // MPTCP has no TCP_USER_TIMEOUT, and before Linux 6.10 no low-water mark either: the
            // kernel then holds more.
            let _ = socket.set_tcp_notsent_lowat(self.notsent_lowat_bytes);
            return Ok(());
        }
        if self.user_timeout.is_some() {
            socket.set_tcp_user_timeout(self.user_timeout)?;
        }
        socket.set_tcp_notsent_lowat(self.notsent_lowat_bytes)
    }

    /// Limits what the kernel holds of an accepted connection, until [`widen`] gives it what these
    /// options say. The listening socket has the whole buffer nevertheless: the first packet fixes
    /// the scale of all later windows (RFC 7323, 2.3), and Linux takes it from the listener's
    /// buffer where that is set. Where it is not set, tcp_rmem and rmem_max decide, however large
    /// the window is to be.
    pub(super) fn narrow(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        match self.receive_buffer_bytes {
            // The windows of MPTCP's subflows could not be widened again.
            Some(UNPROVEN_RECEIVE_BYTES..) if !is_mptcp(fd) => {
                set_receive_buffer(fd, UNPROVEN_RECEIVE_BYTES)
            }
            _ => Ok(()),
        }
    }

    fn choose_congestion_control(&self, socket: &Socket) {
        let taken = self
            .congestion_control
            .iter()
            .any(|name| socket.set_tcp_congestion(name.as_bytes()).is_ok());
        if !taken && !self.congestion_control.is_empty() {
            warn!(
                wanted = ?self.congestion_control,
                in_use = congestion_control(socket.as_fd()),
                "the kernel has none of the preferred congestion controls"
            );
        }
    }
}

/// The congestion control in use.
pub(super) fn congestion_control(fd: BorrowedFd<'_>) -> String {
    let name = SockRef::from(&fd).tcp_congestion().unwrap_or_default();
    let end = name.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}

/// Gives a connection that may have been narrow a receive buffer of `bytes` of payload, as far as
/// the system allows, and windows to match.
pub(super) fn widen(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_receive_buffer(fd, bytes)?;
    if is_mptcp(fd) {
        return Ok(());
    }
    // Newer kernels fit the largest window to a small buffer as soon as a longer segment comes, and
    // leave it so when the buffer is set again. The kernel doubles the buffer for its own use.
    let most = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let most = most.saturating_mul(2);
    set(fd, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &most)
}

/// Sets the receive buffer to `bytes` of payload, as far as the system allows.
fn set_receive_buffer(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, bytes)
}

/// Above the system's limit with CAP_NET_ADMIN; otherwise up to that limit, or as far as the kernel
/// grows it by itself.
fn set_buffer(
    fd: BorrowedFd<'_>,
    forced: libc::c_int,
    limited: libc::c_int,
    bytes: u32,
) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(fd, libc::SOL_SOCKET, forced, &bytes).or_else(|_| set_limited_buffer(fd, limited, bytes))
}

fn set_limited_buffer(
    fd: BorrowedFd<'_>,
    limited: libc::c_int,
    bytes: libc::c_int,
) -> io::Result<()> {
    const UNLOCKED: libc::c_int = 0;
    set(fd, libc::SOL_SOCKET, limited, &bytes)?;
    let socket = SockRef::from(&fd);
    let got = match limited {
        libc::SO_RCVBUF => socket.recv_buffer_size()?,
        _ => socket.send_buffer_size()?,
    };
    // The kernel doubles it for its own use.
    if got / 2 < usize::try_from(bytes).unwrap_or_default() {
        // A buffer that was set no longer grows with the window. If left to the kernel, it grows up
        // to tcp_rmem and tcp_wmem, whose defaults exceed those of rmem_max and wmem_max. Kernels
        // before 5.14 do not know this option.
        let _ = set(fd, libc::SOL_SOCKET, libc::SO_BUF_LOCK, &UNLOCKED);
    }
    Ok(())
}

/// Sets `SO_MAX_PACING_RATE`, bytes/s; `u64::MAX` lifts it.
pub(super) fn set_max_pacing_rate(fd: BorrowedFd<'_>, bytes_per_second: u64) -> io::Result<()> {
    set(
        fd,
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        &bytes_per_second,
    )
}

fn set<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is plain data of the length given and outlives the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
pub(super) fn max_pacing_rate(fd: BorrowedFd<'_>) -> u64 {
    get(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, 0).expect("it can be read")
}

/// Reads an option, which is plain data; bytes that the kernel does not write stay those of
/// `value`.
pub(super) fn get<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    mut value: T,
) -> io::Result<T> {
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is plain data of `length` bytes that outlives the call.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn the_first_congestion_control_that_the_kernel_has_is_used() {
        let options = SocketOptions {
            congestion_control: vec!["no-such-control".into(), "reno".into(), "cubic".into()],
            ..SocketOptions::default()
        };
        let socket = options.socket(([127, 0, 0, 1], 0).into());
        let socket = socket.expect("a socket");
        assert_eq!(congestion_control(socket.as_fd()), "reno");
    }

    #[test]
    fn a_buffer_beyond_what_may_be_set_is_left_to_the_kernel() {
        let locks = |bytes| {
            let socket = SocketOptions::default().socket(([127, 0, 0, 1], 0).into());
            let socket = socket.expect("a socket");
            for limited in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
                set_limited_buffer(socket.as_fd(), limited, bytes).expect("may be set");
            }
            let locks = get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BUF_LOCK, 0);
            locks.expect("it can be read")
        };
        const BOTH: libc::c_int = 3;
        assert_eq!(locks(50_000), BOTH);
        assert_eq!(locks(1 << 30), 0);
    }

    #[test]
    fn a_connection_that_was_narrow_gets_its_whole_window() {
        const BYTES: u32 = 150_000;
        let options = SocketOptions {
            receive_buffer_bytes: Some(BYTES),
            ..SocketOptions::default()
        };
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let listening = options.socket(any).expect("a socket");
        listening.set_nonblocking(false).expect("it can block");
        listening.bind(&any.into()).expect("a free port");
        listening.listen(1).expect("it listens");
        let address = listening.local_addr().expect("it is bound").as_socket();
        let mut peer = TcpStream::connect(address.expect("an address")).expect("it listens");
        let (mut accepted, _) = listening.accept().expect("the peer's connection");
        options.narrow(accepted.as_fd()).expect("it may be set");
        // As long a segment as those of a handshake.
        let mut bytes = [0; 3_000];
        peer.write_all(&bytes).expect("taken");
        accepted.read_exact(&mut bytes).expect("it has come");
        widen(accepted.as_fd(), BYTES).expect("it may be set");
        let most = get(
            accepted.as_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_WINDOW_CLAMP,
            0,
        );
        let most: libc::c_int = most.expect("it can be read");
        assert!(most >= BYTES as libc::c_int, "{most}");
    }

    #[test]
    fn the_options_are_set_before_the_connection() {
        let options = SocketOptions {
            receive_buffer_bytes: Some(50_000),
            send_buffer_bytes: Some(60_000),
            user_timeout: Some(Duration::from_secs(77)),
            ..SocketOptions::default()
        };
        let socket = options.socket(([127, 0, 0, 1], 0).into());
        let socket = socket.expect("a socket");
        // The kernel doubles both for its own use.
        assert_eq!(socket.recv_buffer_size().expect("readable"), 100_000);
        assert_eq!(socket.send_buffer_size().expect("readable"), 120_000);
        let timeout = socket.tcp_user_timeout().expect("readable");
        assert_eq!(timeout, options.user_timeout);
        assert!(socket.tcp_nodelay().expect("readable"));
        let lowat = SockRef::from(&socket).tcp_notsent_lowat();
        assert_eq!(lowat.expect("it can be read"), 128 << 10);
    }
}
