//! The end of a process: it is told to end, or another one has taken its node over.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use underpass_edge::Edge;

use super::RunError;
use crate::config::Config;
use crate::shell::Shell;

/// How often an ending node checks whether its streams have ended.
pub(super) const DRAIN_GLANCE: Duration = Duration::from_millis(50);

/// How long a process stays at least after another one has taken its node over, for the last
/// answers of its local API.
const PARTING: Duration = Duration::from_secs(1);

/// Waits, after another process has taken the node over, until the exchanges that cannot move have
/// ended, at most `node.upgrade_s`.
pub(super) async fn part(
    config: &Config,
    shell: &Shell,
    edge: &Edge,
    stop: &mut Stop,
) -> Result<(), RunError> {
    let ended = async {
        edge.drain().await;
        while shell.has_bridges() {
            tokio::time::sleep(DRAIN_GLANCE).await;
        }
        tokio::time::sleep(PARTING).await;
    };
    let ended = tokio::time::timeout(Duration::from_secs(config.node.upgrade_s), ended);
    tokio::select! {
        outcome = ended => if outcome.is_err() {
            tracing::warn!(connections = edge.open_connections(), "connections cut");
        },
        () = stop.wait() => tracing::warn!("told to stop: not waiting for what is left"),
    }
    tracing::info!("nothing is left of this process' node");
    Ok(())
}

/// SIGTERM and SIGINT.
pub(super) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    pub(super) fn new() -> std::io::Result<Stop> {
        Ok(Stop {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
