//! Reproducible random numbers.

/// SplitMix64 (Steele, Lea, Flood: *Fast splittable pseudorandom number
/// generators*, OOPSLA 2014). Its sequence is fixed by its definition, so a
/// seed gives the same losses in every build.
#[derive(Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// A stream of its own for each seed and label.
    pub(super) fn new(seed: u64, label: &str) -> Self {
        let mut random = Random { state: seed };
        for byte in label.bytes() {
            random.state ^= u64::from(byte);
            random.state = random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether an event of this probability happens.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_and_label_give_the_same_stream() {
        let draw = |seed, label| {
            let mut random = Random::new(seed, label);
            (0..8).map(|_| random.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, "t1"), draw(1, "t1"));
        assert_ne!(draw(1, "t1"), draw(2, "t1"));
        assert_ne!(draw(1, "t1"), draw(1, "t2"));
    }

    #[test]
    fn unit_is_uniform() {
        let mut random = Random::new(3, "");
        let mut tenths = [0u32; 10];
        for _ in 0..100_000 {
            tenths[(random.unit() * 10.0) as usize] += 1;
        }
        assert!(
            tenths.iter().all(|n| (9_600..10_400).contains(n)),
            "{tenths:?}"
        );
    }
}
