//! When to ask the kernel again whether the socket takes more.
//!
//! Linux checks `TCP_NOTSENT_LOWAT` when an acknowledgement arrives, not when bytes leave. In the
//! first round trip of a burst over a long hop none arrives, and the socket would be idle for most
//! of it. Setting the option again makes the kernel check, and wakes the task if there is room.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

const FIRST: Duration = Duration::from_millis(2);
/// A small part of a bundle's line time, which is 60 ms.
const LONGEST: Duration = Duration::from_millis(8);
/// After this long without a byte taken, only acknowledgements are waited for.
const STALLED_AFTER: Duration = Duration::from_secs(1);
const STALLED: Duration = Duration::from_millis(200);

/// A timer that runs while output is pending.
#[derive(Debug)]
pub(super) struct Nudge {
    timer: Pin<Box<Sleep>>,
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    since: Instant,
    wait: Duration,
}

impl Nudge {
    pub(super) fn new() -> Self {
        Self {
            timer: Box::pin(sleep_until(Instant::now())),
            pending: None,
        }
    }

    pub(super) fn moving(&mut self) {
        self.pending = None;
    }

    /// Output is pending; ready when the kernel is to be asked.
    pub(super) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let pending = match &mut self.pending {
            Some(pending) => pending,
            None => {
                let since = Instant::now();
                self.timer.as_mut().reset(since + FIRST);
                self.pending.insert(Pending { since, wait: FIRST })
            }
        };
        if self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let now = Instant::now();
        pending.wait = if now - pending.since > STALLED_AFTER {
            STALLED
        } else {
            (pending.wait * 2).min(LONGEST)
        };
        self.timer.as_mut().reset(now + pending.wait);
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// When the kernel is asked within `time`, ms since the start.
    async fn asked(nudge: &mut Nudge, time: Duration) -> Vec<u128> {
        let start = Instant::now();
        let mut times = Vec::new();
        while start.elapsed() < time {
            poll_fn(|cx| nudge.poll_due(cx)).await;
            times.push(start.elapsed().as_millis());
        }
        times
    }

    #[tokio::test(start_paused = true)]
    async fn pending_output_is_asked_for_soon_and_then_steadily() {
        let mut nudge = Nudge::new();
        let times = asked(&mut nudge, Duration::from_millis(30)).await;
        assert_eq!(times, [2, 6, 14, 22, 30]);
        nudge.moving();
        let times = asked(&mut nudge, Duration::from_millis(2)).await;
        assert_eq!(times, [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_link_is_left_alone() {
        let mut nudge = Nudge::new();
        asked(&mut nudge, Duration::from_millis(1010)).await;
        let times = asked(&mut nudge, Duration::from_secs(60)).await;
        assert!(times.len() <= 301, "{}", times.len());
    }
}
