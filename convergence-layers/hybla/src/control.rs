//! The controls' names, and whether the kernel lets us use one.

use std::io;

use socket2::{Domain, Socket, Type};

/// A congestion control that this crate provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Control {
    /// TCP Hybla with pacing and Hoe's first ssthresh.
    Hybla,
    /// The allocated rate of `SO_MAX_PACING_RATE`, and Hybla if there is none.
    Dama,
}

impl Control {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Hybla, Self::Dama];

    /// The name for `TCP_CONGESTION`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hybla => "hybla_bpf",
            Self::Dama => "hybla_dama",
        }
    }

    /// What a session lacks without it, for an operator to read.
    pub const fn cost(self) -> &'static str {
        match self {
            Self::Hybla => "a long round trip makes sending grow slowly",
            Self::Dama => "each loss slows sending down, though the link has its rate all the same",
        }
    }

    /// The control of that name, if it is one of ours.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.name() == name)
    }
}

/// Why a socket cannot use a congestion control.
#[derive(Debug, thiserror::Error)]
pub enum UnusableError {
    /// Neither registered nor available as a kernel module.
    #[error("the kernel does not have it, and no module of that name could be loaded")]
    Absent,
    /// There, but only for a privileged process.
    #[error(
        "needs CAP_NET_ADMIN, or its name in the sysctl net.ipv4.tcp_allowed_congestion_control"
    )]
    NotPermitted,
    /// Any other error of the kernel.
    #[error("the kernel refuses it: {0}")]
    Refused(io::Error),
    /// No TCP socket could be opened to try it on.
    #[error("cannot open a TCP socket to try it on: {0}")]
    NoSocket(io::Error),
}

/// Tries a congestion control on a new socket. With CAP_NET_ADMIN the kernel loads the module
/// `tcp_<name>` for it if there is one.
pub fn usable(name: &str) -> Result<(), UnusableError> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)
        .or_else(|_| Socket::new(Domain::IPV6, Type::STREAM, None))
        .map_err(UnusableError::NoSocket)?;
    socket
        .set_tcp_congestion(name.as_bytes())
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => UnusableError::Absent,
            Some(libc::EPERM) => UnusableError::NotPermitted,
            _ => UnusableError::Refused(error),
        })
}
