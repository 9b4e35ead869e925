//! The events of one run, drawn from its seed before it begins.

mod faults;

use std::time::Duration;

use underpass_cla::Class;
use underpass_engine::{Estimate, MeterConfig, MeteredUse, MigrationRule, PathUse, Period, Policy};

use crate::plans::{self, Push};
use crate::random::Random;
pub use faults::{Fault, HowStopped};

/// The time at which faults cease and everything is repaired.
pub const CALM: Duration = Duration::from_secs(20);

pub const HUB: usize = 0;
pub const CLASSES: u8 = 3;

#[derive(Clone, Debug)]
pub struct Schedule {
    pub seed: u64,
    pub nodes: Vec<NodePlan>,
    pub links: Vec<LinkPlan>,
    pub streams: Vec<StreamPlan>,
    pub messages: Vec<MessagePlan>,
    pub faults: Vec<(Duration, Fault)>,
    /// The policy of classes with several links; bonded by default.
    pub policies: Vec<(Class, Policy)>,
    pub equal_priority: bool,
    pub beam_rate_bps: Option<u64>,
    pub relay_custody: bool,
    /// Plans for the nodes' links.
    pub pushes: Vec<Push>,
}

#[derive(Clone, Debug)]
pub struct NodePlan {
    pub number: u64,
    pub edge: bool,
    pub store_bytes: u64,
    pub store_bundles: usize,
    pub window_bytes: u64,
    pub send_buffer_bytes: u64,
    pub max_streams: usize,
    pub clock: bool,
    /// The disk, if custody is to survive the node's process.
    pub disk: Option<DiskPlan>,
    /// The number of engines among which its neighbours are divided.
    pub shards: usize,
}

#[derive(Clone, Debug)]
pub struct DiskPlan {
    /// The time of each step of its worker.
    pub latency: Duration,
    pub segment_bytes: u64,
    pub memory_bytes: u64,
}

/// A link between two nodes; the first is the hub's side.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    pub ends: [usize; 2],
    pub delay: Duration,
    pub rate_bps: Option<u64>,
    /// Whether both ends know classes.
    pub classes: bool,
    pub standby: bool,
    pub mru_bytes: u64,
    /// Whether the transport has large buffers: sessions are ready again before the bytes
    /// have left.
    pub eager: bool,
    /// Whether both ends send beacons on it.
    pub beacons: bool,
    /// The blockages in the plan, right or wrong.
    pub planned: Vec<(Duration, Duration)>,
    /// Whether its sessions carry datagrams: nobody reports losses, and bundles overtake
    /// one another.
    pub datagrams: bool,
    /// The percentage of datagrams that are lost, and that are duplicated.
    pub loss_percent: u64,
    /// Whether it is a second link between the same nodes.
    pub second: bool,
    /// What each end may spend on it, if its bytes are paid for.
    pub meter: Option<MeterConfig>,
}

#[derive(Clone, Debug)]
pub struct StreamPlan {
    pub at: Duration,
    pub opener: usize,
    pub acceptor: usize,
    pub class: Class,
    pub report_connected: bool,
    pub ends: [EndPlan; 2],
}

#[derive(Clone, Debug)]
pub struct MessagePlan {
    pub at: Duration,
    pub from: usize,
    pub to: usize,
    pub class: Class,
    pub bytes: usize,
}

/// The actions of an application at its end of a stream.
#[derive(Clone, Debug)]
pub struct EndPlan {
    pub send_bytes: u64,
    pub write_bytes: usize,
    pub write_pause: Duration,
    pub read_bytes: usize,
    pub read_pause: Duration,
    /// The number of bytes sent or received after which it resets.
    pub reset_after: Option<u64>,
}

