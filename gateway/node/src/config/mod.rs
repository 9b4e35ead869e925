//! The node's configuration (TOML): a file, and fragments beside it.
//!
//! Every key has a default or is required; an unknown key is an error, so that
//! a typing mistake never silently leaves a default in force. `check-config`
//! reads and validates exactly what `run` does.

mod api;
mod applications;
mod beacons;
mod bounds;
mod bpsec;
mod cdni;
mod changes;
mod control;
mod current;
mod custody;
mod deferred;
mod document;
mod edge;
mod enrolment;
mod error;
mod link;
mod listed;
mod ltp;
mod meter;
mod modem;
mod mptcp;
mod node;
mod on_demand;
mod payloads;
mod positions;
mod provider;
mod reach;
mod reports;
mod route;
mod routing;
mod session;
mod terminal;
mod traces;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::Deserialize;
use underpass_edge::classify::{Classifier, UnknownClass};

use crate::privileged::PathCommands;

pub use api::{ApiConfig, ApiRole};
pub use applications::ApplicationsConfig;
pub use beacons::BeaconsConfig;
pub(crate) use bpsec::is_id;
pub use bpsec::{BpsecConfig, BpsecRule, VerifyAt};
pub use cdni::CdniConfig;
pub use changes::{Change, between};
pub use control::ControlConfig;
pub use current::Current;
pub use custody::{CustodyConfig, CustodyDialect, Durability, FILES_PER_CUSTODY, SPARE_SEGMENTS};
pub use deferred::DeferredConfig;
pub use document::{Document, FRAGMENTS};
pub use enrolment::EnrolmentConfig;
pub use error::ConfigError;
pub use link::{
    BeamConfig, ConvergenceLayer, GUESSED_RTT, KnownLink, ListenerConfig, PathConfig,
    PathDirection, RATES_BPS, RTTS_MS,
};
pub use listed::{ListedTerminal, Listing};
pub use ltp::LtpConfig;
pub use meter::{BUDGETS_BYTES, BudgetPeriod, MeterSettings};
pub use modem::ModemConfig;
pub use node::{
    AccessFormat, AccessLogConfig, LogConfig, LogFormat, NodeConfig, Role, is_node_name,
};
pub use on_demand::AskedSettings;
pub use payloads::PayloadsConfig;
pub use positions::{PositionsConfig, Source};
pub use provider::{ProviderConfig, Settable};
pub use reports::ReportsConfig;
pub use route::{NodePattern, OutletConfig, RelayConfig, RouteConfig, RouteCustody};
pub use routing::RoutingConfig;
pub use session::{QuicConfig, QuicCongestionControl, TcpConfig, TlsConfig};
pub use terminal::{AcceptedHop, TerminalConfig, TerminalPathConfig};
pub use traces::TracesConfig;
pub use traffic::{
    ClassSettings, Coded, FlowEstimate, MigrateSettings, StreamsConfig, class_named, coded,
    default_class_tables,
};

