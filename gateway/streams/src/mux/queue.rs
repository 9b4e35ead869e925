//! Whose turn it is: deficit round robin (Shreedhar and Varghese 1995) among
//! the streams of a class that have something to seal and credit for it.

use underpass_cla::Class;

use super::{Backlog, Mux};
use crate::stream::{Queued, Sending, TicketQueue};
use crate::wire::StreamId;

/// Fewer bytes than this are sealed only if they are all there is; credit
/// would otherwise trickle away in ever smaller frames.
const LEAST_DATA_BYTES: u64 = 4096;

/// The streams of a class that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct ClassQueue {
    /// Streams whose OPEN waits: served before the others, once.
    pub opens: TicketQueue,
    /// The others.
    pub turns: TicketQueue,
    /// Valid entries in both.
    pub streams: usize,
    /// Of these in `opens`.
    pub opening: usize,
    /// Bytes of these streams.
    pub bytes: u64,
}

impl Mux {
    /// What waits in `class`. O(1).
    pub(crate) fn backlog(&self, class: Class) -> Backlog {
        let control = class == self.config.control_class && self.has_control();
        match self.classes.get(usize::from(class.0)) {
            None => Backlog {
                has_control: control,
                ..Backlog::default()
            },
            Some(queue) => Backlog {
                bytes: queue.bytes,
                has_control: control || queue.opening > 0,
                streams: queue.streams,
            },
        }
    }

    /// Whether [`Mux::poll_payload`] has something for `class`. O(1).
    pub(crate) fn has_pending(&self, class: Class) -> bool {
        let backlog = self.backlog(class);
        backlog.has_control || backlog.streams > 0
    }

    /// Bytes of the stream that may be sealed now.
    pub(super) fn sendable(&self, id: StreamId) -> u64 {
        let Some(stream) = self.streams.get(&id) else {
            return 0;
        };
        // What is held back goes first.
        if stream.send.state == Sending::Done || stream.send.ahead_payloads > 0 {
            return 0;
        }
        let queued = stream.send.pieces.len() as u64;
        let sendable = self.allowance(&stream.send).min(queued);
        if sendable < queued.min(LEAST_DATA_BYTES) {
            return 0;
        }
        sendable
    }

    /// Puts the stream in its class' queue if it has something to seal and
    /// credit for it; otherwise remembers that it waits for credit.
    pub(super) fn enqueue(&mut self, id: StreamId, first: bool) {
        let sendable = self.sendable(id);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.queued.is_some() || !stream.has_output() {
            return;
        }
        let opening = stream.open.is_some();
        let queued = stream.send.pieces.len();
        let waits = queued > 0 || stream.send.ahead_payloads > 0;
        if sendable == 0 && waits && !opening {
            if !stream.blocked {
                stream.blocked = true;
                self.blocked.push(id);
            }
            return;
        }
        stream.ticket = stream.ticket.wrapping_add(1);
        stream.queued = Some(Queued {
            class: stream.class,
            bytes: queued as u64,
        });
        let entry = (id, stream.ticket);
        let class = usize::from(stream.class.0);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, ClassQueue::default);
        }
        let queue = &mut self.classes[class];
        queue.streams += 1;
        queue.bytes += queued as u64;
        if opening {
            queue.opening += 1;
            queue.opens.push_back(entry);
        } else if first {
            queue.turns.push_front(entry);
        } else {
            queue.turns.push_back(entry);
        }
        self.sweep(class);
    }

    /// Takes the stream out of its class' queue; its entry becomes void.
    pub(super) fn dequeue(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let Some(queued) = stream.queued.take() else {
            return;
        };
        stream.ticket = stream.ticket.wrapping_add(1);
        let queue = &mut self.classes[usize::from(queued.class.0)];
        queue.streams -= 1;
        queue.bytes -= queued.bytes;
        if stream.open.is_some() {
            queue.opening -= 1;
        }
    }

    /// Drops void entries once they are the most.
    fn sweep(&mut self, class: usize) {
        let queue = &mut self.classes[class];
        if queue.opens.len() + queue.turns.len() <= 2 * queue.streams + 64 {
            return;
        }
        let streams = &self.streams;
        for entries in [&mut queue.opens, &mut queue.turns] {
            entries.retain(|(id, ticket)| {
                streams
                    .get(id)
                    .is_some_and(|stream| stream.queued.is_some() && stream.ticket == *ticket)
            });
            entries.shrink_to(2 * entries.len());
        }
    }

    /// The next stream of the class, taken out of its queue.
    pub(super) fn next_turn(&mut self, class: Class, opening: bool) -> Option<StreamId> {
        let index = usize::from(class.0);
        loop {
            let queue = self.classes.get_mut(index)?;
            let entries = if opening {
                &mut queue.opens
            } else {
                &mut queue.turns
            };
            let (id, ticket) = entries.pop_front()?;
            let valid = self
                .streams
                .get(&id)
                .is_some_and(|stream| stream.queued.is_some() && stream.ticket == ticket);
            if valid {
                self.dequeue(id);
                return Some(id);
            }
        }
    }

    /// Looks again at all streams that wait for credit.
    pub(super) fn retry_blocked(&mut self) {
        for id in std::mem::take(&mut self.blocked) {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.blocked = false;
                self.enqueue(id, false);
            }
        }
    }
}
