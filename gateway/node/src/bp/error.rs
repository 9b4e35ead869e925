//! Why a command fails.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use underpass_applications::wire::{ErrorCode, FrameError};

use crate::client::ClientError;

/// Why a command fails.
#[derive(Debug, Error)]
pub enum BpError {
    /// No node answers at the socket.
    #[error("no node answers at {socket}: {source}; is [applications] in its configuration?")]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The node has ended the connection.
    #[error("the connection to the node broke off: {0}")]
    Broken(#[from] io::Error),
    /// The node is of another version.
    #[error("the node's answer is not understood: {0}")]
    Answer(#[from] FrameError),
    /// The node refuses.
    #[error("the node refuses: {message}")]
    Refused {
        /// Why.
        code: ErrorCode,
        /// The same in words.
        message: String,
    },
    /// The payload does not fit into a bundle of this node.
    #[error(
        "{bytes} bytes are above {most}, the largest payload that this node takes in memory \
         (applications.max_payload_bytes)"
    )]
    TooLarge {
        /// The payload's bytes; it may have more.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// The payload would wait on disk, and the node has no room there.
    #[error(
        "{bytes} bytes are above {most}, the largest payload that this node takes on disk \
         (payloads.max_payload_bytes); files are not split into several bundles"
    )]
    TooLong {
        /// The payload's bytes.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// The user has ended it before a payload was sent.
    #[error("interrupted; nothing was sent")]
    Interrupted,
    /// The user has ended it before the node had answered.
    #[error("interrupted before the node's answer; it may have been sent")]
    Unanswered,
    /// The user has ended it.
    #[error("interrupted; what was not received as a whole waits at the node")]
    Stopped,
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A number does not make sense.
    #[error("{0}")]
    Usage(String),
    /// Nothing has come back.
    #[error("nothing came back from {0}")]
    NoEcho(String),
    /// Nobody has reported delivery.
    #[error("no delivery at {0} was reported")]
    NotDelivered(String),
    /// The bytes are no bundle that a node would take.
    #[error("not an acceptable bundle: {0}")]
    Malformed(#[from] underpass_bundle::wire::Malformed),
    /// The answer cannot be printed.
    #[error(transparent)]
    Print(#[from] ClientError),
    /// The runtime does not start.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}
