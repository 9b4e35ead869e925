//! Bundle Protocol Security: the abstract security block of RFC 9172, the two
//! default security contexts of RFC 9173, and a node's policy for both.
//!
//! Nothing here has I/O of its own or a clock; a payload on disk is read and written through its
//! handle. [`SecurityBlock`] reads and writes the content of a security block. [`integrity`] is
//! BIB-HMAC-SHA2, and [`confidentiality`] is BCB-AES-GCM. A [`Guard`] holds a node's [`Rule`]s: it
//! secures the bundles that begin at the node, and checks received bundles against the rules.
//!
//! HMAC and AES-GCM are from ring, AES key wrap is from RustCrypto. For contents that are too long
//! for memory, AES-GCM is made here of RustCrypto's AES, CTR and GHASH. Results are compared in
//! constant time. This crate zeroes its own key material when it drops it; expanded AES keys of
//! RustCrypto are zeroed, too, and what ring and its GHASH derive from a key is not.

mod acceptance;
mod block;
mod canonical;
pub mod confidentiality;
mod counters;
mod gcm;
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

/// Why a security operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No key gives this result for these bytes.
    #[error("the security operation failed: altered bytes or another key")]
    Failed,
    /// The context, variant or parameter is not in RFC 9173, or this crate does not
    /// support it.
    #[error("the security operation is of a kind that is not supported")]
    Unknown,
    /// The parameters or results contradict their context.
    #[error("the security block is malformed")]
    Malformed,
    /// The payload is on disk, and the disk fails.
    #[error("the payload cannot be read")]
    Unread,
}
