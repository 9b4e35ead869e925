//! What a run does, drawn from its seed.

use super::link::{Blockage, LinkPlan};
use super::random::Random;
use super::script::{Scale, Script, Step};

/// A node is killed, and started again.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    pub place: usize,
    /// ms from the start.
    pub at: u64,
    pub lasts: u64,
}

/// What an operator changes at a node.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// The rate to the other node, bit/s.
    Rate(u64),
    /// That is the configured one again.
    UsualRate,
    Block(bool),
}

/// A change at a time, ms from the start.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub at: u64,
    pub change: Change,
}

/// A run: the scripts of many connections over one pair of nodes.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub kind: Kind,
    pub link: LinkPlan,
    pub durable: bool,
    /// Credit of a stream; all of them have twice that.
    pub window_bytes: u64,
    pub kills: Vec<Kill>,
    /// By node.
    pub operations: [Vec<Operation>; 2],
    pub hub_shards: usize,
    pub scripts: Vec<Script>,
}

/// Connections of a run, and of a run in which all end at once: 10 000 in 250 runs.
const SCRIPTS: usize = 20;
const TOGETHER: usize = 180;

/// What a run is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Idle,
    Saturated,
    Lossy,
    Blocked,
    /// All connections end at once.
    Together,
    /// Nodes are killed.
    Killed,
}

impl Plan {
    pub fn of(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let kind = match seed % 8 {
            0 => Kind::Idle,
            1 | 2 => Kind::Saturated,
            3 => Kind::Lossy,
            4 | 5 => Kind::Blocked,
            6 => Kind::Together,
            _ => Kind::Killed,
        };
        let blocked = matches!(kind, Kind::Blocked | Kind::Killed) || random.chance(10);
        let lossy = kind == Kind::Lossy || random.chance(10);
        let rates_bps = match kind {
            Kind::Saturated => [
                random.between(200_000, 1_000_000),
                random.between(500_000, 3_000_000),
            ],
            _ => [
                random.between(2_000_000, 20_000_000),
                random.between(5_000_000, 50_000_000),
            ],
        };
        let link = LinkPlan {
            rates_bps,
            delay: random.pick(&[5, 50, 300]),
            blockages: match blocked {
                true => blockages(&mut random),
                false => Vec::new(),
            },
            breaks: match lossy {
                true => breaks(&mut random),
                false => Vec::new(),
            },
            classes: random.pick(&[0, 4, 4]),
            standby: random.chance(50),
        };
        let durable = random.chance(if kind == Kind::Killed { 80 } else { 50 });
        let kills = match kind {
            Kind::Killed => kills(&mut random, &link.blockages),
            _ => Vec::new(),
        };
        let scale = Scale {
            most_bytes: match kind {
                Kind::Idle | Kind::Blocked => random.pick(&[30_000, 1_000_000]),
                _ => 200_000,
            },
            spread: match kind {
                Kind::Together => 0,
                _ => 10_000,
            },
        };
        let window_bytes = random.pick(&[64 << 10, 1 << 20, 4 << 20]);
        let count = match kind {
            Kind::Together => TOGETHER,
            _ => SCRIPTS,
        };
        let scripts = (0..count).map(|_| Script::draw(&mut random, scale));
        let mut scripts: Vec<Script> = scripts.collect();
        if kind == Kind::Together {
            let at = random.between(100, 5_000);
            for script in &mut scripts {
                script.parts[0].steps.push(Step::Until(at));
            }
        }
        let hub_shards = random.pick(&[1, 3]);
        let operations = link.rates_bps.map(|rate| operations(&mut random, rate));
        Plan {
            seed,
            kind,
            operations,
            link,
            durable,
            window_bytes,
            kills,
            hub_shards,
            scripts,
        }
    }
}

/// Pairs of a change and its end.
fn operations(random: &mut Random, rate_bps: u64) -> Vec<Operation> {
    let mut at = 0;
    let pairs = random.between(0, 12);
    let drawn = (0..pairs).flat_map(|_| {
        at += random.between(10, 2_000);
        let begin = at;
        at += random.between(0, 500);
        let [one, other] = match random.chance(50) {
            true => [Change::Block(true), Change::Block(false)],
            false => {
                let lower = random.between(rate_bps / 4, rate_bps);
                [Change::Rate(lower), Change::UsualRate]
            }
        };
        [(begin, one), (at, other)].map(|(at, change)| Operation { at, change })
    });
    drawn.collect()
}

fn blockages(random: &mut Random) -> Vec<Blockage> {
    let mut at = random.between(0, 3_000);
    let count = random.between(1, 4);
    let drawn = (0..count).map(|_| {
        let lasts = random.between(200, 20_000);
        let blockage = Blockage {
            at,
            lasts,
            told: random.chance(60),
        };
        at += lasts + random.between(100, 4_000);
        blockage
    });
    drawn.collect()
}

fn breaks(random: &mut Random) -> Vec<u64> {
    let mut at = 0;
    let drawn = (0..40).map(|_| {
        at += random.between(10, 1_500);
        at
    });
    drawn.collect()
}

/// Kills during blockages or soon after, when custody is full.
fn kills(random: &mut Random, blockages: &[Blockage]) -> Vec<Kill> {
    let mut free_from = 0;
    let mut kills = Vec::new();
    for blockage in blockages.iter().take(2) {
        let at = blockage.at + random.between(1_000, blockage.lasts + 2_000);
        let lasts = random.between(10, 5_000);
        let place = random.between(0, 1) as usize;
        if at > free_from {
            free_from = at + lasts;
            kills.push(Kill { place, at, lasts });
        }
    }
    kills
}
