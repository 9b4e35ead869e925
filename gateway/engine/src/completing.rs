//! The policy *minfct*: each flow goes by the path on which it is estimated to
//! be complete first (Bouttier et al., *Improving content delivery with
//! size-aware routing in hybrid satellite / terrestrial networks*).
//! Flows wait in lanes until they leave.

use std::time::{Duration, Instant};

use underpass_bundle::NeighbourId;
use underpass_cla::Class;
use underpass_completion::{Competition, Estimate, PathState};
use underpass_streams::class_of;
use underpass_work::FastMap;

use crate::choosing::COUNTED_PEERS;
use crate::engine::Engine;
use crate::hop::HopId;
use crate::paths::Way;
use crate::policy::PathUse;
use crate::streams::StreamKey;

/// A smoothed round trip counts for so long.
const SMOOTHED_COUNTS: Duration = Duration::from_secs(1);

/// On a path that loses more than this part, flows without anything to send also count while they
/// have something unacknowledged.
const LOSSY: f64 = 0.01;
/// These flows are counted anew after so long.
const COUNTED_EACH: Duration = Duration::from_millis(100);

/// A path that a flow could go by, and what was known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedPath {
    /// The path.
    pub hop: HopId,
    /// Its delay, capacity, loss, and the time until it is free.
    pub path: PathState,
    /// What else is to be sent by it.
    pub others: Competition,
    /// When the flow would be complete by it; `None` where the policy does not decide by
    /// completion.
    pub completes: Option<Duration>,
    /// By how much the flow delays others, in all: those that compete, and those that begin while
    /// it is sent.
    pub others_wait: Duration,
    lane: Option<Class>,
}

impl ComparedPath {
    /// By how much all completion times together grow if the flow goes by this path.
    pub(crate) fn costs(&self) -> Option<Duration> {
        Some(self.completes?.saturating_add(self.others_wait))
    }
}

/// Where a flow goes, and why, if the caller asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowPath {
    /// The round trip of the path, where one was chosen for the flow.
    pub round_trip: Option<Duration>,
    /// When the flow would be complete by it.
    pub completes: Option<Duration>,
    /// What was compared.
    pub why: Option<FlowChoice>,
}

/// What is known of a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowChoice {
    /// What the class does with several paths.
    pub uses: PathUse,
    /// How completion is estimated, where it is.
    pub estimate: Option<Estimate>,
    /// The path; `None` where each bundle has a path of its own, or no path can
    /// carry the class now.
    pub chosen: Option<HopId>,
    /// The paths that can carry the class now and that its policy lets it use.
    pub compared: Vec<ComparedPath>,
}

/// What is remembered of the flows of such classes.
#[derive(Debug, Default)]
pub(crate) struct Completing {
    /// By neighbour and lane: when its unacknowledged flows were counted, and
    /// how many there were.
    unacknowledged: FastMap<(u64, Class), (Instant, u64)>,
    /// The queue from which each leaf was last sealed.
    pub last: FastMap<(HopId, Class), Class>,
}

impl Completing {
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Completing {
            unacknowledged,
            last,
        } = self;
        tell("lanes with counted flows", unacknowledged.len());
        tell("leaves with lanes", last.len());
    }
}

