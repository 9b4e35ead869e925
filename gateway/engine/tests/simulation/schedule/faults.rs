//! The faults of a run, and which of them are planned.

use std::time::Duration;

use underpass_store::simulated::Crash;

use super::CLASSES;
use crate::random::Random;

/// A fault of a link or a node, or its repair.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The sessions of a class break, with the standby if `all`.
    Break {
        link: usize,
        class: u8,
        all: bool,
    },
    /// Both directions are silent.
    Block {
        link: usize,
        /// Whether the engines are told, as by a plan.
        told: bool,
        /// Whether sessions break meanwhile.
        breaks: bool,
    },
    Unblock {
        link: usize,
    },
    /// A receiver refuses this percentage of transfers.
    Refuse {
        link: usize,
        side: usize,
        percent: u64,
    },
    /// The link's rate changes, and both engines are told.
    Rate {
        link: usize,
        rate_bps: Option<u64>,
    },
    Stop {
        node: usize,
        how: HowStopped,
        dice: u64,
    },
    /// A disk takes only this many bytes beyond its contents, or nothing at all.
    DiskFails {
        node: usize,
        room_bytes: Option<u64>,
    },
    DiskMended {
        node: usize,
    },
    Start {
        node: usize,
    },
    /// Another process takes over a node, and another one that node, this many times in a
    /// row.
    Upgrade {
        node: usize,
        times: u32,
    },
}

/// The way in which a node ends.
#[derive(Clone, Copy, Debug)]
pub enum HowStopped {
    /// The node first writes everything that is to be written.
    InOrder,
    Crash {
        crash: Crash,
        /// Whether it is in the middle of a write.
        torn: bool,
        /// Whether a bit on the disk is flipped afterwards.
        flip: bool,
    },
}

/// A node stops and restarts, once or several times in a row.
pub fn restarts_of(random: &mut Random, node: usize, faults: &mut Vec<(Duration, Fault)>) {
    let times = random.pick(&[1, 1, 3]);
    let flips = random.chance(10);
    let mut back = Duration::ZERO;
    for _ in 0..times {
        // The last stop comes before the calm.
        let at = back + random.ms(100, 14_000 / times);
        let how = match random.chance(25) {
            true => HowStopped::InOrder,
            false => HowStopped::Crash {
                crash: random.pick(&[Crash::Kill, Crash::PowerInOrder, Crash::PowerInAnyOrder]),
                torn: random.chance(40),
                flip: flips && random.chance(50),
            },
        };
        let dice = random.next();
        faults.push((at, Fault::Stop { node, how, dice }));
        back = at + random.ms(0, 4_000 / times);
        faults.push((back, Fault::Start { node }));
    }
}

/// A node is upgraded in place, once or several times.
pub fn upgrades_of(random: &mut Random, node: usize, faults: &mut Vec<(Duration, Fault)>) {
    for _ in 0..random.pick(&[1, 2, 5]) {
        let times = random.pick(&[1, 1, 2]);
        let at = random.ms(50, 16_000);
        faults.push((at, Fault::Upgrade { node, times }));
    }
}

/// A vehicle is off most of the time, unless it restarts anyway.
pub fn switched_off(random: &mut Random, node: usize, faults: &mut Vec<(Duration, Fault)>) {
    let of_node = |(_, fault): &(Duration, Fault)| {
        let at = match fault {
            Fault::Stop { node, .. } | Fault::Start { node } => Some(*node),
            Fault::DiskFails { node, .. } | Fault::DiskMended { node } => Some(*node),
            _ => None,
        };
        at == Some(node)
    };
    if faults.iter().any(of_node) {
        return;
    }
    let how = HowStopped::InOrder;
    let dice = random.next();
    faults.push((random.ms(0, 3_000), Fault::Stop { node, how, dice }));
    faults.push((random.ms(15_000, 19_000), Fault::Start { node }));
}

/// A disk is full, or fails, for some time.
pub fn disk_fails(random: &mut Random, node: usize, faults: &mut Vec<(Duration, Fault)>) {
    let at = random.ms(0, 8_000);
    let room_bytes = random.chance(70).then(|| random.between(0, 100_000));
    faults.push((at, Fault::DiskFails { node, room_bytes }));
    let mended = at + random.ms(100, 8_000);
    faults.push((mended, Fault::DiskMended { node }));
}

/// The planned blockages of a link: some are predicted correctly, some too early, too
/// late or not at all, and some never come.
pub fn planned(
    random: &mut Random,
    number: usize,
    faults: &[(Duration, Fault)],
) -> Vec<(Duration, Duration)> {
    let times = |begin: bool| {
        let of_link = faults.iter().filter(move |(_, fault)| match fault {
            Fault::Block { link, .. } => begin && *link == number,
            Fault::Unblock { link } => !begin && *link == number,
            _ => false,
        });
        of_link.map(|(at, _)| *at)
    };
    let mut planned = Vec::new();
    for (entry, exit) in times(true).zip(times(false)) {
        match random.pick(&[0, 0, 1, 2]) {
            0 => planned.push((entry, exit)),
            1 => {
                let wrong = random.ms(0, 3_000);
                let early = random.chance(50);
                let shift = |at: Duration| match early {
                    true => at.saturating_sub(wrong),
                    false => at + wrong,
                };
                planned.push((shift(entry), shift(exit)));
            }
            _ => {}
        }
    }
    if random.chance(30) {
        let entry = random.ms(0, 12_000);
        planned.push((entry, entry + random.ms(10, 5_000)));
    }
    planned
}

/// A link's sessions break, it is blocked, refuses transfers or changes its rate.
pub fn link_faults(random: &mut Random, link: usize, faults: &mut Vec<(Duration, Fault)>) {
    if random.chance(60) {
        for _ in 0..random.between(1, 6) {
            let class = random.between(0, u64::from(CLASSES) - 1) as u8;
            let all = random.chance(30);
            faults.push((random.ms(50, 15_000), Fault::Break { link, class, all }));
        }
    }
    if random.chance(50) {
        let mut at = Duration::ZERO;
        for _ in 0..random.between(1, 3) {
            at += random.ms(50, 4_000);
            let (told, breaks) = (random.chance(50), random.chance(50));
            faults.push((at, Fault::Block { link, told, breaks }));
            at += random.ms(10, 6_000);
            faults.push((at, Fault::Unblock { link }));
        }
    }
    for side in 0..2 {
        if random.chance(25) {
            let at = random.ms(0, 5_000);
            let percent = random.pick(&[10, 50, 100]);
            faults.push((
                at,
                Fault::Refuse {
                    link,
                    side,
                    percent,
                },
            ));
            let end = at + random.ms(100, 3_000);
            faults.push((
                end,
                Fault::Refuse {
                    link,
                    side,
                    percent: 0,
                },
            ));
        }
    }
    if random.chance(20) {
        let rate_bps = random.pick(&[None, Some(100_000), Some(5_000_000)]);
        faults.push((random.ms(0, 9_000), Fault::Rate { link, rate_bps }));
    }
}
