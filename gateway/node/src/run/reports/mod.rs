//! Reports: a node makes and sends them, a hub takes them in.
//!
//! [`Reporter`] says how the links are, [`blockages`] what happens to them,
//! and whoever else has something to say has a [`ReportSender`]. A terminal's
//! leave as bundles ([`Sending`]); a hub's [`Intake`] gets them there.

mod blockages;
mod intake;
mod reporter;
mod sender;
mod sending;

use crate::config::{Config, Role};

pub(super) use blockages::watch as watch_blockages;
pub use intake::{Intake, Latest};
pub(super) use reporter::tell as tell_status;
pub use reporter::{Reporter, reported};
pub use sender::{Made, ReportSender};
pub use sending::{Sending, Sent};

/// Whether this node takes reports in.
pub(crate) fn takes_in(config: &Config) -> bool {
    config.node.role == Role::Hub
}
