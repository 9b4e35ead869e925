//! Names to addresses: /etc/hosts first, then DNS with a cache.
//!
//! Both files are read again when they have changed: a node may start before its network has a name
//! server. Other sources of nsswitch.conf are not used.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver, system_conf};

use crate::stream::{Failure, FailureCode};
use crate::words;

/// How long a look at the files holds.
const FRESH: Duration = Duration::from_secs(1);
/// Answers in the cache: some 4 MB.
const CACHED: u64 = 8192;
/// However long an answer says that it holds.
const LONGEST: Duration = Duration::from_secs(3600);
/// The longest time for which an unknown name is cached as such.
const LONGEST_UNKNOWN: Duration = Duration::from_secs(60);
/// Most addresses of a name that are used, per family.
const ADDRESSES: usize = 8;
/// Queries at once on one connection to a name server; the dialler's budget
/// bounds them before.
const QUERIES: usize = 65_536;

/// Where the system's resolver is configured.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    pub hosts: PathBuf,
    pub resolv_conf: PathBuf,
    /// Port of the name servers.
    pub port: u16,
}

impl Sources {
    /// Those of every program of this host.
    pub fn of_system() -> Sources {
        Sources {
            hosts: "/etc/hosts".into(),
            resolv_conf: "/etc/resolv.conf".into(),
            port: 53,
        }
    }

    fn versions(&self) -> [Option<SystemTime>; 2] {
        let changed = |path: &PathBuf| path.metadata().and_then(|m| m.modified()).ok();
        [changed(&self.hosts), changed(&self.resolv_conf)]
    }
}

/// Resolves names as this host is configured to.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    sources: Sources,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    looked: Instant,
    versions: [Option<SystemTime>; 2],
    current: Arc<Current>,
}

/// What the files say.
struct Current {
    hosts: Hosts,
    dns: Result<TokioResolver, NetError>,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").finish_non_exhaustive()
    }
}

impl Resolver {
    /// A resolver by `sources`.
    pub fn new(sources: Sources) -> Resolver {
        let versions = sources.versions();
        let state = State {
            looked: Instant::now(),
            versions,
            current: Arc::new(read(&sources)),
        };
        Resolver {
            sources,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The addresses of `host`, IPv6 first; dropping the future ends the look-up.
    ///
    /// # Errors
    /// [`FailureCode::UnknownHost`] if the name has no address, or [`FailureCode::TimedOut`] if no
    /// name server has answered.
    pub async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, Failure> {
        let failed =
            |code, why: &str| Failure::new(code, format!("{host} does not resolve: {why}"));
        let name = Name::from_ascii(host);
        let name = name.map_err(|_| failed(FailureCode::UnknownHost, "it is no valid name"))?;
        let current = self.current();
        let listed = listed(&current.hosts, &name);
        if !listed.is_empty() {
            return Ok(listed);
        }
        let dns = match &current.dns {
            Ok(dns) => dns,
            Err(error) => return Err(failed(FailureCode::TimedOut, words::of_lookup(error))),
        };
        match dns.lookup_ip(name).await {
            Ok(found) => {
                let six = found.iter().filter(IpAddr::is_ipv6).take(ADDRESSES);
                let four = found.iter().filter(IpAddr::is_ipv4).take(ADDRESSES);
                Ok(six.chain(four).collect())
            }
            Err(error) if error.is_no_records_found() || error.is_nx_domain() => {
                Err(failed(FailureCode::UnknownHost, "no such name"))
            }
            Err(error) => Err(failed(FailureCode::TimedOut, words::of_lookup(&error))),
        }
    }

    /// The contents of both files, read again if one has changed.
    fn current(&self) -> Arc<Current> {
        let mut state = self.state.lock().unwrap();
        if state.looked.elapsed() >= FRESH {
            state.looked = Instant::now();
            let versions = self.sources.versions();
            if versions != state.versions {
                tracing::info!("the resolver's configuration has changed");
                state.versions = versions;
                state.current = Arc::new(read(&self.sources));
            }
        }
        state.current.clone()
    }
}

fn read(sources: &Sources) -> Current {
    let mut hosts = Hosts::default();
    if let Ok(file) = File::open(&sources.hosts)
        && let Err(error) = hosts.read_hosts_conf(file)
    {
        tracing::warn!(path = %sources.hosts.display(), %error, "not read to its end");
    }
    Current {
        hosts,
        dns: dns(sources),
    }
}

fn dns(sources: &Sources) -> Result<TokioResolver, NetError> {
    let text = std::fs::read(&sources.resolv_conf).unwrap_or_default();
    let (config, mut options) = system_conf::parse_resolv_conf(&text).unwrap_or_else(|_| {
        // Without a name server the one of this host is asked (resolv.conf(5)).
        let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![local]);
        (config, ResolverOpts::default())
    });
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Never;
    options.cache_size = CACHED;
    options.positive_max_ttl = Some(LONGEST);
    options.negative_max_ttl = Some(LONGEST_UNKNOWN);
    options.max_active_requests = QUERIES;
    let mut servers = config.name_servers().to_vec();
    for connection in servers.iter_mut().flat_map(|s| &mut s.connections) {
        connection.port = sources.port;
    }
    let (domain, search) = (config.domain().cloned(), config.search().to_vec());
    let config = ResolverConfig::from_parts(domain, search, servers);
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder.build()
}

/// The addresses of a name in the hosts file. If it has any, no name server is asked (as by "files
/// dns" in nsswitch.conf).
fn listed(hosts: &Hosts, name: &Name) -> Vec<IpAddr> {
    [RecordType::AAAA, RecordType::A]
        .into_iter()
        .filter_map(|kind| hosts.lookup_static_host(&Query::query(name.clone(), kind)))
        .flat_map(|found| {
            let records = found.answers().iter();
            records
                .filter_map(|record| record.data.ip_addr())
                .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests;
