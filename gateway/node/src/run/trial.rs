//! This node's own settings: applies them, checks the paths while they are on trial, and rolls them
//! back if the node no longer hears its hub, or a hub its terminals. Reports the outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use underpass_reports::{Body, SettingsOutcome};

use super::provider::Provider;
use super::reload::Reloader;
use super::reports::ReportSender;
use crate::config::Current;
use crate::provider::{Concern, Judgement, KeptSettings, PathContact, Settings, Trial};
use crate::shell::Shell;

/// How often the paths are checked during a trial.
const LOOK: Duration = Duration::from_secs(1);

/// How long to wait when the former settings cannot be put into force.
const RETRY: Duration = Duration::from_secs(10);

/// What takes settings over.
struct Taking {
    shell: Arc<Shell>,
    config: Arc<Current>,
    reloader: Arc<Reloader>,
    reports: Option<ReportSender>,
    trial: Option<Trial>,
    /// The former settings are still to be put into force.
    owes_former: bool,
}

/// Applies this node's newest settings, and reports their outcome. A trial that an earlier run has
/// begun continues. Runs until dropped.
pub(super) async fn take_over(
    provider: Arc<Provider>,
    shell: Arc<Shell>,
    config: Arc<Current>,
    reloader: Arc<Reloader>,
    reports: Option<ReportSender>,
) {
    let mut own = provider.own();
    let mut taking = Taking {
        shell,
        config,
        reloader,
        reports,
        trial: None,
        owes_former: false,
    };
    taking.go_on();
    loop {
        tokio::select! {
            changed = own.changed() => {
                if changed.is_err() {
                    return;
                }
                let settings = own.borrow_and_update().clone();
                if let Some(settings) = settings {
                    taking.take(settings).await;
                }
            }
            () = sleep(LOOK), if taking.trial.is_some() => taking.look().await,
            () = sleep(RETRY), if taking.owes_former => taking.put_back().await,
        }
    }
}

impl Taking {
    fn kept(&self) -> &KeptSettings {
        self.reloader.provider()
    }

    /// Reports the outcome of settings in earlier runs, and continues their trial.
    fn go_on(&mut self) {
        if let Some((version, reason)) = self.kept().rolled_back() {
            tracing::warn!(version, reason, "the provider's settings were taken back");
            self.say(SettingsOutcome::rolled_back(version, &reason));
        }
        if let Some(trial) = self.kept().trial() {
            self.say(SettingsOutcome::on_trial(trial.settings.settings));
            self.trial = Some(self.begun(trial.concerns, Vec::new()));
        }
    }

    async fn take(&mut self, settings: Arc<Settings>) {
        let version = settings.settings;
        let before = match &self.trial {
            Some(trial) => trial.before().to_vec(),
            None => self.contacts(),
        };
        let had = self.version_on_trial();
        let Ok(verdict) = self.reloader.apply(settings).await else {
            return;
        };
        let Some(outcome) = verdict.outcome(version) else {
            return;
        };
        let trial = self.kept().trial();
        if self.version_on_trial() != had {
            self.owes_former = false;
            self.trial = trial.map(|trial| self.begun(trial.concerns, before));
        }
        self.say(outcome);
    }

    async fn look(&mut self) {
        let contacts = self.contacts();
        let Some(version) = self.version_on_trial() else {
            // A reload has found that they no longer fit, and may have failed.
            self.trial = None;
            self.owes_former = true;
            return self.say_rolled_back();
        };
        let Some(trial) = &mut self.trial else {
            return;
        };
        match trial.look(Instant::now(), &contacts) {
            Judgement::Open => {}
            Judgement::Confirmed => {
                self.trial = None;
                if let Err(error) = self.kept().confirm() {
                    tracing::error!(%error, "the settings would not survive a restart");
                }
                tracing::info!(version, "the provider's settings are confirmed");
                self.say(SettingsOutcome::confirmed(version));
            }
            Judgement::Lost(reason) => {
                self.trial = None;
                tracing::error!(version, reason, "the provider's settings are taken back");
                self.kept().roll_back(&reason);
                self.put_back().await;
                self.say_rolled_back();
            }
        }
    }

    /// Puts the former settings into force again. They were in force before, so an obstacle can
    /// only be temporary.
    async fn put_back(&mut self) {
        let back = self.reloader.put_back().await;
        self.owes_former = matches!(back, Ok(Err(_)));
        if let Ok(Err(error)) = back {
            tracing::error!(%error, "the former settings are not in force yet");
        }
    }

    fn begun(&self, concerns: Vec<Concern>, before: Vec<PathContact>) -> Trial {
        let limit = self.config.get().provider.trial();
        Trial::new(Instant::now(), limit, concerns, before)
    }

    /// How this node's paths are.
    fn contacts(&self) -> Vec<PathContact> {
        self.shell.hops().iter().map(PathContact::of).collect()
    }

    fn version_on_trial(&self) -> Option<u64> {
        self.kept().trial().map(|trial| trial.settings.settings)
    }

    fn say_rolled_back(&self) {
        if let Some((version, reason)) = self.kept().rolled_back() {
            self.say(SettingsOutcome::rolled_back(version, &reason));
        }
    }

    fn say(&self, outcome: SettingsOutcome) {
        if let Some(reports) = &self.reports {
            reports.send(Body::Settings(outcome));
        }
    }
}
