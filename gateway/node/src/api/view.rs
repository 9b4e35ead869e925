//! What the local API shows, as JSON.

mod custody;
mod paths;
mod sessions;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use underpass_bpsec::{Guard, Operation, Outcome};
use underpass_cla::Class;
use underpass_engine::StreamTotals;

use super::ApiState;
use super::contact_plan::ContactPlanView;
use super::control::ControlView;
use super::edge::EdgeSwitches;
use super::holds::HoldView;
use super::migrations::MigrationView;
use super::mptcp::MptcpView;
use super::plans::PlansView;
use crate::confinement::Confinement;
use crate::positions::PositionView;

pub use custody::{CustodyClassView, CustodyNeighbourView, CustodyView};
pub use paths::{HopFields, PathView, PlannedView};
pub use sessions::SessionView;

/// The node at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// The node's id, `ipn:N.0`.
    pub node: String,
    /// terminal, hub or relay.
    pub role: String,
    /// The program's version.
    pub version: String,
    /// Count of the node's starts.
    pub incarnation: u64,
    /// Since the start, s.
    pub uptime_s: f64,
    /// The hops to the neighbours.
    pub paths: Vec<PathView>,
    /// The present paths of the classes that move between paths.
    #[serde(default)]
    pub migrations: Vec<MigrationView>,
    /// What operators have set.
    #[serde(default)]
    pub holds: Vec<HoldView>,
    /// The classes' names in the order of their numbers.
    pub classes: Vec<String>,
    /// Streams by class name.
    pub streams: BTreeMap<String, StreamTotals>,
    /// The plans that the links follow, and those that are passed on.
    pub plans: PlansView,
    /// The contact plan that routes bundles; null without one.
    #[serde(default)]
    pub contact_plan: Option<ContactPlanView>,
    pub custody: CustodyView,
    /// Payloads on disk; null where there are none.
    #[serde(default)]
    pub payloads: Option<PayloadsView>,
    /// What came of the rules of `[bpsec]`.
    #[serde(default)]
    pub bpsec: BpsecView,
    /// What is taken in, and what is switched off.
    pub edge: EdgeSwitches,
    /// The contact with the control service; null without one.
    pub control: Option<ControlView>,
    /// Where it is; null where it has no receiver.
    pub position: Option<PositionView>,
    /// Congestion controls that this machine offers, and why others are missing.
    pub congestion_controls: Vec<String>,
    /// The source of object sizes; null without `[cdni]`.
    #[serde(default)]
    pub cdni: Option<underpass_cdni::Figures>,
    /// What the kernel was asked for MPTCP; null if no path uses it.
    #[serde(default)]
    pub mptcp: Option<MptcpView>,
    /// What its process may still do.
    #[serde(default)]
    pub confinement: Confinement,
}

/// Payloads that are too long for memory.
#[derive(Debug, Serialize, Deserialize)]
pub struct PayloadsView {
    pub count: usize,
    /// Their bytes, including those that are still to come.
    pub bytes: u64,
    /// The most there may be, bytes.
    pub quota_bytes: u64,
}

/// Bundles that the rules of `[bpsec]` were applied to.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct BpsecView {
    /// Rules in force.
    pub rules: usize,
    /// Bundles authenticated here, and bundles checked on arrival, by outcome.
    pub integrity: BTreeMap<String, u64>,
    /// Bundles encrypted here, and bundles decrypted on arrival, by outcome.
    pub confidentiality: BTreeMap<String, u64>,
}

impl BpsecView {
    fn of(guard: &Guard) -> BpsecView {
        let counts = |operation| {
            let outcomes = Outcome::ALL.into_iter();
            let counts = outcomes.map(|outcome| {
                let count = guard.counts().get(operation, outcome);
                (outcome.name().to_owned(), count)
            });
            counts.collect()
        };
        BpsecView {
            rules: guard.rules_in_force(),
            integrity: counts(Operation::Integrity),
            confidentiality: counts(Operation::Confidentiality),
        }
    }
}

impl ApiState {
    pub(super) fn class_name(&self, class: Class) -> String {
        let place = usize::from(class.0);
        let config = self.config.get();
        let named = config.classes.get(place).map(|class| &class.name);
        named.cloned().unwrap_or_else(|| class.to_string())
    }

    /// The node at this moment.
    pub fn status(&self) -> Status {
        let config = self.config.get();
        Status {
            node: format!("ipn:{}.0", config.node.number),
            role: config.node.role.name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            incarnation: self.incarnation,
            uptime_s: self.started.elapsed().as_secs_f64(),
            paths: self.paths(),
            migrations: self.migrations(),
            holds: self.holds_view(),
            classes: config.classes.iter().map(|c| c.name.clone()).collect(),
            streams: self.streams(),
            plans: self.plans_view(),
            contact_plan: self.contact_plan(),
            custody: self.custody(),
            payloads: self.payloads(),
            bpsec: BpsecView::of(&self.bpsec),
            edge: self.switches(),
            control: self.control(),
            position: self.positions.as_ref().map(|positions| positions.view()),
            congestion_controls: self.congestion_controls.clone(),
            cdni: self.cdni.as_ref().map(|cdni| cdni.figures()),
            mptcp: self.mptcp.state().map(MptcpView::of),
            confinement: self.confinement.clone(),
        }
    }

    pub(super) fn payloads(&self) -> Option<PayloadsView> {
        let payloads = self.shell.payloads()?;
        let (count, bytes) = payloads.used();
        Some(PayloadsView {
            count,
            bytes,
            quota_bytes: payloads.quota_bytes(),
        })
    }

    pub(super) fn streams(&self) -> BTreeMap<String, StreamTotals> {
        let totals = self.shell.stream_totals();
        let totals = totals.into_iter();
        totals
            .map(|(class, total)| (self.class_name(class), total))
            .collect()
    }
}
