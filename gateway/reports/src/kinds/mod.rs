//! What each kind of report says.

mod link;
mod place;
mod plan;

pub use link::{
    Blockage, BlockageSource, CapacityReason, LinkReport, LinkState, MeasuredCapacity, Status,
};
pub use place::{Announcement, Position};
pub use plan::PlanAcknowledgement;
