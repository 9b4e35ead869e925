//! What can be wrong with a configuration.

use std::path::PathBuf;

use thiserror::Error;

use super::document::Place;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file is not the TOML this program knows.
    #[error("{place}: {message}")]
    Parse { place: Place, message: String },
    #[error("{key} is given twice: in {first} and in {second}")]
    Twice {
        key: String,
        first: Box<Place>,
        second: Box<Place>,
    },
    /// The values do not fit together; one line for each problem.
    #[error("{path}:\n{}", problems.iter().map(|p| format!("  - {p}")).collect::<Vec<_>>().join("\n"))]
    Invalid {
        path: PathBuf,
        problems: Vec<String>,
    },
}
