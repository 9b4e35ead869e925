//! Settings of a provider: a hub gets them from the control service or from an operator, applies
//! its own, and passes each terminal's on. A terminal applies what its hub sends, and reports the
//! outcome.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use underpass_bundle::{BundleId, SendError};
use underpass_cla::Class;
use underpass_engine::Message as Envelope;

use super::plans::{reached, way_of};
use crate::config::{Config, Current, Role};
use crate::provider::{KeptSettings, MOST_VERSION, SERVICE, Settings, SettingsError, Verdict};
use crate::shell::{Service, Shell};
use crate::{clock, state_files};

/// Settings of one terminal that come in quick succession share one message.
const PAUSE: Duration = Duration::from_millis(200);
/// How long to wait when custody has no room.
const RETRY: Duration = Duration::from_secs(1);
/// How long to wait when the disk does not take the file.
const REWRITE: Duration = Duration::from_secs(30);
/// What a hub passes on, over restarts.
const FILE: &str = "passed-settings.json";
/// A larger file is not one of this node.
const MOST_FILE_BYTES: u64 = 1 << 30;

/// The settings that a hub passes on to one terminal.
#[derive(Clone, Debug)]
struct Passed {
    settings: Arc<Settings>,
    due: bool,
    told: Option<(Instant, BundleId)>,
}

/// What a hub passes on to a terminal, for people.
#[derive(Clone, Debug)]
pub struct PassedView {
    pub settings: Arc<Settings>,
    pub waits: bool,
}

/// The settings of this node itself, and their outcome, for people.
#[derive(Clone, Debug)]
pub struct OwnView {
    pub settings: Arc<Settings>,
    /// None while they are about to be taken over.
    pub verdict: Option<Verdict>,
}

/// Where settings go at this node.
pub struct Provider {
    shell: Arc<Shell>,
    config: Arc<Current>,
    /// What has become of this node's own.
    kept: Arc<KeptSettings>,
    /// The newest for this node.
    own: watch::Sender<Option<Arc<Settings>>>,
    /// By terminal.
    passed: Mutex<BTreeMap<u64, Passed>>,
    due: Notify,
    file: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Written {
    settings: Vec<Settings>,
}

impl Provider {
    /// Takes settings from now on, as far as they concern this node.
    pub fn start(
        config: &Arc<Current>,
        shell: &Arc<Shell>,
        kept: &Arc<KeptSettings>,
    ) -> Arc<Provider> {
        let now = config.get();
        let file = now.node.state_dir.join(FILE);
        let passed = match now.node.role {
            Role::Hub => read(&file),
            Role::Terminal | Role::Relay => BTreeMap::new(),
        };
        let provider = Arc::new(Provider {
            shell: shell.clone(),
            config: config.clone(),
            kept: kept.clone(),
            own: watch::Sender::new(None),
            passed: Mutex::new(passed),
            due: Notify::new(),
            file,
        });
        if takes_part(&now) {
            let receiver = Receiver(Arc::downgrade(&provider));
            shell.register(SERVICE, Arc::new(receiver));
        }
        provider
    }

    /// Takes a document of the control service.
    ///
    /// # Errors
    /// When it is none.
    pub fn take(&self, document: &[u8]) -> Result<(), SettingsError> {
        let settings = Settings::decode(document)?;
        self.take_settings(settings);
        Ok(())
    }

    /// An operator sets something for a terminal, or for this hub itself. Returns the version of
    /// these settings.
    ///
    /// # Errors
    /// When it is too large for a document.
    pub fn set(
        &self,
        node: u64,
        class: Vec<toml::Table>,
        path: Vec<toml::Table>,
        terminal: Vec<toml::Table>,
    ) -> Result<u64, SettingsError> {
        let before = match self.is_own(node) {
            true => {
                let newest = self.own.borrow().as_ref().map_or(0, |own| own.settings);
                newest.max(self.kept.newest())
            }
            false => {
                let passed = self.passed();
                passed.get(&node).map_or(0, |known| known.settings.settings)
            }
        };
        let version = clock::utc_ms()
            .unwrap_or(0)
            .max(before + 1)
            .min(MOST_VERSION);
        let settings = Settings::new(version, node, class, path).with_terminals(terminal);
        settings.encode()?;
        self.take_settings(settings);
        Ok(version)
    }

    /// Whether settings of a node are taken here: a hub's own, and its terminals'.
    pub fn is_set_here(&self, node: u64) -> bool {
        self.config.get().node.role == Role::Hub && (self.is_own(node) || self.is_passed_on(node))
    }

    fn is_own(&self, node: u64) -> bool {
        self.config.get().node.number == node
    }

