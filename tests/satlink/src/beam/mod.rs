//! The beam as a state machine in virtual time.
//!
//! A packet's way: it waits in its link's queue, is transmitted at the link's
//! rate (and the beam's capacity), is perhaps lost, flies for the link's
//! delay, and arrives unless its terminal is blocked. Packets and the time go
//! in by [`Beam::enqueue`]; arrivals come out of [`Beam::poll`].
//!
//! Transmissions are computed at each call, with the exact times at which they happen, so the
//! beam's rate and delay do not depend on how punctually it is polled.

mod blockage;
mod capacity;
mod codel;
mod command;
mod demand;
mod flows;
mod link;
mod loss;
mod profile;
mod queue;
mod random;
mod standing;
mod statistics;
mod trace;
mod transmitter;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use serde::{Deserialize, Serialize};

pub use blockage::Interval;
pub use capacity::{CapacityProfile, Sharing};
pub use command::BeamError;
pub use profile::{
    DemandProfile, Discipline, LinkProfile, LossProfile, MAX_DELAY_MS, ProfileError, QueueProfile,
};
pub use standing::QueueSeries;
pub use statistics::LinkStatistics;
pub use trace::{Trace, TraceStep};

use blockage::Blockage;
use capacity::Capacity;
use link::Link;

/// A point in time or a span, in nanoseconds of a monotonic clock.
pub type Nanos = u64;

/// One IP packet, from its first header byte to its last payload byte.
pub type Packet = Box<[u8]>;

/// One direction of the beam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Hub to terminal.
    Forward,
    /// Terminal to hub.
    Return,
}

impl Direction {
    /// Both directions, in the order of their indices.
    pub const BOTH: [Direction; 2] = [Direction::Forward, Direction::Return];

    fn index(self) -> usize {
        self as usize
    }
}

/// What a terminal of the beam is made of.
#[derive(Clone, Debug)]
pub struct TerminalProfile {
    /// Its name; with the seed it determines the terminal's loss pattern.
    pub name: String,
    /// The link from the hub.
    pub forward: LinkProfile,
    /// The link to the hub.
    pub ret: LinkProfile,
    /// Blockages, relative to the epoch.
    pub blockages: Vec<Interval>,
}

/// A packet that has come through.
#[derive(Debug)]
pub struct Arrival {
    /// The direction in which it went.
    pub direction: Direction,
    /// The index of its terminal.
    pub terminal: usize,
    /// When it arrives; never later than the time of the poll.
    pub due: Nanos,
    /// The packet as it went in.
    pub packet: Packet,
}

struct Terminal {
    name: String,
    links: [Link; 2],
    blockage: Blockage,
}

/// One beam: a hub, its terminals, and the capacity that they share.
pub struct Beam {
    terminals: Vec<Terminal>,
    capacity: [Capacity; 2],
    flight: BinaryHeap<Reverse<InFlight>>,
    sequence: u64,
    epoch: Nanos,
}

impl Beam {
    /// A beam whose epoch is `now`. Capacities are forward, then return.
    pub fn new(
        now: Nanos,
        seed: u64,
        capacity: [CapacityProfile; 2],
        terminals: Vec<TerminalProfile>,
    ) -> Result<Self, BeamError> {
        let terminals = terminals
            .into_iter()
            .map(|profile| {
                let mut blockage = Blockage::default();
                blockage.lay(profile.blockages, now, now);
                Ok(Terminal {
                    links: [
                        Link::new(
                            profile.forward,
                            &profile.name,
                            Direction::Forward,
                            seed,
                            now,
                        )?,
                        Link::new(profile.ret, &profile.name, Direction::Return, seed, now)?,
                    ],
                    name: profile.name,
                    blockage,
                })
            })
            .collect::<Result<Vec<_>, ProfileError>>()?;
        let capacity = capacity.map(Capacity::new);
        for one in &capacity {
            one.profile().validate()?;
        }
        Ok(Beam {
            terminals,
            capacity,
            flight: BinaryHeap::new(),
            sequence: 0,
            epoch: now,
        })
    }

    /// Gives a packet to the link of `terminal` in `direction` at `now`.
    ///
    /// Times must not go back from call to call.
    pub fn enqueue(
        &mut self,
        now: Nanos,
        direction: Direction,
        terminal: usize,
        packet: impl Into<Packet>,
    ) {
        self.advance(now);
        let limit = self.capacity[direction.index()].profile().capacity_bps;
        self.sequence += 1;
        self.terminals[terminal].links[direction.index()].enqueue(
            now,
            self.sequence,
            packet.into(),
            limit,
        );
    }

    /// The next packet that has arrived by `now`; call until `None`.
    pub fn poll(&mut self, now: Nanos) -> Option<Arrival> {
        self.advance(now);
        while self.flight.peek().is_some_and(|next| next.0.due <= now) {
            let Reverse(flown) = self.flight.pop()?;
            let terminal = &mut self.terminals[flown.terminal];
            // A terminal in a blockage neither receives nor is received; packets that are already
            // past its antenna survive.
            let at_antenna = match flown.direction {
                Direction::Forward => flown.due,
                Direction::Return => flown.departed,
            };
            let statistics = terminal.links[flown.direction.index()].statistics_mut();
            statistics.in_flight_packets -= 1;
            if terminal.blockage.covers(at_antenna) {
                statistics.blocked(flown.packet.len());
                continue;
            }
            statistics.delivered(flown.due, flown.packet.len());
            return Some(Arrival {
                direction: flown.direction,
                terminal: flown.terminal,
                due: flown.due,
                packet: flown.packet,
            });
        }
        None
    }

