//! What the tests of all convergence layers have in common: a node that writes
//! down what it is told, and certificates.
#![allow(
    missing_docs,
    clippy::new_without_default,
    reason = "only tests use it"
)]

pub mod node;
pub mod pki;
