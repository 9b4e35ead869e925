//! What the tests of all convergence layers share: a node that records its calls, and certificates.
#![allow(
    missing_docs,
    clippy::new_without_default,
    reason = "only tests use it"
)]

pub mod log;
pub mod node;
pub mod pki;
