//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use underpass_control_client::{ConfigError as ServiceConfigError, ServiceError};
use underpass_pki::PkiError;

use crate::config::ConfigError;

/// Why a node is not enrolled.
#[derive(Debug, Error)]
pub enum EnrolError {
    /// What was given is not a token.
    #[error("this is no token of an enrolment (upe_…): copy it whole, or have another one made")]
    Token,
    /// The address is not one of HTTPS.
    #[error(
        "{0:?}: must be https://HOST[:PORT]: the token must not go over the network in the clear"
    )]
    NotEncrypted(String),
    /// A file is in the way.
    #[error("{} is there already: this node has been set up; --force replaces configuration, key and certificates", .0.display())]
    InTheWay(PathBuf),
    /// A file or folder cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Key or certificates.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The service cannot be asked at all.
    #[error(transparent)]
    Config(#[from] ServiceConfigError),
    /// The service does not answer, or refuses.
    #[error("the control service: {0}")]
    Service(#[from] ServiceError),
    /// The answer is not what this version knows.
    #[error("the service's answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    /// The answer is for another node.
    #[error("the service's answer is for node {0}, and the token for node {1}")]
    OtherNode(u64, u64),
    /// The configuration cannot be used.
    #[error("the delivered configuration cannot be used, and nothing was written: {0}")]
    Configuration(String),
    /// The delivered configuration is not valid on this machine.
    #[error(transparent)]
    Check(#[from] ConfigError),
    /// The runtime does not start.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}

impl EnrolError {
    /// Whether the service has refused the token, so that trying again is useless.
    pub fn is_final(&self) -> bool {
        let EnrolError::Service(ServiceError::Status { status, .. }) = self else {
            return false;
        };
        matches!(status.as_u16(), 401 | 403 | 409 | 410 | 422)
    }
}
