//! `underpass run`: puts a node together, and takes it apart in order.

mod beacons;
pub(crate) mod control;
mod custody;
pub(crate) mod deferred;
mod descriptors;
pub(crate) mod engine;
mod inbound;
mod links;
pub(crate) mod plans;
mod reach;
pub(crate) mod reload;
mod reporting;
pub(crate) mod reports;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use underpass_deferred::store::StoreError;
use underpass_edge::classify::UnknownClass;
use underpass_edge::dial::{Dialler, Families};
use underpass_edge::direct::DirectOutlet;
use underpass_edge::{Edge, EdgeError};
use underpass_engine::{Engine, EngineError};
use underpass_reports::{Body, PlanAcknowledgement};
use underpass_store::OpenError;

use crate::allocator;
use crate::api::{self, ApiError, ApiState};
use crate::clock::{self, ControlClock};
use crate::config::{Config, ConfigError, Current, Document, Role};
use crate::confinement::{self, Confinement};
use crate::incarnation::{self, IncarnationError};
use crate::interception::{self, Interceptor};
use crate::known_links::KnownLinks;
use crate::known_time::KnownTime;
use crate::logging::Level;
use crate::modem::{self, ModemError};
use crate::panics;
use crate::positions::{self, Positions};
use crate::privileged::{self, Helper, HelperError};
use crate::security::{Security, SecurityError};
use crate::shell::{self, Directory, Shell, StreamOutlet};
use crate::state_files;
use control::{Contacts, ControlError};
use inbound::NamedClients;
use plans::{Acknowledge, Plans};
use reload::Reloader;
use reporting::Reporting;
use reports::ReportSender;

