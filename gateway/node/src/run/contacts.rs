//! Follows the contact plan: contacts begin and end, links are blocked or will be, and bundles
//! wait. Tells the engines where bundles go.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use underpass_bundle::{NeighbourId, NextHops, PlannedRoutes};
use underpass_engine::{Contacts, HopId, HopSnapshot, Source};
use underpass_routing::{Blocked, Change, Contact, Forwarding, NextHop, Table};

use crate::clock;
use crate::config::Config;
use crate::shell::Shell;

/// How often blockages and backlogs are checked.
const LOOK: Duration = Duration::from_secs(1);

/// The shortest expected duration of a blockage of unknown length, ms.
const LEAST_EXPECTED_MS: u64 = 1_000;

/// Follows the contact plan of the configuration in force.
pub struct ContactRouting {
    shell: Arc<Shell>,
    state: Mutex<State>,
    /// Wakes the task at once for another plan, or another time.
    due: Notify,
}

#[derive(Default)]
struct State {
    /// The plan, if one is followed.
    followed: Option<Followed>,
    /// Nodes with a route of their own, which takes precedence over the plan.
    routed: BTreeSet<u64>,
    /// Since when hops have no session.
    down: BTreeMap<HopId, Instant>,
    changes: u64,
    clock_missed: bool,
}

struct Followed {
    forwarding: Forwarding,
    speakers: Arc<HashMap<u64, BTreeSet<u64>>>,
    /// Whether the engines have it.
    told: bool,
}

/// What the plan says of a neighbour.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NeighbourContact {
    pub neighbour: u64,
    pub open: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanFigures {
    pub contacts: usize,
    /// Nodes in it beside this one.
    pub nodes: usize,
    /// Of these, those with a way at present.
    pub reached: usize,
    /// Searches for routes since the plan was taken.
    pub searches: u64,
    /// Changes of ways since the start.
    pub changes: u64,
    /// Nodes to which contacts lead from here although they are no neighbours; these contacts are
    /// not used.
    pub strangers: Vec<u64>,
    pub neighbours: Vec<NeighbourContact>,
}

#[derive(Clone, Debug)]
pub struct PlannedWay {
    /// As it was found.
    pub next: NextHop,
    /// Its contacts in order, without their blocked parts.
    pub contacts: Vec<Contact>,
}

impl ContactRouting {
    /// Follows the plan of a configuration from now on.
    pub fn start(config: &Config, shell: &Arc<Shell>) -> Arc<ContactRouting> {
        let routing = Arc::new(ContactRouting {
            shell: shell.clone(),
            state: Mutex::default(),
            due: Notify::new(),
        });
        routing.reconfigure(config);
        routing
    }

    /// Follows the plan of another configuration.
    pub fn reconfigure(&self, config: &Config) {
        let mut state = self.lock();
        let was_followed = state.followed.is_some();
        state.routed = config
            .routes
            .iter()
            .filter_map(|route| route.node)
            .collect();
        state.followed = config.routing.contact_plan.as_ref().map(|path| {
            let plan = config.routing.plan.0.to_vec();
            let bytes = config.routing.bundle_bytes;
            let neighbours = config.neighbours();
            let forwarding = Forwarding::new(config.node.number, plan, &neighbours, bytes);
            let (contacts, strangers) = (forwarding.contacts(), forwarding.strangers());
            tracing::info!(plan = %path.display(), contacts, "contact plan followed");
            if !strangers.is_empty() {
                tracing::warn!(nodes = ?strangers, "contacts with nodes that are no neighbours are not used");
            }
            let speakers = forwarding.table().speakers.iter();
            let others = speakers.filter(|(node, _)| !state.routed.contains(node));
            let speakers = others.map(|(node, by)| (*node, by.clone())).collect();
            Followed {
                forwarding,
                speakers: Arc::new(speakers),
                told: false,
            }
        });
        if was_followed && state.followed.is_none() {
            self.shell.set_contacts(&Contacts::default());
        }
        drop(state);
        self.look(Instant::now());
        self.due.notify_one();
    }

