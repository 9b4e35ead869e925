//! The count of this node's starts.
//!
//! Streams are told apart by the incarnation of the process that opened them,
//! so that a bundle of a former process never touches a new stream. The count
//! only grows, with or without a clock: a terminal boots without one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::state_files;

/// Why the count of starts cannot be kept.
#[derive(Debug, Error)]
pub enum IncarnationError {
    /// The state folder is not usable.
    #[error("node.state_dir: cannot use {path}: {source}")]
    Folder {
        /// The file or folder concerned.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{path} is no count of starts: remove it only if no peer has streams with this node")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

/// Counts this start and makes the new count durable.
///
/// # Errors
/// Fails if the file can neither be read nor written.
pub fn next(state_dir: &Path) -> Result<u64, IncarnationError> {
    let path = state_dir.join("incarnation");
    let failed = |source| IncarnationError::Folder {
        path: path.clone(),
        source,
    };
    let former = match fs::read_to_string(&path) {
        Ok(text) => text
            .trim()
            .parse::<u64>()
            .map_err(|_| IncarnationError::Malformed { path: path.clone() })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(failed(error)),
    };
    let next = former + 1;
    state_files::replace(&path, format!("{next}\n").as_bytes()).map_err(failed)?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_has_a_higher_count() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path();
        assert_eq!(next(state).unwrap(), 1);
        assert_eq!(next(state).unwrap(), 2);
        assert_eq!(next(state).unwrap(), 3);
    }

    #[test]
    fn a_damaged_count_is_not_taken_for_zero() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("incarnation"), "x").unwrap();
        assert!(matches!(
            next(folder.path()),
            Err(IncarnationError::Malformed { .. })
        ));
    }
}
