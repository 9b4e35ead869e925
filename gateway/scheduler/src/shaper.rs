//! Holds a terminal to its rate: a bucket, and the levels that its debt delays.

use std::time::Instant;

use crate::bucket::{Bucket, units};

/// A bundle may be larger than suits the rate by this part of it (1/n), for headers.
const HEADERS_PART: i128 = 4;

/// A bucket whose debt is divided among levels, 0 first: the sparse bundles of the first priority,
/// its other bundles, the sparse ones of the second priority, and so on.
///
/// A debt up to a bundle that suits the rate delays every level, since so much is on the line. The
/// level that made a larger debt *carries* the rest, which delays that level and those below. Such
/// a debt arises when a bundle is longer than suits the rate, when the rate is lowered before a
/// bundle is paid, when transports have more to send than was charged, and when too much was sent.
///
/// The rate pays first the debt that delays every level, then what is carried, the first level
/// first. Bundles that a level sends ahead of a debt are charged like all others, so the levels
/// that carry the debt wait for these, too: over a long time all levels together have exactly the
/// rate. A level is granted nothing while it carries a debt itself. So each level carries at most
/// one granted bundle, and all levels together are ahead of the rate by at most one bundle for each
/// level but the first.
#[derive(Clone, Debug)]
pub(crate) struct Shaper {
    bucket: Bucket,
    /// The debt that each level carries, in the unit of the bucket's level; empty if there is none.
    /// The sum is at most the bucket's debt.
    carried: Vec<i128>,
    /// The level that has made the rest of the debt.
    debtor: usize,
}

impl Shaper {
    pub fn new(now: Instant, rate_bps: u64) -> Self {
        Shaper {
            bucket: Bucket::new(now, rate_bps),
            carried: Vec::new(),
            debtor: 0,
        }
    }

    /// Changes the rate. After a cut, the levels above the one in debt wait no longer than they
    /// would have at the higher rate.
    pub fn set_rate(&mut self, now: Instant, rate_bps: u64) {
        self.fill(now);
        let before = self.bucket.rate_bps();
        if rate_bps < before {
            let owed = self.shared();
            let nanos = owed.unsigned_abs().div_ceil(u128::from(before));
            let kept = nanos.saturating_mul(u128::from(rate_bps));
            let kept = i128::try_from(kept).map_or(owed, |kept| kept.min(owed));
            self.carry(self.debtor, owed - kept);
        }
        self.bucket.set_rate(now, rate_bps);
        self.settle();
    }

    /// As [`Bucket::set_burst`].
    pub fn set_burst(&mut self, now: Instant, bytes: u64) {
        self.bucket.set_burst(now, bytes);
        self.settle();
    }

    /// As [`Bucket::resize_burst`].
    pub fn resize_burst(&mut self, now: Instant, bytes: u64) {
        self.bucket.resize_burst(now, bytes);
        self.settle();
    }

    /// Charges what a level has sent.
    pub fn charge(&mut self, now: Instant, level: usize, bytes: u64) {
        self.fill(now);
        let before = self.shared();
        self.bucket.charge(now, bytes);
        let owed = self.shared();
        if owed > before {
            // Two levels may be in debt only if one has sent without a grant.
            self.debtor = match before {
                0 => level,
                _ => self.debtor.min(level),
            };
            let bundle = self.bucket.bundle();
            self.carry(level, owed - bundle - bundle / HEADERS_PART);
        }
    }

    /// Charges the bytes that wait in the transports, by level: they are paid before the next
    /// bundle of their level is due. The bucket's credit may cover a part of them, as it always
    /// may.
    pub fn wait_for(&mut self, now: Instant, unsent: &[u64]) {
        self.fill(now);
        let mut waiting = 0;
        for (level, bytes) in unsent.iter().enumerate() {
            waiting += units(*bytes);
            self.hold(level, self.bucket.ceiling() - waiting);
        }
        self.settle();
    }

    /// Makes `bytes` the least debt that has to be paid before the next bundle of a level is due.
    pub fn owe(&mut self, now: Instant, level: usize, bytes: u64) {
        self.fill(now);
        self.hold(level, -units(bytes));
        self.settle();
    }

    /// From when a level may send; `None` if never at this rate.
    pub fn ready_at(&self, level: usize) -> Option<Instant> {
        self.bucket.reaches_at(-self.below(level))
    }

    /// Whether a level may send at `now`.
    pub fn is_ready(&self, now: Instant, level: usize) -> bool {
        self.bucket.reaches(now, -self.below(level))
    }

    /// Whether a level carried a debt at the time of the last call.
    pub fn carries(&self, level: usize) -> bool {
        self.carried.get(level).is_some_and(|debt| *debt > 0)
    }

