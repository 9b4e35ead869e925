//! A node's run, from its configuration to its end: its parts start one after the other and end in
//! order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;
use underpass_applications as applications;
use underpass_edge::Edge;

use super::ending::{DRAIN_GLANCE, Stop, part};
use super::entrance::Entrance;
use super::foundation::Foundation;
use super::listing::ListFollower;
use super::neighbours::Neighbours;
use super::node_core::{Arriving, Core};
use super::reload::Reloader;
use super::reporting::Reporting;
use super::services::Services;
use super::{Parting, Restarter, RunError, Started, background, contacts, reload, reports, trial};
use crate::api::{self, ApiState};
use crate::config::{Config, Role};
use crate::enrolment::Renewal;
use crate::traces::Tracer;
use crate::upgrade::{self, Connections, HandOver, Predecessor};

/// Serves until told to stop, or until another process has taken the node over.
///
/// # Errors
/// When the node cannot start; the reason names the key to change.
pub(super) async fn serve(config: Config, before: Started) -> Result<(), RunError> {
    let Started {
        own,
        provider: settings,
        written,
        log,
        helper,
        confinement,
        launcher,
        channel,
    } = before;
    let mut stop = Stop::new().map_err(RunError::Runtime)?;
    let hangups = listen(SignalKind::hangup())?;
    let upgrades = listen(SignalKind::user_defined2())?;
    let mut tasks = vec![background(log.limits.tell())];
    let (foundation, mut predecessor) = Foundation::lay(config, channel)?;
    let (core, arriving) = Core::begin(&foundation, predecessor.as_mut(), helper, &mut tasks)?;
    let Arriving {
        inbound,
        early,
        links,
        connections,
    } = arriving;
    let services = Services::start(&foundation, &core, settings, &mut tasks)?;
    let neighbours = Neighbours::open(&foundation, &core, &early, links, &mut tasks)?;
    keep_state(&foundation, &core, &mut tasks)?;
    let entrance = Entrance::open(
        &foundation,
        &core,
        &services,
        predecessor.as_ref(),
        inbound,
        &mut tasks,
    )?;
    let reloader = Reloader::new(
        own,
        written,
        foundation.current.clone(),
        reload::Parts {
            shell: core.shell.clone(),
            links: neighbours.links.clone(),
            beacons: neighbours.beacons.clone(),
            dialler: foundation.dialler.clone(),
            outlet: entrance.outlet.clone(),
            admission: entrance.admission.clone(),
            edge: entrance.edge.clone(),
            interceptor: entrance.interceptor.clone(),
            mptcp: neighbours.mptcp.clone(),
            log: log.level,
            incarnation: foundation.run.incarnation,
            applications: foundation.engine.agent.applications.clone(),
            names: foundation.engine.agent.names.clone(),
            contacts: core.contacts.clone(),
            holds: core.holds.clone(),
            budgets: core.budgets.clone(),
            payloads: foundation.payloads.clone(),
            bpsec: foundation.bpsec.clone(),
            on_demand: neighbours.on_demand.clone(),
            provider: services.settings.clone(),
            commands: neighbours.commands.clone(),
        },
    );
    tasks.push(background(trial::take_over(
        services.provider.clone(),
        core.shell.clone(),
        foundation.current.clone(),
        reloader.clone(),
        services.reporting.sender.clone(),
    )));
    tasks.push(background(contacts::follow(core.contacts.clone())));
    tasks.push(background(reload::at_signals(hangups, reloader.clone())));
    let service = services.reporting.service.clone();
    let listed = ListFollower::of(&foundation.config, service, &reloader);
    tasks.extend(listed.map(|listed| background(listed.run())));
    if let Some(service) = &services.applications {
        tasks.extend(super::applications::serve(
            &foundation.config,
            service,
            &core.shell,
            &foundation.run.sockets,
            foundation.payloads.clone(),
        )?);
    }
    let control = services.contacts();
    let Services {
        started,
        applications,
        deferred,
        control_clock,
        tracer,
        reporting,
        plans,
        settings: _,
        provider,
        follower,
        positions,
    } = services;
    let reporter = reporting.reporter.clone();
    let report_sender = reporting.sender.clone();
    let reports_sent = reporting.sending.as_ref().map(reports::Sending::sent);
    let reports = reporting.intake.clone();
    let reporting = Arc::new(Mutex::new(Some(reporting)));
    let parting = Arc::new(Parting {
        tasks: Mutex::new(tasks),
        reporting: reporting.clone(),
        follower: Mutex::new(follower),
        deferred: deferred.clone(),
        applications: applications.clone(),
        api: Mutex::default(),
    });
    let restarter = Restarter {
        shell: core.shell.clone(),
        links: neighbours.links.clone(),
        beacons: neighbours.beacons.clone(),
        plans: plans.clone(),
        holds: core.holds.clone(),
        custody: core.custody.clone(),
        reloader: reloader.clone(),
        current: foundation.current.clone(),
    };
    let hand_over = HandOver::new(upgrade::Parts {
        shell: core.shell.clone(),
        edge: entrance.edge.clone(),
        outlet: entrance.outlet.clone(),
        interceptor: entrance.interceptor.clone(),
        helper: core.helper.clone(),
        manages_paths: foundation.config.uses_mptcp(),
        commands: neighbours.commands.clone(),
        sockets: foundation.run.sockets.clone(),
        launcher,
        known_links: foundation.known_links.clone(),
        budgets: core.budgets.clone(),
        current: foundation.current.clone(),
        restarter,
        incarnation: foundation.run.incarnation,
        quic_key: foundation.run.quic_key,
        begun: foundation.run.begun,
        parting: parting.clone(),
    });
    let _upgrades = background(upgrade::at_signals(upgrades, hand_over.clone()));
    let api = api::serve(Arc::new(ApiState {
        shell: core.shell.clone(),
        custody: core.custody.clone(),
        edge: entrance.edge.clone(),
        accounts: entrance.accounts.clone(),
        tracer: tracer.clone(),
        interceptor: entrance.interceptor.clone(),
        deferred,
        reporter,
        positions,
        report_sender,
        announced: api::Announced::default(),
        control_clock,
        control,
        contacts: core.contacts.clone(),
        holds: core.holds.clone(),
        plans,
        provider,
        reports_sent,
        reports,
        config: foundation.current.clone(),
        without_items: {
            let links = neighbours.links.clone();
            Box::new(move |path| links.is_without_items(path))
        },
        security: foundation.security.clone(),
        bpsec: foundation.bpsec.clone(),
        reload: Box::new(move || reloader.reload()),
        upgrade: {
            let hand_over = hand_over.clone();
            Box::new(move || hand_over.upgrade())
        },
        sockets: foundation.run.sockets.clone(),
        incarnation: foundation.run.incarnation,
        started,
        congestion_controls: neighbours.congestion_controls.clone(),
        mptcp: neighbours.mptcp.clone(),
        cdni: entrance.cdni.clone(),
        confinement,
        history: Arc::default(),
        log: log.excerpt,
        speed_test: entrance.speed_test,
    }))
    .await?;
    announce(&foundation.config, &entrance.edge, &api);
    *parting.api.lock().unwrap() = Some(api);
    go_on(&foundation, &core, &entrance.edge, connections, predecessor);
    upgrade::notify::ready();

    tokio::select! {
        () = stop.wait() => {}
        () = hand_over.done() => {
            let parted = part(&foundation.config, &core.shell, &entrance.edge, &mut stop).await;
            finish_traces(tracer).await;
            return parted;
        }
    }
    if let Some(interceptor) = &entrance.interceptor
        && let Err(error) = interceptor.change(|switch| switch.enabled = false)
    {
        tracing::warn!(%error, "new connections are refused while draining");
    }
    drain(&foundation.config, &core, &entrance.edge, &mut stop).await;
    let reporting = reporting.lock().unwrap().take();
    end(&foundation, &core, &neighbours, reporting, applications).await;
    finish_traces(tracer).await;
    tracing::info!("stopped");
    Ok(())
}

