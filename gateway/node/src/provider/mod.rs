//! What a provider sets of a node from afar: the policies of its classes, and its
//! paths. It is laid over the node's own configuration, which says what may be set,
//! and taken over as a reload is: all of it, or nothing. A change is on trial until the
//! hub is heard again; if it is not, the former settings come back.

mod kept;
mod settings;
mod trial;

pub use kept::{KeptSettings, Verdict};
pub use settings::{MOST_VERSION, SERVICE, Settings, SettingsError};
pub use trial::{Judgement, PathContact, Trial};
