//! `underpass run`: puts a node together, and takes it apart in order.

mod applications;
mod bare_sessions;
mod beacons;
mod carriers;
mod cdni;
pub(crate) mod contacts;
pub(crate) mod control;
mod custody;
mod decisions;
pub(crate) mod deferred;
mod descriptors;
mod ending;
pub(crate) mod engine;
mod error;
mod inbound;
mod links;
mod listing;
pub mod mptcp;
mod on_demand;
mod parting;
mod payloads;
pub(crate) mod plans;
pub(crate) mod provider;
mod provision;
mod quic_sessions;
mod reach;
pub(crate) mod reload;
mod reporting;
pub(crate) mod reports;
mod restarter;
mod trial;

use std::collections::{BTreeSet, HashMap};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use underpass_edge::Edge;
use underpass_edge::dial::{Dialler, Families};
use underpass_edge::direct::DirectOutlet;
use underpass_edge::speed::Service;
use underpass_edge::stream::Outlet;
use underpass_engine::Engine;
use underpass_reports::{Body, PlanAcknowledgement};

use crate::accounts::Accounts;
use crate::allocator;
use crate::api::{self, ApiState};
use crate::bpsec;
use crate::budgets::KeptBudgets;
use crate::clock::{self, ControlClock};
use crate::config::{Config, Current, Document, Role};
use crate::confinement::{self, Confinement};
use crate::enrolment::Renewal;
use crate::holds::KeptHolds;
use crate::incarnation;
use crate::interception::{self, Interceptor};
use crate::known_links::KnownLinks;
use crate::known_time::KnownTime;
use crate::logging::Log;
use crate::modem;
use crate::panics;
use crate::positions::{self, Positions};
use crate::privileged::{self, Helper};
use crate::provider::KeptSettings;
use crate::security::Security;
use crate::shell::{self, Directory, LinkBeacons, Shell, StreamOutlet};
use crate::speed_test::SpeedTest;
use crate::state_files;
use crate::traces::Tracer;
use crate::upgrade::{
    self, Channel, EarlySessions, HandOver, Launcher, Predecessor, Sockets, TakeOverError,
};
use contacts::ContactRouting;
use control::{Contacts, ControlError};
use ending::{DRAIN_GLANCE, Stop, part};
use inbound::NamedClients;
use listing::ListFollower;
use mptcp::Mptcp;
use on_demand::OnDemandPaths;
use plans::{Acknowledge, Plans};
use provider::Provider;
use reload::Reloader;
use reporting::Reporting;
use reports::ReportSender;

pub use custody::OpenCustody;
pub use error::RunError;
pub use links::{advice, preferences};
pub use parting::Parting;
pub use restarter::Restarter;

/// More bytes than the state of a node has beside its custody.
const MOST_STATE_BYTES: u64 = 16 << 30;

/// Runs a node until SIGTERM or SIGINT, or until another process has it; with
/// `take_over`, the node of the process at the other end of standard input.
///
/// # Errors
/// When it cannot start; the reason names the key to change.
pub fn run(file: &Path, take_over: bool) -> Result<(), RunError> {
    let channel = match take_over {
        true => Some(Predecessor::reach().map_err(TakeOverError::from)?),
        false => None,
    };
    let refusing = channel.as_ref().and_then(|channel| channel.again().ok());
    let ended = start(file, channel);
    if let (Err(error), Some(mut channel)) = (&ended, refusing) {
        channel.refuse(error);
    }
    ended
}

fn start(file: &Path, channel: Option<Channel>) -> Result<(), RunError> {
    let own = Document::read(file)?;
    let config = Config::of(&own)?;
    let log = crate::logging::start(&config.log)?;
    let (provider, error) = KeptSettings::load(&config.node.state_dir);
    if let Some(error) = error {
        tracing::error!(%error, "what the provider has set is not known");
    }
    let written = reload::with_settings(&own, &provider);
    let config = Config::of(&written)?;
    panics::end_the_process();
    state_files::protect(&config).map_err(|source| RunError::StateDir {
        path: config.node.state_dir.clone(),
        source,
    })?;
    if let Err(error) = provider.count_start() {
        tracing::error!(%error, "that the node starts in a trial is not written down");
    }
    descriptors::prepare();
    if config.node.role == Role::Terminal {
        allocator::save_memory();
    }
    // Before the first thread: rights are the thread's, and are inherited.
    let launcher = Launcher::start().map_err(RunError::Launcher)?;
    let helper = match channel {
        // That of the other process goes on.
        Some(_) => None,
        None => privileged::start(&config)?,
    };
    let has_helper = privileged::purpose(&config).is_some();
    let confinement = confinement::confine(&config, file, has_helper);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = config.node.threads {
        runtime.worker_threads(threads);
    }
    let runtime = runtime.enable_all().build().map_err(RunError::Runtime)?;
    let started = Started {
        own,
        provider,
        written,
        log,
        helper,
        confinement,
        launcher,
        channel,
    };
    runtime.block_on(Box::pin(serve(config, started)))
}

