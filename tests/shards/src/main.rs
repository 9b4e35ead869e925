//! `shards`: how many bundles a second the protocol alone can carry.
//!
//! A hub's engine and those of its terminals run without sockets and disks, in real time.
//! A stream to each terminal is written to; its bytes are sealed into one bundle, which
//! the terminal takes into custody and delivers; custody signals and credit go back. So
//! each bundle costs the work of two engines, including CRCs and a copy in place of the
//! socket. The result is printed as JSON; a byte that does not arrive is an error.

mod beam;
mod configs;

use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;

use beam::Beam;

/// What to run.
#[derive(Clone, Debug, Parser)]
#[command(
    version,
    about = "How many bundles a second the protocol alone carries"
)]
struct Cli {
    /// Payload of a bundle, bytes.
    #[arg(long, default_value_t = 4096)]
    bytes: usize,
    /// Terminals, divided among the threads.
    #[arg(long, default_value_t = 1000)]
    neighbours: u64,
    /// Threads, each with a shard of the hub and its terminals.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// The threads have hubs that know nothing of each other.
    #[arg(long)]
    apart: bool,
    /// How long to measure, seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

/// The result of one thread, or the sum of all.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Outcome {
    /// Bundles delivered.
    bundles: u64,
    /// Bundles delivered per second of the clock.
    bundles_per_s: f64,
    /// Bundles delivered per second of the thread's processor time; summed over all
    /// threads.
    bundles_per_cpu_s: f64,
    /// Bundles delivered per second of processor time in the hub's engine, without the
    /// terminals'; summed over all threads.
    bundles_per_hub_s: f64,
    /// Custody signals and credit that went back, bundles.
    returned: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match measure(&cli) {
        Ok(outcome) => {
            println!("{}", serde_json::json!(outcome));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("shards: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(cli: &Cli) -> Result<Outcome, String> {
    let threads = cli.threads.max(1);
    let beams = match cli.apart {
        true => {
            let terminals = cli.neighbours / threads as u64;
            let hubs = (0..threads).map(|_| Beam::shards(1, terminals, cli.bytes));
            let hubs: Result<Vec<Vec<Beam>>, String> = hubs.collect();
            hubs?.into_iter().flatten().collect()
        }
        false => Beam::shards(threads, cli.neighbours, cli.bytes)?,
    };
    let start = &Barrier::new(threads);
    let outcomes: Vec<Result<Outcome, String>> = std::thread::scope(|scope| {
        let each = beams.into_iter();
        let running: Vec<_> = each
            .map(|beam| scope.spawn(|| run(cli, beam, start)))
            .collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended
            .map(|outcome| outcome.map_err(|_| "a thread has panicked".to_owned())?)
            .collect()
    });
    let mut sum = Outcome::default();
    for outcome in outcomes {
        let outcome = outcome?;
        sum.bundles += outcome.bundles;
        sum.bundles_per_s += outcome.bundles_per_s;
        sum.bundles_per_cpu_s += outcome.bundles_per_cpu_s;
        sum.bundles_per_hub_s += outcome.bundles_per_hub_s;
        sum.returned += outcome.returned;
    }
    Ok(sum)
}

/// One engine with its part of the terminals.
fn run(cli: &Cli, mut beam: Beam, start: &Barrier) -> Result<Outcome, String> {
    // The streams are then open, and memory is as it is in steady operation.
    for _ in 0..20 {
        beam.round()?;
    }
    start.wait();
    let before = (Instant::now(), processor_time()?, beam.counts());
    let time = Duration::from_secs_f64(cli.seconds);
    while before.0.elapsed() < time {
        beam.round()?;
    }
    let (took, cpu) = (before.0.elapsed(), processor_time()? - before.1);
    let counts = beam.counts();
    beam.finish()?;
    let hub = (counts.hub - before.2.hub).as_secs_f64() / took.as_secs_f64();
    let bundles = counts.delivered - before.2.delivered;
    Ok(Outcome {
        bundles,
        bundles_per_s: bundles as f64 / took.as_secs_f64(),
        bundles_per_cpu_s: bundles as f64 / cpu.as_secs_f64(),
        bundles_per_hub_s: bundles as f64 / (cpu.as_secs_f64() * hub),
        returned: counts.returned - before.2.returned,
    })
}

fn processor_time() -> Result<Duration, String> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).map_err(|error| error.to_string())?;
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    Ok(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}