    fn is_passed_on(&self, node: u64) -> bool {
        let config = self.config.get();
        config.node.role == Role::Hub && reached(&config).contains(&node)
    }

    /// The newest settings of this node itself, if it has any.
    pub fn own_view(&self) -> Option<OwnView> {
        let newest = self.own.borrow().clone();
        let settings = newest.or_else(|| self.kept.in_force())?;
        let verdict = self.kept.verdict(settings.settings);
        Some(OwnView { settings, verdict })
    }

    pub fn passed_on(&self) -> Vec<PassedView> {
        let views = self.passed();
        let views = views.values().map(|passed| PassedView {
            settings: passed.settings.clone(),
            waits: passed.due || passed.told.is_some_and(|(_, id)| self.shell.has_bundle(id)),
        });
        views.collect()
    }

    fn take_settings(&self, settings: Settings) {
        let (node, settings) = (settings.node, Arc::new(settings));
        if self.is_own(node) {
            self.take_own(settings);
        } else if self.is_passed_on(node) {
            let mut passed = self.passed();
            let before = passed.get(&node);
            if before.is_some_and(|known| known.settings.settings >= settings.settings) {
                return;
            }
            let told = before.and_then(|known| known.told);
            let due = true;
            passed.insert(
                node,
                Passed {
                    settings,
                    due,
                    told,
                },
            );
            drop(passed);
            self.due.notify_one();
        } else {
            tracing::debug!(node, "settings of a node that this one does not reach");
        }
    }

    /// The newest settings for this node, from now on.
    pub(super) fn own(&self) -> watch::Receiver<Option<Arc<Settings>>> {
        self.own.subscribe()
    }

    fn take_own(&self, settings: Arc<Settings>) {
        self.own.send_if_modified(|newest| {
            let newer = |known: &Arc<Settings>| known.settings <= settings.settings;
            let takes = newest.as_ref().is_none_or(newer);
            if takes {
                *newest = Some(settings);
            }
            takes
        });
    }

    fn received(&self, envelope: &Envelope) {
        let (peer, config) = (envelope.peer, self.config.get());
        if way_of(&config, peer).is_none() {
            tracing::warn!(peer, "settings from a node that gives this one none");
            return;
        }
        match Settings::decode(&envelope.payload) {
            Ok(settings) if settings.node == config.node.number => {
                self.take_own(Arc::new(settings));
            }
            Ok(settings) => {
                tracing::warn!(peer, node = settings.node, "settings of another node");
            }
            Err(error) => tracing::warn!(peer, %error, "settings refused"),
        }
    }

    fn passed(&self) -> MutexGuard<'_, BTreeMap<u64, Passed>> {
        self.passed.lock().unwrap()
    }

    /// Sends the terminals what is due. Returns when to check again.
    fn tell(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        let mut again = |at: Instant| next = Some(next.map_or(at, |next| next.min(at)));
        let due: Vec<(u64, Passed)> = {
            let passed = self.passed();
            let due = passed.iter().filter(|(_, passed)| passed.due);
            due.map(|(node, passed)| (*node, passed.clone())).collect()
        };
        for (node, passed) in due {
            let free_at = passed.told.map(|(at, _)| at + PAUSE);
            if let Some(at) = free_at.filter(|at| *at > now) {
                again(at);
                continue;
            }
            match self.tell_terminal(node, &passed) {
                Ok(bundle) => self.told(now, node, &passed.settings, bundle),
                Err(SendError::NoRoom) => again(now + RETRY),
                Err(error) => {
                    tracing::warn!(terminal = node, %error, "settings not passed on");
                    self.told(now, node, &passed.settings, None);
                }
            }
        }
        next
    }

    /// Replaces the previous settings if these have not left.
    fn tell_terminal(&self, node: u64, passed: &Passed) -> Result<Option<BundleId>, SendError> {
        let Ok(document) = passed.settings.encode() else {
            return Ok(None);
        };
        let envelope = Envelope::new(node, SERVICE, Class::SIGNALLING, Bytes::from(document));
        let lifetime = Duration::from_secs(self.config.get().custody.lifetime_s);
        let before = passed.told.map(|(_, id)| id);
        let sent = self.shell.send_message(envelope, lifetime, before);
        sent.map(Some)
    }

    fn told(&self, now: Instant, node: u64, settings: &Arc<Settings>, bundle: Option<BundleId>) {
        if let Some(known) = self.passed().get_mut(&node) {
            known.due &= !Arc::ptr_eq(&known.settings, settings);
            known.told = bundle.map(|id| (now, id)).or(known.told);
        }
    }

    /// What is passed on, as it is written down.
    fn contents(&self) -> serde_json::Result<Vec<u8>> {
        let settings = self.passed();
        let settings = settings.values().map(|passed| (*passed.settings).clone());
        serde_json::to_vec(&Written {
            settings: settings.collect(),
        })
    }
}