impl Engine {
    /// Begins a flow: the next `size_bytes` of a stream, as far as known, including those written
    /// and not sealed. If its class has the policy *minfct*, the unsealed bytes of the stream and
    /// all that follow go by the path on which so much is complete first. The caller then writes to
    /// the stream, which sends both. With `explain` the result says what was compared, whatever the
    /// policy.
    pub fn begin_flow(
        &mut self,
        now: Instant,
        key: StreamKey,
        size_bytes: u64,
        explain: bool,
    ) -> FlowPath {
        self.expect_flow(now, key, size_bytes);
        let mut policies = self.config.policies.values();
        if !explain && !policies.any(|policy| policy.uses == PathUse::MinFct) {
            return FlowPath::default();
        }
        let known = self.change_run(key, |mux| {
            let queue = mux.queue_of(key.id)?;
            Some((class_of(queue), mux.unwritten_bytes(key.id)))
        });
        let Some((class, left_bytes)) = known.flatten() else {
            return FlowPath::default();
        };
        let neighbour = self.neighbour_to(key.peer);
        let several = self.ways.hops_to(neighbour).len() > 1;
        let uses = self.policy(class).uses;
        if !several || uses != PathUse::MinFct {
            let why = || self.choice_without_estimate(now, neighbour, class);
            return FlowPath {
                why: explain.then(why),
                ..FlowPath::default()
            };
        }
        // The flow must not compete with itself.
        let _ = self.change_run(key, |mux| mux.begin_flow(key.id, class, size_bytes));
        let mut compared = self.compare(now, neighbour, class, size_bytes);
        self.try_again(now, class, size_bytes, &mut compared);
        let first = first_of(&compared);
        let round_trip =
            first.and_then(|(hop, lane)| self.go_by(key, class, (hop, lane), size_bytes));
        if let Some((hop, _)) = first.filter(|_| round_trip.is_some())
            && let Some(hop) = self.hops.get_mut(&hop)
        {
            // The rest of a flow that is decided anew was counted when the flow began.
            hop.flow_brings(now, class, size_bytes.saturating_sub(left_bytes));
        }
        let of_first = |path: &&ComparedPath| first.is_some_and(|(hop, _)| hop == path.hop);
        let completes = compared
            .iter()
            .find(of_first)
            .and_then(|path| path.completes);
        let why = || FlowChoice {
            uses,
            estimate: Some(self.policy(class).estimate),
            chosen: first.map(|(hop, _)| hop),
            compared,
        };
        FlowPath {
            round_trip,
            completes: completes.filter(|_| round_trip.is_some()),
            why: explain.then(why),
        }
    }

    /// Has a flow wait in the lane of a hop. Returns the hop's round trip.
    fn go_by(
        &mut self,
        key: StreamKey,
        class: Class,
        (hop, lane): (HopId, Class),
        size_bytes: u64,
    ) -> Option<Duration> {
        let begun = self.change_run(key, |mux| mux.begin_flow(key.id, lane, size_bytes));
        begun?.ok()?;
        let hop = self.hops.get_mut(&hop)?;
        hop.count_flow(class);
        Some(hop.round_trip() + hop.measured.queue)
    }

    /// The choice for a class whose policy does not estimate completion. All bundles of the class
    /// wait together.
    fn choice_without_estimate(&self, now: Instant, neighbour: u64, class: Class) -> FlowChoice {
        let candidates = self.candidates(now, neighbour, class);
        let compared = candidates.into_iter().filter_map(|candidate| {
            let id = candidate.id;
            Some(ComparedPath {
                hop: id,
                path: self.path_state(now, id, candidate.way)?,
                others: Competition {
                    before_bytes: self.backlog_by(neighbour, class, id),
                    ..Competition::default()
                },
                completes: None,
                others_wait: Duration::ZERO,
                lane: None,
            })
        });
        let compared: Vec<ComparedPath> = compared.collect();
        FlowChoice {
            uses: self.policy(class).uses,
            estimate: None,
            chosen: match &compared[..] {
                [only] => Some(only.hop),
                _ => None,
            },
            compared,
        }
    }

    /// Changes the class of a stream, for the bytes not sealed yet and all that follow. Its next
    /// flow chooses the path anew.
    pub fn set_class(&mut self, now: Instant, key: StreamKey, class: Class) {
        let class = self.known(class);
        self.change_run(key, |mux| {
            let queue = mux.queue_of(key.id);
            if queue.is_some_and(|queue| class_of(queue) != class) {
                // A stream that takes no more bytes sends none either, so an error does not matter.
                let _ = mux.set_class(key.id, class);
            }
        });
        self.after_change(now);
    }

    /// The lane of a request, whose size is unknown: the lane by which something short arrives
    /// first.
    pub(crate) fn lane_of_request(
        &mut self,
        now: Instant,
        neighbour: u64,
        class: Class,
    ) -> Option<Class> {
        let several = self.ways.hops_to(neighbour).len() > 1;
        if !several || self.policy(class).uses != PathUse::MinFct {
            return None;
        }
        let compared = self.compare(now, neighbour, class, 0);
        first_of(&compared).map(|(_, lane)| lane)
    }

