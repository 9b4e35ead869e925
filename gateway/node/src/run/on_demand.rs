//! Paths on demand: carries out the engine's wishes, that is, to run a program, dial and send
//! beacons, or to end all that.
//!
//! Each path has its own task, which does one thing after the other. It dials only after the
//! program that brings the path up has succeeded, and runs the program that releases it only after
//! its sessions have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;
use underpass_engine::{Engine, HopId, PathChange};

use super::beacons::{self, Opener};
use super::links::Links;
use crate::config::{Config, Current, PathConfig};
use crate::privileged::{Helper, PathCommands};
use crate::shell::{PathOrder, Shell};

/// How long the sessions of a path may take to end in order.
const END: Duration = Duration::from_secs(5);

/// What is needed to bring a path up, and to release it.
pub(super) struct Parts {
    pub shell: Arc<Shell>,
    pub links: Arc<Links>,
    pub beacons: Arc<Opener>,
    pub current: Arc<Current>,
    pub helper: Option<Arc<Helper>>,
    /// The programs that the helper has.
    pub commands: BTreeMap<String, PathCommands>,
}

enum Order {
    BringUp(HopId),
    Release,
    /// The configuration no longer has the path, and its sessions have ended.
    RunRelease,
    /// The node ends: it is released if it is up.
    End(oneshot::Sender<()>),
}

/// The tasks of the paths, by their names.
pub(super) struct OnDemandPaths {
    parts: Arc<Parts>,
    tasks: Mutex<BTreeMap<String, Task>>,
}

/// What does the orders of one path.
struct Task {
    orders: mpsc::UnboundedSender<Order>,
    _task: AbortOnDropHandle<()>,
}

impl OnDemandPaths {
    /// Paths that the previous process has brought up are up. All others are released, whatever an
    /// earlier run has left.
    pub fn start(parts: Parts, up: &BTreeSet<String>) -> Arc<OnDemandPaths> {
        let config = parts.current.get();
        let paths = OnDemandPaths {
            parts: Arc::new(parts),
            tasks: Mutex::default(),
        };
        let on_demand = config.paths.iter().filter(|path| path.on_demand.is_some());
        for path in on_demand {
            if !up.contains(&path.name) {
                paths.order(&path.name, Order::Release);
            }
        }
        Arc::new(paths)
    }

    /// Follows the engines' orders. Runs until dropped.
    pub async fn follow(self: Arc<Self>, mut orders: mpsc::UnboundedReceiver<PathOrder>) {
        while let Some(PathOrder { hop, path, change }) = orders.recv().await {
            match change {
                PathChange::BringUp(_) => self.order(&path, Order::BringUp(hop)),
                PathChange::Release(_) => self.order(&path, Order::Release),
            }
        }
    }

    /// A path is no longer in the configuration, or has changed: the former path is released.
    pub fn gone(&self, path: &str) {
        if self.tasks.lock().unwrap().contains_key(path) {
            self.order(path, Order::RunRelease);
        }
    }

    /// The node ends: no path stays up.
    pub async fn end(&self) {
        let tasks: Vec<_> = {
            let tasks = self.tasks.lock().unwrap();
            tasks.values().map(|task| task.orders.clone()).collect()
        };
        for orders in tasks {
            let (ended, end) = oneshot::channel();
            if orders.send(Order::End(ended)).is_ok() {
                let _ = end.await;
            }
        }
    }

    fn order(&self, path: &str, order: Order) {
        let mut tasks = self.tasks.lock().unwrap();
        let task = tasks.entry(path.to_owned()).or_insert_with(|| {
            let (orders, ordered) = mpsc::unbounded_channel();
            let task = follow(self.parts.clone(), path.to_owned(), ordered);
            Task {
                orders,
                _task: AbortOnDropHandle::new(tokio::spawn(task)),
            }
        });
        // The task lives as long as this.
        let _ = task.orders.send(order);
    }
}

/// The paths that this node has brought up, or that are always up.
pub(super) fn dialled<'a>(
    config: &'a Config,
    up: &'a BTreeSet<String>,
) -> impl Iterator<Item = &'a PathConfig> {
    let paths = config.paths.iter();
    paths.filter(|path| path.on_demand.is_none() || up.contains(&path.name))
}

