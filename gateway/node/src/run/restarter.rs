//! Ends the parts that must end before a node is handed over to another process, and begins them
//! again if the hand-over fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;
use underpass_bundle::Store;
use underpass_cla::SessionInfo;
use underpass_engine::Engine;
use underpass_store::OpenError;

use super::beacons;
use super::custody::{self, OpenCustody};
use super::links::Links;
use super::on_demand;
use super::plans::Plans;
use super::reload::{HeldConfig, Reloader};
use crate::config::{ConvergenceLayer, Current, PathConfig};
use crate::holds::KeptHolds;
use crate::shell::Shell;

/// Ends sessions, beacons and the custody store, and begins them again.
pub struct Restarter {
    pub(super) shell: Arc<Shell>,
    pub(super) links: Arc<Links>,
    pub(super) beacons: Arc<beacons::Opener>,
    pub(super) plans: Arc<Plans>,
    pub(super) holds: Arc<KeptHolds>,
    pub(super) custody: Arc<OpenCustody>,
    pub(super) reloader: Arc<Reloader>,
    pub(super) current: Arc<Current>,
}

impl Restarter {
    /// Keeps the configuration as it is.
    pub fn hold_config(&self) -> HeldConfig<'_> {
        self.reloader.hold()
    }

    /// The paths on demand that are up.
    pub fn brought_up(&self) -> BTreeSet<String> {
        on_demand::brought_up(&self.shell, &self.current.get())
    }

    /// No session begins any more in this process: peers that dial set their sessions up with the
    /// next process, and that process dials for this node. Returns how many sessions that will be,
    /// by the peers' node ids.
    pub fn make_way(&self) -> BTreeMap<String, usize> {
        self.links.hold(true);
        let config = self.current.get();
        let mut sessions = BTreeMap::new();
        let mut expect = |node: u64, count| {
            *sessions.entry(format!("ipn:{node}.0")).or_default() += count;
        };
        // The other process dials a daemon once it has the node.
        let early = |path: &&PathConfig| path.convergence_layer != ConvergenceLayer::Ecla;
        for path in config.paths.iter().filter(early) {
            if let Some(hop) = self.shell.hop_named(&path.name) {
                let classes = |engine: &Engine| engine.carried_classes(hop);
                expect(path.neighbour, self.shell.read_hop(hop, classes));
            }
        }
        // It reads the ports of listeners over QUIC once it has the node.
        let can_take = |info: &SessionInfo| info.convergence_layer != "quic";
        for accepted in config.accepted_hops() {
            if let Some(hop) = self.shell.hop_named(&accepted.name) {
                let end = |engine: &mut Engine, now| engine.end_standbys(now, hop, can_take);
                expect(accepted.node, self.shell.with_hop(hop, end));
            }
        }
        sessions.retain(|_, count| *count > 0);
        sessions
    }

    /// Sessions begin in this process again, after [`Restarter::make_way`].
    pub fn stay(&self) {
        self.links.hold(false);
        self.links.read(true);
    }

    /// Sessions are another process' from now on.
    pub fn leave(&self) {
        self.links.leave();
    }

    /// No session begins any more, and no beacon is sent or heard.
    pub fn end_sessions(&self) {
        self.links.hold(true);
        self.links.read(false);
        if let Some(beacons) = self.shell.beacons() {
            beacons.clear();
        }
    }

    /// Numbers of the sessions of LTP whose blocks were not received to the end, by path; none
    /// while a session over UDP or LTP has not ended.
    pub fn unfinished_blocks(&self) -> Option<BTreeMap<String, Vec<u64>>> {
        self.links.unfinished_blocks()
    }

    /// Sessions and beacons begin again. Failures of beacons are only logged: the sockets exist
    /// already.
    pub fn begin_sessions(&self) {
        let config = self.current.get();
        on_demand::go_on(&self.shell, &self.links.dialled_on_demand(&config));
        self.holds.apply(&self.shell, &config);
        if let Some(beacons) = self.shell.beacons()
            && let Err(error) = self.beacons.open(&config, &self.shell, beacons)
        {
            tracing::error!(%error, "no beacons any more");
        }
        self.stay();
        self.plans.restore();
    }

    /// Closes the custody store, after the engines have released it.
    pub fn close_store(&self) {
        if let Some((custody, watch)) = self.custody.take() {
            drop::<AbortOnDropHandle<()>>(watch);
            custody.close_now();
        }
    }

    /// Opens it again.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open_store(&self) -> Result<Vec<Box<dyn Store>>, OpenError> {
        let config = self.current.get();
        let shard_of = |node| self.shell.shard_of(node);
        let (stores, custody) = custody::open(&config, shard_of)?;
        if let Some(custody) = custody {
            self.custody.set(custody, &self.shell);
        }
        Ok(stores)
    }
}