/// The whole configuration of one node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub node: NodeConfig,
    #[serde(default)]
    pub log: LogConfig,
    /// Exchanges that are traced.
    #[serde(default)]
    pub traces: Option<TracesConfig>,
    #[serde(default)]
    pub api: ApiConfig,
    /// How convergence-layer sessions are secured.
    #[serde(default)]
    pub tls: TlsConfig,
    /// Where certificate and revocation list are kept up to date.
    #[serde(default)]
    pub enrolment: Option<EnrolmentConfig>,
    /// TCP options of convergence-layer sessions.
    #[serde(default)]
    pub tcp: TcpConfig,
    /// QUIC options of convergence-layer sessions.
    #[serde(default)]
    pub quic: QuicConfig,
    /// Bounds of convergence-layer sessions over LTP.
    #[serde(default)]
    pub ltp: LtpConfig,
    /// Datagrams that tell whether the links are there.
    #[serde(default)]
    pub beacons: BeaconsConfig,
    /// Bundles that are secured from end to end.
    #[serde(default)]
    pub bpsec: BpsecConfig,
    /// The traffic classes, the same on both ends of a hop.
    #[serde(default = "traffic::default_classes", rename = "class")]
    pub classes: Vec<ClassSettings>,
    /// Ways to a neighbour that this node dials.
    #[serde(default, rename = "path")]
    pub paths: Vec<PathConfig>,
    /// Addresses at which this node accepts sessions.
    #[serde(default, rename = "listener")]
    pub listeners: Vec<ListenerConfig>,
    /// The terminals that a hub or relay accepts, with their rates.
    #[serde(default, rename = "terminal")]
    pub terminals: Vec<TerminalConfig>,
    /// The capacity that the terminals share.
    #[serde(default)]
    pub beam: BeamConfig,
    /// Modems that report their lock.
    #[serde(default, rename = "modem")]
    pub modems: Vec<ModemConfig>,
    /// Static routes for bundles to nodes that are no neighbours.
    #[serde(default, rename = "route")]
    pub routes: Vec<RouteConfig>,
    /// The contact plan by which bundles go.
    #[serde(default)]
    pub routing: RoutingConfig,
    /// Between which neighbours bundles are forwarded. Default: for a relay
    /// between all, for a terminal or hub between none.
    #[serde(default, rename = "relay")]
    pub relays: Vec<RelayConfig>,
    /// Flow control of streams.
    #[serde(default)]
    pub streams: StreamsConfig,
    #[serde(default)]
    pub custody: CustodyConfig,
    /// HTTP requests that are kept for later.
    #[serde(default)]
    pub deferred: DeferredConfig,
    /// Programs that send and receive bundles.
    #[serde(default)]
    pub applications: Option<ApplicationsConfig>,
    /// Payloads that are too long for memory.
    #[serde(default)]
    pub payloads: PayloadsConfig,
    /// What this node says of itself to another.
    #[serde(default)]
    pub reports: Option<ReportsConfig>,
    /// The control service that a hub works with.
    #[serde(default)]
    pub control: Option<ControlConfig>,
    /// What a provider may set from afar.
    #[serde(default)]
    pub provider: ProviderConfig,
    /// Where sizes of objects are told.
    #[serde(default)]
    pub cdni: Option<CdniConfig>,
    /// Where it learns its position.
    #[serde(default)]
    pub positions: Option<PositionsConfig>,
    /// Which node a taken-in connection goes to, by its destination.
    #[serde(default, rename = "outlet")]
    pub outlets: Vec<OutletConfig>,
    /// Proxies, interception, and the dialling of origins.
    #[serde(default)]
    pub edge: underpass_edge::config::EdgeConfig,
}

