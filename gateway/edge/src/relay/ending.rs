//! Waits for what a RST would overtake.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

/// A peer that takes nothing for this long gets the RST.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The first pause before the send queue is checked again; each further pause is twice as long, up
/// to `LAST_GLANCE`. The kernel reports free room in the queue but not when it is empty, and a peer
/// can make the wait as long as it likes.
const FIRST_GLANCE: Duration = Duration::from_millis(10);
const LAST_GLANCE: Duration = Duration::from_secs(1);

/// Waits until the other end has acknowledged what was written to it, since a RST overtakes what
/// the kernel still holds. `unacknowledged` returns how much that is.
pub(super) async fn delivered(unacknowledged: impl Fn() -> io::Result<u32>) {
    let mut until = Instant::now() + PATIENCE;
    let mut before = u32::MAX;
    let mut glance = FIRST_GLANCE;
    while let Ok(left) = unacknowledged() {
        if left == 0 || Instant::now() >= until {
            return;
        }
        if left < before {
            before = left;
            until = Instant::now() + PATIENCE;
        }
        tokio::time::sleep(glance).await;
        glance = (2 * glance).min(LAST_GLANCE);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How long it waits, and how often it checks, for a peer that takes one of `bytes`
    /// bytes at each interval `each`.
    async fn waits(bytes: u32, each: Duration) -> (Duration, u32) {
        let start = Instant::now();
        let looks = Cell::new(0);
        delivered(|| {
            looks.set(looks.get() + 1);
            let taken = start.elapsed().as_millis() / each.as_millis();
            Ok(bytes.saturating_sub(u32::try_from(taken).unwrap()))
        })
        .await;
        (start.elapsed(), looks.get())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_soon_taken_is_soon_over() {
        let (waited, _) = waits(1, Duration::from_millis(15)).await;
        assert!(waited < Duration::from_millis(40), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (waited, _) = waits(1, Duration::from_secs(86_400)).await;
        let most = PATIENCE + LAST_GLANCE;
        assert!(waited >= PATIENCE && waited <= most, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_byte_now_and_then_costs_little() {
        let (waited, looks) = waits(100, Duration::from_secs(20)).await;
        assert!(waited >= Duration::from_secs(2_000), "{waited:?}");
        assert!(looks <= 2_100, "{looks} looks");
    }
}
