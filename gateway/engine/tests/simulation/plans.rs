//! Plans for both ends of the links, and checks that sent bytes keep to them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use underpass_engine::{Engine, HopId};
use underpass_plans::{Plan, Schedule as Followed, State};

use crate::beacons::EPOCH_MS;
use crate::nodes;
use crate::random::Random;
use crate::schedule::{CLASSES, Fault, LinkPlan, NodePlan};
use crate::world::{Happening, World};

/// The credit of a bucket: 60 ms of its rate, at least 4 KiB.
const SAVED_MS: u64 = 60;
const SAVED_BITS: u64 = 8 * 4096;

/// A link's debt holds up every class for this many bundles of a size that suits its
/// rate, as parts (n/4).
const HELD_PARTS: i128 = 5;

/// The most bundles that others may send ahead of a debt: for each class one sparse
/// bundle and one other.
const BUNDLES_AHEAD: i128 = 2 * CLASSES as i128 - 1;

/// A plan on its way to a node's link, and its arrival time.
#[derive(Clone, Debug)]
pub struct Push {
    pub at: Duration,
    pub node: usize,
    /// The link whose return direction it is for; none for the node's beam.
    pub link: Option<usize>,
    pub plan: Arc<Plan>,
}

/// Draws the plans of a run: nodes with links towards terminals get plans of their beam,
/// nodes at the other side get plans of their return links.
pub fn draw(
    seed: u64,
    nodes: &[NodePlan],
    links: &[LinkPlan],
    faults: &[(Duration, Fault)],
) -> Vec<Push> {
    // A separate source of randomness, so that other draws keep their seeds.
    let random = &mut Random::new(seed ^ 0x706C_616E_0000_0000);
    let mut pushes = Vec::new();
    if !random.chance(50) {
        return pushes;
    }
    let senders: BTreeSet<usize> = links.iter().map(|link| link.ends[0]).collect();
    for node in senders {
        let below = links
            .iter()
            .enumerate()
            .filter(|(_, link)| link.ends[0] == node);
        let below: Vec<(usize, u64)> = below
            .map(|(number, link)| (number, nodes[link.ends[1]].number))
            .collect();
        push_some(random, node, None, &below, faults, &mut pushes);
    }
    for (number, link) in links.iter().enumerate() {
        let node = link.ends[1];
        let own = [(number, nodes[node].number)];
        push_some(random, node, Some(number), &own, faults, &mut pushes);
    }
    pushes
}

fn push_some(
    random: &mut Random,
    node: usize,
    link: Option<usize>,
    lines: &[(usize, u64)],
    faults: &[(Duration, Fault)],
    pushes: &mut Vec<Push>,
) {
    for version in 1..=random.pick(&[0, 1, 2, 6]) {
        let at = random.ms(0, 15_000);
        let plan = plan(random, at, version, link.is_none(), lines, faults);
        pushes.push(Push {
            at,
            node,
            link,
            plan: Arc::new(plan),
        });
    }
}

fn ms(at: Duration) -> u64 {
    EPOCH_MS + at.as_millis() as u64
}

/// A plan that arrives at `at`: it is in force at once or a little later, and may end
/// before everything is carried.
fn plan(
    random: &mut Random,
    at: Duration,
    version: u64,
    forward: bool,
    lines: &[(usize, u64)],
    faults: &[(Duration, Fault)],
) -> Plan {
    let start =
        ms(at) - random.between(0, 500).min(ms(at) - EPOCH_MS) + random.pick(&[0, 0, 0, 700]);
    let end = start + random.between(1, 12_000);
    let capacity = random.between(300_000, 8_000_000);
    let step = random.between(start + 1, end);
    let steps = json!([
        { "from_ms": start, "rate_bps": capacity },
        { "from_ms": step, "rate_bps": random.between(300_000, capacity) },
    ]);
    let lines = lines.iter().map(|(link, terminal)| {
        json!({
            "terminals": [terminal],
            "guaranteed_bps": random.between(150_000, 2_000_000),
            "segments": segments(random, start, end, capacity, *link, faults),
        })
    });
    let lines: Vec<_> = lines.collect();
    let document = json!({
        "version": 1, "beam": "a", "link": if forward { "forward" } else { "return" },
        "plan": version, "issued_ms": start, "start_ms": start, "end_ms": end,
        "capacity": steps, "lines": lines,
    });
    Plan::decode(document.to_string().as_bytes()).expect("a valid plan")
}

