//! The command line.

use std::error::Error;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use satlink::beam::Direction;
use satlink::config::BlockageConfig;
use satlink::control::{Request, parse_blockage, parse_rate};
use satlink::trace::TraceConfig;
use serde_json::{Map, Value};

/// Emulates a satellite beam between network namespaces.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a beam until SIGTERM, SIGINT or `ctl shutdown`.
    Run {
        /// Configuration file (TOML).
        #[arg(long)]
        config: PathBuf,
    },
    /// Check a configuration file.
    CheckConfig {
        /// Configuration file (TOML).
        #[arg(long)]
        config: PathBuf,
    },
    /// Measure the emulator's own errors; takes some 50 s and needs root.
    Selftest,
    /// Control a running beam.
    Ctl {
        /// Its control socket.
        #[arg(long)]
        socket: PathBuf,
        #[command(subcommand)]
        action: Action,
    },
}

#[derive(Debug, Subcommand)]
pub enum Action {
    /// Block a terminal (all, if none is named) from now.
    Block {
        terminal: Option<String>,
        /// Seconds; until `unblock` if left out.
        #[arg(long = "for", value_name = "SECONDS")]
        for_s: Option<f64>,
    },
    /// End the blockage that is on.
    Unblock { terminal: Option<String> },
    /// Replace a terminal's schedule of blockages; none clears it.
    Schedule {
        terminal: String,
        /// START_S:DURATION_S, relative to the epoch.
        #[arg(value_parser = parse_blockage)]
        blockages: Vec<BlockageConfig>,
    },
    /// Change keys of links, as the configuration names them.
    Set {
        /// The terminal; all, if left out.
        #[arg(long)]
        terminal: Option<String>,
        /// The direction; both, if left out.
        #[arg(long)]
        direction: Option<Way>,
        /// KEY=JSON, such as rate_bps=40000000 or
        /// 'loss={"model":"independent","probability":0.01}'.
        #[arg(required = true, value_parser = parse_key)]
        keys: Vec<(String, Value)>,
    },
    /// Change the shared capacity.
    SetBeam {
        /// The direction; both, if left out.
        #[arg(long)]
        direction: Option<Way>,
        /// KEY=JSON: capacity_bps, or sharing ("first-come" or "allocated").
        #[arg(required = true, value_parser = parse_key)]
        keys: Vec<(String, Value)>,
    },
    /// Have links follow a trace from the epoch on; without a file, be as configured again.
    Trace {
        /// The terminal; all, if left out.
        #[arg(long)]
        terminal: Option<String>,
        /// Trace file (JSON).
        file: Option<PathBuf>,
    },
    /// Allocate the capacity; terminals that are not named get nothing.
    Allocate {
        #[arg(long)]
        direction: Way,
        /// Seconds after the epoch; now, if left out.
        #[arg(long = "at", value_name = "SECONDS")]
        at_s: Option<f64>,
        /// TERMINAL=RATE_BPS.
        #[arg(value_parser = parse_rate)]
        rates: Vec<(String, u64)>,
    },
    /// Print all counts.
    Stats,
    /// Print how a link's queue has stood: runs of equal samples, µs waited and their number.
    Queue {
        terminal: String,
        #[arg(long)]
        direction: Way,
    },
    /// Set all counts to zero.
    ResetStats,
    /// Make now the epoch; schedules and traces begin again.
    Epoch,
    /// Begin the loss and jitter patterns again.
    Seed { seed: u64 },
    /// Send a request as it is, in JSON.
    Send { request: String },
    /// End the program.
    Shutdown,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Way {
    Forward,
    Return,
}

impl From<Way> for Direction {
    fn from(way: Way) -> Self {
        match way {
            Way::Forward => Direction::Forward,
            Way::Return => Direction::Return,
        }
    }
}

impl Action {
    /// The request that this asks to send.
    pub fn request(self) -> Result<Request, Box<dyn Error>> {
        Ok(match self {
            Action::Block { terminal, for_s } => Request::Block { terminal, for_s },
            Action::Unblock { terminal } => Request::Unblock { terminal },
            Action::Schedule {
                terminal,
                blockages,
            } => Request::Schedule {
                terminal: Some(terminal),
                blockages,
            },
            Action::Set {
                terminal,
                direction,
                keys,
            } => Request::Set {
                terminal,
                direction: direction.map(Into::into),
                link: Map::from_iter(keys),
            },
            Action::SetBeam { direction, keys } => Request::SetBeam {
                direction: direction.map(Into::into),
                beam: Map::from_iter(keys),
            },
            Action::Allocate {
                direction,
                at_s,
                rates,
            } => Request::Allocate {
                direction: direction.into(),
                rates_bps: rates.into_iter().collect(),
                at_s,
            },
            Action::Trace { terminal, file } => Request::Trace {
                terminal,
                trace: file.map(|path| TraceConfig::load(&path)).transpose()?,
            },
            Action::Stats => Request::Stats {},
            Action::Queue {
                terminal,
                direction,
            } => Request::Queue {
                terminal,
                direction: direction.into(),
            },
            Action::ResetStats => Request::ResetStats {},
            Action::Epoch => Request::Epoch {},
            Action::Seed { seed } => Request::Seed { seed },
            Action::Send { request } => serde_json::from_str(&request)?,
            Action::Shutdown => Request::Shutdown {},
        })
    }
}

fn parse_key(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("wanted: KEY=JSON")?;
    // A bare word is taken as a string, so that sharing=allocated works.
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    Ok((key.to_owned(), value))
}
