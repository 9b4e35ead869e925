//! Pseudo-random numbers, and the seeds of a law.

use std::ops::Range;

/// A pseudo-random sequence, the same each time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below 1.
    pub fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// So many seeds from 0 on, or from `UNDERPASS_SIM_FROM`; only one with
/// `UNDERPASS_SIM_SEED`.
pub fn seeds(count: u64) -> Range<u64> {
    let number = |variable: &str| {
        let text = std::env::var(variable).ok()?;
        Some(text.parse::<u64>().expect("a number"))
    };
    let (first, count) = match number("UNDERPASS_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (number("UNDERPASS_SIM_FROM").unwrap_or(0), count),
    };
    first..first + count
}