/// What is there before the runtime is.
struct Started {
    /// The node's own configuration, and what its provider has set over it.
    own: Document,
    provider: KeptSettings,
    written: Document,
    log: Log,
    helper: Option<Helper>,
    confinement: Confinement,
    launcher: Launcher,
    /// To the process that runs, if its node is to be taken over.
    channel: Option<Channel>,
}

/// Whose node it is, and its run.
struct Begun {
    sockets: Arc<Sockets>,
    incarnation: u64,
    begun: Instant,
    predecessor: Option<Predecessor>,
}

impl Begun {
    /// A run of its own, or that of the process at the other end.
    fn of(config: &Config, channel: Option<Channel>) -> Result<Begun, RunError> {
        let Some(channel) = channel else {
            return Ok(Begun {
                sockets: Arc::default(),
                incarnation: incarnation::next(&config.node.state_dir, SystemTime::now())?,
                begun: Instant::now(),
                predecessor: None,
            });
        };
        let (predecessor, sockets) = Predecessor::hear(channel)?;
        predecessor.check(config, privileged::purpose(config).is_some())?;
        api::check(&config.api)?;
        if let Some(control) = &config.control {
            control::service(control).map_err(ControlError::from)?;
        }
        let age = Duration::from_millis(predecessor.hello.age_ms);
        Ok(Begun {
            sockets: Arc::new(sockets),
            incarnation: predecessor.hello.incarnation,
            begun: Instant::now().checked_sub(age).unwrap_or_else(Instant::now),
            predecessor: Some(predecessor),
        })
    }
}

/// Tells engines the time.
pub(crate) fn set_clocks(engines: &mut [Engine]) {
    for engine in engines {
        if let Some(dtn_time_ms) = clock::dtn_time_ms() {
            engine.set_clock(Instant::now(), dtn_time_ms);
        }
        engine.set_utc(Instant::now(), clock::utc_ms());
    }
}

