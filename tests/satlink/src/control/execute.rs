//! What each request does to the beam.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::beam::{Beam, Direction, Nanos, QueueSeries, Trace};
use crate::config::{BlockageConfig, nanos_from_seconds};
use crate::trace::TraceConfig;

use super::{LinkReport, Request, TerminalStatistics};

/// Most blockages in one schedule.
const MAX_BLOCKAGES: usize = 10_000;

/// Carries out, at `now`, a request that changes the beam; a refused one
/// changes nothing. `stats`, `queue` and `shutdown` are the program's to
/// answer.
pub fn execute(beam: &mut Beam, now: Nanos, request: Request) -> Result<(), String> {
    match request {
        Request::Set {
            terminal,
            direction,
            link,
        } => set_links(beam, now, terminal, direction, &link),
        Request::SetBeam {
            direction,
            beam: keys,
        } => set_capacity(beam, now, direction, &keys),
        Request::Block { terminal, for_s } => {
            let duration = for_s.map(|s| nanos_from_seconds("for_s", s)).transpose()?;
            for terminal in select(beam, terminal)? {
                beam.block(now, terminal, duration);
            }
            Ok(())
        }
        Request::Unblock { terminal } => {
            for terminal in select(beam, terminal)? {
                beam.unblock(now, terminal);
            }
            Ok(())
        }
        Request::Schedule {
            terminal,
            blockages,
        } => schedule(beam, now, terminal, &blockages),
        Request::Trace { terminal, trace } => follow(beam, now, terminal, trace),
        Request::Allocate {
            direction,
            rates_bps,
            at_s,
        } => allocate(beam, now, direction, rates_bps, at_s),
        Request::ResetStats {} => {
            beam.reset_statistics(now);
            Ok(())
        }
        Request::Epoch {} => {
            beam.restart_epoch(now);
            Ok(())
        }
        Request::Seed { seed } => {
            beam.reseed(now, seed);
            Ok(())
        }
        Request::Stats {} | Request::Queue { .. } | Request::Shutdown {} => Ok(()),
    }
}

/// The counts of every terminal.
pub(crate) fn terminal_statistics(
    beam: &mut Beam,
    now: Nanos,
) -> BTreeMap<String, TerminalStatistics> {
    (0..beam.terminal_count())
        .map(|terminal| {
            let mut report = |direction| LinkReport {
                // Read first, so that the others are as of now.
                counts: beam.statistics(now, terminal, direction),
                rate_bps: beam.own_rate(terminal, direction),
                allocated_bps: beam.allocation(terminal, direction),
            };
            let (forward, ret) = (report(Direction::Forward), report(Direction::Return));
            let statistics = TerminalStatistics {
                blocked: beam.is_blocked(now, terminal),
                forward,
                ret,
            };
            (beam.terminal_name(terminal).to_owned(), statistics)
        })
        .collect()
}

/// How the queue of one link has stood.
pub(crate) fn queue_series(
    beam: &mut Beam,
    now: Nanos,
    terminal: &str,
    direction: Direction,
) -> Result<QueueSeries, String> {
    let terminal = named(beam, terminal)?;
    Ok(beam.queue_series(now, terminal, direction))
}

fn set_links(
    beam: &mut Beam,
    now: Nanos,
    terminal: Option<String>,
    direction: Option<Direction>,
    keys: &Map<String, Value>,
) -> Result<(), String> {
    let mut changed = Vec::new();
    for terminal in select(beam, terminal)? {
        for direction in directions(direction) {
            let profile = overlay(beam.link_profile(terminal, direction), keys)?;
            beam.admits_link(terminal, direction, &profile)
                .map_err(|error| error.to_string())?;
            changed.push((terminal, direction, profile));
        }
    }
    for (terminal, direction, profile) in changed {
        beam.set_link(now, terminal, direction, profile)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn set_capacity(
    beam: &mut Beam,
    now: Nanos,
    direction: Option<Direction>,
    keys: &Map<String, Value>,
) -> Result<(), String> {
    for direction in directions(direction) {
        let profile = overlay(beam.capacity_profile(direction), keys)?;
        beam.set_capacity(now, direction, profile)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn schedule(
    beam: &mut Beam,
    now: Nanos,
    terminal: Option<String>,
    blockages: &[BlockageConfig],
) -> Result<(), String> {
    if blockages.len() > MAX_BLOCKAGES {
        return Err(format!("blockages: more than {MAX_BLOCKAGES}"));
    }
    let intervals = blockages
        .iter()
        .map(BlockageConfig::interval)
        .collect::<Result<Vec<_>, _>>()?;
    for terminal in select(beam, terminal)? {
        beam.schedule(now, terminal, intervals.clone());
    }
    Ok(())
}

fn follow(
    beam: &mut Beam,
    now: Nanos,
    terminal: Option<String>,
    trace: Option<TraceConfig>,
) -> Result<(), String> {
    let trace = match trace {
        Some(config) => config.trace().map_err(|error| error.to_string())?,
        None => Trace::default(),
    };
    for terminal in select(beam, terminal)? {
        beam.set_trace(now, terminal, trace.clone());
    }
    Ok(())
}

fn allocate(
    beam: &mut Beam,
    now: Nanos,
    direction: Direction,
    rates_bps: BTreeMap<String, u64>,
    at_s: Option<f64>,
) -> Result<(), String> {
    let rates = rates_bps
        .into_iter()
        .map(|(name, rate)| Ok((named(beam, &name)?, rate)))
        .collect::<Result<_, String>>()?;
    let at = match at_s {
        Some(seconds) => beam
            .epoch()
            .saturating_add(nanos_from_seconds("at_s", seconds)?),
        None => now,
    };
    beam.allocate(now, direction, rates, at)
        .map_err(|error| error.to_string())
}

/// The value with some of its keys replaced; `null` restores a default.
fn overlay<T: Serialize + DeserializeOwned>(
    current: &T,
    keys: &Map<String, Value>,
) -> Result<T, String> {
    let mut value = serde_json::to_value(current).map_err(|error| error.to_string())?;
    if let Value::Object(fields) = &mut value {
        fields.extend(keys.clone());
        fields.retain(|_, value| !value.is_null());
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn select(beam: &Beam, terminal: Option<String>) -> Result<Vec<usize>, String> {
    match terminal {
        Some(name) => Ok(vec![named(beam, &name)?]),
        None => Ok((0..beam.terminal_count()).collect()),
    }
}

fn named(beam: &Beam, name: &str) -> Result<usize, String> {
    beam.terminal_named(name).ok_or_else(|| {
        let names: Vec<_> = (0..beam.terminal_count())
            .map(|terminal| beam.terminal_name(terminal))
            .collect();
        format!("no terminal {name:?}; there are: {}", names.join(", "))
    })
}

fn directions(direction: Option<Direction>) -> Vec<Direction> {
    direction.map_or_else(|| Direction::BOTH.to_vec(), |one| vec![one])
}
