//! Lanes: flows of one class that go by different paths.
//!
//! The flows of a class that go by one path wait in a queue of their own, its *lane*. On the wire
//! and in all figures they belong to the class.

use underpass_cla::Class;
use underpass_completion::Load;

use super::queue::Place;
use super::{Mux, StreamError};
use crate::wire::StreamId;

/// Classes that may have lanes: those with lower numbers than this.
const CLASSES: u8 = 16;
/// Lanes of a class.
const LANES: u8 = 4;
/// Queues with lower numbers are those of classes.
const FIRST: u8 = 64;

/// The queue of the flows of a class that go by the path at this place; `None` beyond four paths or
/// sixteen classes.
pub fn lane(class: Class, place: usize) -> Option<Class> {
    let place = u8::try_from(place).ok().filter(|place| *place < LANES)?;
    (class.0 < CLASSES).then(|| Class(FIRST + class.0 * LANES + place))
}

/// All lanes of a class.
pub fn lanes(class: Class) -> impl Iterator<Item = Class> {
    (0..usize::from(LANES)).filter_map(move |place| lane(class, place))
}

/// The class whose flows wait in a queue.
pub fn class_of(queue: Class) -> Class {
    match is_lane(queue) {
        true => Class((queue.0 - FIRST) / LANES),
        false => queue,
    }
}

pub(super) fn is_lane(queue: Class) -> bool {
    (FIRST..FIRST + CLASSES * LANES).contains(&queue.0)
}

impl Mux {
    /// Begins a flow of a stream: its unsealed bytes, and all that follow, wait in `queue`, which
    /// belongs to its class. `size_bytes` estimates the bytes to come, including those written and
    /// not sealed.
    ///
    /// # Errors
    /// When the stream is gone, or takes no bytes any more.
    pub fn begin_flow(
        &mut self,
        id: StreamId,
        queue: Class,
        size_bytes: u64,
    ) -> Result<(), StreamError> {
        let stream = self.open_stream(id)?;
        stream.flow_ends = stream.send.sent.saturating_add(size_bytes);
        stream.class = queue;
        self.dequeue(id);
        self.enqueue(id, Place::New);
        Ok(())
    }

    /// What the flows that wait in a lane have left. Other queues have no such figure.
    pub(crate) fn load(&self, lane: Class) -> Option<&Load> {
        Some(&self.classes.get(usize::from(lane.0))?.load)
    }

    /// Flows of a lane that have nothing to send and something unacknowledged.
    /// It looks at all streams.
    pub(crate) fn unacknowledged_flows(&self, lane: Class) -> u64 {
        let waits = self.streams.values().filter(|stream| {
            stream.class == lane && stream.queued.is_none() && stream.unacknowledged > 0
        });
        waits.count() as u64
    }

    /// What is still to be written of a stream's flow, as far as is known, bytes.
    pub fn unwritten_bytes(&self, id: StreamId) -> u64 {
        self.streams.get(&id).map_or(0, |stream| {
            let written = stream.send.sent + stream.send.pieces.len() as u64;
            stream.flow_ends.saturating_sub(written)
        })
    }

    /// The queue in which a stream waits, or would.
    pub fn queue_of(&self, id: StreamId) -> Option<Class> {
        self.streams.get(&id).map(|stream| stream.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_is_of_its_class_and_of_no_other() {
        let mut seen = std::collections::BTreeSet::new();
        for class in (0..CLASSES).map(Class) {
            for lane in lanes(class) {
                assert_eq!(class_of(lane), class);
                assert!(is_lane(lane) && seen.insert(lane.0));
            }
            assert_eq!(class_of(class), class);
        }
        assert_eq!(lane(Class(0), 4), None);
        assert_eq!(lane(Class(16), 0), None);
        // A peer may name a higher class: it is no class of this node.
        assert_eq!(class_of(Class(63)), Class(63));
        assert_eq!(class_of(Class(128)), Class(128));
    }
}
