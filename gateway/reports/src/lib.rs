//! A node's reports about itself, on their way to their readers: status each second, positions as
//! they are measured, blockages, announcements and plans taken over as they happen.
//!
//! [`Message`] is the payload of a bundle, as `docs/control-protocol.md` specifies it. [`Outbox`]
//! decides what leaves when: the newest report of each kind first, and then, in batches, those that
//! a blockage has delayed. Both are free of I/O and clocks.

mod kinds;
mod message;
mod outbox;
mod report;

pub use kinds::{
    Announcement, Blockage, BlockageSource, CapacityReason, ClassFigures, LinkFigures, LinkReport,
    LinkState, MAX_CLASS_NAME_BYTES, MAX_CLASSES, MeasuredCapacity, NodeReport,
    PlanAcknowledgement, Position, Proof, SettingsOutcome, SettingsState, Status,
};
pub use message::{MAX_MESSAGE_BYTES, MAX_REPORTS, Message, MessageError, SERVICE};
pub use outbox::{Batch, Outbox, Urgency};
pub use report::{
    Body, EFFICIENCIES, Kind, MAX_LINKS, MAX_NAME_BYTES, MAX_VERSION_CHARS, Report, ReportError,
    Stamps,
};
