//! Capacity on demand: slots in frames, granted after a request.
//!
//! At the beginning of each frame in which packets wait, the terminal requests capacity for those
//! not requested yet (volume-based dynamic capacity, EN 301 545-2). A request is granted in the
//! first frame that begins at least the grant's time later, and in further frames if one frame's
//! slots do not suffice. The slots, including the constant ones, lie at the frame's beginning;
//! unused grants lapse. The end of the slots may cut a packet: its rest goes in the next ones.

use std::collections::VecDeque;

use super::Nanos;
use super::profile::{DemandProfile, nanos};
use super::queue::Queued;
use super::transmitter::span;

/// What a terminal may send, and when.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// The frame whose slots are known; frames count from time 0.
    frame: u64,
    /// When its slots end.
    slots_end: Nanos,
    /// Requests that are not granted yet: when they may be, and their bits.
    requests: VecDeque<(Nanos, u64)>,
    sending: Option<Sending>,
}

/// The packet being sent.
#[derive(Debug)]
struct Sending {
    queued: Queued,
    /// Slot time that it still needs at `since`.
    left: Nanos,
    since: Nanos,
}

/// What an access does next.
pub(super) enum Turn {
    /// A frame begins.
    Frame,
    /// The next packet of the queue begins.
    Begin,
    /// The packet being sent has left.
    End,
}

impl Access {
    /// Whether a packet is being sent.
    pub(super) fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    /// The order in which the packet being sent came.
    pub(super) fn sequence(&self) -> Option<u64> {
        self.sending.as_ref().map(|sending| sending.queued.sequence)
    }

    /// The next action, and when; `head` is when the queue's head may begin.
    pub(super) fn next(
        &self,
        profile: &DemandProfile,
        head: Option<Nanos>,
    ) -> Option<(Nanos, Turn)> {
        let frame_ns = nanos(profile.frame_ms);
        let frame_end = self.frame.saturating_add(1).saturating_mul(frame_ns);
        if let Some(sending) = &self.sending {
            let end = sending.since.saturating_add(sending.left);
            return Some(match end <= self.slots_end {
                true => (end, Turn::End),
                false => (frame_end, Turn::Frame),
            });
        }
        let begin = head?;
        Some(match begin {
            // Nothing waited for some time: the present frame began unnoticed.
            _ if begin >= frame_end => (begin, Turn::Frame),
            _ if begin < self.slots_end => (begin, Turn::Begin),
            _ => (frame_end, Turn::Frame),
        })
    }

    /// Opens the present frame at `now`. If it begins now, requests those of the `waiting_bits` in
    /// the queue that are not requested yet.
    pub(super) fn open(
        &mut self,
        profile: &DemandProfile,
        rate_bps: u64,
        now: Nanos,
        waiting_bits: u64,
    ) {
        let frame_ns = nanos(profile.frame_ms);
        let frame = now / frame_ns;
        let begin = frame * frame_ns;
        if let Some(sending) = &mut self.sending {
            let sent = self.slots_end.saturating_sub(sending.since);
            sending.left = sending.left.saturating_sub(sent);
            sending.since = begin;
        } else if frame > self.frame.saturating_add(1) {
            // Grants of the meantime were not used.
            self.requests.retain(|(at, _)| *at >= begin);
        }
        let whole = bits_in(frame_ns, rate_bps);
        let constant = (whole as f64 * profile.constant) as u64;
        let slots = constant + self.grant(begin, whole - constant);
        self.frame = frame;
        self.slots_end = begin + span(slots, rate_bps).min(frame_ns);
        if now == begin {
            let left = self.sending.as_ref().map_or(0, |sending| sending.left);
            let backlog = waiting_bits + bits_in(left, rate_bps);
            let asked: u64 = self.requests.iter().map(|(_, bits)| bits).sum();
            let more = backlog.saturating_sub(slots + asked);
            if more > 0 {
                let at = begin.saturating_add(nanos(profile.grant_ms));
                self.requests.push_back((at, more));
            }
        }
    }

    /// Takes at most `most` bits of the requests that may be granted at `begin`.
    fn grant(&mut self, begin: Nanos, most: u64) -> u64 {
        let mut left = most;
        while let Some((at, bits)) = self.requests.front_mut()
            && *at <= begin
            && left > 0
        {
            let granted = left.min(*bits);
            (*bits, left) = (*bits - granted, left - granted);
            if *bits == 0 {
                self.requests.pop_front();
            }
        }
        most - left
    }

    /// Begins to send a packet.
    pub(super) fn begin(&mut self, queued: Queued, rate_bps: u64, now: Nanos) {
        self.sending = Some(Sending {
            left: span(queued.packet.len() as u64 * 8, rate_bps),
            queued,
            since: now,
        });
    }

    /// The packet that has left.
    pub(super) fn end(&mut self) -> Option<Queued> {
        self.sending.take().map(|sending| sending.queued)
    }
}

fn bits_in(time: Nanos, rate_bps: u64) -> u64 {
    u64::try_from(u128::from(time) * u128::from(rate_bps) / 1_000_000_000).unwrap_or(u64::MAX)
}
