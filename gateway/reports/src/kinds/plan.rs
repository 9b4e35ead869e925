//! Of plans: which is in force.

use serde::{Deserialize, Serialize};

use underpass_plans::Direction;

/// A plan that a node follows from now on; reported at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanAcknowledgement {
    /// The beam, by its name.
    pub beam: String,
    /// Which of its links.
    pub link: Direction,
    /// The plan's version.
    pub plan: u64,
    /// When it was taken over, ms since the Unix epoch, by the control
    /// service's clock.
    pub applied_ms: u64,
    /// The terminal that follows it, by its ipn node number; absent if the
    /// node is a hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<u64>,
}
