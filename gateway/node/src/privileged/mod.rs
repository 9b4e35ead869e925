//! Work that needs rights which the process that parses input must not have.
//!
//! `nft` and `ip` change the system's rules, BPF programs are loaded into its kernel, MPTCP
//! endpoints belong to the whole machine, and a program may bring a path up. A helper does these.
//! It is the same program, started before the node drops its rights, and reads only a few requests
//! from a socket pair. It makes the rules itself from typed values, so a request cannot do more
//! than a switch of the local API can. It ends when the node does, for whatever reason.

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

/// What the configuration needs a helper for, if it needs one.
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