    /// Checks time, links and backlogs, and tells the engines what has changed. Returns how long
    /// the next check may wait.
    fn look(&self, now: Instant) -> Duration {
        // Under the lock, so that changes reach the engines in the order in which they are found.
        let mut state = self.lock();
        let Some(now_ms) = clock::utc_ms() else {
            if state.followed.is_some() && !std::mem::replace(&mut state.clock_missed, true) {
                tracing::warn!("the contact plan waits: this node does not know what time it is");
            }
            return LOOK;
        };
        if state.followed.is_none() {
            return Duration::MAX;
        }
        let hops = self.shell.hops();
        let blocked = state.blocked(now, now_ms, &hops);
        let backlog = self.shell.custody_by_neighbour().into_iter();
        let backlog = backlog.map(|(neighbour, figures)| (neighbour.0, figures.used.bytes));
        let State {
            followed,
            routed,
            changes,
            ..
        } = &mut *state;
        let Some(followed) = followed else {
            return Duration::MAX;
        };
        let sizes = self.shell.take_planned_sizes();
        followed.forwarding.seek_for(now_ms, &sizes);
        let advanced = followed.forwarding.advance(now_ms, &blocked);
        let given = self.shell.take_given();
        let booked = followed.forwarding.book(now_ms, &backlog.collect(), &given);
        let first = (!std::mem::replace(&mut followed.told, true)).then(|| Change {
            table: followed.forwarding.table().clone(),
            lost: BTreeSet::new(),
            moved: BTreeSet::new(),
        });
        for change in first.into_iter().chain(advanced).chain(booked) {
            *changes += 1;
            let contacts = contacts_of(&change, routed, &followed.speakers);
            tracing::debug!(lost = ?change.lost, moved = ?change.moved, "planned ways have changed");
            self.shell.set_contacts(&contacts);
        }
        let next_ms = followed.forwarding.next_ms(now_ms);
        let until = next_ms.map(|at| Duration::from_millis(at.saturating_sub(now_ms)));
        until.map_or(LOOK, |until| until.min(LOOK))
    }

    /// The plan in figures, if one is followed.
    pub fn figures(&self) -> Option<PlanFigures> {
        let state = self.lock();
        let forwarding = &state.followed.as_ref()?.forwarding;
        let open = forwarding.table().open.iter();
        Some(PlanFigures {
            contacts: forwarding.contacts(),
            nodes: forwarding.destinations().len(),
            reached: forwarding.table().of_smallest().map_or(0, BTreeMap::len),
            searches: forwarding.searches(),
            changes: state.changes,
            strangers: forwarding.strangers().iter().copied().collect(),
            neighbours: open
                .map(|(neighbour, open)| NeighbourContact {
                    neighbour: *neighbour,
                    open: *open,
                })
                .collect(),
        })
    }

    /// The planned route of small bundles to a node; none if the node has a route of its own, or
    /// the plan has none at present.
    pub fn way_to(&self, node: u64) -> Option<PlannedWay> {
        let state = self.lock();
        if state.routed.contains(&node) {
            return None;
        }
        let forwarding = &state.followed.as_ref()?.forwarding;
        let next = forwarding.table().of_smallest()?.get(&node)?.clone();
        let now_ms = clock::utc_ms().unwrap_or_default();
        let contacts = forwarding.contacts_of(&next.route, now_ms);
        Some(PlannedWay { next, contacts })
    }

    /// Whether the plan that is followed names a node.
    pub fn names(&self, node: u64) -> bool {
        let state = self.lock();
        let followed = state.followed.as_ref();
        followed.is_some_and(|followed| followed.forwarding.destinations().contains(&node))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic ends the process (`panics`): no call finds a poisoned state.
        self.state.lock().unwrap()
    }
}

impl State {
    /// For each neighbour, the times when all its hops are blocked.
    fn blocked(
        &mut self,
        now: Instant,
        now_ms: u64,
        hops: &[HopSnapshot],
    ) -> BTreeMap<u64, Vec<Blocked>> {
        let down = |hop: &&HopSnapshot| !hop.up;
        let is_down: BTreeSet<HopId> = hops.iter().filter(down).map(|hop| hop.id).collect();
        self.down.retain(|hop, _| is_down.contains(hop));
        for hop in is_down {
            self.down.entry(hop).or_insert(now);
        }
        let mut blocked: BTreeMap<u64, Vec<Blocked>> = BTreeMap::new();
        for hop in hops {
            let of_hop = self.blocked_of(now, now_ms, hop);
            blocked
                .entry(hop.neighbour)
                .and_modify(|of_all| *of_all = in_both(of_all, &of_hop))
                .or_insert(of_hop);
        }
        blocked
    }

    /// The same of one hop, in order and apart.
    fn blocked_of(&self, now: Instant, now_ms: u64, hop: &HopSnapshot) -> Vec<Blocked> {
        let planned = hop.link.planned.iter();
        // A planned blockage in which the peer is heard does not count.
        let planned = planned.skip(usize::from(hop.link.plan_contradicted));
        let mut all: Vec<Blocked> = planned
            .map(|planned| Blocked {
                from_ms: planned.entry_ms,
                until_ms: planned.exit_ms,
            })
            .collect();
        let said = hop.link.blocked;
        let since = said.and_then(|(source, since)| match source {
            // The ends of these are known.
            Source::Plan | Source::Contact => None,
            Source::Operator | Source::Modem | Source::Probing => Some(since),
        });
        let since = since.or_else(|| self.down.get(&hop.id).copied());
        if let Some(since) = since {
            all.push(expected(now_ms, now.saturating_duration_since(since)));
        }
        all.sort_by_key(|blocked| blocked.from_ms);
        let mut apart: Vec<Blocked> = Vec::new();
        for next in all {
            match apart.last_mut() {
                Some(last) if next.from_ms <= last.until_ms => {
                    last.until_ms = last.until_ms.max(next.until_ms);
                }
                _ => apart.push(next),
            }
        }
        apart
    }
}

