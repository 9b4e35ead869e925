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
    #[error("this is no token of an enrolment (upe_…): copy it whole, or have another one made")]
    Token,
    #[error(
        "{0:?}: must be https://HOST[:PORT]: the token must not go over the network in the clear"
    )]
    NotEncrypted(String),
    #[error("{} is there already: this node has been set up; --force replaces configuration, key and certificates", .0.display())]
    InTheWay(PathBuf),
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Config(#[from] ServiceConfigError),
    #[error("the control service: {0}")]
    Service(#[from] ServiceError),
    #[error("the service's answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("the service's answer is for node {0}, and the token for node {1}")]
    OtherNode(u64, u64),
    #[error("the delivered configuration cannot be used, and nothing was written: {0}")]
    Configuration(String),
    /// The delivered configuration is not valid on this machine.
    #[error(transparent)]
    Check(#[from] ConfigError),
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
