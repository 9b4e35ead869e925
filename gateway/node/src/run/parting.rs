//! The parts of a node that must have ended before another process takes it over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use underpass_applications as applications;
use underpass_control_client::Follower;
use underpass_deferred as deferred;

use super::reporting::Reporting;
use crate::api::Servers;

/// How long the last reports may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tasks and files that two processes cannot have at once.
pub struct Parting {
    pub(super) tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
    pub(super) reporting: Arc<Mutex<Option<Reporting>>>,
    pub(super) follower: Mutex<Option<Follower>>,
    pub(super) deferred: Option<deferred::Handle>,
    pub(super) applications: Option<applications::Service>,
    /// Callers from now on are the other process'.
    pub(super) api: Mutex<Option<Servers>>,
}

impl Parting {
    /// What prevents a call of [`Parting::end`], if anything.
    pub fn obstacle(&self) -> Option<&'static str> {
        let applications = self.applications.as_ref();
        let busy = applications.is_some_and(|applications| !applications.is_idle());
        busy.then_some("bundles for applications are not on the disk yet")
    }

    /// Ends them. Blocks.
    pub fn end(&self, runtime: &Handle) {
        drop(self.api.lock().unwrap().take());
        self.tasks.lock().unwrap().clear();
        drop(self.follower.lock().unwrap().take());
        let reporting = self.reporting.lock().unwrap().take();
        if let Some(reporting) = reporting {
            let finished = async { tokio::time::timeout(PATIENCE, reporting.finish()).await };
            if runtime.block_on(finished).is_err() {
                tracing::warn!("reports are not kept in time");
            }
        }
        if let Some(deferred) = &self.deferred {
            deferred.close();
        }
        if let Some(applications) = &self.applications {
            applications.close();
        }
    }
}
