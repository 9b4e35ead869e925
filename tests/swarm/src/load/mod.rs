//! Many terminals with paced downloads, some of them blocked at any time: what
//! the hub delivers, and how much later than an ideal fair queue.

mod blockages;
pub mod chunks;
pub mod delays;
mod ideal;
mod origin;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::sleep;

use crate::fleet::{self, Fleet};
use crate::terminal::{Figures, Terminal, TerminalError};
use crate::usage::Usage;
use blockages::{Blocker, Place, Turns};
use chunks::{Reader, nanos_between};
use delays::{Chunk, Course, Judgement, judge, quantile_of};
use ideal::{Blocked, Offered};
use origin::{Log, Origin, Pace};

/// Streams that are opened in a second.
const OPENED_PER_S: f64 = 1000.0;
/// How long all streams may take to be connected.
const OPENING_TIME: Duration = Duration::from_secs(60);
/// How often this process measures how late its timers are.
const PROBE: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct Plan {
    pub fleet: Fleet,
    /// Where the origin listens, in this process.
    pub origin: SocketAddr,
    /// Streams of each terminal.
    pub streams: usize,
    /// Payload of all streams together, bit/s.
    pub offered_bps: f64,
    pub chunk_bytes: usize,
    /// The hub's beam, bit/s.
    pub beam_bps: f64,
    /// Terminals that are blocked at any time.
    pub blocked: usize,
    pub blockage: Duration,
    /// How long the streams run before the measured course, so that as many terminals are blocked
    /// and recovering as later.
    pub warm_up: Duration,
    /// The course.
    pub measure: Duration,
    /// How long everything continues after it, so that its last chunks arrive.
    pub drain: Duration,
    /// The hub's process, where it is on this machine.
    pub hub_pid: Option<u32>,
}

#[derive(Debug, Serialize)]
pub struct Outcome {
    pub terminals: usize,
    /// Terminals with all sessions up, before the streams began.
    pub connected: usize,
    /// Streams that the hub has connected with the origin.
    pub streams: usize,
    /// Blockages that were made.
    pub blockages: usize,
    /// Blockages that terminals have seen.
    pub blockages_seen: u64,
    /// Streams that have ended or have had wrong bytes.
    pub broken: u64,
    /// Bundles that terminals refused too late.
    pub refused: u64,
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Processor time in the course as a share of one core, percent: the hub's,
    pub hub_cpu_percent: Option<f64>,
    /// and that of terminals and origin.
    pub swarm_cpu_percent: f64,
    /// How much later than due the origin offered chunks, p99, ms. It does not
    /// count for the delays.
    pub origin_late_p99_ms: Option<f64>,
    /// How much later than due a timer of the terminals' process came, p99,
    /// ms. What they read is as late, and counts for the hub.
    pub swarm_late_p99_ms: Option<f64>,
}

/// Plays the plan.
///
/// # Errors
/// When a terminal cannot be made, or origin and blockages cannot be.
pub async fn play(plan: &Plan) -> Result<Outcome, TerminalError> {
    let epoch = Instant::now();
    let terminals = plan.fleet.connect().await?;
    let connected = fleet::connected(&terminals);
    sleep(plan.fleet.settle).await;

    let pace = plan.pace(epoch);
    let origin = Origin::listen(plan.origin, pace)?;
    plan.open_streams(&terminals, &origin, epoch).await;
    let streams = origin.connected();
    let sending = origin.start();
    let seen = blockages_seen(&terminals);
    let blocker = Blocker::start(
        plan.turns(),
        plan.places(&terminals)?,
        plan.fleet.config.delay,
        epoch,
    )?;
    sleep(plan.warm_up).await;

    let own = std::process::id();
    let usage =
        || -> io::Result<_> { Ok((plan.hub_pid.map(Usage::of).transpose()?, Usage::of(own)?)) };
    let (hub_first, own_first) = usage()?;
    let from_ns = nanos_between(epoch, Instant::now());
    let mut late = lateness(plan.measure).await;
    let to_ns = nanos_between(epoch, Instant::now());
    let (hub_last, own_last) = usage()?;
    sleep(plan.drain).await;

    // The end of the origin ends all streams.
    let figures: Vec<Figures> = terminals.iter().map(Terminal::figures).collect();
    let mut log = sending.stop()?;
    let end_ns = nanos_between(epoch, Instant::now());
    let blocked = blocker.stop()?;
    let seen = blockages_seen(&terminals) - seen;
    let course = Course {
        rate_bps: plan.beam_bps,
        terminals: plan.fleet.terminals,
        from_ns,
        to_ns,
        end_ns,
    };
    let measured_s = (to_ns - from_ns) as f64 / 1e9;
    let percent = |first: &Usage, last: &Usage| 100.0 * (last.cpu_s - first.cpu_s) / measured_s;
    Ok(Outcome {
        terminals: plan.fleet.terminals,
        connected,
        streams,
        blockages: blocked.len(),
        blockages_seen: seen,
        broken: figures.iter().map(|f| f.broken).sum(),
        refused: figures.iter().map(|f| f.refused).sum(),
        judgement: plan.judge(&course, &log, &terminals, &blocked),
        hub_cpu_percent: hub_first.zip(hub_last).map(|(a, b)| percent(&a, &b)),
        swarm_cpu_percent: percent(&own_first, &own_last),
        origin_late_p99_ms: p99_ms(&mut log.late_ns),
        swarm_late_p99_ms: p99_ms(&mut late),
    })
}