/// A blockage of unknown length is expected to last as long again as it has lasted. Its expected
/// end moves only once it has passed, so that bundles do not change their route at each check.
fn expected(now_ms: u64, lasted: Duration) -> Blocked {
    let lasted_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
    let from_ms = now_ms.saturating_sub(lasted_ms);
    let whole_ms = (lasted_ms + 1).next_power_of_two().max(LEAST_EXPECTED_MS);
    Blocked {
        // Rounded to seconds, since the two clocks are not read at the same moment.
        from_ms: from_ms / 1_000 * 1_000,
        until_ms: (from_ms.saturating_add(whole_ms) / 1_000 + 1) * 1_000,
    }
}

/// What is in both, each in order and apart.
fn in_both(one: &[Blocked], other: &[Blocked]) -> Vec<Blocked> {
    let mut both = Vec::new();
    let (mut ones, mut others) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(one), Some(other)) = (ones.peek(), others.peek()) {
        let from_ms = one.from_ms.max(other.from_ms);
        let until_ms = one.until_ms.min(other.until_ms);
        if from_ms < until_ms {
            both.push(Blocked { from_ms, until_ms });
        }
        match one.until_ms <= other.until_ms {
            true => drop(ones.next()),
            false => drop(others.next()),
        }
    }
    both
}

/// What the engines are told.
fn contacts_of(
    change: &Change,
    routed: &BTreeSet<u64>,
    speakers: &Arc<HashMap<u64, BTreeSet<u64>>>,
) -> Contacts {
    let Change { table, lost, moved } = change;
    let Table { next, open, .. } = &**table;
    let of_size = |(bytes, next): (&u64, &BTreeMap<u64, NextHop>)| {
        let next = next.iter().filter(|(node, _)| !routed.contains(node));
        let next = next.map(|(node, hop)| (*node, NeighbourId(hop.via)));
        (*bytes, next.collect())
    };
    Contacts {
        routes: Some(PlannedRoutes {
            next: Arc::new(NextHops::new(next.iter().map(of_size).collect())),
            speakers: speakers.clone(),
        }),
        open: open.clone(),
        lost: lost.clone(),
        moved: moved.clone(),
    }
}

/// Follows time, links and backlogs. Runs until dropped.
pub(super) async fn follow(routing: Arc<ContactRouting>) {
    let mut links = routing.shell.link_events();
    loop {
        // A large plan takes some milliseconds to search.
        let looking = routing.clone();
        let looked = tokio::task::spawn_blocking(move || looking.look(Instant::now()));
        let Ok(until) = looked.await else {
            return;
        };
        // Without a plan, only a new plan can wake this.
        let idle = until == Duration::MAX;
        tokio::select! {
            () = tokio::time::sleep(until), if !idle => {}
            () = routing.due.notified() => {}
            event = links.recv(), if !idle => {
                if matches!(event, Err(RecvError::Closed)) {
                    return;
                }
                // Changes come in bursts, and one check sees them all.
                tokio::time::sleep(Duration::from_millis(5)).await;
                while links.try_recv().is_ok() {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(pairs: &[(u64, u64)]) -> Vec<Blocked> {
        let pairs = pairs.iter();
        pairs
            .map(|(from_ms, until_ms)| Blocked {
                from_ms: *from_ms,
                until_ms: *until_ms,
            })
            .collect()
    }

    #[test]
    fn a_neighbour_is_blocked_while_all_its_hops_are() {
        let both = in_both(
            &blocked(&[(0, 10), (20, 30), (40, 50)]),
            &blocked(&[(5, 25), (45, 46), (48, 60)]),
        );
        assert_eq!(both, blocked(&[(5, 10), (20, 25), (45, 46), (48, 50)]));
        assert!(in_both(&both, &[]).is_empty());
    }

    #[test]
    fn a_blockage_is_expected_to_take_as_long_again_and_its_end_moves_seldom() {
        let now_ms = 1_800_000_000_000;
        let mut ends = BTreeSet::new();
        for lasted in 0..600_000_u64 {
            let at_ms = now_ms + lasted;
            let expected = expected(at_ms, Duration::from_millis(lasted));
            assert!(expected.from_ms <= now_ms && at_ms < expected.until_ms);
            let rest_ms = expected.until_ms - at_ms;
            assert!(
                rest_ms <= lasted + 2 * LEAST_EXPECTED_MS,
                "{rest_ms} after {lasted}"
            );
            ends.insert(expected.until_ms);
        }
        assert!(ends.len() <= 12, "{ends:?}");
    }
}
