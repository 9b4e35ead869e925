//! CoDel, as RFC 8289 section 5 gives it.

use super::Nanos;
use super::flows::Flows;
use super::profile::{QueueProfile, nanos};
use super::queue::Queued;

/// Fewer bytes than this left behind are no standing queue (RFC 8289,
/// section 5.4: one packet of maximum size).
const MAX_PACKET_BYTES: u64 = 1500;

/// CoDel's control state; the packets are the queue's.
#[derive(Debug, Default)]
pub(super) struct Codel {
    first_above: Option<Nanos>,
    drop_next: Nanos,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl Codel {
    /// Takes the packet to be sent at `now`, giving those that are dropped
    /// before it to `drop` (RFC 8289, section 5.5).
    pub(super) fn dequeue(
        &mut self,
        flows: &mut Flows,
        profile: &QueueProfile,
        now: Nanos,
        mut drop: impl FnMut(Queued),
    ) -> Option<Queued> {
        let (mut head, mut may_drop) = self.take(flows, profile, now);
        if self.dropping {
            self.dropping = may_drop;
            while self.dropping && now >= self.drop_next {
                drop(head?);
                self.count = self.count.saturating_add(1);
                (head, may_drop) = self.take(flows, profile, now);
                self.dropping = may_drop;
                if may_drop {
                    self.drop_next = control_law(profile, self.drop_next, self.count);
                }
            }
        } else if may_drop {
            drop(head?);
            (head, _) = self.take(flows, profile, now);
            self.start_dropping(profile, now);
        }
        head
    }

    /// Takes the head and says whether it may be dropped: the delay has been
    /// above target for an interval (RFC 8289, section 5.6).
    fn take(
        &mut self,
        flows: &mut Flows,
        profile: &QueueProfile,
        now: Nanos,
    ) -> (Option<Queued>, bool) {
        let Some(head) = flows.pop() else {
            self.first_above = None;
            return (None, false);
        };
        let sojourn = now.saturating_sub(head.enqueued);
        if sojourn < nanos(profile.target_ms) || flows.bytes() <= MAX_PACKET_BYTES {
            self.first_above = None;
            return (Some(head), false);
        }
        let since = *self
            .first_above
            .get_or_insert_with(|| now.saturating_add(nanos(profile.interval_ms)));
        (Some(head), now >= since)
    }

    fn start_dropping(&mut self, profile: &QueueProfile, now: Nanos) {
        self.dropping = true;
        // A queue that was controlled a short time ago continues where it was.
        let delta = self.count.saturating_sub(self.last_count);
        let recent =
            now.saturating_sub(self.drop_next) < nanos(profile.interval_ms).saturating_mul(16);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = control_law(profile, now, self.count);
        self.last_count = self.count;
    }
}

fn control_law(profile: &QueueProfile, from: Nanos, count: u32) -> Nanos {
    let step = nanos(profile.interval_ms) as f64 / f64::from(count.max(1)).sqrt();
    // At least a nanosecond, so that an interval of 0 comes to an end too.
    from.saturating_add((step as Nanos).max(1))
}

#[cfg(test)]
mod tests {
    use super::super::profile::Discipline;
    use super::*;

    const MS: Nanos = 1_000_000;

    fn profile() -> QueueProfile {
        QueueProfile {
            discipline: Discipline::Codel,
            ..QueueProfile::default()
        }
    }

    fn packet(at: Nanos) -> Queued {
        Queued {
            packet: vec![0; 1000].into(),
            enqueued: at,
            sequence: at,
        }
    }

    /// The times of drops of a queue that is fed at twice its service rate of one packet
    /// per ms, for `span_ms`.
    fn drop_times(span_ms: u64) -> Vec<Nanos> {
        let (mut codel, mut flows, mut times) = (Codel::default(), Flows::default(), Vec::new());
        for now in (0..span_ms).map(|ms| ms * MS) {
            flows.push(Vec::new(), packet(now));
            flows.push(Vec::new(), packet(now));
            codel.dequeue(&mut flows, &profile(), now, |_| times.push(now));
        }
        times
    }

    #[test]
    fn first_drop_comes_an_interval_after_delay_passes_target() {
        let first = drop_times(200)[0];
        // The delay reaches 5 ms after some 10 ms of service.
        assert!((105 * MS..=115 * MS).contains(&first), "{first}");
    }

    #[test]
    fn drops_come_at_intervals_that_shrink_with_the_root_of_their_count() {
        let times = drop_times(1000);
        for count in 1..6 {
            let gap = (times[count] - times[count - 1]) as f64;
            let expected = 100.0 * MS as f64 / (count as f64).sqrt();
            // Service is in steps of 1 ms, and the schedule does not drift.
            assert!((gap - expected).abs() <= 1.01 * MS as f64, "{count}: {gap}");
        }
    }

    #[test]
    fn short_burst_is_not_dropped_from() {
        let (mut codel, mut flows) = (Codel::default(), Flows::default());
        for _ in 0..90 {
            flows.push(Vec::new(), packet(0));
        }
        for now in (0..90).map(|ms| ms * MS) {
            assert!(
                codel
                    .dequeue(&mut flows, &profile(), now, |_| panic!("dropped"))
                    .is_some()
            );
        }
        assert!(
            codel
                .dequeue(&mut flows, &profile(), 90 * MS, |_| ())
                .is_none()
        );
    }
}