impl Plan {
    fn pace(&self, epoch: Instant) -> Pace {
        let streams = self.fleet.terminals * self.streams;
        let bits = (streams * self.chunk_bytes * 8) as f64;
        Pace {
            streams: u32::try_from(streams).unwrap_or(u32::MAX),
            chunk_bytes: self.chunk_bytes,
            period: Duration::from_secs_f64(bits / self.offered_bps),
            epoch,
        }
    }

    fn turns(&self) -> Turns {
        Turns {
            terminals: self.fleet.terminals,
            blocked: self.blocked,
            length: self.blockage,
        }
    }

    fn places(&self, terminals: &[Terminal]) -> io::Result<Vec<Place>> {
        let config = &self.fleet.config;
        let nodes = config.first_node..;
        let places = nodes.zip(terminals).map(|(node, terminal)| {
            let address = config.address(node);
            Ok(Place {
                address: address.ok_or_else(|| io::Error::other("terminals need addresses"))?,
                beacons: terminal.beacons(),
            })
        });
        places.collect()
    }

    /// Opens all streams, and waits until the origin has them.
    async fn open_streams(&self, terminals: &[Terminal], origin: &Origin, epoch: Instant) {
        let start = Instant::now();
        let all = terminals.len() * self.streams;
        for (number, terminal) in (0..all).map(|number| (number, &terminals[number / self.streams]))
        {
            let due = Duration::from_secs_f64(number as f64 / OPENED_PER_S);
            sleep(due.saturating_sub(start.elapsed())).await;
            terminal.follow(
                self.origin,
                Reader::new(number as u32, self.chunk_bytes, epoch),
            );
        }
        while origin.connected() < all && start.elapsed() < OPENING_TIME {
            sleep(Duration::from_millis(100)).await;
        }
        // By now the bundles that opened them are acknowledged.
        sleep(self.fleet.settle).await;
    }

    /// Combines what was offered and what has arrived, and judges it.
    fn judge(
        &self,
        course: &Course,
        log: &Log,
        terminals: &[Terminal],
        blocked: &[Blocked],
    ) -> Judgement {
        let mut chunks = Vec::new();
        for (terminal, arrived) in terminals.iter().map(Terminal::take_arrived).enumerate() {
            let mut left: Vec<Vec<u64>> = vec![Vec::new(); self.streams];
            // Those of one stream come in their order.
            for chunk in arrived {
                left[chunk.stamp.stream as usize % self.streams].push(chunk.left_ns);
            }
            let offered = &log.offered_ns[terminal * self.streams..][..self.streams];
            for (offered, left) in offered.iter().zip(left) {
                let left = left.into_iter().map(Some).chain(std::iter::repeat(None));
                chunks.extend(offered.iter().zip(left).map(|(at_ns, left_ns)| Chunk {
                    offered: Offered {
                        terminal,
                        at_ns: *at_ns,
                        bytes: self.chunk_bytes as u64,
                    },
                    left_ns: left_ns.filter(|at| *at < course.end_ns),
                }));
            }
        }
        chunks.sort_by_key(|chunk| chunk.offered.at_ns);
        judge(course, &chunks, blocked)
    }
}

fn blockages_seen(terminals: &[Terminal]) -> u64 {
    terminals.iter().map(|t| t.figures().blockages).sum()
}

/// How late timers come during this time, ns.
async fn lateness(time: Duration) -> Vec<u64> {
    let start = Instant::now();
    let mut late = Vec::new();
    while start.elapsed() < time {
        let due = Instant::now() + PROBE;
        tokio::time::sleep_until(due.into()).await;
        late.push(nanos_between(due, Instant::now()));
    }
    late
}

fn p99_ms(ns: &mut Vec<u64>) -> Option<f64> {
    let mut ms: Vec<f64> = ns.drain(..).map(|ns| ns as f64 / 1e6).collect();
    quantile_of(&mut ms, 0.99)
}