fn segments(
    random: &mut Random,
    start: u64,
    end: u64,
    capacity: u64,
    link: usize,
    faults: &[(Duration, Fault)],
) -> Vec<serde_json::Value> {
    let blocked = |at: u64| {
        let before = faults.iter().filter(|(when, _)| ms(*when) <= at);
        let of_link = before.filter_map(|(when, fault)| match fault {
            Fault::Block { link: other, .. } if *other == link => Some((when, true)),
            Fault::Unblock { link: other } if *other == link => Some((when, false)),
            _ => None,
        });
        of_link
            .max_by_key(|(when, _)| **when)
            .is_some_and(|(_, blocked)| blocked)
    };
    let mut cuts: BTreeSet<u64> = faults.iter().map(|(when, _)| ms(*when)).collect();
    cuts.extend((0..random.between(0, 5)).map(|_| random.between(start, end)));
    cuts.retain(|cut| start < *cut && *cut < end);
    let begins = [start].into_iter().chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([end]);
    let segments = begins.zip(ends).map(|(begin, end)| {
        let foreseen = if blocked(begin) { 80 } else { 10 };
        let dark = random.chance(foreseen);
        let rate_bps = match dark {
            true => 0,
            false if random.chance(5) => 0,
            false => random.between(100_000, capacity),
        };
        let state = if dark { State::Blocked } else { State::Fair };
        json!({ "start_ms": begin, "end_ms": end, "rate_bps": rate_bps, "state": state })
    });
    segments.collect()
}

/// The most credit of a bucket, bit × 10⁻³.
fn saved(rate_bps: u64) -> i128 {
    i128::from((rate_bps * SAVED_MS).max(SAVED_BITS * 1000))
}

/// What the plans allow a node to have sent on one link, or on its beam.
#[derive(Debug)]
pub struct Watch {
    followed: Followed,
    /// Whether an operator has set the rate: then no plan applies.
    overridden: bool,
    /// The rate without any plan.
    configured: Option<u64>,
    forward: bool,
    terminal: u64,
    /// The engine's clock at the last update.
    at_ms: u64,
    /// The credit, bit × 10⁻³; one bundle may overdraw it.
    level: i128,
    /// The part of a link's debt that higher classes do not wait for: the excess of a
    /// bundle longer than suits the rate, and the excess that arises when the rate is
    /// lowered.
    carried: i128,
    /// The rate for which `carried` was last computed.
    reckoned: Option<u64>,
    /// The longest bundle that has left.
    longest: i128,
}

impl Watch {
    /// The rate at a time; none for unlimited.
    fn rate(&self, at_ms: u64) -> Option<u64> {
        let followed = &self.followed;
        let in_force = followed.in_force(at_ms);
        if self.forward {
            let last = followed
                .current()
                .map(|plan| plan.capacity_at(plan.end_ms()));
            let planned = in_force.map(|plan| plan.capacity_at(at_ms));
            return planned.or(self.configured).or(last);
        }
        let line = followed.current().and_then(|plan| plan.line(self.terminal));
        let guaranteed = line.map(|line| line.guaranteed_bps);
        match followed.segment(self.terminal, at_ms) {
            Some(segment) if segment.state != State::Blocked => Some(segment.rate_bps),
            _ => guaranteed.or(self.configured),
        }
    }

    fn is_dark(&self, at_ms: u64) -> bool {
        let segment = self.followed.segment(self.terminal, at_ms);
        !self.forward && segment.is_some_and(|segment| segment.state == State::Blocked)
    }

    /// Lets time pass, from one rate change to the next.
    fn pass(&mut self, now_ms: u64) {
        while self.at_ms < now_ms {
            self.followed.advance(self.at_ms);
            let change = self.followed.next_change(self.at_ms);
            let until = change.map_or(now_ms, |change| change.min(now_ms));
            let rate = self.rate(self.at_ms);
            self.reckon(rate);
            match rate {
                None => self.level = 0,
                Some(rate) => {
                    self.level += i128::from(rate) * i128::from(until - self.at_ms);
                    self.level = self.level.min(saved(rate));
                }
            }
            self.carried = self.carried.min((-self.level).max(0));
            self.at_ms = until;
        }
        self.followed.advance(now_ms);
        self.reckon(self.rate(now_ms));
    }

    /// Sets the rate from now on. When it falls, classes that owe nothing do not wait
    /// longer.
    fn reckon(&mut self, rate: Option<u64>) {
        if let (Some(before), Some(rate)) = (self.reckoned, rate)
            && rate < before
            && !self.forward
        {
            let kept = self.held() * i128::from(rate) / i128::from(before);
            self.carried += self.held() - kept;
        }
        self.reckoned = rate;
    }

    /// The debt for which all classes wait.
    fn held(&self) -> i128 {
        (-self.level - self.carried).max(0)
    }

