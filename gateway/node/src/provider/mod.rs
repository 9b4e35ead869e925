//! What a provider sets of a node from afar: the policies of its classes, its paths, and
//! at a hub those of its terminals. It is laid over the node's own configuration, which
//! says what may be set, and taken over as a reload is: all of it, or nothing. A change
//! is on trial until the hub is heard again, at a hub its terminals; if they are not,
//! the former settings come back.

mod concern;
mod kept;
mod settings;
mod trial;

pub use concern::{Concern, concerns};
pub use kept::{KeptSettings, Verdict};
pub use settings::{MOST_VERSION, SERVICE, Settings, SettingsError};
pub use trial::{Judgement, PathContact, Trial};