async fn serve(mut config: Config, before: Started) -> Result<(), RunError> {
    let Started {
        own,
        provider: kept_settings,
        written,
        log,
        helper,
        confinement,
        launcher,
        channel,
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
    let upgrades = signal(SignalKind::user_defined2()).map_err(RunError::Runtime)?;
    let time = KnownTime::load(Some(&config.node.state_dir));
    let security = Security::load(&config.tls, config.node.number, &time)?;
    let bpsec = bpsec::guard(&config)?;
    Edge::check_users(&config.edge)?;
    let begun = Begun::of(&config, channel)?;
    let Begun {
        sockets,
        incarnation,
        begun,
        mut predecessor,
    } = begun;
    let dialler = Arc::new(Dialler::new(config.edge.dial.clone()));
    let mut engine_config = engine::configure(&config, incarnation, dialler.families());
    engine_config.agent.security = Some(bpsec.clone());
    let payloads = payloads::open(&config)?;
    engine_config.agent.payloads.clone_from(&payloads);
    let directory = Directory::new(&engine_config, config.node.shards());
    let most = config.custody.quota_bytes.saturating_add(MOST_STATE_BYTES);
    // What the process before has brought up is up.
    let up: BTreeSet<String> = match &predecessor {
        Some(before) => before.hello.up.clone(),
        None => BTreeSet::new(),
    };
    // Sessions are set up while the process before still has the node.
    let early = Arc::<EarlySessions>::default();
    let (links, taken) = match &mut predecessor {
        None => (None, None),
        Some(before) => {
            let links = before.set_up_sessions(&early, || {
                let node = early.clone();
                links::open(&config, incarnation, &security, node, &sockets, &up)
            })?;
            (links, Some(before.take(most)?))
        }
    };
    let (stores, custody) = custody::open(&config, |node| directory.of_peer(node))?;
    let now = Instant::now();
    let (mut engines, streams, connections, inherited) = match taken {
        None => (
            Engine::of_shards(now, &engine_config, stores)?,
            Vec::new(),
            None,
            None,
        ),
        Some(taken) => (
            Engine::take_over(now, &engine_config, stores, taken.engines)?,
            taken.streams,
            Some(taken.connections),
            taken.helper.map(Helper::of_predecessor),
        ),
    };
    set_clocks(&mut engines);
    let (inbound_sender, inbound) = mpsc::unbounded_channel();
    let shell = Shell::new(engines, &engine_config, inbound_sender);
    shell.take_edges(streams);
    on_demand::go_on(&shell, &up);
    // The process before has spent until here.
    let budgets = Arc::new(KeptBudgets::load(&config.node.state_dir));
    budgets.step(&shell, false);
    // Before any session is up: a path that is held blocked sends nothing.
    let holds = Arc::new(KeptHolds::load(&config.node.state_dir));
    holds.apply(&shell, &config);
    let contacts = ContactRouting::start(&config, &shell);
    if let Some(before) = &mut predecessor {
        before.confirm()?;
    }
    // From here on the node is this process'. What is counted is counted anew,
    // and told apart from what was before.
    let counted = match predecessor {
        Some(_) => incarnation::next(&config.node.state_dir, SystemTime::now())?,
        None => incarnation,
    };
    let helper = helper.or(inherited).map(Arc::new);
    let mptcp = Mptcp::start(&config, helper.clone());
    let (congestion, congestion_controls) = links::congestion_control(&config, helper.clone());

    let mut tasks = vec![background(congestion)];
    tasks.extend(shell::drivers(&shell).into_iter().map(background));
    let open_custody = Arc::new(OpenCustody::default());
    if let Some(custody) = custody {
        open_custody.set(custody, &shell);
    }
    let services = engine_config.agent.applications.as_ref();
    if let Some(payloads) = &payloads {
        shell.attach_payloads(payloads.clone(), config.long_above_bytes());
    }
    let application_service = applications::open(&config, services, &shell, payloads.as_ref())?;
    let (deferred, exchanges) = deferred::start(&config, &shell, &dialler)?.unzip();
    tasks.extend(exchanges);
    let started = Instant::now();
    let control_clock = Arc::new(ControlClock::default());
    let tracer = Tracer::start(&config)?;
    if let Some(tracer) = &tracer {
        tasks.push(background(tracer.clone().follow(shell.link_events())));
    }
    let reporting = Reporting::start(
        &config,
        &shell,
        &control_clock,
        &security,
        counted,
        started,
        tracer.as_ref(),
    )?;
    let report_sender = reporting.sender.clone();
    let acknowledge = acknowledge_plans(report_sender.clone());
    let (plans, telling) = Plans::start(&current, &shell, &control_clock, acknowledge);
    tasks.extend(telling);
    let kept_settings = Arc::new(kept_settings);
    let provider = Provider::start(&current, &shell, &kept_settings);
    if config.node.role == Role::Hub {
        tasks.push(background(provider::pass_on(provider.clone())));
    }
    let service = reporting.service.clone();
    tasks.extend(provision::start(&current, &shell, &time, service.clone()));
    let follow = |service| control::follow(&config, service, plans.clone(), provider.clone());
    let follower = service.map(follow);
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
    let beacons = beacons::Opener::new(incarnation, begun, &shell, &sockets);
    let beacons = Arc::new(beacons);
    let endpoints = LinkBeacons::default();
    beacons.open(&config, &shell, &endpoints)?;
    shell.set_beacons(endpoints);
    let links = match links {
        Some(links) => {
            let node: Arc<dyn underpass_cla::Node> = shell.clone();
            early.open(&node);
            links
        }
        None => links::open(
            &config,
            incarnation,
            &security,
            shell.clone(),
            &sockets,
            &up,
        )?,
    };
    let links = Arc::new(links);
    let commands = config.path_commands();
    let on_demand = OnDemandPaths::start(
        on_demand::Parts {
            shell: shell.clone(),
            links: links.clone(),
            beacons: beacons.clone(),
            current: current.clone(),
            helper: helper.clone(),
            commands: commands.clone(),
        },
        &up,
    );
    if let Some(orders) = shell.path_orders() {
        tasks.push(background(on_demand.clone().follow(orders)));
    }
    tasks.push(background(security.clone().watch(links.clone())));
    let renewal = Renewal::of(&config, &time).map_err(RunError::Enrolment)?;
    tasks.extend(renewal.map(|renewal| background(renewal.follow())));
    tasks.push(background(time.clone().save_regularly()));
    tasks.push(background(log.limits.tell()));
    tasks.push(background(
        known_links.clone().save_regularly(shell.clone()),
    ));
    tasks.push(background(budgets.clone().follow(shell.clone())));
    for config in &config.modems {
        let listener = modem::listen(config, &sockets)?;
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
    let far = outlet.clone();
    let far = move || far.dispatcher(&Service::Echo.target());
    let speed_test = SpeedTest::new(shell.clone(), Box::new(far));
    let edge = Edge::start_on(
        &config.edge,
        config.classifier()?,
        outlet.clone(),
        edge_sockets(&config, &sockets)?,
    )?;
    let edge = Arc::new(edge);
    let accounts = Arc::new(Accounts::new(&config).map_err(RunError::AccessLog)?);
    edge.account_to(accounts.clone());
    if let Some(tracer) = &tracer {
        edge.trace_by(tracer.clone());
    }
    let cdni = config.cdni.as_ref();
    let cdni = cdni.map(|source| cdni::start(source, edge.flows()));
    let cdni = cdni.transpose()?;
    if let Some(client) = cdni.clone() {
        tasks.push(background(async move { client.run().await }));
    }
    let asked = edge.flows().decisions().clone();
    tasks.push(background(decisions::follow(shell.clone(), asked)));
    for (name, socket) in edge.sockets() {
        sockets
            .keep(&edge_socket(name), socket)
            .map_err(RunError::Runtime)?;
    }
    let rules = predecessor.as_ref().and_then(|before| {
        edge.set_switch(before.hello.proxies.clone());
        before.hello.interception.clone().zip(helper.clone())
    });
    let interceptor = match rules {
        Some((rules, helper)) => Interceptor::go_on(&config, helper, rules).map(Some),
        None => Interceptor::start(&config, &edge, helper.clone()),
    };
    let interceptor = interceptor.map_err(RunError::Interception)?;
    let watched = interception_tasks(&current, &shell, &control_clock, interceptor.as_ref());
    tasks.extend(watched);
    let clients = Arc::new(NamedClients::of(&config));
    let relays = edge.relays().clone();
    let served = inbound::serve(
        inbound,
        shell.clone(),
        dialler.clone(),
        clients.clone(),
        relays,
        edge.flows().clone(),
        tracer.clone(),
    );
    tasks.push(background(served));
    let followed = dialler.clone();
    let reloader = Reloader::new(
        own,
        written,
        current.clone(),
        reload::Parts {
            shell: shell.clone(),
            links: links.clone(),
            beacons: beacons.clone(),
            dialler,
            outlet: outlet.clone(),
            clients,
            edge: edge.clone(),
            interceptor: interceptor.clone(),
            mptcp: mptcp.clone(),
            log: log.level,
            incarnation,
            applications: engine_config.agent.applications.clone(),
            contacts: contacts.clone(),
            holds: holds.clone(),
            payloads: payloads.clone(),
            bpsec: bpsec.clone(),
            on_demand: on_demand.clone(),
            provider: kept_settings.clone(),
            commands: commands.clone(),
        },
    );
    let taken_over = trial::take_over(
        provider.clone(),
        shell.clone(),
        current.clone(),
        reloader.clone(),
        report_sender.clone(),
    );
    tasks.push(background(taken_over));
    tasks.push(background(contacts::follow(contacts.clone())));
    tasks.push(background(reach::follow(followed, shell.clone())));
    tasks.push(background(reload::at_signals(hangups, reloader.clone())));
    let listed = ListFollower::of(&config, reporting.service.clone(), &reloader);
    tasks.extend(listed.map(|listed| background(listed.run())));
    let restarter = Restarter {
        shell: shell.clone(),
        links: links.clone(),
        beacons,
        plans: plans.clone(),
        holds: holds.clone(),
        custody: open_custody.clone(),
        reloader: reloader.clone(),
        current: current.clone(),
    };
    if let Some(service) = &application_service {
        tasks.extend(applications::serve(
            &config, service, &shell, &sockets, payloads,
        )?);
    }
    let reporter = reporting.reporter.clone();
    let reports_sent = reporting.sending.as_ref().map(reports::Sending::sent);
    let reports = reporting.intake.clone();
    let reporting = Arc::new(Mutex::new(Some(reporting)));
    let parting = Arc::new(Parting {
        tasks: Mutex::new(tasks),
        reporting: reporting.clone(),
        follower: Mutex::new(follower),
        deferred: deferred.clone(),
        applications: application_service.clone(),
        api: Mutex::default(),
    });
    let hand_over = HandOver::new(upgrade::Parts {
        shell: shell.clone(),
        edge: edge.clone(),
        outlet,
        interceptor: interceptor.clone(),
        helper,
        manages_paths: config.uses_mptcp(),
        commands,
        sockets: sockets.clone(),
        launcher,
        known_links: known_links.clone(),
        budgets: budgets.clone(),
        current: current.clone(),
        restarter,
        incarnation,
        begun,
        parting: parting.clone(),
    });
    let upgraded_at = hand_over.clone();
    let _upgrades = background(upgrade::at_signals(upgrades, upgraded_at));
    let state = Arc::new(ApiState {
        shell: shell.clone(),
        custody: open_custody.clone(),
        edge: edge.clone(),
        accounts,
        tracer: tracer.clone(),
        interceptor: interceptor.clone(),
        deferred,
        reporter,
        positions,
        report_sender,
        announced: api::Announced::default(),
        control_clock,
        control,
        contacts,
        holds,
        plans,
        provider,
        reports_sent,
        reports,
        config: current,
        without_items: {
            let links = links.clone();
            Box::new(move |path| links.is_without_items(path))
        },
        security,
        bpsec,
        reload: Box::new(move || reloader.reload()),
        upgrade: {
            let hand_over = hand_over.clone();
            Box::new(move || hand_over.upgrade())
        },
        sockets: sockets.clone(),
        incarnation,
        started,
        congestion_controls,
        mptcp,
        cdni,
        confinement,
        history: Arc::default(),
        log: log.excerpt,
        speed_test,
    });
    let api = api::serve(state).await?;
    announce(&config, &edge);
    if let Some(address) = api.tcp {
        tracing::info!(%address, "local API on TCP");
    }
    *parting.api.lock().unwrap() = Some(api);

    if let Some(connections) = connections {
        connections.resume(&shell, &edge);
    }
    sockets.forget_others();
    if let Some(before) = predecessor {
        let (shell, edge) = (shell.clone(), edge.clone());
        std::thread::spawn({
            let runtime = tokio::runtime::Handle::current();
            move || {
                let _runtime = runtime.enter();
                before.serve(&shell, &edge);
            }
        });
    }
    upgrade::notify::ready();

    tokio::select! {
        () = stop.wait() => {}
        () = hand_over.done() => {
            let parted = part(&config, &shell, &edge, &mut stop).await;
            finish_traces(tracer).await;
            return parted;
        }
    }
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
    on_demand.end().await;
    links.shutdown().await;
    budgets.step(&shell, false);
    let reporting = reporting.lock().unwrap().take();
    if let Some(reporting) = reporting {
        reporting.finish().await;
    }
    if let Some((custody, _watch)) = open_custody.take() {
        custody.close(&shell).await;
    }
    if let Some(service) = &application_service {
        service.close();
    }
    if let Some(applications) = &config.applications {
        let _ = std::fs::remove_file(&applications.socket);
    }
    let _ = std::fs::remove_file(&config.api.socket);
    finish_traces(tracer).await;
    tracing::info!("stopped");
    Ok(())
}

/// Sends the last spans, on a thread that may wait for them.
async fn finish_traces(tracer: Option<Arc<Tracer>>) {
    if let Some(tracer) = tracer {
        let _ = tokio::task::spawn_blocking(move || tracer.finish()).await;
    }
}

/// The name of an edge listener's socket.
fn edge_socket(listener: &str) -> String {
    format!("edge {listener}")
}

/// The sockets of edge listeners that the process before has bound.
fn edge_sockets(
    config: &Config,
    sockets: &Sockets,
) -> Result<HashMap<String, TcpListener>, RunError> {
    let mut bound = HashMap::new();
    for listener in &config.edge.listener {
        let socket = sockets.bound(&edge_socket(&listener.name), listener.address);
        if let Some(socket) = socket.map_err(RunError::Runtime)? {
            bound.insert(listener.name.clone(), socket.into());
        }
    }
    Ok(bound)
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
