//! Counts the outcomes of a node's security operations.

use std::sync::atomic::{AtomicU64, Ordering};

/// A kind of security operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// BIB-HMAC-SHA2.
    Integrity,
    /// BCB-AES-GCM.
    Confidentiality,
}

impl Operation {
    /// Both.
    pub const ALL: [Operation; 2] = [Operation::Integrity, Operation::Confidentiality];

    /// The operation's name in API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Integrity => "integrity",
            Operation::Confidentiality => "confidentiality",
        }
    }
}

/// The outcome of an operation on a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// This node has added the operation.
    Added,
    /// The operation was required and verified.
    Verified,
    /// The operation is required and missing: the bundle was refused.
    Missing,
    /// The result does not belong to these bytes and a known key: refused.
    Failed,
    /// The operation is of an unsupported kind: refused.
    Unknown,
    /// The operation contradicts another one or the rules of RFC 9172: refused.
    Conflicting,
    /// The security block cannot be parsed: refused.
    Malformed,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Outcome; 7] = [
        Outcome::Added,
        Outcome::Verified,
        Outcome::Missing,
        Outcome::Failed,
        Outcome::Unknown,
        Outcome::Conflicting,
        Outcome::Malformed,
    ];

    /// The outcome's name in API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Added => "added",
            Outcome::Verified => "verified",
            Outcome::Missing => "missing",
            Outcome::Failed => "failed",
            Outcome::Unknown => "unknown",
            Outcome::Conflicting => "conflicting",
            Outcome::Malformed => "malformed",
        }
    }
}

/// Bundles by operation and outcome, since the start.
#[derive(Debug, Default)]
pub struct Counts([[AtomicU64; Outcome::ALL.len()]; Operation::ALL.len()]);

impl Counts {
    pub(crate) fn count(&self, operation: Operation, outcome: Outcome) {
        self.0[operation as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Bundles with this outcome.
    pub fn get(&self, operation: Operation, outcome: Outcome) -> u64 {
        self.0[operation as usize][outcome as usize].load(Ordering::Relaxed)
    }
}