impl Schedule {
    pub fn of(seed: u64) -> Schedule {
        let mut random = Random::new(seed);
        let random = &mut random;
        let relayed = random.chance(30);
        let relay_custody = random.chance(50);
        let terminals = random.between(1, 2) as usize;
        let mut nodes = vec![node(random, 1, true)];
        let mut links = Vec::new();
        let hub = if relayed {
            let mut relay = node(random, 5, false);
            // Bundles that a smaller store refuses are all repeated at once a minute
            // later, and so on.
            relay.store_bytes = relay.store_bytes.max(128 << 10);
            relay.store_bundles = relay.store_bundles.max(64);
            nodes.push(relay);
            links.push(link(random, [HUB, 1]));
            1
        } else {
            HUB
        };
        for number in 0..terminals as u64 {
            nodes.push(node(random, 10 + number, true));
            links.push(link(random, [hub, nodes.len() - 1]));
        }
        // A bundle under custody must not be fragmented: beyond a relay the MRU must not
        // be smaller than before it. And no node announces an MRU that its store cannot
        // hold, nor a relay, whose neighbours share its store, more than a quarter of it.
        let mru_bytes = random.pick(&[4_096, 10_000, 1 << 20, 1 << 30]);
        let stores = nodes.iter().map(|node| match node.edge {
            true => node.store_bytes - 2_048,
            false => node.store_bytes / 4,
        });
        let mru_bytes = stores.chain([mru_bytes]).min().unwrap_or(mru_bytes);
        for link in &mut links {
            link.mru_bytes = mru_bytes;
        }
        let first_terminal = nodes.len() - terminals;
        let streams = (0..random.between(1, 6))
            .map(|_| {
                let terminal = random.between(first_terminal as u64, nodes.len() as u64 - 1);
                stream(random, terminal as usize)
            })
            .collect();
        let messages = (0..random.pick(&[0, 3, 12]))
            .map(|_| {
                let terminal = random.between(first_terminal as u64, nodes.len() as u64 - 1);
                let least = nodes.iter().map(|node| node.store_bytes).min();
                message(
                    random,
                    terminal as usize,
                    mru_bytes.min(least.unwrap_or(0) / 2),
                )
            })
            .collect();
        let mut faults = Vec::new();
        for number in 0..links.len() {
            faults::link_faults(random, number, &mut faults);
        }
        for (number, link) in links.iter_mut().enumerate() {
            if random.chance(40) {
                link.planned = faults::planned(random, number, &faults);
            }
        }
        for (place, plan) in nodes.iter().enumerate() {
            if plan.disk.is_some() && random.chance(15) {
                faults::disk_fails(random, place, &mut faults);
            }
        }
        // A relay that holds custody only in memory loses it when it stops, so it does
        // not restart.
        let restarts = random.chance(25);
        for (place, plan) in nodes.iter().enumerate() {
            if restarts && random.chance(40) && (plan.edge || !relay_custody || plan.disk.is_some())
            {
                faults::restarts_of(random, place, &mut faults);
            }
        }
        // A separate source of randomness, as for the shards below.
        let absences = &mut Random::new(seed ^ 0x6177_6179_0000_0000);
        if terminals > 1 && absences.chance(15) {
            faults::switched_off(absences, nodes.len() - 1, &mut faults);
        }
        // As above.
        let upgrades = &mut Random::new(seed ^ 0x7570_6772_6164_0000);
        for place in 0..nodes.len() {
            if upgrades.chance(25) {
                faults::upgrades_of(upgrades, place, &mut faults);
            }
        }
        let pushes = plans::draw(seed, &nodes, &links, &faults);
        // A separate source of randomness, as above.
        let paths = &mut Random::new(seed ^ 0x7061_7468_7300_0000);
        let mut policies = Vec::new();
        if paths.chance(25) {
            let beside = paths.between(0, links.len() as u64 - 1) as usize;
            let second = LinkPlan {
                mru_bytes,
                second: true,
                ..link(paths, links[beside].ends)
            };
            links.push(second);
            // Nodes announce a quarter of their store: a relay with two neighbours has no
            // room for a bundle of nearly its size.
            let least = nodes.iter().map(|node| node.store_bytes / 4).min();
            for link in &mut links {
                link.mru_bytes = link.mru_bytes.min(least.unwrap_or(link.mru_bytes));
            }
            faults::link_faults(paths, links.len() - 1, &mut faults);
            let both = [beside, links.len() - 1];
            policies = policies_of(paths, both);
            // As above.
            let meters = &mut Random::new(seed ^ 0x6d65_7465_7200_0000);
            links[both[1]].meter = meters.chance(40).then(|| meter(meters));
            let is_metered = links[both[1]].meter.is_some();
            pin_and_meter(meters, &mut policies, both, is_metered);
        }
        // A separate source of randomness, so that other draws keep their seeds.
        let shards = &mut Random::new(seed ^ 0x7368_6172_6400_0000);
        for plan in &mut nodes {
            plan.shards = shards.pick(&[1, 1, 2, 3]);
        }
        Schedule {
            seed,
            pushes,
            nodes,
            links,
            streams,
            messages,
            faults,
            policies,
            equal_priority: random.chance(30),
            beam_rate_bps: random
                .chance(30)
                .then(|| random.between(100_000, 8_000_000)),
            relay_custody,
        }
    }

