//! `chain`: sends bundles into one end of a chain of nodes, and takes them at the other.
//!
//! A generator dials the first node and sends it bundles over TCPCLv4 without TLS, as
//! fast as they are acknowledged. A sink receives what the last node sends, decodes,
//! compares and counts each bundle. Both cost as little as they can: the generator
//! prepares its bundles in advance, except for their sequence number. It starts when the
//! last node has connected to the sink. If `--to` is the sink's own address, generator
//! and sink show what they can carry alone. The result is printed as JSON; a bundle that
//! differs from what was sent is an error.

mod bundle;
mod generator;
mod session;
mod sink;

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;

use generator::Sent;
use session::Error;
use sink::Received;

/// Bundles in flight at the end arrive within this time.
const DRAINED_WITHIN: Duration = Duration::from_secs(20);

/// What to run.
#[derive(Clone, Debug, Parser)]
#[command(version, about = "Bundles through a chain of nodes")]
struct Cli {
    /// Where the first node listens.
    #[arg(long)]
    to: SocketAddr,
    /// Where the sink listens.
    #[arg(long)]
    listen: SocketAddr,
    /// The generator's node number.
    #[arg(long, default_value_t = 50)]
    source: u64,
    /// The sink's node number.
    #[arg(long, default_value_t = 60)]
    sink: u64,
    /// Payload of a bundle, bytes.
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// What may be on its way to the sink, bytes of payload; with `--only-send`, what
    /// may be unacknowledged.
    #[arg(long, default_value_t = 16 << 20)]
    window: usize,
    /// How long to send before counting begins, seconds.
    #[arg(long, default_value_t = 2.0)]
    warm: f64,
    /// How long to count, seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// The generator has custody of its bundles until the first node signals that it
    /// has; so has the last node until the sink does.
    #[arg(long)]
    custody: bool,
    /// Send this many bundles, then wait until all have come, and tell the time of all.
    #[arg(long)]
    count: Option<u64>,
    /// Only send, and end when all are acknowledged: the sink comes later, or never.
    #[arg(long, requires = "count")]
    only_send: bool,
    /// Only receive, until so many have come.
    #[arg(long, conflicts_with_all = ["count", "only_send"])]
    only_receive: Option<u64>,
}

/// The result, measured at the sink.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Outcome {
    /// Bundles.
    bundles: u64,
    /// The seconds in which they arrived.
    seconds: f64,
    /// Bundles a second.
    bundles_per_s: f64,
    /// Bits of payload a second.
    bits_per_s: f64,
    /// Bundles that arrived twice.
    doubled: u64,
    /// Bundles that were sent but had not arrived at the end.
    missing: u64,
    /// Bundles acknowledged to the generator, from the start.
    acknowledged: u64,
    /// Bundles that the first node has signalled custody of, from the start.
    released: u64,
    /// This program's processor time, seconds.
    cpu_s: f64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match measure(&cli) {
        Ok(outcome) => {
            println!(
                "{}",
                serde_json::to_string(&outcome).expect("figures are JSON")
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("chain: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(cli: &Cli) -> Result<Outcome, Error> {
    let listener = TcpListener::bind(cli.listen)?;
    let received = Arc::new(Received::new(cli.sink, bundle::payload(cli.bytes)));
    if !cli.only_send {
        let received = received.clone();
        thread::spawn(move || sink::accept(&listener, &received));
    }
    let sent = Arc::new(Sent::default());
    let over = Arc::new(AtomicBool::new(false));
    let alone = cli.to == cli.listen || cli.only_send;
    while !alone && cli.only_receive.is_none() && !received.is_reached() {
        thread::sleep(Duration::from_millis(10));
    }
    let began = Instant::now();
    let generator = cli.only_receive.is_none().then(|| {
        let (cli, sent, over) = (cli.clone(), sent.clone(), over.clone());
        let received = received.clone();
        thread::spawn(move || {
            let arrived = || match cli.only_send {
                true if cli.custody => sent.released(),
                true => sent.acknowledged(),
                false => received.bundles(),
            };
            generator::run(&cli, &sent, &arrived, &over);
        })
    });
    let failed = || -> Result<(), Error> {
        received.failed()?;
        sent.failed()
    };
    let (bundles, seconds) = match cli.count.or(cli.only_receive) {
        Some(count) => {
            let done = || match cli.only_send {
                true if cli.custody => sent.released(),
                true => sent.acknowledged(),
                false => received.bundles(),
            };
            // With `--only-receive`, counting begins with the first bundle.
            let mut first = began;
            while done() < count {
                failed()?;
                if cli.only_receive.is_some() && done() == 0 {
                    first = Instant::now();
                }
                thread::sleep(Duration::from_millis(1));
            }
            (done(), first.elapsed().as_secs_f64())
        }
        None => {
            wait(cli.warm, &failed)?;
            let (before, from) = (received.bundles(), Instant::now());
            wait(cli.seconds, &failed)?;
            (received.bundles() - before, from.elapsed().as_secs_f64())
        }
    };
    over.store(true, Ordering::Relaxed);
    if let Some(generator) = generator {
        generator.join().expect("the generator does not panic");
    }
    failed()?;
    // Bundles in flight would mix with those of the next run.
    let until = Instant::now() + DRAINED_WITHIN;
    let is_over = || received.bundles() >= sent.written() && received.unsignalled() == 0;
    while !cli.only_send && !is_over() && Instant::now() < until {
        failed()?;
        thread::sleep(Duration::from_millis(1));
    }
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(std::io::Error::from)?;
    let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Outcome {
        bundles,
        seconds,
        bundles_per_s: bundles as f64 / seconds,
        bits_per_s: bundles as f64 * cli.bytes as f64 * 8.0 / seconds,
        doubled: received.doubled(),
        missing: match cli.only_send {
            true => 0,
            false => sent.written().saturating_sub(received.bundles()),
        },
        acknowledged: sent.acknowledged(),
        released: sent.released(),
        cpu_s: cpu as f64 / 1e6,
    })
}

fn wait(seconds: f64, failed: &impl Fn() -> Result<(), Error>) -> Result<(), Error> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        failed()?;
        thread::sleep(left.min(Duration::from_millis(50)));
    }
    Ok(())
}
