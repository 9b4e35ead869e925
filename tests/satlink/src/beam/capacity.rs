//! The capacity of one direction of the beam, and who gets it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::profile::positive;
use super::transmitter::Transmitter;
use super::{BeamError, Nanos, ProfileError};

/// Allocations that may wait for their time.
const MAX_PLANNED: usize = 10_000;

/// The capacity of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CapacityProfile {
    /// Capacity in bit/s, counting IP bytes; `None` is unlimited.
    pub capacity_bps: Option<u64>,
    /// How the terminals share it.
    pub sharing: Sharing,
}

/// How terminals share the capacity of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// The packet that came first goes first.
    #[default]
    FirstCome,
    /// Each terminal has the rate it was allocated, used or not.
    Allocated,
}

impl CapacityProfile {
    /// Checks every value.
    pub fn validate(&self) -> Result<(), ProfileError> {
        positive("capacity_bps", self.capacity_bps)
    }

    /// Whether rates of this sum can be allocated.
    pub(super) fn admits(&self, sum_bps: u64) -> Result<(), BeamError> {
        match self.capacity_bps {
            Some(capacity_bps) if sum_bps > capacity_bps => Err(BeamError::Overallocated {
                sum_bps,
                capacity_bps,
            }),
            _ => Ok(()),
        }
    }
}

type Rates = BTreeMap<usize, u64>;

/// The shared transmitter and the allocations that wait for their time.
#[derive(Debug)]
pub(super) struct Capacity {
    profile: CapacityProfile,
    transmitter: Transmitter,
    planned: BTreeMap<Nanos, Rates>,
}

impl Capacity {
    pub(super) fn new(profile: CapacityProfile) -> Self {
        Capacity {
            profile,
            transmitter: Transmitter::default(),
            planned: BTreeMap::new(),
        }
    }

    pub(super) fn profile(&self) -> &CapacityProfile {
        &self.profile
    }

    /// Takes a new profile. First come, first served ends planned allocations.
    pub(super) fn set_profile(&mut self, profile: CapacityProfile) -> Result<(), BeamError> {
        match profile.sharing {
            Sharing::FirstCome => self.planned.clear(),
            Sharing::Allocated => {
                for rates in self.planned.values() {
                    profile.admits(sum(rates))?;
                }
            }
        }
        self.profile = profile;
        Ok(())
    }

    /// When a transmission may begin. Allocated rates sum to no more than the
    /// capacity, so terminals with an allocation do not wait for each other.
    pub(super) fn free_at(&self) -> Nanos {
        match self.profile.sharing {
            Sharing::FirstCome => self.transmitter.free_at(),
            Sharing::Allocated => 0,
        }
    }

    /// Uses the capacity for one packet; returns when it is free again.
    pub(super) fn transmit(&mut self, start: Nanos, bytes: usize) -> Nanos {
        match self.profile.sharing {
            Sharing::FirstCome => self
                .transmitter
                .send(start, bytes, self.profile.capacity_bps),
            Sharing::Allocated => start,
        }
    }

    pub(super) fn plan(&mut self, rates: Rates, at: Nanos) -> Result<(), BeamError> {
        self.profile.admits(sum(&rates))?;
        if self.planned.len() >= MAX_PLANNED {
            return Err(BeamError::TooManyPlanned(MAX_PLANNED));
        }
        self.planned.insert(at, rates);
        Ok(())
    }

    pub(super) fn next_planned(&self) -> Option<Nanos> {
        self.planned.keys().next().copied()
    }

    /// The allocation whose time has come by `now`. It is enforced from then on.
    pub(super) fn take_planned(&mut self, now: Nanos) -> Option<Rates> {
        let entry = self.planned.first_entry()?;
        if *entry.key() > now {
            return None;
        }
        self.profile.sharing = Sharing::Allocated;
        Some(entry.remove())
    }
}

fn sum(rates: &Rates) -> u64 {
    rates
        .values()
        .fold(0, |sum, rate| sum.saturating_add(*rate))
}
