//! The entrance for clients' connections and the exit of peers' streams: the edge, its outlets,
//! interception.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::task::AbortOnDropHandle;
use underpass_cdni::Client;
use underpass_edge::Edge;
use underpass_edge::dial::Families;
use underpass_edge::direct::DirectOutlet;
use underpass_edge::speed::Service;
use underpass_edge::stream::Outlet;

use super::foundation::Foundation;
use super::inbound::{self, Admission};
use super::node_core::Core;
use super::services::Services;
use super::{RunError, background, cdni, decisions, reach};
use crate::accounts::Accounts;
use crate::config::{Config, Current};
use crate::interception::{self, Interceptor};
use crate::shell::{self, Inbound, Shell, StreamOutlet};
use crate::speed_test::SpeedTest;
use crate::upgrade::{Predecessor, Sockets};

/// The edge of a node.
pub(super) struct Entrance {
    pub edge: Arc<Edge>,
    pub outlet: Arc<StreamOutlet>,
    pub accounts: Arc<Accounts>,
    pub cdni: Option<Arc<Client>>,
    pub interceptor: Option<Arc<Interceptor>>,
    pub admission: Arc<Admission>,
    pub speed_test: SpeedTest,
}

impl Entrance {
    /// Opens it; streams of peers come out of `inbound`.
    ///
    /// # Errors
    /// When an address, a rule or a file cannot be used.
    pub fn open(
        foundation: &Foundation,
        core: &Core,
        services: &Services,
        predecessor: Option<&Predecessor>,
        inbound: UnboundedReceiver<Inbound>,
        tasks: &mut Vec<AbortOnDropHandle<()>>,
    ) -> Result<Entrance, RunError> {
        let (config, shell) = (&foundation.config, &core.shell);
        let sockets = &foundation.run.sockets;
        let dialler = &foundation.dialler;
        let direct = DirectOutlet::new(dialler.clone());
        let outlets = config
            .outlets
            .iter()
            .map(|outlet| (outlet.node, outlet.destinations.clone()));
        let outlet = StreamOutlet::new(shell.clone(), outlets, direct, services.deferred.clone());
        let outlet = Arc::new(outlet);
        let far = outlet.clone();
        let far = move || far.dispatcher(&Service::Echo.target());
        let speed_test = SpeedTest::new(shell.clone(), Box::new(far));
        let edge = Edge::start_on(
            &config.edge,
            config.classifier()?,
            outlet.clone(),
            bound_sockets(config, sockets)?,
        )?;
        let edge = Arc::new(edge);
        let accounts = Arc::new(Accounts::new(config).map_err(RunError::AccessLog)?);
        edge.account_to(accounts.clone());
        if let Some(tracer) = &services.tracer {
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
                .keep(&socket_name(name), socket)
                .map_err(RunError::Runtime)?;
        }
        let rules = predecessor.and_then(|before| {
            edge.set_switch(before.hello.proxies.clone());
            before.hello.interception.clone().zip(core.helper.clone())
        });
        let interceptor = match rules {
            Some((rules, helper)) => Interceptor::go_on(config, helper, rules).map(Some),
            None => Interceptor::start(config, &edge, core.helper.clone()),
        };
        let interceptor = interceptor.map_err(RunError::Interception)?;
        tasks.extend(watch(foundation, core, services, interceptor.as_ref()));
        let admission = Arc::new(Admission::of(config));
        let counted = admission.clone();
        edge.count_origins(move |peer| counted.go_on(peer));
        let served = inbound::serve(
            inbound,
            shell.clone(),
            dialler.clone(),
            admission.clone(),
            edge.relays().clone(),
            edge.flows().clone(),
            services.tracer.clone(),
        );
        tasks.push(background(served));
        tasks.push(background(reach::follow(dialler.clone(), shell.clone())));
        Ok(Entrance {
            edge,
            outlet,
            accounts,
            cdni,
            interceptor,
            admission,
            speed_test,
        })
    }
}

/// The name of an edge listener's socket.
fn socket_name(listener: &str) -> String {
    format!("edge {listener}")
}

/// Binds the addresses of edge listeners that the previous process has not bound.
///
/// # Errors
/// When one is taken.
pub(super) fn bind(config: &Config, sockets: &Sockets) -> Result<(), RunError> {
    for listener in &config.edge.listener {
        let name = socket_name(&listener.name);
        let there = sockets.bound(&name, listener.address);
        if there.map_err(RunError::Runtime)?.is_none() {
            let socket = Edge::bind(listener)?;
            sockets.keep(&name, &socket).map_err(RunError::Runtime)?;
        }
    }
    Ok(())
}

/// The sockets of edge listeners that are bound already.
fn bound_sockets(
    config: &Config,
    sockets: &Sockets,
) -> Result<HashMap<String, TcpListener>, RunError> {
    let mut bound = HashMap::new();
    for listener in &config.edge.listener {
        let socket = sockets.bound(&socket_name(&listener.name), listener.address);
        if let Some(socket) = socket.map_err(RunError::Runtime)? {
            bound.insert(listener.name.clone(), socket.into());
        }
    }
    Ok(bound)
}

/// Watches the traffic that the scheduler does not send, such as plain IP, and the families that
/// the far node reaches.
fn watch(
    foundation: &Foundation,
    core: &Core,
    services: &Services,
    interceptor: Option<&Arc<Interceptor>>,
) -> Vec<AbortOnDropHandle<()>> {
    let (shell, clock) = (core.shell.clone(), services.control_clock.clone());
    let counted = interceptor.cloned();
    let figures = shell::watch_figures(shell.clone(), clock, move |hop| {
        counted.as_ref()?.plain_ip_bytes_to(hop)
    });
    let mut tasks = vec![background(figures)];
    if let Some(interceptor) = interceptor {
        let current = foundation.current.clone();
        let reached = move || far_families(&current, &shell);
        let watch = interception::watch(interceptor.clone(), reached);
        tasks.push(background(watch));
    }
    tasks
}

/// The address families that are reached by the node that dials for this one.
fn far_families(current: &Current, shell: &Shell) -> Families {
    let config = current.get();
    let mut outlets = config.outlets.iter();
    let far = outlets.find(|outlet| outlet.destinations.is_empty());
    let far = far.map(|outlet| outlet.node);
    let announced = far.and_then(|far| shell.read_peer(far, |e| e.announcement_of(far)));
    announced.map_or(Families::BOTH, |announced| Families {
        ipv4: announced.ipv4,
        ipv6: announced.ipv6,
    })
}
