//! What a provider sets of a node from afar: the policies of its classes, and its
//! paths. It is laid over the node's own configuration, which says what may be set,
//! and taken over as a reload is: all of it, or nothing.

mod kept;
mod settings;

pub use kept::{KeptSettings, Verdict};
pub use settings::{MOST_VERSION, SERVICE, Settings, SettingsError};