    /// Whether bits flip on some disk.
    pub fn flips(&self) -> bool {
        let flips = |fault: &Fault| {
            let Fault::Stop { how, .. } = fault else {
                return false;
            };
            matches!(how, HowStopped::Crash { flip: true, .. })
        };
        self.faults.iter().any(|(_, fault)| flips(fault))
    }

    pub fn restarts(&self, node: usize) -> bool {
        let stops =
            |fault: &Fault| matches!(fault, Fault::Stop { node: stopped, .. } if *stopped == node);
        self.faults.iter().any(|(_, fault)| stops(fault))
    }
}

fn node(random: &mut Random, number: u64, edge: bool) -> NodePlan {
    NodePlan {
        number,
        edge,
        store_bytes: random.pick(&[24 << 10, 128 << 10, 1 << 20, 16 << 20]),
        store_bundles: random.pick(&[4, 64, 65_536]),
        window_bytes: random.pick(&[0, 64 << 10, 300_000, 4 << 20]),
        send_buffer_bytes: random.pick(&[10_000, 64 << 10, 1 << 20]),
        max_streams: random.pick(&[2, 100, 100]),
        clock: random.chance(50),
        disk: random.chance(60).then(|| disk(random)),
        shards: 1,
    }
}

fn disk(random: &mut Random) -> DiskPlan {
    DiskPlan {
        latency: Duration::from_millis(random.pick(&[0, 0, 3, 20])),
        segment_bytes: random.pick(&[16 << 10, 256 << 10, 64 << 20]),
        memory_bytes: random.pick(&[64 << 10, 1 << 20, 96 << 20]),
    }
}

fn link(random: &mut Random, ends: [usize; 2]) -> LinkPlan {
    let rates = [None, Some(300_000), Some(2_000_000), Some(20_000_000)];
    LinkPlan {
        ends,
        delay: random.ms(1, 300),
        rate_bps: random.pick(&rates),
        classes: random.chance(80),
        standby: random.chance(70),
        mru_bytes: 1 << 30,
        eager: random.chance(30),
        beacons: random.chance(60),
        planned: Vec::new(),
        datagrams: random.chance(15),
        loss_percent: random.pick(&[0, 0, 2, 10]),
        second: false,
        meter: None,
    }
}

/// A budget that some runs spend soon, and never renew.
fn meter(random: &mut Random) -> MeterConfig {
    MeterConfig {
        budget_bytes: random.pick(&[None, Some(20_000), Some(500_000)]),
        period: Period::Once,
        beyond: match random.chance(50) {
            true => vec![Class::SIGNALLING],
            false => Vec::new(),
        },
    }
}

/// Pins some classes to one of the links, and draws when each goes by metered links. Where the
/// second link is metered none is pinned to it: its bundles might wait for its budget for ever.
fn pin_and_meter(
    random: &mut Random,
    policies: &mut [(Class, Policy)],
    links: [usize; 2],
    is_metered: bool,
) {
    for (_, policy) in policies {
        policy.metered = random.pick(&[MeteredUse::Last, MeteredUse::Never, MeteredUse::Freely]);
        if random.chance(20) {
            let link = match is_metered {
                true => links[0],
                false => random.pick(&links),
            };
            policy.uses = PathUse::Pinned;
            policy.paths = vec![format!("link{link}")];
        }
    }
}

