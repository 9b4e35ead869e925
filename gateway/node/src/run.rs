//! `underpass run`: puts a node together, and takes it apart in order.

mod advice;
mod ahead;
mod applications;
mod bare_sessions;
mod beacons;
mod carriers;
mod cdni;
mod congestion_controls;
pub(crate) mod contacts;
pub(crate) mod control;
mod custody;
mod decisions;
pub(crate) mod deferred;
mod descriptors;
mod ending;
pub(crate) mod engine;
mod entrance;
mod error;
mod foundation;
mod inbound;
mod links;
mod listing;
pub mod mptcp;
mod neighbours;
mod node_core;
mod on_demand;
mod origins;
mod parting;
mod payloads;
pub(crate) mod plans;
pub(crate) mod provider;
mod provision;
mod questions;
mod quic_sessions;
mod reach;
pub(crate) mod reload;
mod reporting;
pub(crate) mod reports;
mod restarter;
mod serve;
mod services;
mod trial;
mod turns;

use std::path::Path;

use tokio_util::task::AbortOnDropHandle;

use crate::allocator;
use crate::config::{Config, Document, Role};
use crate::confinement::{self, Confinement};
use crate::logging::Log;
use crate::panics;
use crate::privileged::{self, Helper};
use crate::provider::KeptSettings;
use crate::state_files;
use crate::upgrade::{Channel, Launcher, Predecessor, TakeOverError};

pub use advice::advice;
pub use congestion_controls::preferences;
pub use custody::OpenCustody;
pub use error::RunError;
pub(crate) use node_core::set_clocks;
pub use parting::Parting;
pub use restarter::Restarter;
#[cfg(test)]
pub(crate) use services::acknowledge_plans;

/// Runs a node until SIGTERM or SIGINT, or until another process has taken it over. With
/// `take_over`, takes over the node of the process at the other end of standard input.
///
/// # Errors
/// When it cannot start; the reason names the key to change.
pub fn run(file: &Path, take_over: bool) -> Result<(), RunError> {
    let channel = match take_over {
        true => Some(Predecessor::reach().map_err(TakeOverError::from)?),
        false => None,
    };
    let refusing = channel.as_ref().and_then(|channel| channel.again().ok());
    let ended = start(file, channel);
    if let (Err(error), Some(mut channel)) = (&ended, refusing) {
        channel.refuse(error);
    }
    ended
}

fn start(file: &Path, channel: Option<Channel>) -> Result<(), RunError> {
    let own = Document::read(file)?;
    let config = Config::of(&own)?;
    let log = crate::logging::start(&config.log)?;
    let (provider, error) = KeptSettings::load(&config.node.state_dir);
    if let Some(error) = error {
        tracing::error!(%error, "what the provider has set is not known");
    }
    let written = reload::with_settings(&own, &provider);
    let config = Config::of(&written)?;
    panics::end_the_process();
    state_files::protect(&config).map_err(|source| RunError::StateDir {
        path: config.node.state_dir.clone(),
        source,
    })?;
    if let Err(error) = provider.count_start() {
        tracing::error!(%error, "that the node starts in a trial is not written down");
    }
    descriptors::prepare(&config);
    if config.node.role == Role::Terminal {
        allocator::save_memory();
    }
    // This comes before the first thread: rights belong to a thread, and others inherit them.
    let launcher = Launcher::start().map_err(RunError::Launcher)?;
    let helper = match channel {
        // The helper of the other process continues.
        Some(_) => None,
        None => privileged::start(&config)?,
    };
    let has_helper = privileged::purpose(&config).is_some();
    let confinement = confinement::confine(&config, file, has_helper);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = config.node.threads {
        runtime.worker_threads(threads);
    }
    let runtime = runtime.enable_all().build().map_err(RunError::Runtime)?;
    let started = Started {
        own,
        provider,
        written,
        log,
        helper,
        confinement,
        launcher,
        channel,
    };
    runtime.block_on(Box::pin(serve::serve(config, started)))
}

/// What is there before the runtime is.
struct Started {
    /// The node's own configuration, and the settings that its provider has laid over it.
    own: Document,
    provider: KeptSettings,
    written: Document,
    log: Log,
    helper: Option<Helper>,
    confinement: Confinement,
    launcher: Launcher,
    /// Leads to the running process, if its node is to be taken over.
    channel: Option<Channel>,
}

fn background(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}