/// The paths on demand that are up.
pub(super) fn brought_up(shell: &Shell, config: &Config) -> BTreeSet<String> {
    let on_demand = config.paths.iter().filter(|path| path.on_demand.is_some());
    let up = on_demand.filter(|path| is_up(shell, &path.name));
    up.map(|path| path.name.clone()).collect()
}

/// Whether a path is not released.
pub(super) fn is_up(shell: &Shell, path: &str) -> bool {
    let hop = shell.hop_named(path);
    let released = |hop| shell.read_hop(hop, |engine| engine.is_released(hop));
    hop.is_some_and(|hop| !released(hop))
}

/// Tells the engines that the previous process has brought these paths on demand up.
pub(super) fn go_on(shell: &Shell, up: &BTreeSet<String>) {
    for hop in up.iter().filter_map(|path| shell.hop_named(path)) {
        shell.with_hop(hop, |engine, now| engine.path_goes_on(now, hop));
    }
}

async fn follow(parts: Arc<Parts>, path: String, mut orders: mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = orders.recv().await {
        match order {
            Order::BringUp(hop) => parts.bring_up(&path, hop).await,
            Order::Release => parts.release(&path).await,
            Order::RunRelease => parts.run_release(&path).await,
            Order::End(ended) => {
                if is_up(&parts.shell, &path) {
                    parts.release(&path).await;
                }
                let _ = ended.send(());
            }
        }
    }
}

impl Parts {
    async fn bring_up(&self, path: &str, hop: HopId) {
        if let Err(reason) = self.run(path, true).await {
            tracing::error!(path, reason, "the path is not brought up");
            self.fails(hop);
            return;
        }
        // A reload may have taken it away meanwhile.
        let config = self.current.get();
        let mut paths = config.paths.iter();
        let Some(path) = paths.find(|known| known.name == path && known.on_demand.is_some()) else {
            return;
        };
        if self.shell.hop_named(&path.name) != Some(hop) {
            return;
        }
        match self.open_beacons(&config, path, hop) {
            Ok(()) => self.links.add_path(&config, path),
            Err(reason) => {
                tracing::error!(path = path.name, reason, "the path is not dialled");
                self.fails(hop);
            }
        }
    }

    fn fails(&self, hop: HopId) {
        let failed = |engine: &mut Engine, now| engine.bring_up_failed(now, hop);
        self.shell.with_hop(hop, failed);
    }

    fn open_beacons(&self, config: &Config, path: &PathConfig, hop: HopId) -> Result<(), String> {
        let key = beacons::usable_key(config).map_err(|error| error.to_string())?;
        let key = key.filter(|_| !path.convergence_layer.is_bare());
        if let (Some(key), Some(all)) = (key, self.shell.beacons()) {
            let opened = self.beacons.open_path(config, path, hop, key.as_ref());
            all.insert(&path.name, opened.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    async fn release(&self, path: &str) {
        self.links.end_path(path, END).await;
        if let Some(all) = self.shell.beacons() {
            all.remove(path);
        }
        self.beacons.forget(path);
        self.run_release(path).await;
    }

    async fn run_release(&self, path: &str) {
        if let Err(reason) = self.run(path, false).await {
            tracing::error!(path, reason, "the path may not be released");
        }
    }

    /// Runs the path's program, if it has one.
    async fn run(&self, path: &str, raise: bool) -> Result<(), String> {
        let commands = self.commands.get(path);
        let words = commands.map(|of| if raise { &of.raise } else { &of.release });
        if words.is_none_or(Vec::is_empty) {
            return Ok(());
        }
        let helper = self.helper.clone();
        let helper = helper.ok_or_else(|| "there is no helper to run its program".to_owned())?;
        let path = path.to_owned();
        let run = move || helper.run(&path, raise).map_err(|error| error.to_string());
        let ran = tokio::task::spawn_blocking(run).await;
        ran.unwrap_or_else(|error| Err(error.to_string()))
    }
}
