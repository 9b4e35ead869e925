//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::serial::Serial;

/// Why an operation of the PKI failed.
#[derive(Debug, Error)]
pub enum PkiError {
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// There is an authority in the folder already.
    #[error("{} holds an authority already; choose another folder", .0.display())]
    AuthorityExists(PathBuf),
    /// There is no authority in the folder.
    #[error("{} holds no authority; make one with `underpass pki init`", .0.display())]
    NoAuthority(PathBuf),
    /// Another process works on the authority.
    #[error("another process works on {}; try again when it is done", .0.display())]
    Busy(PathBuf),
    /// The node has a valid certificate already.
    #[error("node {0} has a certificate already; use `underpass pki renew`")]
    AlreadyIssued(u64),
    /// The node has no certificate.
    #[error("node {0} has no certificate; use `underpass pki issue`")]
    NotIssued(u64),
    /// The node's certificate is revoked.
    #[error(
        "the certificate of node {0} is revoked; `underpass pki issue` makes a new one with a new key"
    )]
    NodeRevoked(u64),
    /// No node can have this number.
    #[error(
        "{0} is no node number; it must be 1 to 2^64 − 1, and not 2^32 − 1, which means \"this node\""
    )]
    NodeNumber(u64),
    /// The validity is no sensible time.
    #[error("a validity of {0} days is not possible; give 1 to 36,500 days")]
    Validity(u64),
    /// The authority's own certificate has ended.
    #[error("the certificate of the authority has ended; make a new authority")]
    AuthorityEnded,
    /// A file does not hold what it should.
    #[error("{} is malformed: {reason}; restore it or have it issued again", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file is missing from a node's folder.
    #[error("{} is missing; copy the node's whole folder from the authority's", .0.display())]
    Missing(PathBuf),
    /// Everybody can read a private key.
    #[error("everybody can read {path}; run `chmod 600 {path}`", path = .0.display())]
    Exposed(PathBuf),
    /// Certificate and key do not belong together.
    #[error(
        "{} and its certificate do not belong together; if this lasts, run `underpass pki renew`",
        .0.display()
    )]
    Mismatch(PathBuf),
    /// A revocation list was not signed by a certificate that is trusted.
    #[error("{} is not signed by the authority; copy it anew", .0.display())]
    RevocationListSignature(PathBuf),
    /// A certificate could not be signed.
    #[error("cannot sign: {0}")]
    Signing(#[from] rcgen::Error),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// Nothing of this node is left to revoke.
    #[error("every certificate of node {node} is revoked already (the last one is {last})")]
    AlreadyRevoked {
        /// The node.
        node: u64,
        /// The serial number of its last certificate.
        last: Serial,
    },
    /// A request cannot be signed.
    #[error("the certificate request is refused: {0}")]
    Request(String),
    /// A request names another node than the one it is made for.
    #[error("the certificate request names node {named}, and this is for node {node}")]
    OtherNode {
        /// The node of the request.
        named: u64,
        /// The node that may ask.
        node: u64,
    },
    /// A renewal is asked for by a key without a present certificate.
    #[error("this key has no certificate of node {0} in force; enrol the node again")]
    KeyUnknown(u64),
    /// A node's folder at the authority has a key, which may be in use.
    #[error("{} is there: this node's key was made here; move the folder away before the node is enrolled", .0.display())]
    KeyHere(PathBuf),
    /// What was delivered to a node is not for it.
    #[error("the delivered {what} cannot be used: {reason}")]
    Delivered {
        /// Which part.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Something else is in the way of what was delivered.
    #[error("{} is there already; --force replaces it", .0.display())]
    InTheWay(PathBuf),
    /// A server cannot have this name.
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
