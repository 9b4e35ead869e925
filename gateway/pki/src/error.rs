//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::serial::Serial;

/// Why an operation of the PKI failed.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PkiError {
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} holds an authority already; choose another folder", .0.display())]
    AuthorityExists(PathBuf),
    #[error("{} holds no authority; make one with `underpass pki init`", .0.display())]
    NoAuthority(PathBuf),
    #[error("another process works on {}; try again when it is done", .0.display())]
    Busy(PathBuf),
    #[error("node {0} has a certificate already; use `underpass pki renew`")]
    AlreadyIssued(u64),
    #[error("node {0} has no certificate; use `underpass pki issue`")]
    NotIssued(u64),
    #[error(
        "the certificate of node {0} is revoked; `underpass pki issue` makes a new one with a new key"
    )]
    NodeRevoked(u64),
    #[error(
        "{0} is no node number; it must be 1 to 2^64 − 1, and not 2^32 − 1, which means \"this node\""
    )]
    NodeNumber(u64),
    #[error("a validity of {0} days is not possible; give 1 to 36,500 days")]
    Validity(u64),
    #[error("the certificate of the authority has ended; make a new authority")]
    AuthorityEnded,
    #[error("{} is malformed: {reason}; restore it or have it issued again", path.display())]
    Malformed { path: PathBuf, reason: String },
    #[error("{} is missing; copy the node's whole folder from the authority's", .0.display())]
    Missing(PathBuf),
    #[error("everybody can read {path}; run `chmod 600 {path}`", path = .0.display())]
    Exposed(PathBuf),
    #[error(
        "{} and its certificate do not belong together; if this lasts, run `underpass pki renew`",
        .0.display()
    )]
    Mismatch(PathBuf),
    #[error("{} is not signed by the authority; copy it anew", .0.display())]
    RevocationListSignature(PathBuf),
    #[error("cannot sign: {0}")]
    Signing(#[from] rcgen::Error),
    #[error("the system gives no random numbers")]
    Random,
    #[error("every certificate of node {node} is revoked already (the last one is {last})")]
    AlreadyRevoked {
        node: u64,
        /// The serial number of its last certificate.
        last: Serial,
    },
    #[error("the certificate request is refused: {0}")]
    Request(String),
    #[error("the certificate request names node {named}, and this is for node {node}")]
    OtherNode { named: u64, node: u64 },
    #[error("this key has no certificate of node {0} in force; enrol the node again")]
    KeyUnknown(u64),
    /// A node's folder at the authority has a key, which may be in use.
    #[error("{} is there: this node's key was made here; move the folder away before the node is enrolled", .0.display())]
    KeyHere(PathBuf),
    #[error("the delivered {what} cannot be used: {reason}")]
    Delivered { what: &'static str, reason: String },
    /// Something else is in the way of what was delivered.
    #[error("{} is there already; --force replaces it", .0.display())]
    InTheWay(PathBuf),
    #[error("{0:?} is neither a DNS name nor an IP address")]
    ServerName(String),
}

impl PkiError {
    /// Whether the request is at fault, and not this machine.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            PkiError::Request(_)
                | PkiError::OtherNode { .. }
                | PkiError::KeyUnknown(_)
                | PkiError::KeyHere(_)
                | PkiError::NodeRevoked(_)
                | PkiError::NotIssued(_)
                | PkiError::NodeNumber(_)
                | PkiError::AlreadyRevoked { .. }
        )
    }
}
