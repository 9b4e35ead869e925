//! Dials origins: resolution, policy, both address families, and what the
//! origin is told of the client.

mod budget;
mod families;
mod inbound;
mod own;
mod policy;
mod proxy_header;
mod resolver;
mod routes;
mod socket;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use ipnet::IpNet;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::config::{DialConfig, OriginSource};
use crate::order;
use crate::stream::{Failure, FailureCode, Target};
use budget::Budget;
pub use budget::Party;
pub use families::Families;
use families::is_routed;
pub(crate) use inbound::resume_inbound;
pub use inbound::serve_inbound;
pub use policy::Policy;
use resolver::{Resolver, Sources};
pub use routes::RouteChanges;
pub(crate) use socket::set_congestion_control;

/// The pause before the next address is tried beside the last one (RFC 8305
/// §5 recommends 250 ms).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Connects to origins by one configuration, which may be replaced.
#[derive(Debug)]
pub struct Dialler {
    settings: RwLock<Arc<Settings>>,
    resolver: Resolver,
}

/// The configuration of a dial, from its beginning to its end.
#[derive(Debug)]
struct Settings {
    config: DialConfig,
    policy: Policy,
    /// Of the peers for which it is another one.
    of_peers: HashMap<u64, Policy>,
    budget: Arc<Budget>,
}

impl Settings {
    fn new(config: DialConfig, budget: Arc<Budget>) -> Settings {
        let policy = Policy::new(&config);
        let peers = config.peers.iter();
        let of_peers = peers.map(|(peer, own)| (*peer, policy.for_peer(own)));
        Settings {
            of_peers: of_peers.collect(),
            config,
            policy,
            budget,
        }
    }

    /// What a party may have dialled.
    fn policy_for(&self, party: Party) -> &Policy {
        let own = match party {
            Party::Peer(peer) => self.of_peers.get(&peer),
            Party::Client(_) => None,
        };
        own.unwrap_or(&self.policy)
    }

    /// Whether `address` may be dialled for a party, and is reached.
    fn admit(&self, party: Party, address: SocketAddr) -> Result<(), Failure> {
        self.policy_for(party).check(address)?;
        if !self.reach(address.ip()) {
            let text = format!("there is no route to {}", address.ip());
            return Err(Failure::new(FailureCode::Unreachable, text));
        }
        Ok(())
    }

    /// All networks that somebody may have dialled although they are private.
    fn allowed(&self) -> Vec<IpNet> {
        let of_peers = self.config.peers.values();
        let of_peers = of_peers.flat_map(|peer| peer.allow_networks.iter().flatten());
        let of_all = self.config.allow_networks.iter();
        of_all.chain(of_peers).copied().collect()
    }

    /// Whether an address is of a listed family or, if none is listed, whether there is a route to
    /// it now. Loopback is always reached.
    fn reach(&self, address: IpAddr) -> bool {
        match &self.config.families {
            Some(listed) => Families::listed(listed).reach(address),
            None => is_routed(address, self.config.mark),
        }
    }
}

/// A connection to an origin.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub socket: TcpStream,
    /// When the origin's addresses were known.
    pub resolved: std::time::Instant,
}

impl Dialler {
    /// A dialler. Which addresses it reaches follows the routes of the host,
    /// unless the configuration lists families.
    pub fn new(config: DialConfig) -> Dialler {
        let budget = Budget::new(config.guaranteed_dials, config.common_dials);
        Dialler {
            settings: RwLock::new(Arc::new(Settings::new(config, Arc::new(budget)))),
            resolver: Resolver::new(Sources::of_system()),
        }
    }

    /// Uses another configuration from the next dial on. New limits count only the dials that begin
    /// under them.
    pub fn reconfigure(&self, config: DialConfig) {
        let before = self.settings();
        let limits = |config: &DialConfig| (config.guaranteed_dials, config.common_dials);
        let budget = match limits(&before.config) == limits(&config) {
            true => before.budget.clone(),
            false => Arc::new(Budget::new(config.guaranteed_dials, config.common_dials)),
        };
        let mut settings = self.settings.write().unwrap();
        *settings = Arc::new(Settings::new(config, budget));
    }

    /// The address families that origins are reached over at present: what a
    /// hub announces to its terminals.
    pub fn families(&self) -> Families {
        let settings = self.settings();
        match &settings.config.families {
            Some(listed) => Families::listed(listed),
            None => Families::detect(settings.config.mark, &settings.allowed()),
        }
    }

    fn settings(&self) -> Arc<Settings> {
        self.settings.read().unwrap().clone()
    }

    /// What is known of `target` before a look-up or a dial.
    ///
    /// # Errors
    /// When the policy forbids its address or port, or no route leads there.
    pub(crate) fn admit(&self, target: &Target, party: Party) -> Result<(), Failure> {
        let settings = self.settings();
        match target {
            Target::Address(address) => settings.admit(party, canonical(*address)),
            Target::Name { host, port } => {
                let policy = settings.policy_for(party);
                policy.check_port(host.as_str(), *port)
            }
        }
    }

