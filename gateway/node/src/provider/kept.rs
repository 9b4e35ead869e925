//! Keeps the settings in force over restarts, and the outcome of the last ones.
//!
//! `settings.json` has the confirmed settings, `settings-trial.json` those on trial and those that
//! were rolled back. Settings on trial are written to disk before they are in force: if they crash
//! the node, it counts its starts, and returns to the confirmed settings.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use underpass_reports::SettingsOutcome;

use super::concern::Concern;
use super::settings::{MAX_BYTES, Settings, SettingsError};
use crate::state_files;

const CONFIRMED_FILE: &str = "settings.json";
const TRIAL_FILE: &str = "settings-trial.json";

/// Most bytes of a file: settings, names of paths, a reason.
const MOST_FILE_BYTES: u64 = 4 * MAX_BYTES as u64;

/// After this many starts of the node in one trial, the change is considered the cause.
const MOST_STARTS: u32 = 3;

/// What is known of settings that come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are in force while the node checks whether it hears the hub.
    OnTrial,
    /// They are in force.
    Confirmed,
    /// They were in force and were rolled back for this reason.
    RolledBack(String),
    /// They were refused, for this reason.
    Refused(String),
    /// Newer ones are known.
    Old,
}

impl Verdict {
    /// The outcome that is reported for this version; none if newer ones are known.
    pub fn outcome(&self, version: u64) -> Option<SettingsOutcome> {
        Some(match self {
            Verdict::OnTrial => SettingsOutcome::on_trial(version),
            Verdict::Confirmed => SettingsOutcome::confirmed(version),
            Verdict::RolledBack(reason) => SettingsOutcome::rolled_back(version, reason),
            Verdict::Refused(reason) => SettingsOutcome::refused(version, reason),
            Verdict::Old => return None,
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct OnTrial {
    pub settings: Arc<Settings>,
    pub concerns: Vec<Concern>,
    /// How often the node has started since.
    starts: u32,
}

/// Settings that were taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RolledBack {
    version: u64,
    reason: String,
}

#[derive(Debug, Default)]
struct Kept {
    confirmed: Option<Arc<Settings>>,
    trial: Option<OnTrial>,
    rolled_back: Option<RolledBack>,
    refused: Option<(u64, String)>,
}

/// The second file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    trial: Option<WrittenTrial>,
    rolled_back: Option<RolledBack>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTrial {
    /// The document.
    settings: Box<RawValue>,
    /// If both this and the listeners are empty, no path in particular is concerned.
    paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    listeners: Vec<WrittenListener>,
    starts: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenListener {
    name: String,
    paths: BTreeSet<String>,
}

impl WrittenTrial {
    fn of(trial: &OnTrial) -> Result<WrittenTrial, SettingsError> {
        let document = String::from_utf8_lossy(&trial.settings.encode()?).into_owned();
        let mut written = WrittenTrial {
            settings: RawValue::from_string(document)?,
            paths: Vec::new(),
            listeners: Vec::new(),
            starts: trial.starts,
        };
        for concern in trial.concerns.iter().cloned() {
            match concern {
                Concern::Any => {}
                Concern::Path(name) => written.paths.push(name),
                Concern::Listener { name, paths } => {
                    written.listeners.push(WrittenListener { name, paths });
                }
            }
        }
        Ok(written)
    }

    fn read(self) -> Result<OnTrial, SettingsError> {
        let settings = Settings::decode(self.settings.get().as_bytes())?;
        let listeners = self.listeners.into_iter().map(|written| Concern::Listener {
            name: written.name,
            paths: written.paths,
        });
        let paths = self.paths.into_iter().map(Concern::Path);
        let mut concerns: Vec<Concern> = paths.chain(listeners).collect();
        if concerns.is_empty() {
            concerns.push(Concern::Any);
        }
        Ok(OnTrial {
            settings: Arc::new(settings),
            concerns,
            starts: self.starts,
        })
    }
}

/// The files, and what they say.
#[derive(Debug)]
pub struct KeptSettings {
    folder: PathBuf,
    kept: Mutex<Kept>,
}

impl KeptSettings {
    /// The settings of a starting node with this state folder. A file that cannot be read has no
    /// effect; its error is for the log.
    pub fn load(state_dir: &Path) -> (KeptSettings, Option<SettingsFileError>) {
        let mut kept = Kept::default();
        let mut error = None;
        match read(&state_dir.join(CONFIRMED_FILE), Settings::decode) {
            Ok(settings) => kept.confirmed = settings.map(Arc::new),
            Err(failed) => error = Some(failed),
        }
        match read(&state_dir.join(TRIAL_FILE), decode_trial) {
            Ok(None) => {}
            Ok(Some((trial, rolled_back))) => {
                kept.rolled_back = rolled_back;
                kept.trial = trial.filter(|trial| trial.settings.settings > kept.version());
            }
            Err(failed) => error = Some(failed),
        }
        if let Some(trial) = &mut kept.trial {
            trial.starts += 1;
            if trial.starts >= MOST_STARTS {
                let reason = format!("the node has started {MOST_STARTS} times in the trial");
                kept.end_trial(&reason);
            }
        }
        let kept = KeptSettings {
            folder: state_dir.to_owned(),
            kept: Mutex::new(kept),
        };
        (kept, error)
    }

    /// Records on disk that the node has started in a trial. Must be called before anything that
    /// the settings on trial may break.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn count_start(&self) -> Result<(), SettingsFileError> {
        let kept = self.lock();
        match self.folder.join(TRIAL_FILE).exists() {
            true => self.write_trial(&kept),
            false => Ok(()),
        }
    }

    /// The newest known version, whatever its outcome; 0 if there is none.
    pub fn newest(&self) -> u64 {
        let kept = self.lock();
        let refused = kept.refused.as_ref().map_or(0, |(version, _)| *version);
        let on_trial = kept.trial.as_ref().map_or(0, |t| t.settings.settings);
        let rolled_back = kept.rolled_back.as_ref().map_or(0, |back| back.version);
        kept.version().max(refused).max(on_trial).max(rolled_back)
    }

    pub fn in_force(&self) -> Option<Arc<Settings>> {
        let kept = self.lock();
        let on_trial = kept.trial.as_ref().map(|trial| &trial.settings);
        on_trial.or(kept.confirmed.as_ref()).cloned()
    }

    /// The settings to which a roll-back returns.
    pub fn confirmed(&self) -> Option<Arc<Settings>> {
        self.lock().confirmed.clone()
    }

    pub fn trial(&self) -> Option<OnTrial> {
        self.lock().trial.clone()
    }

    /// The version that was last rolled back, and why, if nothing newer is in force.
    pub fn rolled_back(&self) -> Option<(u64, String)> {
        let kept = self.lock();
        let newest = kept.rolled_back.as_ref()?;
        let stands = kept.trial.is_none() && newest.version > kept.version();
        stands.then(|| (newest.version, newest.reason.clone()))
    }

    /// The known outcome of settings of this version; none if they are new.
    pub fn verdict(&self, version: u64) -> Option<Verdict> {
        let kept = self.lock();
        let (refused, reason) = match &kept.refused {
            Some((version, reason)) => (*version, reason.as_str()),
            None => (0, ""),
        };
        let on_trial = kept.trial.as_ref().map_or(0, |t| t.settings.settings);
        let rolled_back = kept.rolled_back.as_ref().map_or(0, |back| back.version);
        let confirmed = kept.version();
        match &kept.rolled_back {
            _ if version == refused => Some(Verdict::Refused(reason.to_owned())),
            _ if version == on_trial => Some(Verdict::OnTrial),
            Some(back) if version == back.version => Some(Verdict::RolledBack(back.reason.clone())),
            _ if version == confirmed => Some(Verdict::Confirmed),
            _ => {
                let known = confirmed.max(refused).max(on_trial).max(rolled_back);
                (version < known).then_some(Verdict::Old)
            }
        }
    }

    /// Records on disk that these settings are about to be in force, on trial, and what they
    /// concern. An earlier trial ends; a roll-back still returns to the confirmed settings.
    ///
    /// # Errors
    /// When that cannot be written: there is no trial then, since a node that fails would not know
    /// of it.
    pub fn begin_trial(
        &self,
        settings: Arc<Settings>,
        concerns: Vec<Concern>,
    ) -> Result<(), SettingsFileError> {
        let mut kept = self.lock();
        let starts = 0;
        let before = kept.trial.replace(OnTrial {
            settings,
            concerns,
            starts,
        });
        let written = self.write_trial(&kept);
        match written {
            Ok(()) => kept.refused = None,
            Err(_) => kept.trial = before,
        }
        written
    }

    /// The settings could not be put into force after all: the previous ones stay in force, with
    /// the trial `before`, if there was one.
    pub fn abandon_trial(&self, before: Option<OnTrial>) {
        let mut kept = self.lock();
        kept.trial = before;
        self.write_trial_or_say(&kept);
    }

    /// Confirms the settings on trial.
    ///
    /// # Errors
    /// When that cannot be written: they are confirmed all the same.
    pub fn confirm(&self) -> Result<(), SettingsFileError> {
        let trial = self.lock().trial.clone();
        trial.map_or(Ok(()), |trial| self.keep(trial.settings))
    }

    /// Rolls back the settings on trial: the confirmed ones are in force.
    pub fn roll_back(&self, reason: &str) {
        let mut kept = self.lock();
        kept.end_trial(reason);
        self.write_trial_or_say(&kept);
    }

    /// Keeps these settings as confirmed, without a trial.
    ///
    /// # Errors
    /// When that cannot be written: they are in force all the same.
    pub fn keep(&self, settings: Arc<Settings>) -> Result<(), SettingsFileError> {
        let mut kept = self.lock();
        kept.refused = None;
        kept.trial = None;
        kept.confirmed = Some(settings.clone());
        state_files::replace(&self.folder.join(CONFIRMED_FILE), &settings.encode()?)?;
        match self.folder.join(TRIAL_FILE).exists() {
            true => self.write_trial(&kept),
            false => Ok(()),
        }
    }

    /// Notes that this version is not in force: it was refused, or the node's own configuration no
    /// longer allows it.
    pub fn refuse(&self, version: u64, reason: &str) {
        self.lock().refused = Some((version, reason.to_owned()));
    }

    fn write_trial_or_say(&self, kept: &Kept) {
        if let Err(error) = self.write_trial(kept) {
            tracing::error!(%error, "what became of settings on trial is not written down");
        }
    }

    fn write_trial(&self, kept: &Kept) -> Result<(), SettingsFileError> {
        let trial = kept.trial.as_ref().map(WrittenTrial::of);
        let written = Written {
            trial: trial.transpose()?,
            rolled_back: kept.rolled_back.clone(),
        };
        let document = serde_json::to_vec(&written).map_err(SettingsError::Malformed)?;
        state_files::replace(&self.folder.join(TRIAL_FILE), &document)?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }
}

impl Kept {
    /// The version of the confirmed settings; 0 if there are none.
    fn version(&self) -> u64 {
        self.confirmed.as_ref().map_or(0, |known| known.settings)
    }

    fn end_trial(&mut self, reason: &str) {
        if let Some(trial) = self.trial.take() {
            self.rolled_back = Some(RolledBack {
                version: trial.settings.settings,
                reason: reason.to_owned(),
            });
        }
    }
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsFileError {
    /// It cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// It has no settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

fn read<T>(
    file: &Path,
    decode: impl Fn(&[u8]) -> Result<T, SettingsError>,
) -> Result<Option<T>, SettingsFileError> {
    match fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > MOST_FILE_BYTES => {
            return Err(SettingsError::Large(usize::MAX).into());
        }
        _ => {}
    }
    Ok(Some(decode(&fs::read(file)?)?))
}

fn decode_trial(document: &[u8]) -> Result<(Option<OnTrial>, Option<RolledBack>), SettingsError> {
    let written: Written = serde_json::from_slice(document)?;
    let trial = written.trial.map(WrittenTrial::read);
    Ok((trial.transpose()?, written.rolled_back))
}

#[cfg(test)]
mod tests;
