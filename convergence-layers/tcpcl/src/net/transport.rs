//! The transport of a session: plain TCP or TLS, as one kind of stream, or a model of it.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::input::Input;
use super::kernel::{KernelSocket, Socket};

/// A stream of bytes that a session runs over, and what lies below it.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// What the node's hold on the session acts on.
    type Socket: Socket;

    /// The socket below, usable at most until the stream is dropped, and the address of the other
    /// end. `wants_mptcp` says whether MPTCP was requested; without a rate `unlimited_lowat_bytes`
    /// may be unsent.
    ///
    /// # Errors
    /// Those of the connection.
    fn socket(
        &self,
        wants_mptcp: bool,
        unlimited_lowat_bytes: u32,
    ) -> io::Result<(Self::Socket, SocketAddr)>;

    /// Ready when the unsent bytes are below the low-water mark, which a successful write alone
    /// does not show.
    fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Makes dropping it discard unsent bytes, too.
    fn end_by_reset(&self);

    /// Bytes that were read below the stream, if they give bytes of it only together, as in a TLS
    /// record.
    fn bytes_below(&self) -> u64 {
        0
    }
}

/// A stream over one TCP connection of the kernel.
pub trait OverTcp: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// The connection below.
    fn tcp(&self) -> &TcpStream;

    /// As [`Transport::bytes_below`].
    fn bytes_of_records(&self) -> u64 {
        0
    }
}

impl<T: OverTcp> Transport for T {
    type Socket = KernelSocket;

    fn socket(
        &self,
        wants_mptcp: bool,
        unlimited_lowat_bytes: u32,
    ) -> io::Result<(KernelSocket, SocketAddr)> {
        let tcp = self.tcp();
        let remote = tcp.peer_addr()?;
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let (fd, ipv6) = (tcp.as_fd(), remote.is_ipv6());
        let socket = KernelSocket::new(fd, ipv6, wants_mptcp, unlimited_lowat_bytes);
        Ok((socket, remote))
    }

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

    fn end_by_reset(&self) {
        let socket = socket2::SockRef::from(self.tcp());
        let _ = socket.set_linger(Some(Duration::ZERO));
    }

    fn bytes_below(&self) -> u64 {
        self.bytes_of_records()
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

impl OverTcp for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

/// A connection that reads more at once than TLS asks for, which reads in small steps.
#[derive(Debug)]
pub(super) struct ReadAhead {
    tcp: TcpStream,
    input: Input,
    /// Bytes that TLS has taken.
    taken: u64,
}

impl ReadAhead {
    pub(super) fn new(tcp: TcpStream) -> Self {
        Self {
            tcp,
            input: Input::default(),
            taken: 0,
        }
    }
}

impl AsyncRead for ReadAhead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { tcp, input, taken } = &mut *self;
        if input.unread().is_empty() {
            ready!(input.poll_fill(Pin::new(tcp), cx, usize::MAX))?;
        }
        let count = input.unread().len().min(into.remaining());
        into.put_slice(&input.unread()[..count]);
        input.take(count);
        *taken += count as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadAhead {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

/// TLS over one connection.
pub(super) type Tls = TlsStream<ReadAhead>;

impl OverTcp for Tls {
    fn tcp(&self) -> &TcpStream {
        &self.get_ref().0.tcp
    }

    fn bytes_of_records(&self) -> u64 {
        self.get_ref().0.taken
    }
}
