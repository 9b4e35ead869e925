//! A swarm of light terminals, and its effect on the hub.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::sleep;

use crate::load::delays;
use crate::terminal::{Config, Figures, Terminal, TerminalError};
use crate::usage::Usage;

/// Sessions of a terminal: four classes with their standbys.
const SESSIONS: usize = 8;

/// The terminals, and how they come to the hub.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub terminals: usize,
    /// How each is made.
    pub config: Config,
    /// Terminals that begin to dial in a second.
    pub per_s: f64,
    /// How long all may take to be connected.
    pub patience: Duration,
    /// How long to leave the hub alone before it is measured.
    pub settle: Duration,
}

impl Fleet {
    /// Starts the terminals and waits for their sessions.
    ///
    /// # Errors
    /// When a terminal cannot be made.
    pub async fn connect(&self) -> Result<Vec<Terminal>, TerminalError> {
        let start = Instant::now();
        let mut terminals = Vec::with_capacity(self.terminals);
        for number in 0..self.terminals {
            let due = Duration::from_secs_f64(number as f64 / self.per_s);
            sleep(due.saturating_sub(start.elapsed())).await;
            let node = self.config.first_node + number as u64;
            terminals.push(Terminal::start(&self.config, node)?);
        }
        while connected(&terminals) < self.terminals && start.elapsed() < self.patience {
            sleep(Duration::from_millis(100)).await;
        }
        Ok(terminals)
    }
}

/// Terminals with all sessions up.
pub fn connected(terminals: &[Terminal]) -> usize {
    let up = terminals
        .iter()
        .filter(|t| t.figures().sessions >= SESSIONS);
    up.count()
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub fleet: Fleet,
    pub measure: Duration,
    /// Bytes that each downloads at once, where it does.
    pub download: Option<(SocketAddr, u64)>,
    /// The hub's process, where it is on this machine.
    pub hub_pid: Option<u32>,
}

#[derive(Debug, Default, Serialize)]
pub struct Outcome {
    pub terminals: usize,
    /// Terminals with all sessions up.
    pub connected: usize,
    /// Terminals that have a session and are not blocked, at the end.
    pub alive: usize,
    /// From the first dial until all were connected, s.
    pub connecting_s: f64,
    /// Blockages that terminals have seen while they were measured.
    pub blockages: u64,
    /// Memory of the hub before the first terminal, bytes.
    pub hub_before_bytes: Option<u64>,
    /// Memory of the hub beyond that for each terminal at the end, bytes.
    pub hub_bytes_per_terminal: Option<f64>,
    /// Processor time that the hub took for connecting, s.
    pub hub_connecting_cpu_s: Option<f64>,
    /// Processor time that it took while measured, s.
    pub hub_cpu_s: Option<f64>,
    /// The same as a share of one core, percent.
    pub hub_cpu_percent: Option<f64>,
    pub measured_s: f64,
    /// Bytes delivered in that time.
    pub delivered_bytes: u64,
    /// Their rate from the first download's begin to its last byte, bit/s.
    pub goodput_bps: Option<f64>,
    pub complete: u64,
    pub broken: u64,
    /// Bundles that terminals refused too late.
    pub refused: u64,
    /// Jain's index of the terminals' rates.
    pub jain: Option<f64>,
}

/// Plays the plan.
///
/// # Errors
/// When a terminal cannot be made, or the hub's process is not there.
pub async fn play(plan: &Plan) -> Result<Outcome, TerminalError> {
    let before = plan.hub_pid.map(Usage::of).transpose()?;
    let start = Instant::now();
    let terminals = plan.fleet.connect().await?;
    let connecting_s = start.elapsed().as_secs_f64();
    sleep(plan.fleet.settle).await;

    let first = plan.hub_pid.map(Usage::of).transpose()?;
    let begun: Vec<Figures> = terminals.iter().map(Terminal::figures).collect();
    let began = Instant::now();
    if let Some((origin, bytes)) = plan.download {
        for terminal in &terminals {
            terminal.download(origin, bytes);
        }
    }
    while began.elapsed() < plan.measure {
        sleep(Duration::from_millis(100)).await;
        let done = |t: &Terminal| t.figures().complete + t.figures().broken > 0;
        if plan.download.is_some() && terminals.iter().all(done) {
            break;
        }
    }
    let measured_s = began.elapsed().as_secs_f64();
    let last = plan.hub_pid.map(Usage::of).transpose()?;
    let ended: Vec<Figures> = terminals.iter().map(Terminal::figures).collect();

    let cpu = |from: &Option<Usage>, to: &Option<Usage>| {
        from.as_ref()
            .zip(to.as_ref())
            .map(|(a, b)| b.cpu_s - a.cpu_s)
    };
    let hub_cpu_s = cpu(&first, &last);
    let delivered: Vec<u64> = begun
        .iter()
        .zip(&ended)
        .map(|(a, b)| b.received_bytes - a.received_bytes)
        .collect();
    let last_byte = ended.iter().filter_map(|f| f.last_byte).max();
    let sum: u64 = delivered.iter().sum();
    Ok(Outcome {
        terminals: plan.fleet.terminals,
        connected: connected(&terminals),
        alive: ended
            .iter()
            .filter(|f| f.sessions > 0 && !f.blocked)
            .count(),
        connecting_s,
        blockages: blockages(&ended) - blockages(&begun),
        hub_before_bytes: before.as_ref().map(|usage| usage.memory_bytes),
        hub_bytes_per_terminal: before.as_ref().zip(last.as_ref()).map(|(a, b)| {
            (b.memory_bytes as f64 - a.memory_bytes as f64) / plan.fleet.terminals as f64
        }),
        hub_connecting_cpu_s: cpu(&before, &first),
        hub_cpu_s,
        hub_cpu_percent: hub_cpu_s.map(|cpu| 100.0 * cpu / measured_s),
        measured_s,
        delivered_bytes: sum,
        goodput_bps: plan
            .download
            .and(last_byte)
            .map(|at| sum as f64 * 8.0 / (at - began).as_secs_f64()),
        complete: ended.iter().map(|f| f.complete).sum(),
        broken: ended.iter().map(|f| f.broken).sum(),
        refused: ended.iter().map(|f| f.refused).sum(),
        jain: plan
            .download
            .and_then(|_| fairness(&began, &ended, &delivered)),
    })
}

fn blockages(figures: &[Figures]) -> u64 {
    figures.iter().map(|f| f.blockages).sum()
}

/// Jain's index of rates: 1 where all are equal, 1/n where one has all.
fn fairness(began: &Instant, ended: &[Figures], delivered: &[u64]) -> Option<f64> {
    let rates = ended.iter().zip(delivered).map(|(figures, bytes)| {
        let took = figures
            .last_byte
            .map_or(0.0, |at| (at - *began).as_secs_f64());
        if took > 0.0 {
            *bytes as f64 / took
        } else {
            0.0
        }
    });
    let rates: Vec<f64> = rates.collect();
    delays::jain(&rates)
}
