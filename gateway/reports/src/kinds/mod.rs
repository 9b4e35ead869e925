//! What each kind of report says.

mod link;
mod place;
mod plan;
mod settings;

pub use link::{
    Blockage, BlockageSource, CapacityReason, ClassFigures, LinkFigures, LinkReport, LinkState,
    MAX_CLASS_NAME_BYTES, MAX_CLASSES, MeasuredCapacity, NodeReport, Proof, Status,
};
pub use place::{Announcement, Position};
pub use plan::PlanAcknowledgement;
pub use settings::{MAX_REASON_BYTES, SettingsOutcome, SettingsState};
