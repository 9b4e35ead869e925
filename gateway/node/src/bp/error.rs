//! Why a command fails.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use underpass_applications::wire::{ErrorCode, FrameError};

use crate::client::ClientError;

/// Why a command fails.
#[derive(Debug, Error)]
pub enum BpError {
    #[error("no node answers at {socket}: {source}; is [applications] in its configuration?")]
    Connect { socket: PathBuf, source: io::Error },
    #[error("the connection to the node broke off: {0}")]
    Broken(#[from] io::Error),
    #[error("the node's answer is not understood: {0}")]
    Answer(#[from] FrameError),
    #[error("the node refuses: {message}")]
    Refused {
        code: ErrorCode,
        /// The same in words.
        message: String,
    },
    #[error(
        "{bytes} bytes are above {most}, the largest payload that this node takes in memory \
         (applications.max_payload_bytes)"
    )]
    TooLarge {
        /// The payload's bytes; it may have more.
        bytes: u64,
        most: u64,
    },
    #[error(
        "{bytes} bytes are above {most}, the largest payload that this node takes on disk \
         (payloads.max_payload_bytes); files are not split into several bundles"
    )]
    TooLong { bytes: u64, most: u64 },
    #[error("interrupted; nothing was sent")]
    Interrupted,
    #[error("interrupted before the node's answer; it may have been sent")]
    Unanswered,
    #[error("interrupted; what was not received as a whole waits at the node")]
    Stopped,
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    /// A number does not make sense.
    #[error("{0}")]
    Usage(String),
    #[error("nothing came back from {0}")]
    NoEcho(String),
    #[error("no delivery at {0} was reported")]
    NotDelivered(String),
    #[error("not an acceptable bundle: {0}")]
    Malformed(#[from] underpass_bundle::wire::Malformed),
    #[error(transparent)]
    Print(#[from] ClientError),
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}
