//! Events of the links, for log and metrics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, mpsc};
use underpass_cla::{Activity, Class, PathFigures, Session};
use underpass_engine::{HopId, LinkChange, MoveReason, PathChange, Source};

use super::shard::Inner;
use super::{Shell, timer};

/// How many changes of links a follower may lag behind.
pub(super) const EVENTS: usize = 1024;

#[derive(Clone, Debug)]
pub struct LinkEvent {
    pub hop: HopId,
    /// The path's or terminal's name.
    pub path: String,
    /// The neighbour's ipn node number.
    pub neighbour: u64,
    pub change: LinkChange,
    pub at: Instant,
    /// When the peer fell silent, if the blockage was found by that.
    pub silent_since: Option<Instant>,
}

/// A class goes by another path.
#[derive(Clone, Debug)]
pub struct ClassMove {
    pub class: Class,
    /// The path's or terminal's name of before.
    pub from: String,
    /// That from now on.
    pub to: String,
    pub reason: MoveReason,
}

#[derive(Clone, Debug)]
pub struct PathOrder {
    pub hop: HopId,
    /// The path's name.
    pub path: String,
    pub change: PathChange,
}

/// Blockages of one hop since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkTotals {
    /// How many began, by who said so first.
    pub blockages: BTreeMap<Source, u64>,
    /// How long those took that are over.
    pub blocked: Duration,
    /// Planned blockages in which the peer was heard.
    pub plans_contradicted: u64,
}

#[derive(Debug, Default)]
pub(super) struct LinkLedger {
    totals: BTreeMap<HopId, LinkTotals>,
    seen: HashMap<HopId, Seen>,
}

/// What a hop's sessions have shown.
#[derive(Debug, Default)]
struct Seen {
    /// What moves on them.
    activity: Arc<Activity>,
    /// The activity count at which all of them were found at rest.
    still: Option<u64>,
    /// Segments that they had sent at the last check.
    segments: u64,
    /// When these were found more than before.
    sent: Option<Instant>,
}

impl LinkLedger {
    /// The counter in which the sessions of a hop count what moves.
    pub fn activity(&mut self, hop: HopId) -> Arc<Activity> {
        self.seen.entry(hop).or_default().activity.clone()
    }

    /// The hop's activity count, if nothing has moved since all its sessions were found at rest.
    pub fn still(&self, hop: HopId) -> Option<u64> {
        let seen = self.seen.get(&hop)?;
        seen.still.filter(|still| *still == seen.activity.count())
    }

    /// When anything was last seen to leave.
    pub fn sent(&self, hop: HopId) -> Option<Instant> {
        self.seen.get(&hop)?.sent
    }

    /// Takes the figures of all sessions of a hop, read when its activity was at `count`.
    pub fn look(&mut self, hop: HopId, count: u64, figures: &[PathFigures], now: Instant) {
        let seen = self.seen.entry(hop).or_default();
        let still = figures.iter().all(|figures| figures.still);
        seen.still = still.then_some(count);
        let segments = figures.iter().map(|figures| figures.segments_sent).sum();
        if seen.sent.is_none() || seen.segments != segments {
            (seen.segments, seen.sent) = (segments, Some(now));
        }
    }

    /// Forgets all hops but these.
    pub fn retain(&mut self, hops: &[HopId]) {
        self.totals.retain(|hop, _| hops.contains(hop));
        self.seen.retain(|hop, _| hops.contains(hop));
    }

    fn note(&mut self, hop: HopId, change: LinkChange) {
        let totals = self.totals.entry(hop).or_default();
        match change {
            LinkChange::Blocked(source) => *totals.blockages.entry(source).or_default() += 1,
            LinkChange::Free(lasted) => totals.blocked += lasted,
            LinkChange::PlanContradicted(_) => totals.plans_contradicted += 1,
            LinkChange::Source(_) => {}
        }
    }
}

impl Inner {
    /// The sessions of a hop; no other hop is visited.
    pub(super) fn sessions_of(&self, hop: HopId) -> Vec<Arc<dyn Session>> {
        let ids = self.engine.sessions_of(hop).into_iter();
        ids.filter_map(|id| self.sessions.get(&id).cloned())
            .collect()
    }

    /// A path is to be brought up, or released.
    pub(super) fn path_ordered(&mut self, hop: HopId, change: PathChange) {
        let path = self.engine.hop_name(hop).unwrap_or_default().to_owned();
        match change {
            PathChange::BringUp(need) => {
                tracing::info!(path, need = need.name(), "bringing the path up");
            }
            PathChange::Release(why) => {
                tracing::info!(path, why = why.name(), "releasing the path");
            }
        }
        // While the node ends there is no follower.
        let _ = self.path_orders.send(PathOrder { hop, path, change });
    }

    pub(super) fn link_changed(&mut self, hop: HopId, change: LinkChange) {
        self.links.note(hop, change);
        let name = self.engine.hop_name(hop).unwrap_or_default();
        // There may be no follower.
        let _ = self.link_events.send(LinkEvent {
            hop,
            path: name.to_owned(),
            neighbour: self.engine.neighbour_of(hop).unwrap_or_default(),
            change,
            at: timer::now(),
            silent_since: self.engine.silent_since(hop),
        });
        match change {
            LinkChange::Blocked(source) if source.is_arranged() => {
                tracing::info!(path = name, source = source.name(), "link blocked");
            }
            LinkChange::Blocked(source) => {
                tracing::warn!(path = name, source = source.name(), "link blocked");
            }
            LinkChange::Source(source) => {
                tracing::info!(path = name, source = source.name(), "link still blocked");
            }
            LinkChange::Free(lasted) => {
                let blocked_s = lasted.as_secs_f64();
                tracing::info!(path = name, blocked_s, "link back");
            }
            LinkChange::PlanContradicted(planned) => tracing::warn!(
                path = name,
                entry_ms = planned.entry_ms,
                exit_ms = planned.exit_ms,
                "the peer is heard in a planned blockage: sending goes on"
            ),
        }
    }
}

impl Shell {
    pub fn modem_says(&self, path: &str, blocked: bool) {
        if let Some(hop) = self.hop_named(path) {
            self.with_hop(hop, |engine, now| engine.block_by_modem(now, hop, blocked));
        }
    }

    /// The changes of links from now on.
    pub fn link_events(&self) -> broadcast::Receiver<LinkEvent> {
        self.link_events.subscribe()
    }

    /// The moves of classes from now on.
    pub fn class_moves(&self) -> broadcast::Receiver<ClassMove> {
        self.class_moves.subscribe()
    }

    /// The orders for paths on demand, from the start on; for one follower.
    pub fn path_orders(&self) -> Option<mpsc::UnboundedReceiver<PathOrder>> {
        self.path_orders.lock().unwrap().take()
    }

    /// Blockages by hop since the start.
    pub fn link_totals(&self) -> BTreeMap<HopId, LinkTotals> {
        let each = self.numbers();
        each.flat_map(|shard| self.lock(shard).links.totals.clone())
            .collect()
    }

    /// The activity count of each of these hops of a shard, if nothing has moved since the hop was
    /// found at rest.
    pub(super) fn at_rest(&self, shard: usize, hops: &[HopId]) -> Vec<Option<u64>> {
        let inner = self.lock(shard);
        let each = hops.iter();
        each.map(|hop| inner.links.still(*hop)).collect()
    }

    pub(super) fn name_of(&self, hop: HopId) -> String {
        let name = self.read_hop(hop, |engine| engine.hop_name(hop).map(str::to_owned));
        name.unwrap_or_default()
    }
}
