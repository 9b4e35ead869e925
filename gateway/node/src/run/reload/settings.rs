//! Applies a provider's settings like a reload: on trial, confirmed, or rolled back.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::{ReloadError, Reloader, State};
use crate::config::{Config, Document, between};
use crate::provider::{KeptSettings, PathContact, Settings, SettingsError, Verdict, concerns};

impl Reloader {
    /// Applies the provider's settings, on a thread that may wait: all of them, or none. Settings
    /// whose outcome is known are not tried again.
    pub fn apply(self: &Arc<Self>, settings: Arc<Settings>) -> JoinHandle<Verdict> {
        let reloader = self.clone();
        tokio::task::spawn_blocking(move || reloader.apply_now(settings))
    }

    fn apply_now(&self, settings: Arc<Settings>) -> Verdict {
        let mut state = self.state.lock().unwrap();
        let (provider, version) = (&self.parts.provider, settings.settings);
        if let Some(known) = provider.verdict(version) {
            return known;
        }
        let taken = self.put_on_trial(&mut state, settings);
        taken.unwrap_or_else(|reason| {
            tracing::error!(version, reason, "the provider's settings are refused");
            provider.refuse(version, &reason);
            Verdict::Refused(reason)
        })
    }

    /// Puts new settings into force. They are on trial unless they change nothing that is
    /// confirmed, or no neighbour could be lost.
    fn put_on_trial(&self, state: &mut State, settings: Arc<Settings>) -> Result<Verdict, String> {
        let (provider, version) = (&self.parts.provider, settings.settings);
        let written = settings
            .over(&state.own)
            .map_err(|error| error.to_string())?;
        let after = Config::of(&written).map_err(|error| error.to_string())?;
        let confirmed = laid_over(&state.own, provider.confirmed().as_deref());
        let changes = between(confirmed.table(), written.table());
        // The confirmed settings have run before.
        let before = Config::of(&confirmed).map_err(|error| error.to_string())?;
        let paths: Vec<PathContact> = self
            .parts
            .shell
            .hops()
            .iter()
            .map(PathContact::of)
            .collect();
        let concerns = concerns(&changes, &before, &after, &paths);
        if changes.is_empty() || concerns.is_empty() {
            let taken = self.put_into_force(state, written);
            let changes = taken.map_err(|error| error.to_string())?;
            tracing::info!(version, ?changes, "the provider's settings are in force");
            if let Err(error) = provider.keep(settings) {
                tracing::error!(%error, "they would not survive a restart");
            }
            return Ok(Verdict::Confirmed);
        }
        let before = provider.trial();
        let begun = provider.begin_trial(settings, concerns);
        begun.map_err(|error| format!("the trial cannot be written down: {error}"))?;
        match self.put_into_force(state, written) {
            Ok(changes) => {
                tracing::info!(version, ?changes, "the provider's settings are on trial");
                Ok(Verdict::OnTrial)
            }
            Err(error) => {
                provider.abandon_trial(before);
                Err(error.to_string())
            }
        }
    }

    pub fn provider(&self) -> &Arc<KeptSettings> {
        &self.parts.provider
    }

    /// Returns to the settings in force after those on trial were rolled back, on a thread that may
    /// wait.
    pub fn put_back(self: &Arc<Self>) -> JoinHandle<Result<Vec<String>, ReloadError>> {
        let reloader = self.clone();
        tokio::task::spawn_blocking(move || {
            let mut state = reloader.state.lock().unwrap();
            let written = with_settings(&state.own, &reloader.parts.provider);
            reloader.put_into_force(&mut state, written)
        })
    }
}

/// A node's own configuration with its provider's settings, as far as they fit: the node's own
/// configuration takes precedence.
pub(in crate::run) fn with_settings(own: &Document, provider: &KeptSettings) -> Document {
    let Some(settings) = provider.in_force() else {
        return own.clone();
    };
    match checked(own, &settings) {
        Ok(written) => written,
        Err(error) if provider.trial().is_some() => {
            let version = settings.settings;
            tracing::error!(version, %error, "the provider's settings on trial are taken back");
            provider.roll_back(&error.to_string());
            with_settings(own, provider)
        }
        Err(error) => {
            let version = settings.settings;
            tracing::error!(version, %error, "the provider's settings are not in force any more");
            provider.refuse(version, &error.to_string());
            own.clone()
        }
    }
}

fn checked(own: &Document, settings: &Settings) -> Result<Document, SettingsError> {
    let written = settings.over(own)?;
    Config::of(&written)?;
    Ok(written)
}

/// The same, without logging what does not fit.
fn laid_over(own: &Document, settings: Option<&Settings>) -> Document {
    let laid = settings.and_then(|settings| checked(own, settings).ok());
    laid.unwrap_or_else(|| own.clone())
}
