//! The node's hold on a session.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use tracing::warn;
use underpass_cla::{PathFigures, Session, Transfer};

use super::pacing::{notsent_lowat_bytes, payload_bytes_per_second};
use super::socket::{set_max_pacing_rate, set_notsent_lowat};
use super::tcp_info::{TcpInfo, unacknowledged_bytes};

/// What the node asks of a session's task. Offers are bounded by the
/// contract, one for each `ready`.
#[derive(Debug)]
pub(super) enum Command {
    Offer(Transfer),
    Suspend(bool),
    Close,
    Abort(String),
}

/// Implements [`Session`]. Rate and figures go straight to the socket; the
/// rest is sent to the task. An offer that meets a session already gone is
/// dropped: [`underpass_cla::Node::session_down`] has ended all its transfers.
#[derive(Debug)]
pub(super) struct SessionHandle {
    commands: UnboundedSender<Command>,
    /// The socket's second descriptor, until the session is over.
    socket: Mutex<Option<OwnedFd>>,
    ipv6: bool,
    unlimited_lowat_bytes: u32,
    rate: Mutex<Option<u64>>,
}

impl SessionHandle {
    pub(super) fn new(
        commands: UnboundedSender<Command>,
        socket: OwnedFd,
        ipv6: bool,
        unlimited_lowat_bytes: u32,
    ) -> Self {
        Self {
            commands,
            socket: Mutex::new(Some(socket)),
            ipv6,
            unlimited_lowat_bytes,
            rate: Mutex::new(None),
        }
    }

    /// The session is over: lets go of the socket.
    pub(super) fn release(&self) {
        lock(&self.socket).take();
    }

    fn send(&self, command: Command) {
        // A task that is gone has reported the session down.
        let _ = self.commands.send(command);
    }

    fn apply_rate(&self, ip_bps: u64) -> std::io::Result<()> {
        let socket = lock(&self.socket);
        let Some(fd) = socket.as_ref().map(AsFd::as_fd) else {
            return Ok(());
        };
        if ip_bps == 0 {
            set_max_pacing_rate(fd, u64::MAX)?;
            return set_notsent_lowat(fd, self.unlimited_lowat_bytes);
        }
        let info = TcpInfo::of(fd)?;
        let rate =
            payload_bytes_per_second(ip_bps, info.mss_bytes(), self.ipv6, info.has_timestamps());
        set_max_pacing_rate(fd, rate)?;
        set_notsent_lowat(fd, notsent_lowat_bytes(ip_bps))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session for SessionHandle {
    fn offer(&self, transfer: Transfer) {
        self.send(Command::Offer(transfer));
    }

    fn set_rate(&self, ip_bps: u64) {
        let limit = (ip_bps > 0).then_some(ip_bps);
        // Held while the socket is set, so that the last rate given wins.
        let mut rate = lock(&self.rate);
        if *rate == limit {
            return;
        }
        match self.apply_rate(ip_bps) {
            Ok(()) => *rate = limit,
            Err(error) => warn!(%error, ip_bps, "the rate cannot be set"),
        }
    }

    fn figures(&self) -> PathFigures {
        let socket = lock(&self.socket);
        let Some(fd) = socket.as_ref().map(AsFd::as_fd) else {
            return PathFigures::default();
        };
        let in_flight = unacknowledged_bytes(fd).unwrap_or(0);
        TcpInfo::of(fd)
            .map(|info| info.figures(in_flight))
            .unwrap_or_default()
    }

    fn suspend(&self, blocked: bool) {
        self.send(Command::Suspend(blocked));
    }

    fn close(&self) {
        self.send(Command::Close);
    }

    fn abort(&self, reason: &str) {
        self.send(Command::Abort(reason.to_owned()));
    }
}