/// Policies over two links for some classes.
fn policies_of(random: &mut Random, links: [usize; 2]) -> Vec<(Class, Policy)> {
    let uses = [
        PathUse::Bonded,
        PathUse::Failover,
        PathUse::Duplicated,
        PathUse::Migrate,
        PathUse::MinFct,
    ];
    let classes = (0..CLASSES).filter(|_| random.chance(40));
    let classes: Vec<u8> = classes.collect();
    let policy = |class| {
        let uses = random.pick(&uses);
        let mut paths = links.map(|link| format!("link{link}")).to_vec();
        if random.chance(50) {
            paths.reverse();
        }
        if random.chance(30) {
            paths.clear();
        }
        let migration = MigrationRule {
            after: Some(random.ms(0, 2_000)),
            full_part: 0.5,
            delay_factor: 1.5,
            back_after: random.ms(0, 3_000),
            ..MigrationRule::default()
        };
        (
            Class(class),
            Policy {
                uses,
                paths,
                migration,
                estimate: Estimate::default(),
                metered: MeteredUse::default(),
            },
        )
    };
    classes.into_iter().map(policy).collect()
}

fn stream(random: &mut Random, terminal: usize) -> StreamPlan {
    let from_hub = random.chance(20);
    let reset = random.chance(20);
    let resetter = random.between(0, 1) as usize;
    let class = Class(random.between(0, u64::from(CLASSES) - 1) as u8);
    let mut ends = [end(random), end(random)];
    if class == Class::SIGNALLING {
        // It never pauses, so a small relay takes one bulk bundle of it a minute.
        for end in &mut ends {
            end.send_bytes = end.send_bytes.min(5_000);
        }
    }
    if reset {
        let most = ends[resetter].send_bytes + 1;
        ends[resetter].reset_after = Some(random.between(0, most));
    }
    StreamPlan {
        at: random.ms(0, 8_000),
        opener: if from_hub { HUB } else { terminal },
        acceptor: if from_hub { terminal } else { HUB },
        class,
        report_connected: random.chance(50),
        ends,
    }
}

fn message(random: &mut Random, terminal: usize, most_bytes: u64) -> MessagePlan {
    let up = random.chance(70);
    let (from, to) = if up { (terminal, HUB) } else { (HUB, terminal) };
    MessagePlan {
        at: random.ms(0, 15_000),
        from,
        to,
        class: Class(random.between(0, u64::from(CLASSES) - 1) as u8),
        bytes: random.between(0, most_bytes.min(20_000) / 4) as usize,
    }
}

fn end(random: &mut Random) -> EndPlan {
    let most = random.pick(&[0, 100, 5_000, 80_000, 300_000]);
    EndPlan {
        send_bytes: random.between(0, most),
        write_bytes: random.between(500, 60_000) as usize,
        write_pause: random.pick(&[Duration::ZERO, Duration::from_millis(30)]),
        read_bytes: random.between(2_000, 200_000) as usize,
        read_pause: random.pick(&[Duration::ZERO, Duration::ZERO, Duration::from_millis(50)]),
        reset_after: None,
    }
}

#[test]
fn schedules_have_pinned_classes_and_metered_links() {
    let schedules: Vec<Schedule> = (0..400).map(Schedule::of).collect();
    let pinned = |schedule: &Schedule| {
        let mut policies = schedule.policies.iter();
        policies.any(|(_, policy)| policy.uses == PathUse::Pinned)
    };
    let metered = |schedule: &Schedule| {
        let mut meters = schedule.links.iter().filter_map(|link| link.meter.as_ref());
        meters.any(|meter| meter.budget_bytes.is_some())
    };
    assert!(schedules.iter().any(pinned) && schedules.iter().any(metered));
    assert!(schedules.iter().any(|of| pinned(of) && metered(of)));
}
