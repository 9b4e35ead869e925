//! What a decision costs.

use super::*;
use underpass_work::of;

/// Comparisons in the orders for one bundle, with `count` terminals of
/// eight classes that are all backlogged and shaped.
fn comparisons_per_bundle(count: u64) -> u64 {
    let classes = (0..8).map(|class| ClassConfig {
        class: Class(class),
        priority: class,
        weight: 1,
    });
    let config = Config {
        classes: classes.collect(),
        utilisation: 1.0,
    };
    let mut link = LinkScheduler::new(&config).unwrap();
    let mut now = Instant::now();
    link.set_root_rate(now, Some(1_000_000_000));
    for id in 0..count {
        link.add_terminal(now, TerminalId(id), 1, Some(2_000_000_000 / count));
        for class in 1..8 {
            let leaf = Leaf {
                terminal: TerminalId(id),
                class: Class(class),
            };
            link.set_ready(leaf, true).unwrap();
        }
    }
    let bundles = 4 * count;
    let mut sent = 0;
    let steps = of(|| {
        while sent < bundles {
            match link.next(now) {
                Decision::Send { leaf, max_bytes } => {
                    link.set_ready(leaf, false).unwrap();
                    link.sent(now, leaf, max_bytes);
                    link.set_ready(leaf, true).unwrap();
                    sent += 1;
                }
                Decision::Wait(until) => now = until,
                Decision::Idle => now += Duration::from_millis(1),
            }
        }
    });
    steps / bundles
}

#[test]
fn five_thousand_terminals_cost_little_more_than_fifty() {
    let few = comparisons_per_bundle(50);
    let many = comparisons_per_bundle(5_000);
    assert!(few > 0, "the orders are counted");
    // log₂ 5,000 / log₂ 50 is 2.2; scanning would give 100.
    assert!(many < 4 * few, "{many} comparisons against {few}");
}
