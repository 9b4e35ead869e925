//! The settings in force, over restarts, and what has become of the last ones.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::settings::{MAX_BYTES, Settings, SettingsError};
use crate::state_files;

const FILE: &str = "settings.json";

/// What is known of settings that come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are in force.
    Applied,
    /// They were refused, for this reason.
    Refused(String),
    /// Newer ones are known.
    Old,
}

#[derive(Debug, Default)]
struct Kept {
    in_force: Option<Arc<Settings>>,
    refused: Option<(u64, String)>,
}

/// The file, and what it says.
#[derive(Debug)]
pub struct KeptSettings {
    file: PathBuf,
    kept: Mutex<Kept>,
}

impl KeptSettings {
    /// Of a node with this state folder. A file that cannot be read sets nothing,
    /// and is an error for the log.
    pub fn load(state_dir: &Path) -> (KeptSettings, Option<SettingsFileError>) {
        let file = state_dir.join(FILE);
        let (in_force, error) = match read(&file) {
            Ok(settings) => (settings.map(Arc::new), None),
            Err(error) => (None, Some(error)),
        };
        let kept = Kept {
            in_force,
            refused: None,
        };
        let kept = Mutex::new(kept);
        (KeptSettings { file, kept }, error)
    }

    /// The settings in force.
    pub fn in_force(&self) -> Option<Arc<Settings>> {
        self.lock().in_force.clone()
    }

    /// What is known of settings of this version; none if they are new.
    pub fn verdict(&self, version: u64) -> Option<Verdict> {
        let kept = self.lock();
        let in_force = kept.in_force.as_ref().map_or(0, |known| known.settings);
        let refused = kept.refused.as_ref().map_or(0, |(version, _)| *version);
        match &kept.refused {
            Some((of, reason)) if *of == version => Some(Verdict::Refused(reason.clone())),
            _ if version == in_force => Some(Verdict::Applied),
            _ if version < in_force.max(refused) => Some(Verdict::Old),
            _ => None,
        }
    }

    /// These are in force from now on.
    ///
    /// # Errors
    /// When that is not written down: they are in force all the same.
    pub fn keep(&self, settings: Arc<Settings>) -> Result<(), SettingsFileError> {
        let mut kept = self.lock();
        kept.refused = None;
        kept.in_force = Some(settings.clone());
        let document = settings.encode()?;
        state_files::replace(&self.file, &document)?;
        Ok(())
    }

    /// These are not in force: they were refused, or the node's own configuration
    /// has no room for them any more.
    pub fn refuse(&self, version: u64, reason: &str) {
        self.lock().refused = Some((version, reason.to_owned()));
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }
}

/// Why the file is not used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsFileError {
    /// It cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// It has no settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

fn read(file: &Path) -> Result<Option<Settings>, SettingsFileError> {
    match fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > MAX_BYTES as u64 => {
            return Err(SettingsError::Large(usize::MAX).into());
        }
        _ => {}
    }
    Ok(Some(Settings::decode(&fs::read(file)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(version: u64) -> Arc<Settings> {
        Arc::new(Settings::new(version, 10, Vec::new(), Vec::new()))
    }

    #[test]
    fn what_is_in_force_is_there_for_the_next_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let (kept, error) = KeptSettings::load(folder.path());
        assert!(error.is_none() && kept.in_force().is_none());
        assert_eq!(kept.verdict(1), None);
        kept.keep(settings(5)).expect("written");
        kept.refuse(8, "no such class");
        assert_eq!(kept.verdict(5), Some(Verdict::Applied));
        let refused = Verdict::Refused("no such class".to_owned());
        assert_eq!(kept.verdict(8), Some(refused));
        for old in [4, 7] {
            assert_eq!(kept.verdict(old), Some(Verdict::Old));
        }
        assert_eq!(kept.verdict(9), None);
        let (next, _) = KeptSettings::load(folder.path());
        assert_eq!(next.in_force(), Some(settings(5)));
        // What was refused may fit by now.
        assert_eq!(next.verdict(8), None);
    }

    #[test]
    fn nonsense_in_the_file_sets_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FILE), "{").expect("written");
        let (kept, error) = KeptSettings::load(folder.path());
        assert!(error.is_some() && kept.in_force().is_none());
    }
}