    /// Connects to `target` for `client`, at the expense of `party`. Dropping the future ends
    /// look-up and dial.
    ///
    /// # Errors
    /// The failure of the first address tried, or that the policy forbids
    /// every address of the target, or that the party has too many dials at
    /// once.
    pub async fn dial(
        &self,
        target: &Target,
        client: SocketAddr,
        party: Party,
    ) -> Result<Dialled, Failure> {
        let settings = self.settings();
        let deadline = Instant::now() + settings.config.connect_timeout();
        let _permit = settings.budget.acquire(party, deadline).await?;
        let addresses = self.allowed(&settings, party, target, deadline).await?;
        let resolved = std::time::Instant::now();
        let config = &settings.config;
        let mut socket = race(config, target, addresses, client, deadline).await?;
        if config.origin_source == OriginSource::ProxyProtocol {
            let destination = socket.peer_addr().map_err(|e| Failure::of_connect(&e))?;
            let header = proxy_header::header(client, destination);
            // The first bytes on the connection: they fit any socket buffer.
            let written = socket.write_all(&header).await;
            written.map_err(|e| Failure::of_socket("the server", &e))?;
        }
        Ok(Dialled { socket, resolved })
    }

    /// The target's addresses that may be dialled, families alternating. The
    /// policy is applied here, after resolution, so that no name can lead
    /// where its address may not.
    async fn allowed(
        &self,
        settings: &Settings,
        party: Party,
        target: &Target,
        deadline: Instant,
    ) -> Result<VecDeque<SocketAddr>, Failure> {
        let resolved = match target {
            Target::Address(address) => vec![*address],
            Target::Name { host, port } => {
                let found = timeout_at(deadline, self.resolver.resolve(host.as_str()));
                let found = found.await.map_err(|_| {
                    let host = host.as_str();
                    let what = format!("{host} does not resolve: no name server answered");
                    timed_out(&what, &settings.config)
                })??;
                let found = found.into_iter().map(|ip| SocketAddr::new(ip, *port));
                found.collect()
            }
        };
        let mut refused = None;
        let mut reached: Vec<SocketAddr> = Vec::new();
        for address in resolved.into_iter().map(canonical) {
            if let Err(failure) = settings.admit(party, address) {
                refused.get_or_insert(failure);
            } else if !reached.contains(&address) {
                reached.push(address);
            }
        }
        if reached.is_empty() {
            return Err(refused.unwrap_or_else(|| unknown_host(target, "no addresses")));
        }
        let mut order = alternate(reached);
        order.truncate(MAX_ADDRESSES);
        Ok(order)
    }
}

/// The first of several addresses of `target` to connect.
async fn race(
    config: &DialConfig,
    target: &Target,
    mut waiting: VecDeque<SocketAddr>,
    client: SocketAddr,
    deadline: Instant,
) -> Result<TcpStream, Failure> {
    let mut attempts: JoinSet<Result<TcpStream, Failure>> = JoinSet::new();
    let mut first_failure = None;
    let unanswered = || timed_out(&format!("{target}: the server did not answer"), config);
    loop {
        if let Some(address) = waiting.pop_front() {
            let config = config.clone();
            let attempt = async move { socket::connect(&config, address, client).await };
            order::begin_in(&mut attempts, attempt).await;
        }
        let pause = if waiting.is_empty() {
            deadline
        } else {
            deadline.min(Instant::now() + ATTEMPT_DELAY)
        };
        tokio::select! {
            attempt = attempts.join_next() => match attempt {
                Some(Ok(Ok(socket))) => return Ok(socket),
                Some(Ok(Err(failure))) => { first_failure.get_or_insert(failure); }
                Some(Err(_)) | None => {}
            },
            () = sleep_until(pause) => if Instant::now() >= deadline {
                return Err(unanswered());
            },
        }
        if attempts.is_empty() && waiting.is_empty() {
            return Err(first_failure.unwrap_or_else(unanswered));
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn unknown_host(target: &Target, why: &str) -> Failure {
    Failure::new(
        FailureCode::UnknownHost,
        format!("{target} does not resolve: {why}"),
    )
}

/// The failure of a dial that has used up its time, with what had not come by then.
fn timed_out(what: &str, config: &DialConfig) -> Failure {
    let seconds = config.connect_timeout().as_secs_f64();
    Failure::new(FailureCode::TimedOut, format!("{what} within {seconds} s"))
}

/// The resolver's order, with the families alternating (RFC 8305 §4).
fn alternate(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let six_first = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == six_first);
    let mut order = VecDeque::new();
    while !first.is_empty() || !second.is_empty() {
        order.extend(first.pop_front());
        order.extend(second.pop_front());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate_in_the_resolvers_order() {
        let list = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<_>>();
        let given = list(&["[2001:db8::1]:1", "[2001:db8::2]:1", "192.0.2.1:1"]);
        let order: Vec<SocketAddr> = alternate(given).into();
        assert_eq!(
            order,
            list(&["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1"])
        );
    }
}
