//! Applies another configuration while the node runs: all of it or nothing, and without
//! interrupting connections that it does not concern.
//!
//! Everything that may fail comes first: it reads and checks the files, checks whether a running
//! node can apply the changes, opens sockets of new paths, and replaces the rules of interception.
//! The later steps cannot fail.

mod settings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use thiserror::Error;
use tokio::signal::unix::Signal;
use tokio::task::JoinHandle;
use underpass_beacon::{Beacons, PeerId};
use underpass_bpsec::Guard;
use underpass_bundle::{Applications, OwnNames};
use underpass_edge::classify::UnknownClass;
use underpass_edge::dial::Dialler;
use underpass_edge::{Edge, EdgeError};
use underpass_engine::{EngineConfig, EngineError, HopId};
use underpass_payloads::Payloads;

use super::contacts::ContactRouting;
use super::inbound::Admission;
use super::links::Links;
use super::mptcp::Mptcp;
use super::on_demand::OnDemandPaths;
use super::{RunError, beacons, custody, engine};
use crate::api::counted;
use crate::bpsec::{self, BpsecError};
use crate::budgets::KeptBudgets;
use crate::config::{
    AcceptedHop, Change, Config, ConfigError, Current, Document, Durability, PathConfig, between,
};
use crate::holds::KeptHolds;
use crate::interception::Interceptor;
use crate::logging::Level;
use crate::privileged::{HelperError, PathCommands};
use crate::provider::KeptSettings;
use crate::shell::{Shell, StreamOutlet};

pub(super) use settings::with_settings;