    /// When to poll next, unless a packet or command comes first.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let arrival = self.flight.peek().map(|next| next.0.due);
        let per_direction = Direction::BOTH.into_iter().flat_map(|direction| {
            let transmission = self.next_transmission(direction).map(|(start, terminal)| {
                start.saturating_add(self.link(terminal, direction).min_delay())
            });
            [transmission, self.next_change(direction)]
        });
        per_direction.chain([arrival]).flatten().min()
    }

    /// Carries out every transmission that begins by `now`.
    fn advance(&mut self, now: Nanos) {
        for direction in Direction::BOTH {
            loop {
                let change = self.next_change(direction).filter(|at| *at <= now);
                let until = change.unwrap_or(now);
                while let Some((start, terminal)) = self.next_transmission(direction)
                    && start <= until
                {
                    self.transmit(direction, terminal, start);
                }
                let Some(at) = change else {
                    break;
                };
                if let Some(rates) = self.capacity[direction.index()].take_planned(at) {
                    self.apply_allocation(direction, &rates, at);
                }
                for terminal in &mut self.terminals {
                    terminal.links[direction.index()].follow_trace(at);
                }
            }
        }
    }

    /// When an allocation comes into force, or a trace takes its next step.
    fn next_change(&self, direction: Direction) -> Option<Nanos> {
        let links = self.terminals.iter();
        let steps = links.filter_map(|terminal| terminal.links[direction.index()].next_step());
        let planned = self.capacity[direction.index()].next_planned();
        steps.chain(planned).min()
    }

    /// Start and terminal of the next transmission: the earliest that may begin and, among those
    /// that wait for the shared capacity, the one whose packet came first.
    fn next_transmission(&self, direction: Direction) -> Option<(Nanos, usize)> {
        let shared_free = self.capacity[direction.index()].free_at();
        self.terminals
            .iter()
            .enumerate()
            .filter_map(|(index, terminal)| {
                let link = &terminal.links[direction.index()];
                let (ready, sequence) = link.next_ready()?;
                // Capacity on demand is granted from the link's own rate.
                let free = if link.is_on_demand() { 0 } else { shared_free };
                Some((ready.max(free), sequence, index))
            })
            .min()
            .map(|(start, _, index)| (start, index))
    }

    fn transmit(&mut self, direction: Direction, terminal: usize, start: Nanos) {
        let link = &mut self.terminals[terminal].links[direction.index()];
        let Some(sent) = link.transmit(start) else {
            return;
        };
        let departed = if link.is_on_demand() {
            sent.departed
        } else {
            let shared = &mut self.capacity[direction.index()];
            sent.departed.max(shared.transmit(start, sent.packet.len()))
        };
        if let Some(due) = link.launch(departed, sent.packet.len()) {
            self.flight.push(Reverse(InFlight {
                due,
                sequence: sent.sequence,
                departed,
                direction,
                terminal,
                packet: sent.packet,
            }));
        }
    }

    fn apply_allocation(&mut self, direction: Direction, rates: &BTreeMap<usize, u64>, at: Nanos) {
        for (index, terminal) in self.terminals.iter_mut().enumerate() {
            let rate = rates.get(&index).copied().unwrap_or(0);
            terminal.links[direction.index()].set_allocation(Some(rate), at);
        }
    }

    fn link(&self, terminal: usize, direction: Direction) -> &Link {
        &self.terminals[terminal].links[direction.index()]
    }

    /// Number of terminals.
    pub fn terminal_count(&self) -> usize {
        self.terminals.len()
    }

    /// The index of the terminal called `name`.
    pub fn terminal_named(&self, name: &str) -> Option<usize> {
        self.terminals.iter().position(|t| t.name == name)
    }

    /// The name of a terminal.
    pub fn terminal_name(&self, terminal: usize) -> &str {
        &self.terminals[terminal].name
    }

    /// The epoch: the time that schedules count from.
    pub fn epoch(&self) -> Nanos {
        self.epoch
    }

    /// The counts of a link at `now`.
    pub fn statistics(
        &mut self,
        now: Nanos,
        terminal: usize,
        direction: Direction,
    ) -> LinkStatistics {
        self.advance(now);
        self.link(terminal, direction).statistics()
    }

    /// How long packets waited in a link's queue, since counts were reset.
    pub fn queue_series(
        &mut self,
        now: Nanos,
        terminal: usize,
        direction: Direction,
    ) -> QueueSeries {
        self.advance(now);
        self.terminals[terminal].links[direction.index()].queue_series(now)
    }

    /// Sets all counts to zero; what is queued or in flight stays counted as such.
    pub fn reset_statistics(&mut self, now: Nanos) {
        self.advance(now);
        for terminal in &mut self.terminals {
            for link in &mut terminal.links {
                link.reset_statistics(now);
            }
        }
    }
}

/// A packet between its departure and its arrival, ordered by arrival.
struct InFlight {
    due: Nanos,
    sequence: u64,
    departed: Nanos,
    direction: Direction,
    terminal: usize,
    packet: Packet,
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for InFlight {}
