//! What a node says of its links.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio::time::{Instant, MissedTickBehavior, interval};
use underpass_bundle::{NeighbourFigures, NeighbourId};
use underpass_capacity::Reason;
use underpass_cla::Class;
use underpass_engine::{Engine, HopSnapshot, MeasuredLink};
use underpass_plans::Direction;
use underpass_reports::{
    Body, CapacityReason, ClassFigures, LinkFigures, LinkReport, LinkState, MAX_CLASS_NAME_BYTES,
    MAX_CLASSES, MAX_LINKS, MeasuredCapacity, NodeReport, Proof, Status,
};

use super::{Prover, ReportSender};
use crate::clock::{self, ControlClock};
use crate::config::{Config, Role};
use crate::security::Security;
use crate::shell::Shell;

/// What a node says of its links.
pub struct Reporter {
    shell: Arc<Shell>,
    clock: Arc<ControlClock>,
    security: Security,
    direction: Direction,
    /// The terminal that this node is; a hub's neighbours are its terminals.
    terminal: Option<u64>,
    /// The names of the classes, in their order; none for a name that is too long to be reported.
    classes: Vec<Option<String>>,
    prover: Option<Prover>,
}

impl Reporter {
    pub fn new(
        shell: Arc<Shell>,
        config: &Config,
        clock: Arc<ControlClock>,
        security: Security,
        prover: Option<Prover>,
    ) -> Reporter {
        let is_terminal = config.node.role == Role::Terminal;
        Reporter {
            shell,
            clock,
            security,
            direction: match is_terminal {
                true => Direction::Return,
                false => Direction::Forward,
            },
            terminal: is_terminal.then_some(config.node.number),
            classes: config
                .classes
                .iter()
                .map(|of| reportable(&of.name))
                .collect(),
            prover,
        }
    }

    /// The direction in which this node sends.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    pub fn terminal_of(&self, neighbour: u64) -> u64 {
        self.terminal.unwrap_or(neighbour)
    }

    /// How node and links are now.
    pub fn status(&self) -> Status {
        Status {
            node: Some(self.node()),
            ..self.status_of_links()
        }
    }

    fn status_of_links(&self) -> Status {
        Status {
            time_ms: clock::utc_ms(),
            clock_offset_ms: self.clock.offset_ms(),
            synchronised: clock::synchronised(),
            node: None,
            proof: None,
            links: self.links(),
        }
    }

    fn node(&self) -> NodeReport {
        let end = self.security.not_after();
        let end = end.and_then(|end| end.duration_since(UNIX_EPOCH).ok());
        NodeReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            certificate_end_ms: end.and_then(|end| u64::try_from(end.as_millis()).ok()),
        }
    }

    /// A proof of the present time that this terminal is at its hub; none without a token or the
    /// time of day.
    fn proof(&self) -> Option<Proof> {
        let made = self.prover.as_ref()?.prove(self.clock.now_ms()?);
        let made =
            made.inspect_err(|error| tracing::warn!(%error, "no proof that it is at its hub"));
        made.ok()
    }

    fn links(&self) -> Vec<LinkReport> {
        // The counts are updated first: older counts under the present time would look like bursts,
        // and the ledger settles by them.
        self.shell.session_figures();
        let sent = self.shell.transport_totals();
        let stored = self.shell.custody_by_neighbour();
        let mut links = self.shell.of_each_hop(|engine, hop| {
            let demand = engine.demand(hop.id);
            let of_hop = sent.range((hop.id, None)..=(hop.id, Some(Class(u8::MAX))));
            let plan = hop.plan.as_ref().filter(|plan| plan.in_force);
            LinkReport {
                terminal: self.terminal_of(hop.neighbour),
                path: hop.name.clone(),
                direction: self.direction,
                state: state_of(&hop),
                offered_bytes: demand.offered_bytes,
                backlogged_bytes: demand.backlogged_bytes,
                sent_bytes: of_hop.map(|(_, total)| total.sent_ip_bytes).sum(),
                streams: demand.streams,
                rate_bps: allocated_bps(&hop),
                plan_version: plan.map(|plan| plan.plan.version()),
                efficiency: hop.efficiency,
                measured: measured(&hop.measured),
                figures: Some(self.figures(engine, &hop, &stored)),
            }
        });
        // A path that was added later has a later number than those of its terminal.
        links.sort_by_key(|link| link.terminal);
        links
    }

    fn figures(
        &self,
        engine: &Engine,
        hop: &HopSnapshot,
        stored: &BTreeMap<NeighbourId, NeighbourFigures>,
    ) -> LinkFigures {
        let ms = |of: Duration| u64::try_from(of.as_millis()).unwrap_or(u64::MAX);
        let neighbour = NeighbourId(hop.neighbour);
        let stored = stored.get(&neighbour).copied().unwrap_or_default().used;
        let mut classes: Vec<ClassFigures> = engine
            .demand_by_class(hop.id)
            .into_iter()
            .filter(|(_, demand)| demand.streams != Some(0) || demand.backlogged_bytes > 0)
            .filter_map(|(class, demand)| {
                Some(ClassFigures {
                    name: self.classes.get(usize::from(class.0))?.clone()?,
                    streams: demand.streams,
                    backlogged_bytes: demand.backlogged_bytes,
                })
            })
            .collect();
        classes.truncate(MAX_CLASSES);
        LinkFigures {
            rtt_ms: hop.measured.smoothed_rtt.map(|(_, rtt)| ms(rtt)),
            queue_ms: ms(hop.measured.queue),
            // Rounded to the precision that is known.
            loss: (hop.measured.loss * 1e6).round() / 1e6,
            stored_bundles: stored.bundles,
            stored_bytes: stored.bytes,
            classes,
        }
    }
}