/// Why what runs stays as it is.
#[derive(Debug, Error)]
pub enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{} cannot change while the node runs: restart it", .0.join(", "))]
    Restart(Vec<String>),
    #[error(
        "the first [[path]] or [[terminal]] cannot come, nor the last one go, while the node runs: restart it"
    )]
    Alone,
    #[error("edge.rule: {0}")]
    Class(#[from] UnknownClass),
    #[error(transparent)]
    Edge(#[from] EdgeError),
    #[error(transparent)]
    Bpsec(#[from] BpsecError),
    #[error(transparent)]
    Run(#[from] Box<RunError>),
    #[error("edge.interception: {0}")]
    Interception(#[from] HelperError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Begins to read the configuration again; returns a line for each change.
pub type Reload = Box<dyn Fn() -> JoinHandle<Result<Vec<String>, ReloadError>> + Send + Sync>;

/// What takes another configuration over.
pub(super) struct Parts {
    pub shell: Arc<Shell>,
    pub links: Arc<Links>,
    pub beacons: Arc<beacons::Opener>,
    pub dialler: Arc<Dialler>,
    pub outlet: Arc<StreamOutlet>,
    pub admission: Arc<Admission>,
    pub edge: Arc<Edge>,
    pub interceptor: Option<Arc<Interceptor>>,
    pub mptcp: Arc<Mptcp>,
    pub log: Level,
    pub incarnation: u64,
    /// Follows the contact plan.
    pub contacts: Arc<ContactRouting>,
    pub holds: Arc<KeptHolds>,
    pub budgets: Arc<KeptBudgets>,
    /// Their waiting bundles stay counted through all configurations.
    pub applications: Option<Arc<Applications>>,
    /// The node's endpoints of the dtn scheme, shared by all decoders of bundles.
    pub names: Arc<OwnNames>,
    /// For what the engines' stores have of them.
    pub payloads: Option<Arc<Payloads>>,
    pub bpsec: Arc<Guard>,
    pub on_demand: Arc<OnDemandPaths>,
    pub provider: Arc<KeptSettings>,
    /// The programs that the helper has for paths.
    pub commands: BTreeMap<String, PathCommands>,
}

/// Takes another configuration over.
pub(super) struct Reloader {
    path: PathBuf,
    current: Arc<Current>,
    state: Mutex<State>,
    parts: Parts,
}

struct State {
    /// The node's own configuration, as it was read last.
    own: Document,
    /// What runs: that, and what the provider sets.
    written: Document,
    /// The hops' numbers, by name.
    numbers: BTreeMap<String, u64>,
    /// The next number: none is used twice.
    next_number: u64,
}

/// Holds the configuration: no reload changes it while this lives.
pub struct HeldConfig<'a> {
    pub engine: EngineConfig,
    _state: MutexGuard<'a, State>,
}

struct Hops {
    numbers: BTreeMap<String, u64>,
    next_number: u64,
    /// Names of paths that are to be closed, by what they were.
    closed: Vec<String>,
    opened: Vec<(PathConfig, Option<Beacons>)>,
}

impl Reloader {
    /// `own` is the node's own configuration, and `written` what runs.
    pub fn new(
        own: Document,
        written: Document,
        current: Arc<Current>,
        parts: Parts,
    ) -> Arc<Reloader> {
        let numbers: BTreeMap<String, u64> = current.get().hop_names().zip(0..).collect();
        Arc::new(Reloader {
            path: own.path().to_owned(),
            current,
            state: Mutex::new(State {
                own,
                written,
                next_number: numbers.len() as u64,
                numbers,
            }),
            parts,
        })
    }

    /// Holds the configuration as long as the returned value lives, which also gives that of the
    /// engines. It may wait for a reload.
    pub fn hold(&self) -> HeldConfig<'_> {
        let state = self.state.lock().unwrap();
        let parts = &self.parts;
        let families = parts.dialler.families();
        let config = self.current.get();
        let mut engine =
            engine::configure_numbered(&config, parts.incarnation, families, &state.numbers);
        engine.agent.applications.clone_from(&parts.applications);
        engine.agent.names.clone_from(&parts.names);
        engine.agent.payloads.clone_from(&parts.payloads);
        engine.agent.security = Some(parts.bpsec.clone());
        HeldConfig {
            engine,
            _state: state,
        }
    }

    /// Reads the configuration again, on a thread that may wait.
    pub fn reload(self: &Arc<Self>) -> JoinHandle<Result<Vec<String>, ReloadError>> {
        let reloader = self.clone();
        tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let reloaded = reloader.take_over();
            match &reloaded {
                Ok(changes) => {
                    for change in changes {
                        tracing::info!(change, "configuration changed");
                    }
                    let (changes, took_ms) = (changes.len(), begun.elapsed().as_millis());
                    tracing::info!(changes, took_ms, "configuration read again");
                }
                Err(error) => {
                    tracing::error!(%error, "configuration not taken: all stays as it was")
                }
            }
            reloaded
        })
    }

    fn take_over(&self) -> Result<Vec<String>, ReloadError> {
        // One reload at a time.
        let mut state = self.state.lock().unwrap();
        let own = Document::read(&self.path)?;
        let written = with_settings(&own, &self.parts.provider);
        let changes = self.put_into_force(&mut state, written)?;
        state.own = own;
        Ok(changes)
    }

    fn put_into_force(
        &self,
        state: &mut State,
        written: Document,
    ) -> Result<Vec<String>, ReloadError> {
        let mut config = Config::of(&written)?;
        let running = self.current.get();
        let changes = between(state.written.table(), written.table());
        let plan_changed = config.routing.plan != running.routing.plan;
        let fixed = changes.iter().filter(|change| !change.is_live());
        let fixed: Vec<String> = fixed.map(Change::key).collect();
        if !fixed.is_empty() {
            return Err(ReloadError::Restart(fixed));
        }
        let known = |(path, commands)| self.parts.commands.get(path) == Some(commands);
        if !config.path_commands().iter().all(known) {
            let programs = "raise, release and command_s of path.on_demand";
            return Err(ReloadError::Restart(vec![programs.to_owned()]));
        }
        if config.neighbours().is_empty() != running.neighbours().is_empty() {
            return Err(ReloadError::Alone);
        }
        let classifier = config.classifier()?;
        retain_custody_settings(&mut config, &running, &changes);
        retain_known_links(&mut config, &running);
        let config = Arc::new(config);
        let edge = self.parts.edge.prepare(&config.edge)?;
        let rules = bpsec::load(&config.bpsec)?;
        let hops = self.prepare(state, &running, &config)?;

        let parts = &self.parts;
        let networks_changed =
            networks(&config, &hops.numbers) != networks(&running, &state.numbers);
        if let Some(interceptor) = parts.interceptor.as_ref().filter(|_| networks_changed) {
            interceptor.set_hops(&config, &hops.numbers)?;
        }
        // Keys are read again, too, even if only their files have changed.
        parts.bpsec.replace(rules).map_err(BpsecError::Unfit)?;
        parts.dialler.reconfigure(config.edge.dial.clone());
        let families = parts.dialler.families();
        let engine =
            engine::configure_numbered(&config, parts.incarnation, families, &hops.numbers);
        // This comes before paths that need it are dialled.
        parts.mptcp.set(&config);
        for name in &hops.closed {
            parts.links.remove_path(name);
            parts.on_demand.gone(name);
        }
        // What was spent, added or reset since the last step counts, too.
        parts.budgets.step(&parts.shell, true);
        // The classes and their order have not changed, which is all that the scheduler requires:
        // this does not fail.
        parts.shell.reconfigure(&engine)?;
        // A path that leads another way by now is another hop, whose meter begins at 0.
        parts.budgets.restore(&parts.shell);
        // Holds of a path that has come back apply again.
        parts.holds.apply(&parts.shell, &config);
        self.change_beacons(state, &running, &config, &hops);
        for (path, beacons) in hops.opened {
            if let (Some(all), Some(beacons)) = (parts.shell.beacons(), beacons) {
                all.insert(&path.name, beacons);
            }
            parts.links.add_path(&config, &path);
        }
        parts.links.reconfigure(&config);
        parts.edge.reconfigure(edge, classifier);
        let outlets = config.outlets.iter();
        let outlets = outlets.map(|outlet| (outlet.node, outlet.destinations.clone()));
        parts.outlet.set_outlets(outlets);
        parts.admission.set(&config);
        if config.log.level != running.log.level
            && let Err(error) = parts.log.set(&config.log.level)
        {
            // It was read when the configuration was checked.
            tracing::error!(%error, "log level");
        }
        // Its routes apply to other routes and neighbours, too.
        parts.contacts.reconfigure(&config);
        let contacts = config.routing.plan.0.len();
        self.current.set(config);
        state.written = written;
        (state.numbers, state.next_number) = (hops.numbers, hops.next_number);
        let plan =
            plan_changed.then(|| format!("contact plan: {}", counted(contacts as u64, "contact")));
        let changes = changes.iter().map(ToString::to_string);
        Ok(changes.chain(plan).collect())
    }

    /// Numbers the hops, and opens what may fail to open.
    fn prepare(
        &self,
        state: &State,
        running: &Config,
        config: &Config,
    ) -> Result<Hops, ReloadError> {
        let mut hops = Hops {
            numbers: BTreeMap::new(),
            next_number: state.next_number,
            closed: Vec::new(),
            opened: Vec::new(),
        };
        let same = |path: &PathConfig| {
            let mut before = running.paths.iter();
            before.any(|before| before.is_same_way(path))
        };
        let moved = config.paths.iter().filter(|path| !same(path));
        let moved: Vec<&PathConfig> = moved.collect();
        for name in config.hop_names() {
            let known = state.numbers.get(&name).copied();
            let known = known.filter(|_| !moved.iter().any(|path| path.name == name));
            let number = known.unwrap_or_else(|| {
                hops.next_number += 1;
                hops.next_number - 1
            });
            hops.numbers.insert(name, number);
        }
        for before in &running.paths {
            if !config.paths.iter().any(|path| before.is_same_way(path)) {
                hops.closed.push(before.name.clone());
            }
        }
        let key = beacons::usable_key(config).map_err(Box::new)?;
        // Paths on demand are opened when they are needed.
        for path in moved.into_iter().filter(|path| path.on_demand.is_none()) {
            let key = key.as_ref().filter(|_| !path.convergence_layer.is_bare());
            let opened = key.map(|key| {
                let hop = HopId(hops.numbers[&path.name]);
                self.parts.beacons.forget(&path.name);
                self.parts
                    .beacons
                    .open_path(config, path, hop, key.as_ref())
            });
            let opened = opened.transpose().map_err(Box::new)?;
            hops.opened.push((path.clone(), opened));
        }
        Ok(hops)
    }

    /// Ends the beacons of removed paths and terminals, and receives those of new terminals.
    fn change_beacons(&self, state: &State, running: &Config, config: &Config, hops: &Hops) {
        let Some(all) = self.parts.shell.beacons() else {
            return;
        };
        // It was read before.
        let key = beacons::usable_key(config).ok().flatten().flatten();
        for name in &hops.closed {
            all.remove(name);
        }
        for path in &config.paths {
            let peer = PeerId(hops.numbers[&path.name]);
            let rtt = path.rtt();
            all.at(&path.name, |beacons| beacons.set_rtt(peer, rtt));
        }
        for listener in &config.listeners {
            all.at(&listener.name, |beacons| {
                let comes_by = |hop: &AcceptedHop| hop.comes_by(&listener.name);
                let mut was: BTreeMap<String, u64> = BTreeMap::new();
                for before in running.accepted_hops().filter(comes_by) {
                    let Some(number) = state.numbers.get(&before.name).copied() else {
                        continue;
                    };
                    was.insert(before.name, number);
                }
                let is: Vec<AcceptedHop> = config.accepted_hops().filter(comes_by).collect();
                for (name, number) in &was {
                    if !is.iter().any(|hop| hop.name == *name) {
                        beacons.remove_peer(PeerId(*number));
                    }
                }
                for hop in is {
                    let number = hops.numbers[&hop.name];
                    match was.contains_key(&hop.name) {
                        true => beacons.set_rtt(PeerId(number), hop.rtt),
                        false => {
                            let id = HopId(number);
                            beacons::add_accepted(beacons, config, &hop, id, key.as_ref());
                        }
                    }
                }
            });
        }
    }
}

/// What earlier runs have measured of the hops stays as it was at the start.
fn retain_known_links(config: &mut Config, running: &Config) {
    for path in &mut config.paths {
        let before = running.paths.iter().find(|before| before.name == path.name);
        path.known = before.map(|before| before.known).unwrap_or_default();
    }
    for terminal in &mut config.terminals {
        let mut known = running.terminals.iter();
        let before = known.find(|before| before.node == terminal.node);
        terminal.known = before.map(|before| before.known).unwrap_or_default();
        for path in &mut terminal.paths {
            let mut paths = before.into_iter().flat_map(|before| &before.paths);
            let before = paths.find(|before| before.listener == path.listener);
            path.known = before.map(|before| before.known).unwrap_or_default();
        }
    }
}

/// The store stays where it is; a changed quota is checked again.
fn retain_custody_settings(config: &mut Config, running: &Config, changes: &[Change]) {
    let quota_bytes = match changes.iter().any(|c| c.key() == "custody.quota_bytes") {
        false => running.custody.quota_bytes,
        true => {
            let choice = custody::settle(config);
            match choice.durability == Durability::Disk && running.custody.is_durable() {
                true => choice.quota_bytes,
                false => config.custody.quota_bytes,
            }
        }
    };
    config.custody.quota_bytes = quota_bytes;
    config.custody.durability = running.custody.durability;
}

/// What interception counts by.
fn networks(config: &Config, numbers: &BTreeMap<String, u64>) -> Vec<(u64, Vec<ipnet::IpNet>)> {
    let paths = config.paths.iter().map(|path| &path.networks);
    let terminals = config.terminals.iter().map(|terminal| &terminal.networks);
    let named = config.hop_names().zip(paths.chain(terminals));
    named
        .filter_map(|(name, networks)| Some((*numbers.get(&name)?, networks.clone())))
        .collect()
}

/// Reads the configuration again at each SIGHUP. Runs until dropped.
pub(super) async fn at_signals(mut hangups: Signal, reloader: Arc<Reloader>) {
    while hangups.recv().await.is_some() {
        // Its end is in the log.
        let _ = reloader.reload().await;
    }
}