pub use links::{advice, preferences};

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum RunError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log cannot be started.
    #[error("log.level: {0}")]
    Log(#[from] tracing_subscriber::filter::ParseError),
    /// The runtime does not start.
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
    /// The state folder cannot be made.
    #[error("node.state_dir: cannot make {path}: {source}")]
    StateDir {
        /// The folder.
        path: std::path::PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The state folder is not usable.
    #[error(transparent)]
    Incarnation(#[from] IncarnationError),
    /// The custody store cannot be used.
    #[error("custody: {0}")]
    Custody(#[from] OpenError),
    /// Rates, classes or custody contradict themselves.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Certificates cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// An address for sessions cannot be bound.
    #[error("listener {name:?}: cannot listen on {address}: {source}")]
    Listen {
        /// The listener.
        name: String,
        /// Its address.
        address: std::net::SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A socket for beacons cannot be opened.
    #[error("beacons of {name:?}: cannot use UDP {address}: {source}")]
    Beacons {
        /// The path or listener.
        name: String,
        /// The local address.
        address: std::net::SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The key of beacons cannot be used.
    #[error("beacons.key_file {path}: {reason}")]
    BeaconKey {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A modem cannot be waited for.
    #[error(transparent)]
    Modem(#[from] ModemError),
    /// A rule names no class.
    #[error("edge.rule: {0}")]
    Class(#[from] UnknownClass),
    /// Requests cannot be kept for later.
    #[error(transparent)]
    Deferred(#[from] StoreError),
    /// Proxies cannot start.
    #[error(transparent)]
    Edge(#[from] EdgeError),
    /// Interception cannot be set up.
    #[error("edge.interception: {0}")]
    Interception(HelperError),
    /// The helper for what needs rights cannot start.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// The control service cannot be worked with.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The local API cannot start.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// How often a node that ends looks whether its streams have.
const DRAIN_GLANCE: Duration = Duration::from_millis(50);

/// Runs a node until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start; the reason names the key to change.
pub fn run(file: &Path) -> Result<(), RunError> {
    let written = Document::read(file)?;
    let config = Config::of(&written)?;
    let log = crate::logging::start(&config.log)?;
    panics::end_the_process();
    state_files::protect(&config).map_err(|source| RunError::StateDir {
        path: config.node.state_dir.clone(),
        source,
    })?;
    descriptors::prepare();
    if config.node.role == Role::Terminal {
        allocator::save_memory();
    }
    // Before the first thread: rights are the thread's, and are inherited.
    let helper = privileged::start(&config)?.map(Arc::new);
    let confinement = confinement::confine(&config, file, helper.is_some());
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = config.node.threads {
        runtime.worker_threads(threads);
    }
    let runtime = runtime.enable_all().build().map_err(RunError::Runtime)?;
    let started = Started {
        written,
        log,
        helper,
        confinement,
    };
    runtime.block_on(Box::pin(serve(config, started)))
}

/// What is there before the runtime is.
struct Started {
    written: Document,
    log: Level,
    helper: Option<Arc<Helper>>,
    confinement: Confinement,
}

async fn serve(mut config: Config, before: Started) -> Result<(), RunError> {
    let Started {
        written,
        log,
        helper,
        confinement,
    } = before;
    let choice = custody::choose(&config);
    match choice.because {
        Some(_) => tracing::warn!("{choice}"),
        None => tracing::info!("{choice}"),
    }
    config.custody.durability = Some(choice.durability);
    config.custody.quota_bytes = choice.quota_bytes;
    let known_links = Arc::new(KnownLinks::new(&config.node.state_dir));
    known_links.tell(&mut config);
    let current = Current::new(config);
    let config = current.get();
    let mut stop = Stop::new().map_err(RunError::Runtime)?;
    let hangups = signal(SignalKind::hangup()).map_err(RunError::Runtime)?;
    let incarnation = incarnation::next(&config.node.state_dir)?;
    let time = KnownTime::load(Some(&config.node.state_dir));
    let security = Security::load(&config.tls, &time)?;
    let dialler = Arc::new(Dialler::new(config.edge.dial.clone()));
    let (congestion, congestion_controls) = links::congestion_control(&config, helper.clone());

    let engine_config = engine::configure(&config, incarnation, dialler.families());
    let directory = Directory::new(&engine_config, config.node.shards());
    let (stores, custody) = custody::open(&config, |node| directory.of_peer(node))?;
    let mut engines = Engine::of_shards(Instant::now(), &engine_config, stores)?;
    for engine in &mut engines {
        if let Some(dtn_time_ms) = clock::dtn_time_ms() {
            engine.set_clock(Instant::now(), dtn_time_ms);
        }
        engine.set_utc(Instant::now(), clock::utc_ms());
    }
    let (inbound_sender, inbound) = mpsc::unbounded_channel();
    let shell = Shell::new(engines, &engine_config, inbound_sender);

    let mut tasks = vec![background(congestion)];
    tasks.extend(shell::drivers(&shell).into_iter().map(background));
    tasks.extend(custody.as_ref().map(|c| background(c.watch(shell.clone()))));
    let (deferred, exchanges) = deferred::start(&config, &shell, &dialler)?.unzip();
    tasks.extend(exchanges);
    let started = Instant::now();
    let control_clock = Arc::new(ControlClock::default());
    let reporting = Reporting::start(&config, &shell, &control_clock, incarnation, started)?;
    let report_sender = reporting.sender.clone();
    let acknowledge = acknowledge_plans(report_sender.clone());
    let (plans, telling) = Plans::start(&current, &shell, &control_clock, acknowledge);
    tasks.extend(telling);
    let service = reporting.service.clone();
    let follower = service.map(|service| control::follow(&config, service, plans.clone()));
    let control = reporting.poster.as_ref().zip(follower.as_ref());
    let control = control.map(|(poster, follower)| Contacts {
        posting: poster.posting(),
        following: follower.following(),
    });
    let positions = config.positions.clone().zip(report_sender.clone());
    let positions =
        positions.map(|(config, reports)| Arc::new(Positions::new(config, reports, time.clone())));
    if let Some(positions) = &positions {
        tasks.push(background(positions::follow(positions.clone())));
    }
    let beacons = beacons::Opener::new(incarnation, started, &shell);
    shell.set_beacons(beacons.open(&config, &shell)?);
    let links = Arc::new(links::open(&config, incarnation, &security, &shell)?);
    tasks.push(background(security.clone().watch(links.clone())));
    tasks.push(background(time.clone().save_regularly()));
    tasks.push(background(
        known_links.clone().save_regularly(shell.clone()),
    ));
    for config in &config.modems {
        let listener = modem::listen(config).await?;
        let (shell, path) = (shell.clone(), config.path.clone());
        let said = move |blocked| shell.modem_says(&path, blocked);
        tasks.push(background(modem::serve(listener, config.clone(), said)));
    }
    let direct = DirectOutlet::new(dialler.clone());
    let outlets = config
        .outlets
        .iter()
        .map(|outlet| (outlet.node, outlet.destinations.clone()));
    let outlet = StreamOutlet::new(shell.clone(), outlets, direct, deferred.clone());
    let outlet = Arc::new(outlet);
    let edge = Arc::new(Edge::start(
        &config.edge,
        config.classifier()?,
        outlet.clone(),
    )?);
    let interceptor = Interceptor::start(&config, &edge, helper).map_err(RunError::Interception)?;
    let watched = interception_tasks(&current, &shell, &control_clock, interceptor.as_ref());
    tasks.extend(watched);
    let clients = Arc::new(NamedClients::of(&config));
    let served = inbound::serve(inbound, shell.clone(), dialler.clone(), clients.clone());
    tasks.push(background(served));
    let followed = dialler.clone();
    let reloader = Reloader::new(
        written,
        current.clone(),
        reload::Parts {
            shell: shell.clone(),
            links: links.clone(),
            beacons,
            dialler,
            outlet,
            clients,
            edge: edge.clone(),
            interceptor: interceptor.clone(),
            log,
            incarnation,
        },
    );
    tasks.push(background(reach::follow(followed, shell.clone())));
    tasks.push(background(reload::at_signals(hangups, reloader.clone())));
    let state = Arc::new(ApiState {
        shell: shell.clone(),
        custody: custody.as_ref().map(custody::Custody::monitor),
        edge: edge.clone(),
        interceptor: interceptor.clone(),
        deferred,
        reporter: reporting.reporter.clone(),
        positions,
        report_sender,
        announced: api::Announced::default(),
        control_clock,
        control,
        plans,
        reports_sent: reporting.sending.as_ref().map(reports::Sending::sent),
        reports: reporting.intake.clone(),
        config: current,
        security,
        reload: Box::new(move || reloader.reload()),
        incarnation,
        started,
        congestion_controls,
        confinement,
    });
    let api = api::serve(state).await?;
    announce(&config, &edge);
    if let Some(address) = api.tcp {
        tracing::info!(%address, "local API on TCP");
    }

    stop.wait().await;
    tracing::info!(drain_s = config.node.drain_s, "draining");
    if let Some(interceptor) = &interceptor
        && let Err(error) = interceptor.change(|switch| switch.enabled = false)
    {
        tracing::warn!(%error, "new connections are refused while draining");
    }
    // What ended streams leave is safe in durable custody; elsewhere it would
    // be lost with the process.
    let durable = config.custody.is_durable();
    let drained = async {
        edge.drain().await;
        while !durable && !shell.streams(1).is_empty() {
            tokio::time::sleep(DRAIN_GLANCE).await;
        }
    };
    let drained = tokio::time::timeout(Duration::from_secs(config.node.drain_s), drained);
    tokio::select! {
        outcome = drained => if outcome.is_err() {
            tracing::warn!(connections = edge.open_connections(), "connections cut");
        },
        () = stop.wait() => tracing::warn!("told again to stop: not draining"),
    }
    known_links.save(&shell);
    links.shutdown().await;
    reporting.finish().await;
    if let Some(custody) = custody {
        custody.close(&shell).await;
    }
    let _ = std::fs::remove_file(&config.api.socket);
    tracing::info!("stopped");
    Ok(())
}

/// Reports the plans that are taken over, where this node reports anything.
pub(crate) fn acknowledge_plans(reports: Option<ReportSender>) -> Acknowledge {
    Box::new(move |taken| {
        if let Some(reports) = &reports {
            reports.send(Body::Plan(PlanAcknowledgement {
                beam: taken.beam,
                link: taken.link,
                plan: taken.version,
                applied_ms: taken.applied_ms,
                terminal: taken.terminal,
            }));
        }
    })
}

fn background(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// Watches what the scheduler does not send, plain IP among it, and what the
/// far node reaches.
fn interception_tasks(
    current: &Arc<Current>,
    shell: &Arc<Shell>,
    clock: &Arc<ControlClock>,
    interceptor: Option<&Arc<Interceptor>>,
) -> Vec<AbortOnDropHandle<()>> {
    let counted = interceptor.cloned();
    let figures = shell::watch_figures(shell.clone(), clock.clone(), move |hop| {
        counted.as_ref()?.plain_ip_bytes_to(hop)
    });
    let mut tasks = vec![background(figures)];
    if let Some(interceptor) = interceptor {
        let (current, shell) = (current.clone(), shell.clone());
        let reached = move || {
            let config = current.get();
            let mut outlets = config.outlets.iter();
            let far = outlets.find(|outlet| outlet.destinations.is_empty());
            let far = far.map(|outlet| outlet.node);
            let announced = far.and_then(|far| shell.read_peer(far, |e| e.announcement_of(far)));
            announced.map_or(Families::BOTH, |announced| Families {
                ipv4: announced.ipv4,
                ipv6: announced.ipv6,
            })
        };
        let watch = interception::watch(interceptor.clone(), reached);
        tasks.push(background(watch));
    }
    tasks
}

fn announce(config: &Config, edge: &Edge) {
    for (name, address) in edge.addresses() {
        tracing::info!(listener = name, %address, "taking connections in");
    }
    let role = match config.node.role {
        Role::Terminal => "terminal",
        Role::Hub => "hub",
        Role::Relay => "relay",
    };
    tracing::info!(node = config.node.number, role, api = %config.api.socket.display(), "running");
}

/// SIGTERM and SIGINT.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> std::io::Result<Stop> {
        Ok(Stop {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
