//! Bundle Protocol Security: the abstract security block of RFC 9172, the two
//! default security contexts of RFC 9173, and a node's policy for both.
//!
//! Nothing here has I/O or a clock. [`SecurityBlock`] reads and writes the
//! content of a security block. [`integrity`] is BIB-HMAC-SHA2, and
//! [`confidentiality`] is BCB-AES-GCM. A [`Guard`] holds a node's [`Rule`]s: it
//! secures the bundles that begin at the node, and says of those that come in
//! whether they are what the rules require.
//!
//! HMAC and AES-GCM are ring's, AES key wrap is RustCrypto's; results are
//! compared in constant time. Key material in this crate's own hands is zeroed
//! when it is dropped; the expanded keys inside of ring and RustCrypto are not.

mod acceptance;
mod block;
mod canonical;
pub mod confidentiality;
mod counters;
mod guard;
pub mod integrity;
mod keys;
mod rules;
mod scope;
mod sourcing;

pub use block::{
    BCB_AES_GCM, BIB_HMAC_SHA2, BlockError, MAX_PARAMETERS, MAX_TARGETS, Opaque, SecurityBlock,
    Value,
};
pub use canonical::canonical;
pub use counters::{Counts, Operation, Outcome};
pub use guard::Guard;
pub use keys::{Key, KeyError, MAX_KEY_BYTES, MIN_KEY_BYTES};
pub use rules::{MAX_KEYS, MAX_RULES, Pattern, PatternError, Rule};
pub use scope::{Header, Scope, Target};

/// Why a security operation is not what it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The result does not belong to these bytes and any of these keys.
    #[error("the security operation failed: altered bytes or another key")]
    Failed,
    /// A context, variant or parameter that is not of RFC 9173, or that this
    /// crate leaves out.
    #[error("the security operation is of a kind that is not supported")]
    Unknown,
    /// Parameters or results that contradict their context.
    #[error("the security block is malformed")]
    Malformed,
}