/// Passes settings on until dropped.
pub(super) async fn pass_on(provider: Arc<Provider>) {
    let mut written = 0;
    // When the disk may be asked again.
    let mut rewrite = tokio::time::Instant::now();
    loop {
        let mut next = provider.tell();
        let newest = newest(&provider.passed());
        if newest != written && tokio::time::Instant::now() >= rewrite {
            let of = provider.clone();
            let write = move || state_files::replace(&of.file, &of.contents()?);
            if let Ok(Err(error)) = tokio::task::spawn_blocking(write).await {
                tracing::error!(%error, "settings would not survive a restart");
                rewrite = tokio::time::Instant::now() + REWRITE;
            } else {
                written = newest;
            }
        }
        if newest != written {
            let again = rewrite.into_std();
            next = Some(next.map_or(again, |next| next.min(again)));
        }
        match next {
            Some(next) => {
                let _ = tokio::time::timeout_at(next.into(), provider.due.notified()).await;
            }
            None => provider.due.notified().await,
        }
    }
}

/// The sum of all versions: it rises with each newer one.
fn newest(passed: &BTreeMap<u64, Passed>) -> u128 {
    let versions = passed.values().map(|passed| passed.settings.settings);
    versions.map(u128::from).sum()
}

/// Whether this node sends or takes settings as messages.
pub(crate) fn takes_part(config: &Config) -> bool {
    super::plans::takes_part(config)
}

fn read(file: &Path) -> BTreeMap<u64, Passed> {
    let read = state_files::read::<Written>(file, MOST_FILE_BYTES).unwrap_or_else(|error| {
        let file = file.display();
        tracing::error!(%file, %error, "settings of terminals are not passed on any more");
        None
    });
    let settings = read.into_iter().flat_map(|written| written.settings);
    let passed = settings.map(|settings| {
        let passed = Passed {
            settings: Arc::new(settings),
            due: true,
            told: None,
        };
        (passed.settings.node, passed)
    });
    passed.collect()
}

/// The service that takes settings. It has only a weak reference, since the provider owns the
/// shell, and the shell has this service.
struct Receiver(Weak<Provider>);

impl Service for Receiver {
    fn message(&self, message: Envelope) {
        if let Some(provider) = self.0.upgrade() {
            provider.received(&message);
        }
    }

    fn peer_restarted(&self, peer: u64) {
        let Some(provider) = self.0.upgrade() else {
            return;
        };
        if let Some(passed) = provider.passed().get_mut(&peer) {
            passed.due = true;
        }
        provider.due.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use underpass_bundle::MemoryStore;
    use underpass_edge::dial::Families;
    use underpass_engine::Engine;

    use super::*;
    use crate::run::engine::configure;

    const TERMINAL: u64 = 10;

    fn hub(state_dir: &Path) -> Arc<Provider> {
        let text = format!(
            "[node]\nnumber = 1\nrole = \"hub\"\nstate_dir = {state_dir:?}\n[tls]\nplain = true\n\
             [[listener]]\nname = \"beam\"\nlisten = \"[::]:4556\"\n\
             [[terminal]]\nnode = {TERMINAL}\nsend_rate_bps = 8000000\n\
             receive_rate_bps = 8000000\nrtt_ms = 600\n"
        );
        let config = Config::parse(&text, Path::new("node.toml")).expect("a configuration");
        let engine = configure(&config, 1, Families::BOTH);
        let store = Box::new(MemoryStore::default());
        let engines = Engine::of_shards(Instant::now(), &engine, vec![store]).expect("an engine");
        let (inbound, _) = mpsc::unbounded_channel();
        let shell = Shell::new(engines, &engine, inbound);
        let (kept, _) = KeptSettings::load(state_dir);
        Provider::start(&Current::new(config), &shell, &Arc::new(kept))
    }

    #[tokio::test(start_paused = true)]
    async fn settings_that_the_disk_did_not_take_are_written_once_it_takes_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let provider = hub(folder.path());
        let file = folder.path().join(FILE);
        // A file cannot replace a folder.
        std::fs::create_dir_all(file.join("x")).expect("a folder");
        let passing = tokio::spawn(pass_on(provider.clone()));
        let set = provider.set(TERMINAL, Vec::new(), Vec::new(), Vec::new());
        set.expect("settings");
        tokio::time::sleep(Duration::from_secs(1)).await;
        std::fs::remove_dir_all(&file).expect("removed");
        tokio::time::sleep(2 * REWRITE).await;
        assert_eq!(read(&file).into_keys().collect::<Vec<_>>(), [TERMINAL]);
        passing.abort();
    }
}
