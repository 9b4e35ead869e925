//! Reports: a node makes and sends them, a hub takes them in.
//!
//! [`Reporter`] reports the state of the links, [`blockages`] their blockages, and other parts
//! report by a [`ReportSender`]. A terminal's reports leave as bundles ([`Sending`]); the hub's
//! [`Intake`] takes them. By a [`Prover`] a terminal proves to the control service which hub it is
//! at.

mod blockages;
mod intake;
mod proof;
mod reporter;
mod sender;
mod sending;

use crate::config::{Config, Role};

pub(super) use blockages::watch as watch_blockages;
pub use intake::{Intake, Latest};
pub use proof::{Prover, TokenError};
pub(super) use reporter::tell as tell_status;
pub use reporter::{Reporter, reported};
pub use sender::{Made, ReportSender};
pub use sending::{Sending, Sent};

/// Whether this node takes reports in.
pub(crate) fn takes_in(config: &Config) -> bool {
    config.node.role == Role::Hub
}