    /// Adds what the rate has earned until `now`.
    pub fn fill(&mut self, now: Instant) {
        self.bucket.fill(now);
        self.settle();
    }

    /// Lowers what a level has to at most `most`. As far as the bucket's level is above that, it is
    /// lowered; the rest of the debt is taken over from the levels below, the last first.
    fn hold(&mut self, level: usize, most: i128) {
        let missing = self.bucket.level() + self.below(level) - most;
        if missing <= 0 {
            return;
        }
        let fresh = (self.bucket.level() - most).max(0);
        self.bucket.lower(fresh);
        let mut taken = missing - fresh;
        let below = self.carried.iter_mut().skip(level + 1).rev();
        for carried in below {
            let part = taken.min(*carried);
            *carried -= part;
            taken -= part;
        }
        self.carry(level, missing);
    }

    /// Makes a level carry a part of the debt.
    fn carry(&mut self, level: usize, debt: i128) {
        if debt > 0 {
            if self.carried.len() <= level {
                self.carried.resize(level + 1, 0);
            }
            self.carried[level] += debt;
        }
    }

    /// Removes what has been paid from the debt that is carried.
    fn settle(&mut self) {
        let debt = (-self.bucket.level()).max(0);
        if debt == 0 {
            // This is the usual case, which then costs no sums.
            self.carried.clear();
        }
        let mut paid = self.carried.iter().sum::<i128>() - debt;
        for carried in &mut self.carried {
            let part = paid.min(*carried).max(0);
            *carried -= part;
            paid -= part;
        }
    }

    /// The debt that delays every level.
    fn shared(&self) -> i128 {
        let carried: i128 = self.carried.iter().sum();
        (-self.bucket.level() - carried).max(0)
    }

    /// The debt that the levels below one carry, which does not delay it.
    fn below(&self, level: usize) -> i128 {
        self.carried.iter().skip(level + 1).sum()
    }
}

