//! How sockets of clients and origins end.
//!
//! When a process dies, the kernel closes its sockets with FIN: a client
//! would take a cut response for a whole one. So a socket that carries a
//! stream is set to end by RST, and only the stream's end in order lifts that.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A peer that takes nothing for so long gets no more before the RST.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How often the send queue is looked at; the kernel tells of its room, not
/// of its end.
const GLANCE: Duration = Duration::from_millis(10);

/// From now on the socket is closed by RST, also when the process dies.
pub(crate) fn end_by_reset(socket: &TcpStream) {
    // It fails only on a socket that has ended.
    let _ = socket.set_zero_linger();
}

/// From now on the socket is closed by FIN, behind all that was written.
pub(crate) fn end_in_order(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(None);
}

/// Waits until the other end has acknowledged what was written to it, since a
/// RST overtakes what the kernel still holds.
pub(super) async fn delivered(socket: &TcpStream) {
    let mut until = Instant::now() + PATIENCE;
    let mut before = u32::MAX;
    while let Ok(left) = unacknowledged(socket) {
        if left == 0 || Instant::now() >= until {
            return;
        }
        if left < before {
            before = left;
            until = Instant::now() + PATIENCE;
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// Bytes that were written and not acknowledged, a FIN counted as one; an
/// error once the connection is gone.
fn unacknowledged(socket: &TcpStream) -> io::Result<u32> {
    if let Some(error) = SockRef::from(socket).take_error()? {
        return Err(error);
    }
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (TIOCOUTQ by number, tcp(7)) writes one int to the
    // pointer, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(bytes).unwrap_or(0))
}
