//! The seeds of a simulation: the usual number from 0 on, unless the environment says
//! otherwise.
//!
//! | variable | meaning |
//! |---|---|
//! | `UNDERPASS_SIM_SEED` | this one alone |
//! | `UNDERPASS_SIM_SEEDS` | so many |
//! | `UNDERPASS_SIM_FROM` | from this one on |
//! | `UNDERPASS_SIM_SECONDS` | none begins after so many seconds |

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

/// Runs each seed, on as many threads as there are processors. Returns whether there were
/// at least as many seeds as usual.
pub fn run_each(usual: u64, run: impl Fn(u64) + Sync) -> bool {
    if let Some(seed) = number("UNDERPASS_SIM_SEED") {
        run(seed);
        return false;
    }
    let first = number("UNDERPASS_SIM_FROM").unwrap_or(0);
    let end = first + number("UNDERPASS_SIM_SEEDS").unwrap_or(usual);
    let seconds = number("UNDERPASS_SIM_SECONDS").map(Duration::from_secs);
    let start = Instant::now();
    let is_time = || seconds.is_none_or(|seconds| start.elapsed() < seconds);
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while is_time() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    run(seed);
                }
            });
        }
    });
    let run = next.into_inner().min(end) - first;
    println!("seeds {first} to {}", first + run.saturating_sub(1));
    run >= usual
}
