//! Whether what the peer tells of the queue in this direction counts.

use std::time::{Duration, Instant};

use crate::view::{NOTICED_BESIDE, noticed};
use crate::{Reading, WayThere};

/// From here on there is a queue on the way back.
const LEAST_WAY_BACK: Duration = Duration::from_millis(4);
/// If round trips show a queue for so long of which the peer tells nothing, its
/// beacons have another way than the sessions, or it lies.
const CONTRADICTED: Duration = Duration::from_secs(3);
/// Then it is not believed for so long.
const DISBELIEVED: Duration = Duration::from_secs(60);
/// What is older than this tells of another moment.
const MOST_EACH: Duration = Duration::from_secs(2);

/// What is told is older than the latest round trip. A queue in this that is longer than
/// told by a base round trip, and by so many times the least that is noticed, is newer.
const OVERTAKEN_BY: u32 = 4;

/// Whether round trips show that what is told is of before a queue came to stand.
pub(crate) fn is_overtaken(base: Duration, told: WayThere, reading: &Reading) -> bool {
    let since = base.max(OVERTAKEN_BY * noticed(base));
    reading
        .rtt
        .is_some_and(|rtt| rtt > base + told.late + since)
}

/// Whether what the peer tells, `each` so long apart, is older than some round trips.
pub(crate) fn is_older(each: Duration, base: Duration) -> bool {
    base < each / 2
}

/// What the peer has told so far, held against round trips.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// When the way back last had a queue.
    way_back_at: Option<Instant>,
    /// Since when round trips show a queue of which the peer tells nothing.
    contradicted: Option<Instant>,
    /// When that was last so for too long.
    disbelieved: Option<Instant>,
}

impl Told {
    /// Whether the way back has had no queue for a round trip, so that round trips show
    /// this direction's.
    ///
    /// What the peer tells, `each` so long apart, is older than many a round trip of a short
    /// way: beside less on the way back than is noticed, those tell more.
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

    /// What the peer tells, less what others have of it; `None` where round trips
    /// contradict it.
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