fn listen(kind: SignalKind) -> Result<Signal, RunError> {
    signal(kind).map_err(RunError::Runtime)
}

/// Keeps what the next run begins with.
fn keep_state(
    foundation: &Foundation,
    core: &Core,
    tasks: &mut Vec<AbortOnDropHandle<()>>,
) -> Result<(), RunError> {
    let time = &foundation.time;
    let renewal = Renewal::of(&foundation.config, time).map_err(RunError::Enrolment)?;
    tasks.extend(renewal.map(|renewal| background(renewal.follow())));
    tasks.push(background(time.clone().save_regularly()));
    let links = foundation.known_links.clone();
    tasks.push(background(links.save_regularly(core.shell.clone())));
    let budgets = core.budgets.clone();
    tasks.push(background(budgets.follow(core.shell.clone())));
    Ok(())
}

/// Takes the clients' connections from the previous process, and serves that until it has ended.
fn go_on(
    foundation: &Foundation,
    core: &Core,
    edge: &Arc<Edge>,
    connections: Option<Connections>,
    predecessor: Option<Predecessor>,
) {
    if let Some(connections) = connections {
        connections.resume(&core.shell, edge);
    }
    foundation.run.sockets.forget_others();
    if let Some(before) = predecessor {
        let (shell, edge) = (core.shell.clone(), edge.clone());
        let runtime = tokio::runtime::Handle::current();
        std::thread::spawn(move || {
            let _runtime = runtime.enter();
            before.serve(&shell, &edge);
        });
    }
}

