//! What can be wrong with a configuration.

use std::path::PathBuf;

use thiserror::Error;

use super::document::Place;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is not the TOML this program knows.
    #[error("{place}: {message}")]
    Parse {
        /// Where.
        place: Place,
        /// Why.
        message: String,
    },
    /// Two files give one key.
    #[error("{key} is given twice: in {first} and in {second}")]
    Twice {
        /// The key.
        key: String,
        /// Where it is given first.
        first: Box<Place>,
        /// Where again.
        second: Box<Place>,
    },
    /// The values do not fit together; one line for each problem.
    #[error("{path}:\n{}", problems.iter().map(|p| format!("  - {p}")).collect::<Vec<_>>().join("\n"))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problems: Vec<String>,
    },
}
