//! Plain TCP and TLS as one kind of stream.

use std::io;
use std::os::fd::AsRawFd;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, BufReader, Interest};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// A stream over one TCP connection.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {
    /// The connection below.
    fn tcp(&self) -> &TcpStream;

    /// Ready when the kernel's unsent bytes are below the low-water mark, which
    /// a mere successful write does not tell.
    fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let tcp = self.tcp();
        loop {
            ready!(tcp.poll_write_ready(cx))?;
            match tcp.try_io(Interest::WRITABLE, || poll_writable(tcp)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }
}

/// Asks the kernel, which also arms the next wake-up by the low-water mark.
fn poll_writable(tcp: &TcpStream) -> io::Result<()> {
    let mut poll = libc::pollfd {
        fd: tcp.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one pollfd is passed and outlives the call.
    match unsafe { libc::poll(&raw mut poll, 1, 0) } {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Transport for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

/// TLS reads in small steps, so a buffer stands between it and the socket.
pub(super) type Tls = TlsStream<BufReader<TcpStream>>;

impl Transport for Tls {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0.get_ref()
    }
}
