//! Bundles and payloads with arbitrary contents, which the project's own encoders would not
//! produce.

mod bundle;
mod frames;

pub use bundle::{Custodian, Endpoint, Forged};
pub use frames::{FrameBuilder, MOST, kind};
