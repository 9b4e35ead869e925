//! Streams that wait for the peer's credit, and applications that wait to
//! write.
//!
//! Each is looked at again when its own credit or bytes change. When others give credit or room
//! back, those that need the least go on. They are kept in that order, so one look shows whether
//! there are any. No call looks at all of them, whatever the peer sends.

use std::collections::BTreeSet;

use underpass_cla::Class;
use underpass_work::count;

use super::queue::Place;
use super::{Event, Mux};
use crate::stream::{Life, Sending, Stream};
use crate::wire::StreamId;

/// The most applications told in a row that they may write: when one of them writes, others are
/// told in turn.
const TOLD_IN_A_ROW: usize = 16;

/// Streams with something to send and no credit for it, by class; those first
/// that need the least.
pub(super) type Blocked = BTreeSet<(Class, u64, StreamId)>;

/// Streams whose applications wait to write: those first that wait for credit
/// alone, not for room in the buffers, and of these those that need the least.
pub(super) type Writers = BTreeSet<(bool, u64, StreamId)>;

impl Mux {
    pub(super) fn wait_for_credit(&mut self, id: StreamId) {
        self.forget_blocked(id);
        let need = self.need(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            let place = stream.send.outstanding() + need;
            stream.blocked = Some((stream.class, place));
            self.blocked.insert((stream.class, place, id));
        }
    }

    /// Notes that the stream does not wait for credit any more.
    pub(super) fn forget_blocked(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(&id);
        if let Some((class, place)) = stream.and_then(|stream| stream.blocked.take()) {
            self.blocked.remove(&(class, place, id));
        }
    }

    pub(super) fn has_credit_now(&self, class: Class) -> Option<StreamId> {
        count();
        let first = self.blocked.range((class, 0, StreamId(0))..).next();
        let (_, _, id) = first.filter(|(of, ..)| *of == class)?;
        (!self.waits_for_credit(*id)).then_some(*id)
    }

    /// Lets a stream of the class that has credit again take turns.
    pub(super) fn let_one_go_on(&mut self, class: Class) {
        if let Some(id) = self.has_credit_now(class) {
            self.forget_blocked(id);
            self.enqueue(id, Place::New);
        }
    }

    /// Notes that the peer has given credit that streams of all classes may use.
    pub(super) fn credit_came(&mut self) {
        for class in 0..self.classes.len() {
            self.let_one_go_on(Class(class as u8));
        }
        self.writers_retry = true;
    }

    /// Notes that the stream's own credit or bytes have changed: it may go on, and so may its
    /// application.
    pub(super) fn look_again(&mut self, id: StreamId) {
        let stream = self.streams.get(&id);
        if stream.is_some_and(|stream| stream.blocked.is_some()) {
            self.enqueue(id, Place::New);
        }
        self.look_at_writer(id);
    }

    /// Notes that the application is to be told when it may write.
    pub(super) fn want_to_write(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.writer.wanted = true;
        }
        self.look_at_writer(id);
    }

    /// Tells the application if it waits and may write; otherwise it goes on waiting.
    pub(super) fn look_at_writer(&mut self, id: StreamId) {
        let capacity = self.capacity(id);
        let Some(send) = self.streams.get(&id).map(|stream| &stream.send) else {
            return;
        };
        let queued = send.pieces.len();
        let waits_for_others = self.waits_for_others(send);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if let Some((large, place)) = stream.writer.place.take() {
            self.writers.remove(&(large, place, id));
        }
        if !stream.writer.wanted {
            return;
        }
        stream.writer.wanted = stream.can_write() && capacity == 0;
        if capacity > 0 {
            self.events.push_back(Event::Writable(id));
        } else if stream.writer.wanted
            && let Some(large) = waits_for_others
        {
            let place = stream.send.sent - stream.send.returned + queued as u64;
            stream.writer.place = Some((large, place));
            self.writers.insert((large, place, id));
        }
    }

    fn first_writer(&self, large: bool) -> Option<StreamId> {
        let first = self.writers.range((large, 0, StreamId(0))..).next();
        let first = first.filter(|(of, ..)| *of == large);
        first.map(|(_, _, id)| *id)
    }

    /// Tells some of the applications that may write again.
    pub(super) fn wake_writers(&mut self) {
        for large in [false, true] {
            for _ in 0..TOLD_IN_A_ROW {
                count();
                let Some(id) = self.first_writer(large) else {
                    break;
                };
                // It may now wait for its own bytes, since the rate has fallen: then the others
                // need not wait behind it.
                self.look_at_writer(id);
                if self.first_writer(large) == Some(id) {
                    break;
                }
            }
        }
    }
}

impl Stream {
    fn can_write(&self) -> bool {
        self.life == Life::Open && self.send.state == Sending::Open
    }
}
