//! The part of a rate that is used.

use crate::link::ConfigError;

/// The scheduler keeps at least this part (1/n) of a rate, however much other
/// traffic is measured. Otherwise an estimate that lags behind a rate change
/// could silence the node's signalling.
const LEAST_PART: u64 = 10;

const MILLION: u128 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Utilisation {
    ppm: u128,
}

impl Utilisation {
    pub fn new(part: f64) -> Result<Self, ConfigError> {
        let ppm = (part * MILLION as f64).round() as u128;
        if !(part <= 1.0 && ppm > 0) {
            return Err(ConfigError::Utilisation(part));
        }
        Ok(Utilisation { ppm })
    }

    /// What is used of a rate from which other traffic is subtracted, bit/s.
    pub fn of(self, rate_bps: u64, subtracted_bps: u128) -> u64 {
        let least = u128::from(rate_bps.div_ceil(LEAST_PART));
        let left = u128::from(rate_bps)
            .saturating_sub(subtracted_bps)
            .max(least);
        // The smallest rate still moves.
        let usable = (left * self.ppm / MILLION).max(left.min(1));
        usable as u64
    }
}
