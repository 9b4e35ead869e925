//! The socket of a session, as the session's handle uses it.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use socket2::SockRef;
use tracing::warn;
use underpass_cla::PathFigures;

use super::mptcp::{self, Subflows};
use super::pacing::{notsent_lowat_bytes, payload_bytes_per_second};
use super::socket::{congestion_control, set_max_pacing_rate, widen};
use super::tcp_info::TcpInfo;

/// Who keeps to the rate of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// The transport.
    ByTransport,
    /// The session, which writes this many bytes/s; `None` is unlimited.
    ByWriting(Option<u64>),
}

/// What a session's socket is told and asked.
pub trait Socket: Debug + Send + 'static {
    /// Sets the rate of the path, bit/s of IP bytes; `None` lifts it.
    ///
    /// # Errors
    /// Those of the connection, which then keeps its rate.
    fn set_rate(&mut self, ip_bps: Option<u64>) -> io::Result<Pacing>;

    /// The figures at present.
    fn figures(&mut self) -> PathFigures;

    /// Checks whether it takes more, and wakes the session if it does.
    fn look(&self);

    /// The congestion control in use.
    fn congestion_control(&self) -> String;

    /// Lets the transport detect by itself that the peer is gone, if it can: the two sides of the
    /// session have agreed on no keepalives.
    fn keep_alive(&self) {}

    /// Sets the receive buffer, bytes of payload, if it has one of its own: the peer has proved its
    /// identity.
    fn widen(&self, _receive_buffer_bytes: u32) {}
}

/// A socket of the kernel. The driver owns it, and closes it only after the handle has released
/// this: a separate descriptor would cost one more for each of thousands of sessions.
#[derive(Debug)]
pub struct KernelSocket {
    socket: RawFd,
    ipv6: bool,
    unlimited_lowat_bytes: u32,
    lowat_bytes: u32,
    kind: Kind,
}

/// What carries the bytes.
#[derive(Debug)]
enum Kind {
    Tcp,
    /// MPTCP was requested, and the kernel or the peer has none.
    FallenBack {
        /// Whether the socket is still an MPTCP socket, which takes only MPTCP's options.
        is_mptcp: bool,
    },
    Mptcp(Subflows),
}

impl KernelSocket {
    /// Acts on `socket`, which must stay open as long as this lives. `wants_mptcp` says whether
    /// MPTCP was requested.
    pub(super) fn new(
        socket: BorrowedFd<'_>,
        ipv6: bool,
        wants_mptcp: bool,
        unlimited_lowat_bytes: u32,
    ) -> Self {
        let kind = match (wants_mptcp, mptcp::is_mptcp(socket)) {
            (false, false) => Kind::Tcp,
            (_, true) if mptcp::subflows(socket).is_ok() => Kind::Mptcp(Subflows::default()),
            (_, is_mptcp) => Kind::FallenBack { is_mptcp },
        };
        Self {
            socket: socket.as_raw_fd(),
            ipv6,
            unlimited_lowat_bytes,
            lowat_bytes: unlimited_lowat_bytes,
            kind,
        }
    }

    fn set_lowat(&mut self, bytes: u32) -> io::Result<()> {
        self.lowat_bytes = bytes;
        let set = SockRef::from(&*self).set_tcp_notsent_lowat(bytes);
        match self.is_paced_by_kernel() {
            true => set,
            // MPTCP of older kernels does not know it.
            false => Ok(()),
        }
    }

    fn is_paced_by_kernel(&self) -> bool {
        match self.kind {
            Kind::Tcp | Kind::FallenBack { is_mptcp: false } => true,
            Kind::Mptcp(_) | Kind::FallenBack { is_mptcp: true } => false,
        }
    }

    /// The TCP information that describes the connection's segments.
    fn segments(&self) -> io::Result<TcpInfo> {
        match self.kind {
            Kind::Mptcp(_) => {
                let subflows = mptcp::subflows(self.as_fd())?;
                // A subflow that is being set up has no segment size yet.
                let largest = subflows.into_iter().max_by_key(TcpInfo::mss_bytes);
                largest.ok_or_else(|| io::ErrorKind::NotConnected.into())
            }
            Kind::Tcp | Kind::FallenBack { .. } => TcpInfo::of(self.as_fd()),
        }
    }

    fn pace(&mut self, bytes_per_second: Option<u64>) -> io::Result<Pacing> {
        if !self.is_paced_by_kernel() {
            return Ok(Pacing::ByWriting(bytes_per_second));
        }
        set_max_pacing_rate(self.as_fd(), bytes_per_second.unwrap_or(u64::MAX))?;
        Ok(Pacing::ByTransport)
    }
}

impl AsFd for KernelSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as this lives.
        unsafe { BorrowedFd::borrow_raw(self.socket) }
    }
}

impl Socket for KernelSocket {
    fn set_rate(&mut self, ip_bps: Option<u64>) -> io::Result<Pacing> {
        let Some(ip_bps) = ip_bps else {
            let pacing = self.pace(None)?;
            self.set_lowat(self.unlimited_lowat_bytes)?;
            return Ok(pacing);
        };
        let info = self.segments()?;
        let rate =
            payload_bytes_per_second(ip_bps, info.mss_bytes(), self.ipv6, info.has_timestamps());
        let pacing = self.pace(Some(rate))?;
        self.set_lowat(notsent_lowat_bytes(ip_bps))?;
        Ok(pacing)
    }

    fn figures(&mut self) -> PathFigures {
        // SAFETY: it is open as long as this lives.
        let fd = unsafe { BorrowedFd::borrow_raw(self.socket) };
        if let Kind::Mptcp(of_all) = &mut self.kind {
            match mptcp::subflows(fd) {
                Ok(subflows) => return of_all.figures(fd, &subflows),
                // A peer may fall back during the connection (RFC 8684, 3.7).
                Err(_) => self.kind = Kind::FallenBack { is_mptcp: true },
            }
        }
        let info = TcpInfo::of(fd);
        let figures = info.map(|info| info.figures()).unwrap_or_default();
        PathFigures {
            subflows: matches!(self.kind, Kind::FallenBack { .. }).then_some(0),
            ..figures
        }
    }

    fn look(&self) {
        // An error is that of a connection about to be reported broken.
        let _ = SockRef::from(self).set_tcp_notsent_lowat(self.lowat_bytes);
    }

    fn congestion_control(&self) -> String {
        congestion_control(self.as_fd())
    }

    fn keep_alive(&self) {
        // Probes after two hours of silence, unless the system is configured otherwise. If this
        // fails, the session is no worse than before.
        let _ = SockRef::from(self).set_keepalive(true);
    }

    fn widen(&self, receive_buffer_bytes: u32) {
        if let Err(error) = widen(self.as_fd(), receive_buffer_bytes) {
            warn!(%error, receive_buffer_bytes, "the receive buffer stays small");
        }
    }
}
