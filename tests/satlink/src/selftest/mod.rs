//! The emulator's own errors, measured from outside through a live one.

mod bench;
mod record;
mod station;
mod traffic;

use std::io;
use std::path::Path;

use crate::control::ControlError;

pub use record::Record;

use bench::Bench;

/// Runs of each figure but the throughput.
const RUNS: usize = 5;

/// The rate at which errors are measured, bit/s: a production GEO service's.
const RATE_BPS: u64 = 140_000_000;

/// One-way delay of the measured hop, ms.
const DELAY_MS: f64 = 300.0;

/// Why the errors cannot be measured.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SelftestError {
    #[error("cannot {step}: {source}")]
    System {
        step: &'static str,
        source: io::Error,
    },
    /// The emulator could not be controlled.
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("the emulator: {0}")]
    Emulator(String),
    #[error("only {0} packets came through")]
    Silence(usize),
}

pub(crate) fn failed(step: &'static str) -> impl FnOnce(io::Error) -> SelftestError {
    move |source| SelftestError::System { step, source }
}

/// Measures delay, rate and throughput through `program`, which is `satlink`.
pub fn run(program: &Path) -> Result<Vec<Record>, SelftestError> {
    let bench = Bench::start(program)?;
    let repeat = |runs, measure: &dyn Fn() -> Result<f64, SelftestError>| {
        (0..runs).map(|_| measure()).collect::<Result<Vec<_>, _>>()
    };

    bench.set_link(None, DELAY_MS)?;
    let idle = repeat(RUNS, &|| bench.delay_error_p99_ms(2_000_000))?;
    let loaded = repeat(RUNS, &|| bench.delay_error_p99_ms(RATE_BPS))?;
    bench.set_link(Some(RATE_BPS), DELAY_MS)?;
    let rate = repeat(RUNS, &|| bench.rate_error_percent(RATE_BPS))?;
    bench.set_link(None, 5.0)?;
    let throughput = repeat(3, &|| bench.throughput_mbps())?;
    Ok(vec![
        Record::at_most("delay_error_p99_idle", "ms", idle, 1.0),
        Record::at_most("delay_error_p99_140mbps", "ms", loaded, 1.0),
        Record::at_most("rate_error_140mbps", "%", rate, 1.0),
        Record::at_least("throughput", "Mbit/s", throughput, 500.0),
    ])
}
