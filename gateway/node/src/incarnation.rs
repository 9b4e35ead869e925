//! The count of this node's starts.
//!
//! Streams are told apart by the incarnation of the process that opened them,
//! so that a bundle of a former process never touches a new stream. The count
//! only grows, with or without a clock: a terminal boots without one.
//!
//! The count begins at the time of the first start, in seconds. The peers of a terminal that has
//! lost its state, or that replaces another one, remember streams of its node number: if it counted
//! from 1, they would take it for a process that has ended.
//!
//! A new run also finds out whether the previous one has ended. If so, peers may give it what was
//! meant for that run and missed it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

use crate::state_files;

/// Why the count of starts cannot be kept.
#[derive(Debug, Error)]
pub enum IncarnationError {
    #[error("node.state_dir: cannot use {path}: {source}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("{path} is no count of starts: remove it only if no peer has streams with this node")]
    Malformed { path: PathBuf },
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

/// Shows that a process of the node runs, for as long as it has this. Each process holds a shared
/// lock on one file in the state folder.
#[derive(Debug)]
pub struct Presence {
    _lock: Flock<File>,
}

#[derive(Debug)]
pub struct NewRun {
    pub incarnation: u64,
    /// Since when no process of the previous run is left, if that is known.
    pub alone_since: Option<Instant>,
    /// That of its first process.
    pub presence: Presence,
}

impl Presence {
    /// Of the first process of a run that begins at `time`. Counts the run, too.
    ///
    /// # Errors
    /// When the state folder cannot be used.
    pub fn of_run(state_dir: &Path, time: SystemTime) -> Result<NewRun, IncarnationError> {
        let (path, turns) = (presence_in(state_dir), state_dir.join("starting"));
        // This lock makes runs check for other processes in the order in which they are counted.
        let turn = open(&turns).and_then(|file| lock(file, FlockArg::LockExclusive));
        let _turn = turn.map_err(|source| folder_error(&turns, source))?;
        let incarnation = next(state_dir, time)?;
        let failed = |source| folder_error(&path, source);
        // A process of a version that does not write this file leaves no trace.
        let left = fs::read_to_string(&path);
        let traced = left.is_ok_and(|run| run == trace(incarnation - 1));
        fs::write(&path, trace(incarnation)).map_err(failed)?;
        let file = open(&path).map_err(failed)?;
        let (presence, alone_since) = match lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(alone) => {
                let alone_since = traced.then(Instant::now);
                let shared = alone.relock(FlockArg::LockShared);
                shared.map_err(|errno| failed(errno.into()))?;
                (Presence { _lock: alone }, alone_since)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                (Presence::beside(state_dir)?, None)
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(NewRun {
            incarnation,
            alone_since,
            presence,
        })
    }

    /// Of a process beside others.
    ///
    /// # Errors
    /// When the state folder cannot be used.
    pub fn beside(state_dir: &Path) -> Result<Presence, IncarnationError> {
        let path = presence_in(state_dir);
        let present = open(&path).and_then(|file| lock(file, FlockArg::LockShared));
        let present = present.map_err(|source| folder_error(&path, source))?;
        Ok(Presence { _lock: present })
    }

    /// Keeps this until the process ends: it may still take something in while it ends or fails.
    pub fn stay(self) {
        std::mem::forget(self);
    }
}

fn presence_in(state_dir: &Path) -> PathBuf {
    state_dir.join("presence")
}

/// What the file has since a run began.
fn trace(incarnation: u64) -> String {
    format!("{incarnation}\n")
}

fn folder_error(path: &Path, source: io::Error) -> IncarnationError {
    let path = path.to_owned();
    IncarnationError::Folder { path, source }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false);
    // NFS needs write access for an exclusive lock, and read access for a shared one.
    options.read(true).write(true).open(path)
}

fn lock(file: File, how: FlockArg) -> io::Result<Flock<File>> {
    Flock::lock(file, how).map_err(|(_, errno)| errno.into())
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
    fn a_run_knows_that_it_is_alone_if_the_one_before_left_a_trace_and_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let begin = || Presence::of_run(folder.path(), time).unwrap();
        let first = begin();
        assert_eq!(first.alone_since, None, "one without a trace may be there");
        let second = begin();
        assert_eq!(second.incarnation, first.incarnation + 1);
        assert_eq!(second.alone_since, None, "the first one is there");
        drop(first);
        assert_eq!(begin().alone_since, None, "the second one is there");
        // Another process takes over from it.
        let successor = Presence::beside(folder.path()).unwrap();
        drop(second);
        assert_eq!(begin().alone_since, None);
        let before = Instant::now();
        drop(successor);
        let alone_since = begin().alone_since;
        assert!(alone_since.is_some_and(|since| since >= before));
        // A process of a version that leaves no record may run again.
        next(folder.path(), time).unwrap();
        assert_eq!(begin().alone_since, None);
        assert!(begin().alone_since.is_some());
    }

    #[test]
    fn a_file_that_is_locked_may_be_read_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = presence_in(folder.path());
        fs::write(&path, trace(7)).unwrap();
        let file = lock(open(&path).unwrap(), FlockArg::LockShared).unwrap();
        assert_eq!(io::read_to_string(&*file).unwrap(), "7\n");
        file.set_len(0).unwrap();
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