impl Config {
    /// Validates what was read.
    ///
    /// # Errors
    /// Says what is wrong and where: an unknown or malformed key (with its
    /// line), or values that do not fit together (all of them).
    pub fn of(document: &Document) -> Result<Config, ConfigError> {
        let (config, problems) = Config::examine(document)?;
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::Invalid {
                path: document.path().to_owned(),
                problems,
            })
        }
    }

    /// The configuration that was read, with all its problems.
    ///
    /// # Errors
    /// When a key is unknown or malformed: the others cannot be checked then.
    pub fn examine(document: &Document) -> Result<(Config, Vec<String>), ConfigError> {
        let mut config: Config = document.parse()?;
        let mut problems = config.problems();
        bounds::check_texts(document.table(), &mut problems);
        config.routing.read(&mut problems);
        config.edge.dial.peers = terminal::dialled_otherwise(&config.terminals);
        Ok((config, problems))
    }

    #[cfg(test)]
    pub(crate) fn parse(text: &str, path: &std::path::Path) -> Result<Config, ConfigError> {
        Config::of(&Document::merge(vec![(path.to_owned(), text.to_owned())])?)
    }

    fn check_meters(&self, problems: &mut Vec<String>) {
        for path in &self.paths {
            if let Some(meter) = &path.meter {
                let at = format!("path {:?}", path.name);
                meter.check(&at, &self.classes, problems);
            }
        }
        for hop in self.accepted_hops() {
            if let Some(asked) = &hop.on_demand {
                asked.check(&hop.name, problems);
            }
            if let Some(meter) = &hop.meter {
                meter.check(&hop.name, &self.classes, problems);
            }
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        self.node.check(&mut problems);
        traffic::check_classes(&self.classes, &mut problems);
        let paths = self.paths.iter().map(|path| path.name.as_str());
        let listeners = self.listeners.iter().map(|listener| listener.name.as_str());
        let ways = paths.chain(listeners).collect();
        traffic::check_policies(&self.classes, &ways, &mut problems);
        self.check_meters(&mut problems);
        self.streams.check(&self.classes, &mut problems);
        self.custody.check(&mut problems);
        self.deferred.check(&mut problems);
        self.payloads.check(&mut problems);
        if let Some(applications) = &self.applications {
            let has_name = self.node.name.is_some();
            applications.check(&self.classes, has_name, &mut problems);
        }
        let bare = |path: &PathConfig| path.convergence_layer.is_bare();
        if !self.paths.iter().all(bare) || !self.listeners.is_empty() {
            self.tls.check(&mut problems);
        }
        if self.tls.plain && self.has_quic() {
            problems.push(
                "tls: convergence_layer = \"quic\" needs certificates (pki_dir): there is no plain QUIC"
                    .to_owned(),
            );
        }
        if let Some(enrolment) = &self.enrolment {
            enrolment.check(self.tls.pki_dir.as_deref(), &mut problems);
            if let Some(to) = enrolment.to {
                self.check_hub("enrolment", to, &mut problems);
            }
        }
        self.tcp.check(&mut problems);
        self.beacons.check(&mut problems);
        self.provider.check(&mut problems);
        self.ltp.check(&mut problems);
        self.bpsec.check(&mut problems);
        self.log.check(&mut problems);
        if let Some(traces) = &self.traces {
            traces.check(&mut problems);
        }
        self.api.check(&mut problems);
        self.beam.check(&mut problems);
        edge::check(&self.edge, &self.classes, &mut problems);
        self.check_endpoints(&mut problems);
        self.check_listeners(&mut problems);
        self.check_neighbours(&mut problems);
        self.check_outlets(&mut problems);
        if let Some(reports) = &self.reports {
            reports.check(&mut problems);
            self.check_hub("reports", reports.to, &mut problems);
        }
        if let Some(control) = &self.control {
            control.check(&mut problems);
            if self.node.role != Role::Hub {
                problems.push("[control] is for hubs".to_owned());
            }
        }
        if let Some(cdni) = &self.cdni {
            cdni.check(&mut problems);
        }
        self.check_reach(&mut problems);
        if self.positions.is_some() && self.reports.is_none() {
            problems.push("[positions] needs [reports]: nobody is told of them".to_owned());
        }
        problems
    }

    /// The rules that give connections their class.
    ///
    /// # Errors
    /// When a rule names a class that does not exist; [`Config::of`] refuses such a file.
    pub fn classifier(&self) -> Result<Classifier, UnknownClass> {
        let named = |name: &str| class_named(&self.classes, name);
        let default = named(&self.streams.default_class)
            .ok_or_else(|| UnknownClass(self.streams.default_class.clone()))?;
        Classifier::new(&self.edge.rule, default, named)
    }

    /// Whether a path or listener goes over QUIC.
    pub fn has_quic(&self) -> bool {
        let dialled = self.paths.iter().map(|path| path.convergence_layer);
        let accepted = self.listeners.iter().map(|l| l.convergence_layer);
        dialled
            .chain(accepted)
            .any(|layer| layer == ConvergenceLayer::Quic)
    }

    /// The programs that bring paths up and release them, by path.
    pub fn path_commands(&self) -> BTreeMap<String, PathCommands> {
        let commands = self.paths.iter().filter_map(|path| {
            let commands = path.on_demand.as_ref()?.commands()?;
            Some((path.name.clone(), commands))
        });
        commands.collect()
    }

    /// The ipn node numbers this node has sessions with.
    pub fn neighbours(&self) -> BTreeSet<u64> {
        let dialled = self.paths.iter().map(|path| path.neighbour);
        let accepted = self.terminals.iter().map(|terminal| terminal.node);
        dialled.chain(accepted).collect()
    }

    /// The names of the hops, in their order: of paths, then of terminals, then
    /// of these' other paths.
    pub fn hop_names(&self) -> impl Iterator<Item = String> + '_ {
        let paths = self.paths.iter().map(|path| path.name.clone());
        paths.chain(self.accepted_hops().map(|hop| hop.name))
    }

    /// The hops whose sessions are accepted: of terminals, then of these' other
    /// paths.
    pub fn accepted_hops(&self) -> impl Iterator<Item = AcceptedHop> + '_ {
        let own = self.terminals.iter().map(|t| t.hop(self.beam.rate_bps));
        let others = self.terminals.iter().flat_map(TerminalConfig::other_hops);
        own.chain(others)
    }

    /// Whether a route leads to this very node: streams go by such routes only.
    fn is_routed(&self, node: u64) -> bool {
        self.routes.iter().any(|route| route.node == Some(node))
    }

    fn check_listeners(&self, problems: &mut Vec<String>) {
        let mut names = BTreeSet::new();
        for listener in &self.listeners {
            listener.check(problems);
            if !names.insert(&listener.name) {
                problems.push(format!("listener {:?} is there twice", listener.name));
            }
        }
        if !self.listeners.is_empty() && self.terminals.is_empty() {
            problems.push("a [[listener]] needs the [[terminal]]s it accepts".to_owned());
        }
        if self.listeners.is_empty() && !self.terminals.is_empty() {
            problems.push("[[terminal]]s need a [[listener]] to come in by".to_owned());
        }
    }

    fn check_neighbours(&self, problems: &mut Vec<String>) {
        // Paths and terminals share their names in API and metrics.
        let mut names: BTreeSet<String> = BTreeSet::new();
        for path in &self.paths {
            path.check(problems);
            if path.neighbour == self.node.number {
                problems.push(format!("path {:?}: neighbour is this node", path.name));
            }
            if !names.insert(path.name.clone()) {
                problems.push(format!("path {:?} is there twice", path.name));
            }
            let same = |other: &&PathConfig| other.name != path.name && other.listen == path.listen;
            if path.listen.is_some()
                && let Some(other) = self.paths.iter().find(same)
            {
                let (one, other) = (&path.name, &other.name);
                problems.push(format!("path {one:?}: listen is that of path {other:?}"));
            }
        }
        for terminal in &self.terminals {
            terminal.check(problems);
            if terminal.node == self.node.number {
                problems.push(format!("terminal {} is this node", terminal.node));
            }
        }
        for name in self.accepted_hops().map(|hop| hop.name) {
            if !names.insert(name.clone()) {
                problems.push(format!("{name:?} is there twice"));
            }
        }
        self.check_terminal_paths(problems);
        for modem in &self.modems {
            if !self.paths.iter().any(|path| path.name == modem.path) {
                problems.push(format!("modem: there is no [[path]] {:?}", modem.path));
            }
            if modem.from.is_empty() {
                problems.push("modem: from is empty: no modem could connect".to_owned());
            }
        }
        self.check_networks(problems);
        self.check_role(problems);
        self.check_routes(problems);
    }

    /// A terminal's own keys describe a path, too, so a listener must be left for it.
    fn check_terminal_paths(&self, problems: &mut Vec<String>) {
        for terminal in &self.terminals {
            let node = terminal.node;
            for TerminalPathConfig { listener, .. } in &terminal.paths {
                if !self.listeners.iter().any(|l| l.name == *listener) {
                    problems.push(format!(
                        "terminal {node}: path: there is no [[listener]] {listener:?}"
                    ));
                }
            }
            let own = terminal.hop(None);
            let left = self.listeners.iter().any(|l| own.comes_by(&l.name));
            if !left && !self.listeners.is_empty() {
                problems.push(format!(
                    "terminal {node}: every listener is that of a [[terminal.path]]; leave out that of one and give its keys to the terminal itself"
                ));
            }
        }
    }

    /// A packet is counted for one hop, so its destination must belong to only one.
    fn check_networks(&self, problems: &mut Vec<String>) {
        let paths = self.paths.iter();
        let paths = paths.map(|path| (format!("path {:?}", path.name), &path.networks));
        let terminals = self.terminals.iter();
        let terminals = terminals.map(|t| (format!("terminal {}", t.node), &t.networks));
        let mut taken: Vec<(String, IpNet)> = Vec::new();
        for (at, networks) in paths.chain(terminals) {
            let before = taken.len();
            for net in networks {
                let overlaps = |other: &IpNet| other.contains(net) || net.contains(other);
                let others = &mut taken[..before].iter();
                if let Some((other, theirs)) = others.find(|(_, theirs)| overlaps(theirs)) {
                    problems.push(format!(
                        "{at}: networks: {net} overlaps with {theirs} of {other}"
                    ));
                }
                taken.push((at.clone(), *net));
            }
        }
    }

    /// At most one problem for each route: the first one.
    fn check_routes(&self, problems: &mut Vec<String>) {
        let neighbours = self.neighbours();
        let mut routed = BTreeSet::new();
        for route in &self.routes {
            let node = match (route.node, &route.nodes) {
                (Some(node), None) => node,
                (None, Some(nodes)) => {
                    let name = self.node.name.as_ref();
                    if let NodePattern::Name(to) = nodes
                        && name == Some(to)
                    {
                        problems.push(format!("route to dtn://{to}/ leads to this node"));
                    }
                    if !neighbours.contains(&route.via) {
                        let via = route.via;
                        problems.push(format!(
                            "route to several nodes goes by node {via}, which is no neighbour (no [[path]] or [[terminal]])"
                        ));
                    }
                    continue;
                }
                _ => {
                    let via = route.via;
                    problems.push(format!(
                        "route via {via} must have either node (one number) or nodes (a pattern)"
                    ));
                    continue;
                }
            };
            // A route to a neighbour through itself only says whether custody is taken.
            let detour = neighbours.contains(&node) && route.via != node;
            let problem = if !routed.insert(node) {
                "is there twice".to_owned()
            } else if node == self.node.number {
                "leads to this node".to_owned()
            } else if detour {
                "leads to a neighbour, which is reached directly".to_owned()
            } else if !neighbours.contains(&route.via) {
                let via = route.via;
                format!("goes by node {via}, which is no neighbour (no [[path]] or [[terminal]])")
            } else {
                continue;
            };
            problems.push(format!("route to {node} {problem}"));
        }
        for RelayConfig { between } in &self.relays {
            let [one, other] = between;
            if one == other || !between.iter().all(|node| neighbours.contains(node)) {
                problems.push(format!(
                    "relay between {one} and {other}: must be two neighbours ([[path]] or [[terminal]])"
                ));
            }
        }
    }

    fn check_role(&self, problems: &mut Vec<String>) {
        // In single-box mode a node has an edge and no neighbour.
        let single_box = !self.edge.listener.is_empty();
        match self.node.role {
            Role::Terminal if self.paths.is_empty() && !single_box => {
                problems.push("a terminal needs a [[path]], or an [[edge.listener]]".to_owned());
            }
            Role::Hub if self.listeners.is_empty() && self.paths.is_empty() && !single_box => {
                problems.push(
                    "a hub needs a [[listener]], a [[path]] or an [[edge.listener]]".to_owned(),
                );
            }
            Role::Relay if self.paths.is_empty() && self.listeners.is_empty() => {
                problems.push("a relay needs a [[path]] or a [[listener]]".to_owned());
            }
            _ => {}
        }
        let edge = !self.edge.listener.is_empty() || !self.outlets.is_empty();
        if self.node.role == Role::Relay && edge {
            problems.push("a relay has no edge: no [[edge.listener]], no [[outlet]]".to_owned());
        }
    }

    /// A terminal's `to` in this table is a hub that it has a way to.
    fn check_hub(&self, table: &str, to: u64, problems: &mut Vec<String>) {
        let reachable = self.neighbours().contains(&to) || self.is_routed(to);
        if self.node.role != Role::Terminal {
            problems.push(format!("{table}.to is for terminals"));
        } else if !reachable {
            problems.push(format!(
                "{table} to node {to}: neither a neighbour nor routed"
            ));
        }
    }

    fn check_outlets(&self, problems: &mut Vec<String>) {
        let neighbours = self.neighbours();
        for outlet in &self.outlets {
            let reachable = neighbours.contains(&outlet.node) || self.is_routed(outlet.node);
            if !reachable {
                problems.push(format!(
                    "outlet to node {}: neither a neighbour nor routed",
                    outlet.node
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests;
