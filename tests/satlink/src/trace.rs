//! Trace files: the course of a terminal's links over time, as JSON.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::beam::{LossProfile, Trace, TraceStep};
use crate::config::{BlockageConfig, nanos_from_seconds};

/// Bytes of the longest file that is read.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Most steps of a direction, and most blockages.
const MAX_STEPS: usize = 100_000;

/// A trace as its file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// What it is called.
    pub name: String,
    /// Where it is from: a measurement, or formula and seed.
    pub source: String,
    /// How long it is, in s; behind that its last steps last.
    pub duration_s: f64,
    /// Steps of the link from the hub.
    #[serde(default)]
    pub forward: Vec<StepConfig>,
    /// Steps of the link to the hub.
    #[serde(default, rename = "return")]
    pub ret: Vec<StepConfig>,
    /// Blockages, relative to the epoch.
    #[serde(default)]
    pub blockages: Vec<BlockageConfig>,
}

/// A step as a trace file has it. What is left out is as the link is configured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepConfig {
    /// When it begins, in s after the epoch.
    pub at_s: f64,
    /// Rate in bit/s, counting IP bytes; 0 is an outage, in which the queue waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// One-way delay, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Loss of transmitted packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossProfile>,
}

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TraceError {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// It is no trace; the message has line and key.
    #[error("{path}: {source}")]
    Parse {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("trace {name:?}: {problem}")]
    Invalid { name: String, problem: String },
}

impl TraceConfig {
    /// Reads a file, without judging its values.
    pub fn load(path: &Path) -> Result<Self, TraceError> {
        let read = |source| TraceError::Read {
            path: path.to_owned(),
            source,
        };
        let mut text = String::new();
        let file = File::open(path).map_err(read)?;
        let bytes = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
        if bytes.map_err(read)? as u64 > MAX_FILE_BYTES {
            let problem = format!("longer than {MAX_FILE_BYTES} bytes");
            return Err(read(io::Error::new(io::ErrorKind::FileTooLarge, problem)));
        }
        serde_json::from_str(&text).map_err(|source| TraceError::Parse {
            path: path.to_owned(),
            source,
        })
    }

    /// The trace that a beam follows, or what is wrong with it.
    pub fn trace(&self) -> Result<Trace, TraceError> {
        self.checked().map_err(|problem| TraceError::Invalid {
            name: self.name.clone(),
            problem,
        })
    }

    fn checked(&self) -> Result<Trace, String> {
        if self.source.trim().is_empty() {
            return Err("source: empty; say what the trace was measured or made from".into());
        }
        let duration = nanos_from_seconds("duration_s", self.duration_s)?;
        if self.blockages.len() > MAX_STEPS {
            return Err(format!("blockages: more than {MAX_STEPS}"));
        }
        let blockages = self.blockages.iter().enumerate().map(|(place, blockage)| {
            let interval = blockage.interval();
            interval.map_err(|problem| format!("blockages[{place}]: {problem}"))
        });
        Ok(Trace {
            forward: steps("forward", &self.forward, duration)?,
            ret: steps("return", &self.ret, duration)?,
            blockages: blockages.collect::<Result<_, _>>()?,
        })
    }
}

fn steps(table: &str, steps: &[StepConfig], duration: u64) -> Result<Vec<TraceStep>, String> {
    if steps.len() > MAX_STEPS {
        return Err(format!("{table}: more than {MAX_STEPS} steps"));
    }
    let mut checked: Vec<TraceStep> = Vec::with_capacity(steps.len());
    for (place, step) in steps.iter().enumerate() {
        let in_place = |problem: String| format!("{table}[{place}]: {problem}");
        let at = nanos_from_seconds("at_s", step.at_s).map_err(in_place)?;
        if checked.last().is_some_and(|before| before.at >= at) {
            let problem = format!("at_s: {} is not after the step before", step.at_s);
            return Err(in_place(problem));
        }
        if at > duration {
            let problem = format!("at_s: {} is behind the trace's duration_s", step.at_s);
            return Err(in_place(problem));
        }
        let one = TraceStep {
            at,
            rate_bps: step.rate_bps,
            delay_ms: step.delay_ms,
            loss: step.loss,
        };
        one.validate()
            .map_err(|error| in_place(error.to_string()))?;
        checked.push(one);
    }
    Ok(checked)
}
