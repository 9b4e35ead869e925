//! The socket below a session, as the node's hold on the session acts on it.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use underpass_cla::PathFigures;

use super::pacing::{notsent_lowat_bytes, payload_bytes_per_second};
use super::socket::{congestion_control, set_max_pacing_rate, set_notsent_lowat};
use super::tcp_info::TcpInfo;

/// What a session's socket is told and asked.
pub trait Socket: Debug + Send + 'static {
    /// Sets the rate of the path, bit/s of IP bytes; `None` lifts it.
    ///
    /// # Errors
    /// Those of the connection, which then keeps its rate.
    fn set_rate(&mut self, ip_bps: Option<u64>) -> io::Result<()>;

    /// The figures at present.
    fn figures(&self) -> PathFigures;

    /// Looks whether it takes more, and wakes the session if it does.
    fn look(&self);

    /// The congestion control in use.
    fn congestion_control(&self) -> String;
}

/// A socket of the kernel. It is the driver's, which closes it only after the
/// handle has let go of this: a descriptor of its own would be one more for
/// each of thousands of sessions.
#[derive(Debug)]
pub struct KernelSocket {
    socket: RawFd,
    ipv6: bool,
    unlimited_lowat_bytes: u32,
    lowat_bytes: u32,
}

impl KernelSocket {
    /// What acts on `socket`, which must stay open as long as this lives.
    pub(super) fn new(socket: BorrowedFd<'_>, ipv6: bool, unlimited_lowat_bytes: u32) -> Self {
        Self {
            socket: socket.as_raw_fd(),
            ipv6,
            unlimited_lowat_bytes,
            lowat_bytes: unlimited_lowat_bytes,
        }
    }

    fn set_lowat(&mut self, bytes: u32) -> io::Result<()> {
        self.lowat_bytes = bytes;
        set_notsent_lowat(self.as_fd(), bytes)
    }
}

impl AsFd for KernelSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as this lives.
        unsafe { BorrowedFd::borrow_raw(self.socket) }
    }
}

impl Socket for KernelSocket {
    fn set_rate(&mut self, ip_bps: Option<u64>) -> io::Result<()> {
        let Some(ip_bps) = ip_bps else {
            set_max_pacing_rate(self.as_fd(), u64::MAX)?;
            return self.set_lowat(self.unlimited_lowat_bytes);
        };
        let info = TcpInfo::of(self.as_fd())?;
        let rate =
            payload_bytes_per_second(ip_bps, info.mss_bytes(), self.ipv6, info.has_timestamps());
        set_max_pacing_rate(self.as_fd(), rate)?;
        self.set_lowat(notsent_lowat_bytes(ip_bps))
    }

    fn figures(&self) -> PathFigures {
        let info = TcpInfo::of(self.as_fd());
        info.map(|info| info.figures()).unwrap_or_default()
    }

    fn look(&self) {
        // An error is that of a connection about to be reported broken.
        let _ = set_notsent_lowat(self.as_fd(), self.lowat_bytes);
    }

    fn congestion_control(&self) -> String {
        congestion_control(self.as_fd())
    }
}
