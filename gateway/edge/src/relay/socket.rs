//! What a relay asks of a socket beyond reading and writing: how it ends.
//!
//! When a process dies, the kernel closes its sockets with FIN: a client
//! would take a cut response for a whole one. So a socket that carries a
//! stream is set to end by RST, and only the stream's end in order lifts that.

use std::io;
use std::os::fd::AsRawFd;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A client's or origin's connection. Simulations have a model of one.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// From now on bytes leave without waiting for more (TCP_NODELAY).
    fn send_at_once(&self);

    /// From now on the socket is closed by RST, also when the process dies.
    fn end_by_reset(&self);

    /// From now on the socket is closed by FIN, behind all that was written.
    fn end_in_order(&self);

    /// Bytes that were written and not acknowledged, a FIN counted as one.
    ///
    /// # Errors
    /// Once the connection is gone.
    fn unacknowledged(&self) -> io::Result<u32>;
}

impl Socket for TcpStream {
    fn send_at_once(&self) {
        let _ = self.set_nodelay(true);
    }

    fn end_by_reset(&self) {
        // It fails only on a socket that has ended.
        let _ = self.set_zero_linger();
    }

    fn end_in_order(&self) {
        let _ = SockRef::from(self).set_linger(None);
    }

    fn unacknowledged(&self) -> io::Result<u32> {
        if let Some(error) = SockRef::from(self).take_error()? {
            return Err(error);
        }
        let mut bytes: libc::c_int = 0;
        // SAFETY: SIOCOUTQ (TIOCOUTQ by number, tcp(7)) writes one int to the
        // pointer, which outlives the call.
        let result = unsafe { libc::ioctl(self.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(u32::try_from(bytes).unwrap_or(0))
    }
}
