//! Whether the peer's data can fill a queue in the reverse direction.

use std::time::{Duration, Instant};

/// What moves is counted over a period of this length and the one before it.
const PERIOD: Duration = Duration::from_secs(2);
/// The most that the peer sends, as a part (1/n) of what arrives there, to count as hardly
/// anything. On average only a reverse link that is narrower by this factor could be filled with it,
/// and the transport's acknowledgements would fill that one, too.
const HARDLY_PART: u64 = 100;

/// Payload of one period, bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    delivered: u64,
    received: u64,
}

/// Compares what a peer sends with what arrives there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reverse {
    /// When the present period began.
    began: Option<Instant>,
    present: Moved,
    /// The period before; `None` until one is over.
    before: Option<Moved>,
}

impl Reverse {
    /// Counts payload, bytes, that has arrived at the peer and that has come from it.
    pub fn count(&mut self, now: Instant, delivered: u64, received: u64) {
        let began = *self.began.get_or_insert(now);
        if now >= began + PERIOD {
            self.began = Some(now);
            self.before = Some(std::mem::take(&mut self.present));
        }
        self.present.delivered += delivered;
        self.present.received += received;
    }

    /// Whether the peer sends hardly anything: a queue in the reverse direction is then none of its
    /// data. False where nothing arrives there.
    pub fn is_quiet(&self) -> bool {
        self.before.is_some_and(|before| {
            let delivered = before.delivered + self.present.delivered;
            let received = before.received + self.present.received;
            delivered > 0 && received <= delivered / HARDLY_PART
        })
    }
}