    /// Counts bytes that leave now.
    fn sent(&mut self, now_ms: u64, bytes: u64) {
        let before = self.rate(self.at_ms).unwrap_or(0);
        self.pass(now_ms);
        let Some(rate) = self.rate(now_ms) else {
            return;
        };
        if !self.overridden {
            // Times are whole ms here.
            let slack = i128::from(rate.max(before));
            assert!(
                self.level + self.carried + slack >= 0,
                "more left than the plan allows: {} bit too many",
                -self.level / 1000
            );
            let ahead = BUNDLES_AHEAD * self.longest.max(saved(rate));
            assert!(
                self.level + ahead + slack >= 0,
                "more went ahead of a debt than two bundles of each class: {} bit",
                -self.level / 1000
            );
        }
        let bits = i128::from(bytes * 8 * 1000);
        self.longest = self.longest.max(bits);
        self.level -= bits;
        if !self.forward {
            self.carried += (self.held() - saved(rate) * HELD_PARTS / 4).max(0);
        }
    }
}

impl World {
    /// A node that has started gets the plans that it had before.
    pub fn follow_plans(&mut self, number: usize) {
        self.watches.retain(|(node, _), _| *node != number);
        let pushes = self.schedule.pushes.clone();
        if !pushes.iter().any(|push| push.node == number) {
            return;
        }
        let now_ms = ms(self.now);
        self.call_all(number, |engine, now| engine.set_utc(now, Some(now_ms)));
        for (place, push) in pushes.iter().enumerate() {
            if push.node == number && push.at <= self.now {
                self.push(place);
            }
        }
    }

    pub fn expect_pushes(&mut self) {
        for (place, push) in self.schedule.pushes.clone().iter().enumerate() {
            self.at(push.at, Happening::Push(place));
        }
    }

    pub fn push(&mut self, place: usize) {
        let Push {
            node, link, plan, ..
        } = self.schedule.pushes[place].clone();
        let Some(now_ms) = self.engine_ms(node) else {
            return;
        };
        let number = self.schedule.nodes[node].number;
        let configured = match link {
            None => self
                .schedule
                .beam_rate_bps
                .filter(|_| node == crate::schedule::HUB),
            Some(link) => self.schedule.links[link].rate_bps,
        };
        let key = (node, link);
        let watch = self.watches.entry(key).or_insert_with(|| Watch {
            followed: Followed::default(),
            overridden: link.is_some_and(|link| self.links[link].overridden),
            configured,
            forward: link.is_none(),
            terminal: number,
            at_ms: now_ms,
            // The credit saved up before the first plan.
            level: configured.map_or(0, saved),
            carried: 0,
            reckoned: None,
            longest: 0,
        });
        watch.pass(now_ms);
        let expected = watch.followed.take(plan.clone(), now_ms);
        self.count("plan pushed", 1);
        for shard in 0..self.nodes[node].engines.len() {
            let plan = plan.clone();
            let own = |link| nodes::shard_of_link(&self.schedule, node, link) == shard;
            if link.is_some_and(|link| !own(link)) {
                continue;
            }
            let taken = self.call(node, shard, |engine, now| match link {
                None => engine.follow_forward(now, plan),
                Some(link) => engine.follow_return(now, HopId(link as u64), plan),
            });
            assert_eq!(taken.as_ref(), Some(&expected));
        }
    }

    /// An operator sets a link's rate at both ends.
    pub fn override_plans(&mut self, link: usize) {
        self.links[link].overridden = true;
        for ((_, of), watch) in &mut self.watches {
            watch.overridden |= *of == Some(link);
        }
    }

    /// Counts bytes that leave a node on a link.
    pub fn keep_to_plans(&mut self, node: usize, link: usize, bytes: u64) {
        let Some(now_ms) = self.engine_ms(node) else {
            return;
        };
        let contradicted = |engine: &Engine| {
            let hops = engine.hops();
            let hop = hops.iter().find(|hop| hop.id == HopId(link as u64));
            hop.is_some_and(|hop| hop.link.plan_contradicted)
        };
        for key in [(node, None), (node, Some(link))] {
            let Some(watch) = self.watches.get_mut(&key) else {
                continue;
            };
            watch.sent(now_ms, bytes);
            // Times are whole ms here, and finer in the engine.
            if watch.is_dark(now_ms) && watch.is_dark(now_ms - 1) {
                assert!(
                    self.nodes[node].engines.iter().any(contradicted),
                    "sent in a planned blockage"
                );
            }
        }
    }

    /// The time of day that a node's engine knows.
    fn engine_ms(&self, node: usize) -> Option<u64> {
        self.nodes[node].engines.first()?.utc_ms(self.instant())
    }
}
