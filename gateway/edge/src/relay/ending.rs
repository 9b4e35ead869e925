//! Waits for what a RST would overtake.

use std::time::Duration;

use tokio::time::Instant;

use super::Socket;

/// A peer that takes nothing for so long gets no more before the RST.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How often the send queue is looked at; the kernel tells of its room, not
/// of its end.
const GLANCE: Duration = Duration::from_millis(10);

/// Waits until the other end has acknowledged what was written to it, since a
/// RST overtakes what the kernel still holds.
pub(super) async fn delivered(socket: &impl Socket) {
    let mut until = Instant::now() + PATIENCE;
    let mut before = u32::MAX;
    while let Ok(left) = socket.unacknowledged() {
        if left == 0 || Instant::now() >= until {
            return;
        }
        if left < before {
            before = left;
            until = Instant::now() + PATIENCE;
        }
        tokio::time::sleep(GLANCE).await;
    }
}