/// Sets the rate of a shaper, which exists only while there is a rate.
pub(crate) fn shape(shaper: &mut Option<Shaper>, now: Instant, rate_bps: Option<u64>) {
    match (shaper.as_mut(), rate_bps) {
        (Some(shaper), Some(rate)) => shaper.set_rate(now, rate),
        (None, Some(rate)) => *shaper = Some(Shaper::new(now, rate)),
        (_, None) => *shaper = None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HIGH: usize = 0;
    const MIDDLE: usize = 1;
    const LOW: usize = 2;

    /// The time in ms after which each level may send.
    fn waits(shaper: &Shaper, now: Instant) -> [u128; 3] {
        [HIGH, MIDDLE, LOW].map(|level| {
            let at = shaper.ready_at(level).expect("there is a rate");
            at.saturating_duration_since(now).as_millis()
        })
    }

    /// A shaper of 1 MB/s without credit, and its start.
    fn shaper() -> (Instant, Shaper) {
        let now = Instant::now();
        (now, Shaper::new(now, 8_000_000))
    }

    #[test]
    fn a_bundle_that_suits_the_rate_holds_up_every_level() {
        let (now, mut shaper) = shaper();
        // The size of the bundle includes its headers.
        shaper.charge(now, LOW, 70_000);
        assert_eq!(waits(&shaper, now), [70, 70, 70]);
    }

    #[test]
    fn a_longer_bundle_holds_up_the_levels_above_for_one_that_suits() {
        let (now, mut shaper) = shaper();
        shaper.charge(now, LOW, 1_000_000);
        assert_eq!(waits(&shaper, now), [75, 75, 1000]);
        let later = now + Duration::from_millis(75);
        assert!(shaper.is_ready(later, HIGH) && shaper.is_ready(later, MIDDLE));
        assert!(!shaper.is_ready(later - Duration::from_nanos(1), HIGH));
        assert!(!shaper.is_ready(later, LOW));
    }

    #[test]
    fn a_lower_rate_makes_nobody_wait_longer_but_who_made_the_debt() {
        let (now, mut shaper) = shaper();
        shaper.charge(now, MIDDLE, 60_000);
        let cut = now + Duration::from_millis(10);
        shaper.set_rate(cut, 800_000);
        assert_eq!(waits(&shaper, cut), [50, 500, 500]);
        // The rate is cut again a little later, and then restored.
        let again = cut + Duration::from_millis(20);
        shaper.set_rate(again, 80_000);
        assert_eq!(waits(&shaper, again), [30, 4800, 4800]);
        shaper.set_rate(again, 8_000_000);
        assert_eq!(waits(&shaper, again)[MIDDLE], 48);
        assert!(waits(&shaper, again)[HIGH] <= 30);
    }

    #[test]
    fn no_rate_at_all_holds_up_everybody_and_keeps_the_debt() {
        let (now, mut shaper) = shaper();
        shaper.charge(now, LOW, 60_000);
        shaper.set_rate(now, 0);
        assert_eq!(shaper.ready_at(HIGH), None);
        assert!(!shaper.is_ready(now + Duration::from_secs(9), HIGH));
        let later = now + Duration::from_secs(9);
        shaper.set_rate(later, 8_000_000);
        assert_eq!(waits(&shaper, later), [0, 0, 60]);
    }

    #[test]
    fn what_goes_ahead_of_a_debt_is_paid_by_who_carries_it() {
        let (now, mut shaper) = shaper();
        shaper.owe(now, LOW, 500_000);
        assert_eq!(waits(&shaper, now), [0, 0, 500]);
        shaper.charge(now, HIGH, 30_000);
        assert_eq!(waits(&shaper, now), [30, 30, 530]);
        let later = now + Duration::from_millis(30);
        shaper.charge(later, MIDDLE, 60_000);
        assert_eq!(waits(&shaper, later), [60, 60, 560]);
        let paid = later + Duration::from_millis(560);
        shaper.charge(paid, LOW, 60_000);
        assert_eq!(waits(&shaper, paid), [60, 60, 60]);
    }

    #[test]
    fn no_level_saves_up_while_another_carries_a_debt() {
        let (now, mut shaper) = shaper();
        shaper.owe(now, LOW, 500_000);
        let later = now + Duration::from_millis(400);
        shaper.charge(later, HIGH, 10_000);
        assert_eq!(waits(&shaper, later), [10, 10, 110]);
    }

    #[test]
    fn who_has_carried_a_debt_is_forgotten_when_it_is_paid() {
        let (now, mut shaper) = shaper();
        shaper.owe(now, LOW, 500_000);
        shaper.fill(now + Duration::from_millis(499));
        assert!(shaper.carries(LOW) && !shaper.carries(MIDDLE));
        shaper.fill(now + Duration::from_millis(500));
        assert!(shaper.carried.is_empty());
    }

    #[test]
    fn a_level_waits_for_what_is_unsent_of_its_own_and_those_above() {
        let (now, mut shaper) = shaper();
        shaper.charge(now, LOW, 60_000);
        // The credit of a bundle may cover a part of each.
        shaper.wait_for(now, &[0, 100_000, 200_000]);
        assert_eq!(waits(&shaper, now), [60, 60, 240]);
        shaper.wait_for(now, &[200_000, 0, 0]);
        assert_eq!(waits(&shaper, now), [140, 140, 240]);
        // Nor does any byte count twice as a debt.
        shaper.wait_for(now, &[200_000, 0, 0]);
        shaper.owe(now, MIDDLE, 200_000);
        assert_eq!(waits(&shaper, now), [140, 200, 240]);
        shaper.owe(now, HIGH, 500_000);
        assert_eq!(waits(&shaper, now), [500, 500, 500]);
    }

    #[test]
    fn a_first_burst_leaves_whatever_was_owed() {
        let (now, mut shaper) = shaper();
        shaper.owe(now, LOW, 500_000);
        shaper.set_burst(now, 100_000);
        shaper.charge(now, LOW, 100_000);
        assert_eq!(waits(&shaper, now), [0, 0, 0]);
        shaper.charge(now, LOW, 10_000);
        assert_eq!(waits(&shaper, now), [10, 10, 10]);
    }

    #[test]
    fn a_rate_that_goes_up_and_down_lets_each_level_go_ahead_once() {
        let (now, mut shaper) = shaper();
        let mut sent = 0;
        for _ in 0..100 {
            for level in [LOW, MIDDLE, HIGH] {
                shaper.set_rate(now, 8_000_000);
                if shaper.is_ready(now, level) {
                    shaper.charge(now, level, 60_000);
                    sent += 60_000;
                }
                shaper.set_rate(now, 0);
            }
        }
        assert_eq!(sent, 3 * 60_000);
    }

    #[test]
    fn a_debt_without_end_is_no_overflow() {
        let now = Instant::now();
        let mut shaper = Shaper::new(now, u64::MAX);
        shaper.charge(now, LOW, u64::MAX);
        shaper.wait_for(now, &[u64::MAX; 64]);
        shaper.owe(now, HIGH, u64::MAX);
        for rate_bps in [1, 0, u64::MAX, 1] {
            shaper.set_rate(now, rate_bps);
        }
        assert!(!shaper.is_ready(now, LOW));
    }
}
