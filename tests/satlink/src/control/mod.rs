//! Live control and statistics: one JSON object per line over a Unix socket.

mod client;
mod execute;
mod protocol;
mod server;

pub use client::{ControlError, send};
pub use execute::execute;
pub(crate) use execute::{queue_series, terminal_statistics};
pub use protocol::{
    BeamStatistics, LinkReport, Reply, Request, TerminalStatistics, parse_blockage, parse_rate,
};
pub use server::{Command, Server};