    /// When a flow would be complete by each path that it may go by.
    fn compare(
        &mut self,
        now: Instant,
        neighbour: u64,
        class: Class,
        size_bytes: u64,
    ) -> Vec<ComparedPath> {
        let estimate = self.policy(class).estimate;
        let mut compared = Vec::new();
        for candidate in self.candidates(now, neighbour, class) {
            let hop = candidate.id;
            let Some(lane) = self.lane_of(neighbour, class, hop) else {
                continue;
            };
            let Some(path) = self.path_state(now, hop, candidate.way) else {
                continue;
            };
            let others =
                self.competition(now, neighbour, (class, lane, hop), path.loss, size_bytes);
            compared.push(ComparedPath {
                hop,
                path,
                others,
                completes: Some(estimate.of(&path, &others, size_bytes)),
                others_wait: estimate.others_wait(&path, &others, size_bytes),
                lane: Some(lane),
            });
        }
        compared
    }

    fn path_state(&self, now: Instant, id: HopId, way: Way) -> Option<PathState> {
        let hop = self.hops.get(&id)?;
        let measured = &hop.measured;
        // An old round trip with a queue would keep flows away from a path that is idle now.
        let late = measured
            .smoothed_rtt
            .filter(|(at, _)| now < *at + SMOOTHED_COUNTS);
        Some(PathState {
            delay: late.map_or(way.delay, |(_, rtt)| rtt / 2),
            // The low rate allowed behind a first flight is no limit of the path: taken for one, it
            // would keep flows away from the path.
            capacity_bps: self.within_share(id, hop.usable_bps()),
            loss: measured.recovery_loss,
            busy: way.busy,
        })
    }

    /// What competes with a flow of `size_bytes` that would join a lane.
    fn competition(
        &mut self,
        now: Instant,
        neighbour: u64,
        (class, lane, id): (Class, Class, HopId),
        loss: f64,
        size_bytes: u64,
    ) -> Competition {
        let hop = self.hops.get(&id);
        let arriving_bps = hop.map_or(0, |hop| hop.arriving_bps(now, class, size_bytes));
        let mut others = Competition {
            before_bytes: self.bytes_before(neighbour, class, id),
            arriving_bps,
            ..Competition::default()
        };
        let mut lanes = vec![lane];
        // The paper knows no classes: all flows that go by the path compete. For the other
        // estimate those of other classes are among the bytes before.
        if self.policy(class).estimate == Estimate::NewConnection {
            let too = self.classes.iter().filter(|of| **of != class);
            let too = too.filter(|of| self.policy(**of).uses == PathUse::MinFct);
            lanes.extend(too.filter_map(|of| self.lane_of(neighbour, *of, id)));
        }
        for lane in lanes {
            for peer in self.ways.peers_behind(neighbour).take(COUNTED_PEERS) {
                let load = self.peers.get(peer).and_then(|streams| streams.load(lane));
                if let Some(load) = load {
                    others.flows += load.flows();
                    others.bytes = others.bytes.saturating_add(load.up_to(size_bytes));
                }
            }
            if loss > LOSSY {
                others.flows += self.unacknowledged_flows(now, neighbour, lane);
            }
        }
        others
    }

    /// The bytes that leave by a hop before the flows of a class, or in turn with them: those of
    /// other classes, and bundles that were sealed before.
    fn bytes_before(&self, neighbour: u64, class: Class, id: HopId) -> u64 {
        let sealed = self.agent.backlog_bytes(NeighbourId(neighbour), class);
        sealed + self.backlog_of_others(neighbour, class, id)
    }

    fn unacknowledged_flows(&mut self, now: Instant, neighbour: u64, lane: Class) -> u64 {
        let known = self.completing.unacknowledged.get(&(neighbour, lane));
        if let Some((_, flows)) = known.filter(|(at, _)| now < *at + COUNTED_EACH) {
            return *flows;
        }
        let peers = self.ways.peers_behind(neighbour).take(COUNTED_PEERS);
        let counts =
            peers.filter_map(|peer| Some(self.peers.get(peer)?.unacknowledged_flows(lane)));
        let flows = counts.sum();
        let counted = (now, flows);
        self.completing
            .unacknowledged
            .insert((neighbour, lane), counted);
        flows
    }
}

/// The path by which a flow costs all flows the least time, and its lane.
fn first_of(compared: &[ComparedPath]) -> Option<(HopId, Class)> {
    let first = compared.iter().min_by_key(|path| path.costs())?;
    Some((first.hop, first.lane?))
}
