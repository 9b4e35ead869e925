//! Bundles and payloads that say whatever one likes: what the project's own
//! encoders do not let a node say.

mod bundle;
mod frames;

pub use bundle::{Custodian, Endpoint, Forged};
pub use frames::{FrameBuilder, MOST, kind};
