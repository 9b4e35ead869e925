//! What needs rights that the process which parses must not have.
//!
//! `nft` and `ip` change the system's rules, and BPF programs are loaded into
//! its kernel; MPTCP endpoints are the whole machine's; and a path may be brought
//! up by a program. A helper does that: the same program, started before the node
//! gives its rights away, with a few requests over a socket pair and nothing
//! else to listen to. It makes the rules itself from typed values, so that a
//! request cannot say more than what a switch of the local API can, and it
//! ends when the node does, however that ends.

mod client;
mod commands;
mod helper;
mod requests;

use crate::config::Config;
use crate::run::preferences;

pub use client::{HeldHelper, Helper, HelperError};
pub use commands::PathCommands;
pub use helper::serve;
pub use requests::{Begin, Intercept};

/// Starts the helper, where the configuration needs one.
///
/// # Errors
/// When it cannot be started.
pub fn start(config: &Config) -> Result<Option<Helper>, HelperError> {
    purpose(config).map(Helper::start).transpose()
}

/// What the configuration needs a helper for, if for anything.
pub fn purpose(config: &Config) -> Option<Begin> {
    let intercepts = config.edge.interception.is_some();
    let lists = preferences(config);
    let mut names = lists.iter().flat_map(|(_, list)| list);
    let loads = names.any(|name| underpass_hybla::Control::from_name(name).is_some());
    let manages_paths = config.uses_mptcp();
    let commands = config.path_commands();
    (intercepts || loads || manages_paths || !commands.is_empty()).then(|| Begin {
        log: config.log.clone(),
        intercepts,
        loads,
        manages_paths,
        commands,
    })
}
