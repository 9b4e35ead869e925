//! When a session asks the node for a bundle, and asks the kernel whether it takes more.

use std::task::{Context, Poll};

use super::super::now;
use super::super::transport::Transport;
use super::Driver;

/// With a rate, small bundles are written together up to this many bytes: half of the least
/// `TCP_NOTSENT_LOWAT`, so that the kernel holds about one bundle.
const GATHERED_BYTES: usize = 8 << 10;

impl<T: Transport> Driver<T> {
    /// Asks the node for more as long as its bundles are small: these are written together.
    pub(super) fn gather(&mut self, cx: &mut Context<'_>) {
        while self.drained
            && !self.told_ready
            && self.output.bytes() < self.gathered_bytes()
            && self.core.can_take()
        {
            self.told_ready = true;
            self.around.node.ready(self.around.id);
            self.take_commands(cx);
            self.output.fetch(&mut self.core, now());
        }
    }

    /// Up to how many bytes bundles are written together. Without a rate, as on a local network, it
    /// is what the kernel may hold unsent anyway: each write costs a system call and an incomplete
    /// segment.
    fn gathered_bytes(&self) -> usize {
        let unlimited = self.handle.as_ref().filter(|handle| handle.is_unlimited());
        let bytes = unlimited.map_or(0, |_| self.around.unlimited_lowat_bytes as usize);
        bytes.max(GATHERED_BYTES)
    }

    /// Whether to ask the node for a bundle once the kernel has little left to send.
    fn wants_bundle(&self) -> bool {
        self.handle.is_some()
            && !self.waits
            && !self.told_ready
            && self.output.is_drained()
            && self.core.can_take()
    }

    pub(super) fn tell_ready(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.wants_bundle() {
            return false;
        }
        match self.transport.poll_drained(cx) {
            Poll::Ready(Ok(())) => {
                self.drained = true;
                self.told_ready = true;
                self.around.node.ready(self.around.id);
                true
            }
            // A broken connection is reported by reading from it.
            Poll::Ready(Err(_)) | Poll::Pending => false,
        }
    }

    /// Nothing else can be done. If output waits for the kernel, asks the kernel again from time to
    /// time.
    pub(super) fn nudge(&mut self, cx: &mut Context<'_>) -> bool {
        let pending = self.wants_bundle() || !self.output.is_drained();
        let Some(handle) = self.handle.as_ref().filter(|_| pending) else {
            self.nudge.moving();
            return false;
        };
        let due = self.nudge.poll_due(cx).is_ready();
        if due {
            handle.nudge();
        }
        due
    }
}