/// Waits until streams have ended, at most `node.drain_s`. The remaining bytes of ended streams are
/// safe only in durable custody; otherwise they would be lost with the process.
async fn drain(config: &Config, core: &Core, edge: &Edge, stop: &mut Stop) {
    tracing::info!(drain_s = config.node.drain_s, "draining");
    let durable = config.custody.is_durable();
    let drained = async {
        edge.drain().await;
        while !durable && !core.shell.streams(1).is_empty() {
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
}

/// Ends sessions, reports and custody, in this order, and leaves no socket's
/// file behind.
async fn end(
    foundation: &Foundation,
    core: &Core,
    neighbours: &Neighbours,
    reporting: Option<Reporting>,
    applications: Option<applications::Service>,
) {
    let (config, shell) = (&foundation.config, &core.shell);
    foundation.known_links.save(shell);
    neighbours.on_demand.end().await;
    neighbours.links.shutdown().await;
    core.budgets.step(shell, false);
    if let Some(reporting) = reporting {
        reporting.finish().await;
    }
    if let Some((custody, _watch)) = core.custody.take() {
        custody.close(shell).await;
    }
    if let Some(service) = applications {
        service.close();
    }
    if let Some(applications) = &config.applications {
        let _ = std::fs::remove_file(&applications.socket);
    }
    let _ = std::fs::remove_file(&config.api.socket);
}

/// Sends the last spans, on a thread that may wait for them.
async fn finish_traces(tracer: Option<Arc<Tracer>>) {
    if let Some(tracer) = tracer {
        let _ = tokio::task::spawn_blocking(move || tracer.finish()).await;
    }
}

fn announce(config: &Config, edge: &Edge, api: &api::Servers) {
    for (name, address) in edge.addresses() {
        tracing::info!(listener = name, %address, "taking connections in");
    }
    let role = match config.node.role {
        Role::Terminal => "terminal",
        Role::Hub => "hub",
        Role::Relay => "relay",
    };
    tracing::info!(node = config.node.number, role, api = %config.api.socket.display(), "running");
    if let Some(address) = api.tcp {
        tracing::info!(%address, "local API on TCP");
    }
    if let Some(obstacle) = upgrade::lasting_obstacle(std::process::id()) {
        tracing::warn!("no upgrade in place: {obstacle}");
    }
}
