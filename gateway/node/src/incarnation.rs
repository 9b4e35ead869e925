//! The count of this node's starts.
//!
//! Streams are told apart by the incarnation of the process that opened them,
//! so that a bundle of a former process never touches a new stream. The count
//! only grows, with or without a clock: a terminal boots without one.
//!
//! It begins at the time of the first start. A terminal whose state is lost, or
//! that replaces another one, has a number of which its peers remember streams:
//! from 1 on it would be taken for a process that has ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// Counts a start at `time` and makes the new count durable.
///
/// # Errors
/// Fails if the file can neither be read nor written.
pub fn next(state_dir: &Path, time: SystemTime) -> Result<u64, IncarnationError> {
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
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let since = time.duration_since(UNIX_EPOCH);
            since.as_ref().map_or(0, Duration::as_secs)
        }
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
        assert_eq!(next(state, UNIX_EPOCH).unwrap(), 1);
        assert_eq!(
            next(state, UNIX_EPOCH + Duration::from_secs(900)).unwrap(),
            2
        );
        assert_eq!(
            next(state, UNIX_EPOCH - Duration::from_secs(900)).unwrap(),
            3
        );
    }

    #[test]
    fn a_node_without_its_state_counts_on_above_what_it_had() {
        let [former, new] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let first = UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        let count = next(former.path(), first).unwrap();
        let count = (0..50).fold(count, |_, _| next(former.path(), first).unwrap());
        let later = first + Duration::from_secs(600);
        assert!(next(new.path(), later).unwrap() > count);
    }

    #[test]
    fn a_damaged_count_is_not_taken_for_zero() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("incarnation"), "x").unwrap();
        assert!(matches!(
            next(folder.path(), UNIX_EPOCH),
            Err(IncarnationError::Malformed { .. })
        ));
    }
}
