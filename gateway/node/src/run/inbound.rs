//! Streams that peers open: dialled by the edge of this node.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, RwLock};

use ipnet::IpNet;
use tokio::sync::mpsc::UnboundedReceiver;
use underpass_edge::config::OriginSource;
use underpass_edge::dial::{Dialler, serve_inbound};
use underpass_edge::flows::{Flows, Owner};
use underpass_edge::order;
use underpass_edge::relay::Relays;
use underpass_edge::speed::SpeedTests;
use underpass_edge::stream::{Conduit, Failure, FailureCode, Host, OpenRequest, Protocol, Target};
use underpass_edge::traces::{self, Beginning, TraceContext, Traces};
use underpass_streams as streams;

use super::origins::{Origins, Place};
use super::turns::Turns;
use crate::config::{Config, Role};
use crate::shell::{Inbound, Shell};
use crate::traces::Tracer;

/// Which streams of peers are served.
pub(super) struct Admission {
    clients: NamedClients,
    origins: Arc<Origins>,
}

impl Admission {
    /// As the configuration says.
    pub fn of(config: &Config) -> Admission {
        Admission {
            clients: NamedClients::of(config),
            origins: Origins::of(config),
        }
    }

    /// Goes by another configuration.
    pub fn set(&self, config: &Config) {
        self.clients.set(config);
        self.origins.set(config);
    }

    /// Counts a connection to an origin that another process, or this one, has had so far, until
    /// the returned value is dropped.
    pub fn go_on(&self, peer: u64) -> Box<dyn Send> {
        Box::new(self.origins.go_on(peer))
    }

    fn admit(
        &self,
        shell: &Shell,
        peer: u64,
        client: Option<SocketAddr>,
    ) -> Result<Place, Failure> {
        let named = self.clients.admit(peer, client);
        named.inspect_err(|_| shell.count_foreign_client(peer))?;
        self.origins.take(peer)
    }
}

/// The client addresses that a peer may name, if origins see them.
struct NamedClients(RwLock<Option<HashMap<u64, Vec<IpNet>>>>);

impl NamedClients {
    /// A hub takes a terminal's word for the terminal's own networks only. A
    /// terminal trusts its hub.
    fn of(config: &Config) -> NamedClients {
        NamedClients(RwLock::new(NamedClients::networks(config)))
    }

    /// Takes the networks of another configuration.
    fn set(&self, config: &Config) {
        let networks = NamedClients::networks(config);
        *self.0.write().unwrap() = networks;
    }

    fn networks(config: &Config) -> Option<HashMap<u64, Vec<IpNet>>> {
        let told = config.edge.dial.origin_source != OriginSource::Node;
        let checked = told && config.node.role == Role::Hub;
        let terminals = config.terminals.iter();
        checked.then(|| {
            terminals
                .map(|terminal| (terminal.node, terminal.networks.clone()))
                .collect()
        })
    }

    fn admit(&self, peer: u64, client: Option<SocketAddr>) -> Result<(), Failure> {
        let terminals = self.0.read().unwrap();
        let (Some(terminals), Some(client)) = (&*terminals, client) else {
            return Ok(());
        };
        let ip = client.ip().to_canonical();
        let mut networks = terminals.get(&peer).into_iter().flatten();
        if networks.any(|network| network.contains(&ip)) {
            return Ok(());
        }
        let text = format!("client {ip} is in none of the networks of terminal {peer}");
        Err(Failure::new(FailureCode::Forbidden, text))
    }
}

/// Serves the streams that come out of `inbound`.
pub(super) async fn serve(
    mut inbound: UnboundedReceiver<Inbound>,
    shell: Arc<Shell>,
    dialler: Arc<Dialler>,
    admission: Arc<Admission>,
    relays: Arc<Relays>,
    flows: Arc<Flows>,
    tracer: Option<Arc<Tracer>>,
) {
    let speed_tests = Arc::<SpeedTests>::default();
    let mut turns = Turns::new(|stream: &Inbound| stream.key.peer);
    while let Some(stream) = turns.next(&mut inbound).await {
        let mut conduit = shell.conduit(&stream);
        let peer = stream.key.peer;
        let admitted = admission.admit(&shell, peer, stream.open.client);
        let admitted = admitted.and_then(|place| Ok((place, request(&stream)?)));
        let (place, request) = match admitted {
            Ok(admitted) => admitted,
            Err(failure) => {
                tracing::info!(peer, %failure, "stream refused");
                conduit.reset(failure);
                continue;
            }
        };
        let conduit = traced(tracer.as_ref(), peer, &request, conduit);
        let conduit = flows.watch(conduit, Owner::Peer(peer), &request, None, None);
        let (dialler, relays) = (dialler.clone(), relays.clone());
        let speed_tests = speed_tests.clone();
        let serving = async move {
            let _until_its_end = place;
            let served = speed_tests.serve(conduit, peer, &request.target).await;
            let Err(conduit) = served else {
                return;
            };
            // Its end is in the log.
            let _ = serve_inbound(conduit, peer, request, &dialler, &relays).await;
        };
        order::begin(serving).await;
    }
}

fn request(stream: &Inbound) -> Result<OpenRequest, Failure> {
    let open = &stream.open;
    let target = match &open.target {
        streams::Target::Address(address) => Target::Address(*address),
        streams::Target::Name { host, port } => Target::Name {
            host: Host::new(host)
                .map_err(|error| Failure::new(FailureCode::UnknownHost, error.to_string()))?,
            port: *port,
        },
    };
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    Ok(OpenRequest {
        target,
        client: open.client.unwrap_or(unknown),
        listener: "peer".into(),
        protocol: Protocol::Transparent,
        class: open.class,
        awaits_outcome: open.report_connected,
        trace: open.trace.map(|trace| TraceContext {
            trace_id: trace.trace_id,
            span_id: trace.span_id,
        }),
    })
}

/// The conduit; its times are recorded if the peer traces the stream and this node samples it, too.
fn traced(
    tracer: Option<&Arc<Tracer>>,
    node: u64,
    request: &OpenRequest,
    conduit: Box<dyn Conduit>,
) -> Box<dyn Conduit> {
    let (Some(tracer), Some(context)) = (tracer, request.trace) else {
        return conduit;
    };
    match tracer.begin(Beginning::Peer { node, context }) {
        Some(span) => traces::trace(tracer.clone(), span, request.clone(), conduit),
        None => conduit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(networks: &[&str]) -> NamedClients {
        let networks = networks.iter().map(|net| net.parse().expect("a network"));
        NamedClients(RwLock::new(Some(HashMap::from([(10, networks.collect())]))))
    }

    #[test]
    fn a_terminal_names_clients_of_its_own_networks_only() {
        let clients = named(&["10.10.0.0/16", "fd00:10::/48"]);
        let client = |text: &str| Some(SocketAddr::new(text.parse().expect("an address"), 1));
        for own in ["10.10.3.4", "::ffff:10.10.3.4", "fd00:10::7"] {
            assert_eq!(clients.admit(10, client(own)), Ok(()), "{own}");
        }
        for (peer, foreign) in [(10, "10.11.0.1"), (10, "127.0.0.1"), (11, "10.10.3.4")] {
            let refused = clients.admit(peer, client(foreign)).expect_err(foreign);
            assert_eq!(refused.code, FailureCode::Forbidden);
        }
        assert_eq!(clients.admit(11, None), Ok(()), "it names none");
    }
}
