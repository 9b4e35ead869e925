//! Incoming payloads: which run they are from, and whether they count.

use std::time::Instant;

use bytes::Bytes;
use underpass_cla::Class;

use super::Peer;
use crate::mux::{Mux, PayloadError};
use crate::wire::{Frame, Frames, Header};

impl Peer {
    /// Takes in a payload from the peer. Received bytes are slices of it. A
    /// malformed payload has no effect at all.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn handle_payload(
        &mut self,
        now: Instant,
        class: Class,
        payload: Bytes,
    ) -> Result<(), PayloadError> {
        let frames = Frames::new(&payload)?;
        let header = frames.header();
        let mut settled = false;
        let mut about_former = Vec::new();
        for frame in frames {
            match frame? {
                Frame::Settled => settled = true,
                frame @ (Frame::Held { .. } | Frame::Limit { .. }) => about_former.push(frame),
                _ => {}
            }
        }
        let Some(mux) = self.addressee(now, header)? else {
            self.past.payloads_stale += 1;
            return Ok(());
        };
        mux.handle_frames(now, class, &payload, header.receiver != 0)?;
        for frame in about_former {
            self.handle_former(now, class, header, frame);
        }
        if settled {
            self.settle_below(header.sender);
        }
        self.watch_expiry(now);
        Ok(())
    }

    /// Notes that the peer's run is known by other means, such as a session with it, so that the
    /// first payload already names it. It may also be known by when (`over_by`) the run with the
    /// number before was over: what left later has not reached that run.
    pub fn peer_announced(&mut self, now: Instant, incarnation: u64, over_by: Option<Instant>) {
        if self.peer_incarnation() < Some(incarnation) {
            self.learn(now, incarnation, over_by);
        }
    }

    /// Learns from a payload's header. Returns the streams that the frames behind it are about, if
    /// they count.
    fn addressee(
        &mut self,
        now: Instant,
        header: Header,
    ) -> Result<Option<&mut Mux>, PayloadError> {
        if header.receiver == u64::MAX && self.incarnation() != u64::MAX {
            return Err(PayloadError::Incarnation);
        }
        let known = self.peer_incarnation();
        if known > Some(header.sender) && header.sender < self.settled_below {
            // If the peer has lost count of its runs, HELLO tells it.
            self.current.renew_hello();
            return Ok(None);
        }
        if known < Some(header.sender) {
            self.learn(now, header.sender, None);
        }
        if header.receiver > self.incarnation() {
            self.raise(header.receiver + 1);
            return Ok(None);
        }
        if header.receiver != self.incarnation() && header.receiver != 0 {
            return Ok(None);
        }
        if self.peer_incarnation() == Some(header.sender) {
            return Ok(Some(&mut self.current));
        }
        Ok(self.former_run(now, header.sender))
    }

    /// Takes note of a run of the peer that is later than the known one.
    fn learn(&mut self, now: Instant, incarnation: u64, over_by: Option<Instant>) {
        if let Some(former) = self.peer_incarnation() {
            self.succeed(now, former, (incarnation, over_by));
        }
        self.current.meet(incarnation);
        self.settled_due = true;
    }

    /// Takes back a payload that was sealed here and will not be delivered. Streams with bytes or
    /// their OPEN in it are reset both ways; its other frames about streams and the node are sent
    /// again. For a former run's payload the peer learns only by SETTLED.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn handle_expired(&mut self, payload: Bytes) -> Result<(), PayloadError> {
        let frames = Frames::new(&payload)?;
        let header = frames.header();
        let frames: Vec<Frame> = frames.collect::<Result<_, _>>()?;
        let known = self.peer_incarnation().unwrap_or(0);
        if header.sender != self.incarnation() || header.receiver != 0 && header.receiver != known {
            return Ok(());
        }
        self.settled_due |= frames.contains(&Frame::Settled);
        self.current.handle_expired(frames);
        Ok(())
    }
}
