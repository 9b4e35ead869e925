//! Socket options that several convergence layers set.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets both buffers of a socket to this many bytes of payload, which the kernel doubles. With
/// CAP_NET_ADMIN they may exceed the system's limit; otherwise it bounds them.
///
/// # Errors
/// Those of the socket.
pub fn set_buffers(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let buffers = [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ];
    buffers.into_iter().try_for_each(|(force, plain)| {
        set(socket, force, bytes).or_else(|_| set(socket, plain, bytes))
    })
}

fn set(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the option's value is one int that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    fn buffer(socket: &UdpSocket, option: libc::c_int) -> libc::c_int {
        let mut value: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the kernel writes one int.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        assert_eq!(result, 0);
        value
    }

    #[test]
    fn both_buffers_are_set_and_the_kernel_doubles_them() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        // A size within every system's limit.
        set_buffers(socket.as_fd(), 40_000).expect("set");
        for option in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
            assert_eq!(buffer(&socket, option), 80_000);
        }
    }
}
