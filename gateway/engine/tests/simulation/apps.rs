//! The applications at the ends of the streams.

use underpass_engine::{Engine, StreamKey};
use underpass_streams::{Event, ResetCode};

use crate::pattern::{is_pattern, pattern};
use crate::schedule::{EndPlan, StreamPlan};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Closed,
    Reset(ResetCode),
    /// Its own application gave it up.
    Given,
    /// Its node stopped.
    NodeStopped,
}

/// One end of a stream, and the application there.
#[derive(Clone, Debug)]
pub struct End {
    pub key: Option<StreamKey>,
    pub written: u64,
    pub received: u64,
    pub finished: bool,
    pub peer_finished: bool,
    pub stopped: bool,
    /// Bytes of it that were sealed, and are on disk or were handed over.
    pub durable: u64,
    /// The other end's durable bytes when the other end's node stopped.
    pub promised: u64,
    pub ended: Option<Ended>,
    /// When the application next acts by itself.
    pub due: Option<Duration>,
}

impl End {
    pub fn new() -> End {
        End {
            key: None,
            written: 0,
            received: 0,
            finished: false,
            peer_finished: false,
            stopped: false,
            durable: 0,
            promised: 0,
            ended: None,
            due: None,
        }
    }
}

/// A stream with both its ends.
#[derive(Clone, Debug)]
pub struct StreamRun {
    pub plan: StreamPlan,
    pub ends: [End; 2],
    /// The most bytes that a former run of the acceptor has written. If both runs have
    /// opened the stream, the bytes of either may arrive ("Limits" in the specification
    /// of the stream protocol).
    pub written_before: u64,
    /// Whether a node at one of its ends has stopped while it was open.
    pub interrupted: bool,
    /// Whether the node at the other end has stopped before anything was heard from it:
    /// "Limits" in the specification of the stream protocol.
    pub unheard: bool,
}

impl StreamRun {
    pub fn new(plan: StreamPlan) -> StreamRun {
        StreamRun {
            plan,
            ends: [End::new(), End::new()],
            written_before: 0,
            interrupted: false,
            unheard: false,
        }
    }

    pub fn node_of(&self, end: usize) -> usize {
        [self.plan.opener, self.plan.acceptor][end]
    }

    pub fn on_event(&mut self, serial: usize, end: usize, event: &Event) {
        let own = &mut self.ends[end];
        assert!(
            own.ended.is_none() || own.ended == Some(Ended::Given),
            "stream {serial} end {end}: {event:?} after {:?}",
            own.ended
        );
        match event {
            Event::PeerFinished(_) => own.peer_finished = true,
            Event::Stopped { .. } => own.stopped = true,
            Event::Closed(_) => {
                assert!(own.peer_finished, "stream {serial} closed in mid-stream");
                own.ended = Some(Ended::Closed);
            }
            Event::Reset { code, .. } => own.ended = Some(Ended::Reset(*code)),
            _ => {}
        }
    }

    /// The application writes and reads once; returns when it next acts by itself.
    pub fn work(
        &mut self,
        serial: usize,
        end: usize,
        engine: &mut Engine,
        now: Instant,
    ) -> Option<Duration> {
        let before = if end == 0 { self.written_before } else { 0 };
        let sent_there = self.ends[1 - end].written.max(before);
        let plan = self.plan.ends[end].clone();
        let own = &mut self.ends[end];
        let key = own.key?;
        if own.ended.is_some() {
            return None;
        }
        let again = own.read(serial, end, &plan, sent_there, engine, now);
        if own.ended.is_some() {
            return None;
        }
        let later = own.write(serial, end, &plan, engine, now);
        if plan
            .reset_after
            .is_some_and(|after| own.written + own.received >= after)
        {
            own.ended = Some(Ended::Given);
            // The stream may have ended meanwhile; an event reports that.
            let _ = engine.reset(now, key, ResetCode::Cancelled, "enough");
            return None;
        }
        again.into_iter().chain(later).min()
    }
}

impl End {
    fn read(
        &mut self,
        serial: usize,
        end: usize,
        plan: &EndPlan,
        sent_there: u64,
        engine: &mut Engine,
        now: Instant,
    ) -> Option<Duration> {
        let data = engine.read(now, self.key?, plan.read_bytes)?;
        assert!(!data.is_empty() && data.len() <= plan.read_bytes);
        assert!(
            is_pattern(serial, 1 - end, self.received, &data),
            "stream {serial} end {end} received other bytes than were sent, from {} on",
            self.received
        );
        self.received += data.len() as u64;
        assert!(
            self.received <= sent_there,
            "stream {serial}: more than was sent"
        );
        Some(plan.read_pause)
    }

    fn write(
        &mut self,
        serial: usize,
        end: usize,
        plan: &EndPlan,
        engine: &mut Engine,
        now: Instant,
    ) -> Option<Duration> {
        let key = self.key?;
        if self.finished || self.stopped {
            return None;
        }
        let left = plan.send_bytes - self.written;
        if left == 0 {
            self.finished = true;
            let _ = engine.finish(now, key);
            return None;
        }
        let capacity = engine
            .send_capacity(key)
            .min(plan.write_bytes)
            .min(left as usize);
        if capacity == 0 {
            return None;
        }
        // Some writes begin a flow with the size of the rest, or a smaller one.
        if (self.written ^ serial as u64).is_multiple_of(3) {
            let _ = engine.begin_flow(now, key, left >> (self.written % 7), false);
        }
        let data = pattern(serial, end, self.written, capacity);
        let length = data.len() as u64;
        if engine.write(now, key, data).is_err() {
            return None;
        }
        self.written += length;
        Some(plan.write_pause)
    }
}
