//! Decides whether the peer's reports about the queue in this direction are used.

use std::time::{Duration, Instant};

use crate::view::{NOTICED_BESIDE, noticed};
use crate::{Reading, WayThere};

/// A queue on the way back counts from this length on.
const LEAST_WAY_BACK: Duration = Duration::from_millis(4);
/// If round trips show a queue for so long that the peer does not report, its beacons take another
/// way than the sessions, or it lies.
const CONTRADICTED: Duration = Duration::from_secs(3);
/// After that its reports are ignored for so long.
const DISBELIEVED: Duration = Duration::from_secs(60);
/// Reports that are further apart than this are too old to use.
const MOST_EACH: Duration = Duration::from_secs(2);

/// A report is older than the latest round trip. If that shows a queue that is longer than
/// reported, by more than a base round trip and by more than so many times the least queue that is
/// noticed, then the queue is newer than the report.
const OVERTAKEN_BY: u32 = 4;

/// Whether round trips show that a queue has formed since the report.
pub(crate) fn is_overtaken(base: Duration, told: WayThere, reading: &Reading) -> bool {
    let since = base.max(OVERTAKEN_BY * noticed(base));
    reading
        .rtt
        .is_some_and(|rtt| rtt > base + told.late + since)
}

/// Whether reports, one every `each`, are older than round trips: the base round trip is less than
/// half of `each`.
pub(crate) fn is_older(each: Duration, base: Duration) -> bool {
    base < each / 2
}

/// Compares the peer's reports with the round trips.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// When the way back last had a queue.
    way_back_at: Option<Instant>,
    /// Since when round trips show a queue that the peer does not report.
    contradicted: Option<Instant>,
    /// When that had last gone on for too long.
    disbelieved: Option<Instant>,
}

impl Told {
    /// Whether the way back has had no queue for a round trip, so that round trips show the queue
    /// of this direction.
    ///
    /// On a short way, reports, one every `each`, are older than many round trips. So there a queue
    /// on the way back counts only from the length on that is noticed: below it, round trips tell
    /// more than reports.
    pub fn is_steady(
        &mut self,
        now: Instant,
        base: Duration,
        way_back: Duration,
        each: Option<Duration>,
    ) -> bool {
        let least = match each.is_some_and(|each| is_older(each, base)) {
            true => noticed(base),
            false => LEAST_WAY_BACK,
        };
        if way_back >= least {
            self.way_back_at = Some(now);
        }
        let recent = |at: Instant| now < at + base + way_back;
        !self.way_back_at.is_some_and(recent)
    }

    /// The peer's report less the queue of others; `None` where round trips contradict it.
    pub fn believed(
        &mut self,
        now: Instant,
        base: Duration,
        reading: &Reading,
        shared: Duration,
    ) -> Option<WayThere> {
        let told = reading.way_there.filter(|told| told.each <= MOST_EACH)?;
        let late = told.late.saturating_sub(shared);
        let none = NOTICED_BESIDE * noticed(base);
        if late > none || reading.rtt.is_some_and(|rtt| rtt <= base + 2 * none) {
            self.contradicted = None;
        } else if reading.rtt.is_some() {
            self.contradicted = self.contradicted.or(Some(now));
        }
        if self
            .contradicted
            .is_some_and(|since| now >= since + CONTRADICTED)
        {
            self.disbelieved = Some(now);
        }
        let disbelieved = self.disbelieved.is_some_and(|at| now < at + DISBELIEVED);
        (!disbelieved).then_some(WayThere { late, ..told })
    }
}
