//! Settings that a provider makes remotely: the policies of a node's classes, its paths, and at a
//! hub those of its terminals. They are laid over the node's own configuration, which says what may
//! be set, and applied like a reload: all of them, or none. A change is on trial until the node
//! hears its hub again, or a hub its terminals. If it does not, it rolls back to the former
//! settings.

mod concern;
mod kept;
mod settings;
mod trial;

pub use concern::{Concern, concerns};
pub use kept::{KeptSettings, Verdict};
pub use settings::{MOST_VERSION, SERVICE, Settings, SettingsError};
pub use trial::{Judgement, PathContact, Trial};
