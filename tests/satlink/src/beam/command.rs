//! What changes a beam while it runs.

use std::collections::BTreeMap;

use super::{
    Beam, CapacityProfile, Direction, Interval, LinkProfile, Nanos, ProfileError, Sharing, Trace,
};

/// Why a command to the beam was refused.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum BeamError {
    /// A profile has a value that cannot be.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The rates of an allocation exceed the capacity.
    #[error("the allocation's rates sum to {sum_bps} bit/s, above the capacity of {capacity_bps}")]
    Overallocated {
        /// Sum of the allocated rates, bit/s.
        sum_bps: u64,
        /// Capacity of the beam in this direction, bit/s.
        capacity_bps: u64,
    },
    /// More allocations wait for their time than are kept.
    #[error("{0} allocations already wait for their time")]
    TooManyPlanned(usize),
}

impl Beam {
    /// The profile in force on a link.
    pub fn link_profile(&self, terminal: usize, direction: Direction) -> &LinkProfile {
        self.link(terminal, direction).profile()
    }

    /// The rate allocated to a link, bit/s, if allocations are in force.
    pub fn allocation(&self, terminal: usize, direction: Direction) -> Option<u64> {
        self.link(terminal, direction).allocation()
    }

    /// Whether a link can be changed to this profile now.
    pub fn admits_link(
        &self,
        terminal: usize,
        direction: Direction,
        profile: &LinkProfile,
    ) -> Result<(), BeamError> {
        Ok(self.link(terminal, direction).admits(profile)?)
    }

    /// Changes a link. Queued packets stay, those in flight are not touched,
    /// and one being transmitted ends as it began.
    pub fn set_link(
        &mut self,
        now: Nanos,
        terminal: usize,
        direction: Direction,
        profile: LinkProfile,
    ) -> Result<(), BeamError> {
        self.advance(now);
        Ok(self.terminals[terminal].links[direction.index()].set_profile(profile)?)
    }

    /// The capacity in force in a direction.
    pub fn capacity_profile(&self, direction: Direction) -> &CapacityProfile {
        self.capacity[direction.index()].profile()
    }

    /// Changes the shared capacity. [`Sharing::FirstCome`] ends any
    /// allocation; with [`Sharing::Allocated`] a terminal has nothing until
    /// it is allocated something.
    pub fn set_capacity(
        &mut self,
        now: Nanos,
        direction: Direction,
        profile: CapacityProfile,
    ) -> Result<(), BeamError> {
        self.advance(now);
        profile.validate()?;
        let allocated = self
            .terminals
            .iter()
            .filter_map(|t| t.links[direction.index()].allocation())
            .fold(0, u64::saturating_add);
        if profile.sharing == Sharing::Allocated {
            profile.admits(allocated)?;
        }
        self.capacity[direction.index()].set_profile(profile)?;
        for terminal in &mut self.terminals {
            let link = &mut terminal.links[direction.index()];
            let allocation = match profile.sharing {
                Sharing::FirstCome => None,
                Sharing::Allocated => Some(link.allocation().unwrap_or(0)),
            };
            link.set_allocation(allocation, now);
        }
        Ok(())
    }

    /// Allocates rates (bit/s, by terminal index) from `at` on, and enforces
    /// them. A terminal that is not named gets nothing. An `at` that has
    /// passed means now.
    pub fn allocate(
        &mut self,
        now: Nanos,
        direction: Direction,
        rates_bps: BTreeMap<usize, u64>,
        at: Nanos,
    ) -> Result<(), BeamError> {
        self.advance(now);
        self.capacity[direction.index()].plan(rates_bps, at.max(now))?;
        self.advance(now);
        Ok(())
    }

    /// Blocks a terminal from `now`, for a time or until [`Beam::unblock`].
    pub fn block(&mut self, now: Nanos, terminal: usize, duration: Option<Nanos>) {
        self.terminals[terminal].blockage.block(now, duration);
    }

    /// Ends the blockage that covers `now`, commanded or scheduled.
    pub fn unblock(&mut self, now: Nanos, terminal: usize) {
        self.terminals[terminal].blockage.unblock(now);
    }

    /// Replaces a terminal's schedule; intervals are relative to the epoch.
    pub fn schedule(&mut self, now: Nanos, terminal: usize, intervals: Vec<Interval>) {
        let epoch = self.epoch;
        self.terminals[terminal].blockage.lay(intervals, epoch, now);
    }

    /// The rate of its own that a link has now, bit/s: its trace's or its profile's.
    pub fn own_rate(&self, terminal: usize, direction: Direction) -> Option<u64> {
        self.link(terminal, direction).own_rate()
    }

    /// Lets a terminal follow a trace, which counts from the epoch. Its blockages replace the
    /// terminal's schedule; an empty trace ends the previous one.
    pub fn set_trace(&mut self, now: Nanos, terminal: usize, trace: Trace) {
        self.advance(now);
        let epoch = self.epoch;
        let [forward, ret] = &mut self.terminals[terminal].links;
        forward.set_trace(trace.forward, epoch, now);
        ret.set_trace(trace.ret, epoch, now);
        self.schedule(now, terminal, trace.blockages);
    }

    /// Whether a terminal is blocked at `now`.
    pub fn is_blocked(&self, now: Nanos, terminal: usize) -> bool {
        self.terminals[terminal].blockage.covers(now)
    }

    /// Makes `now` the epoch and begins every schedule and trace again from it.
    pub fn restart_epoch(&mut self, now: Nanos) {
        self.advance(now);
        self.epoch = now;
        for terminal in &mut self.terminals {
            terminal.blockage.relay(now);
            for link in &mut terminal.links {
                link.restart_trace(now);
            }
        }
    }

    /// Begins every link's loss and jitter pattern again, from `seed`.
    pub fn reseed(&mut self, now: Nanos, seed: u64) {
        self.advance(now);
        for terminal in &mut self.terminals {
            for direction in Direction::BOTH {
                terminal.links[direction.index()].reseed(&terminal.name, direction, seed);
            }
        }
    }
}