fn reportable(name: &str) -> Option<String> {
    let fits = (1..=MAX_CLASS_NAME_BYTES).contains(&name.len());
    (fits && !name.contains(char::is_control)).then(|| name.to_owned())
}

/// The plan gives a hub's terminals parts of the beam; a terminal's own rate bounds its part.
fn allocated_bps(hop: &HopSnapshot) -> Option<u64> {
    let planned = hop.plan.as_ref().and_then(|plan| plan.planned_bps);
    planned.into_iter().chain(hop.send_rate_bps).min()
}

fn measured(link: &MeasuredLink) -> Option<MeasuredCapacity> {
    Some(MeasuredCapacity {
        capacity_bps: link.capacity_bps?,
        reason: reported(link.reason?),
    })
}

pub fn reported(reason: Reason) -> CapacityReason {
    match reason {
        Reason::Hint => CapacityReason::Hint,
        Reason::Start => CapacityReason::Start,
        Reason::Probe => CapacityReason::Probe,
        Reason::Limit => CapacityReason::Limit,
    }
}

fn state_of(hop: &HopSnapshot) -> LinkState {
    match (hop.blocked, hop.up) {
        (true, _) => LinkState::Blocked,
        (false, true) => LinkState::Up,
        (false, false) => LinkState::Down,
    }
}

/// A status is reported so often at the least.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// A node reports about itself at least this often, since a reader may have begun after the last
/// time.
const NODE_EVERY: Duration = Duration::from_secs(60);

/// What a node has last reported about itself, and when.
#[derive(Debug, Default)]
struct NodeTold(Option<(Instant, NodeReport)>);

impl NodeTold {
    /// Whether `node` differs from the last report.
    fn is_news(&self, node: &NodeReport) -> bool {
        self.0.as_ref().is_none_or(|(_, told)| told != node)
    }

    /// What goes with a status that is told now.
    fn with(&mut self, node: NodeReport, now: Instant) -> Option<NodeReport> {
        let is_recent = self
            .0
            .as_ref()
            .is_some_and(|(at, _)| now < *at + NODE_EVERY);
        if is_recent && !self.is_news(&node) {
            return None;
        }
        self.0 = Some((now, node.clone()));
        Some(node)
    }
}

/// Checks the status each `period` until dropped, and reports it if it has changed or was not
/// reported for long: an idle terminal's reports cost the beam more than anything else it sends. If
/// there are more links than a report holds, it sends several.
pub(in crate::run) async fn tell(reporter: Arc<Reporter>, reports: ReportSender, period: Duration) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<(Instant, Status)> = None;
    let mut node_told = NodeTold::default();
    loop {
        let now = ticks.tick().await;
        let mut status = reporter.status_of_links();
        let node = reporter.node();
        let told = last.as_ref().is_some_and(|(at, told)| {
            now + period / 2 < *at + LONGEST_SILENCE
                && !status.has_news(told)
                && !node_told.is_news(&node)
        });
        if told {
            continue;
        }
        status.node = node_told.with(node, now);
        // Each time anew: the terminal may have been moved meanwhile, or the token been replaced.
        status.proof = status.node.as_ref().and_then(|_| reporter.proof());
        last = Some((now, status.clone()));
        let of = |link: &LinkReport| link.terminal;
        let mut rest = status.links.split_off(in_one_report(&status.links, of));
        while !rest.is_empty() {
            let next = rest.split_off(in_one_report(&rest, of));
            let links = std::mem::replace(&mut rest, next);
            reports.send(Body::Status(Status {
                links,
                ..status.clone()
            }));
        }
        reports.send(Body::Status(status));
    }
}

/// How many of these links the next report has: as many as it holds, but all paths of a terminal
/// together, since a missing path counts as removed.
fn in_one_report<L>(links: &[L], terminal: impl Fn(&L) -> u64) -> usize {
    let Some(next) = links.get(MAX_LINKS) else {
        return links.len();
    };
    let mut before = links[..MAX_LINKS].iter();
    let last = before.rposition(|link| terminal(link) != terminal(next));
    // If one terminal has more paths than a report holds, they are split.
    last.map_or(MAX_LINKS, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_terminal_are_not_split_among_reports() {
        let so_many = |terminals: &[u64]| in_one_report(terminals, |terminal| *terminal);
        let each: Vec<u64> = (0..MAX_LINKS as u64).collect();
        let with = |more: &[u64]| [&each[..], more].concat();
        assert_eq!(so_many(&[]), 0);
        assert_eq!(so_many(&each), MAX_LINKS);
        assert_eq!(so_many(&with(&[200])), MAX_LINKS);
        let last = MAX_LINKS as u64 - 1;
        assert_eq!(so_many(&with(&[last, last])), MAX_LINKS - 1);
        assert_eq!(so_many(&[7; MAX_LINKS + 1]), MAX_LINKS);
    }

    #[test]
    fn a_node_tells_of_itself_at_once_when_it_changes_and_each_minute() {
        let node = |certificate_end_ms| NodeReport {
            version: "1".to_owned(),
            certificate_end_ms,
        };
        let start = Instant::now();
        let mut told = NodeTold::default();
        assert!(told.is_news(&node(None)));
        let mut at = |s: u64, end| {
            let with = told.with(node(end), start + Duration::from_secs(s));
            assert!(!told.is_news(&node(end)));
            with.is_some()
        };
        let seen = [
            (0, None),
            (1, None),
            (59, None),
            (60, None),
            (61, Some(5)),
            (62, Some(5)),
        ];
        let is_told = seen.map(|(s, end)| at(s, end));
        assert_eq!(is_told, [true, false, false, true, true, false]);
    }
}
