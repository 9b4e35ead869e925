//! The configuration of a [`crate::Mux`].

use std::time::Duration;

use underpass_cla::Class;

use crate::wire::{FLOOR_BYTES, VARINT_MAX};

/// Which of the two nodes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one with the lower ipn node number: it opens even stream ids.
    Lower,
    /// The other: it opens odd ones.
    Higher,
}

impl Side {
    /// The side of node `own` towards node `peer`.
    pub fn of(own: u64, peer: u64) -> Self {
        if own < peer {
            Self::Lower
        } else {
            Self::Higher
        }
    }

    pub(crate) fn bit(self) -> u64 {
        match self {
            Self::Lower => 0,
            Self::Higher => 1,
        }
    }
}

/// How many bytes the peer may have sent that the applications here have not
/// taken: counted, not allocated. Each is 3 x rate x RTT of the path by
/// default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// For one stream, bytes.
    pub stream_window_bytes: u64,
    /// For all streams together, beyond their floors, bytes. One stream is
    /// granted at most half of what the others leave of it.
    pub peer_window_bytes: u64,
}

impl Windows {
    /// Both windows at 3 x `rate_bps` x `rtt`.
    pub fn of_path(rate_bps: u64, rtt: Duration) -> Self {
        let window = u128::from(rate_bps) * rtt.as_micros() * 3 / 8_000_000;
        let window = window.min(u128::from(VARINT_MAX)) as u64;
        Self {
            stream_window_bytes: window,
            peer_window_bytes: window,
        }
    }
}

/// Bounds and shares of a [`crate::Mux`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Credit given to the peer.
    pub windows: Windows,
    /// Credit of each stream that no other stream can take, bytes; at least
    /// 64 KiB, since that is what a peer uses before it has heard from here.
    pub floor_bytes: u64,
    /// Written bytes that one stream may have waiting to be sealed.
    pub send_buffer_bytes: usize,
    /// The same for all streams together. Beyond it each stream still has 16 KiB, so that those
    /// that wait for credit do not stop the others; with more than 4096 streams it is less, but at
    /// least 4 KiB.
    pub send_buffer_total_bytes: usize,
    /// Streams of both directions, those that wait for their last frames
    /// included.
    pub max_streams: usize,
    /// What a stream may seal before it is the next one's turn, bytes.
    pub quantum_bytes: u64,
    /// With so many payloads under way or more, a stream seals less than 4 KiB only when one of
    /// them is acknowledged, or at its end. The same holds for a stream with a 256th as many while
    /// all streams together have four times as many.
    pub many_payloads: u32,
    /// The class whose payloads carry the frames about streams and nodes
    /// (HELLO, CREDIT, RESET, STOP, OPENED): they are few and urgent.
    pub control_class: Class,
    /// The lifetime of the bundles that carry payloads, both ways: beyond it
    /// nothing is waited for.
    pub bundle_lifetime: Duration,
}

impl Default for Config {
    /// For a path of 140 Mbit/s and 600 ms.
    fn default() -> Self {
        Self {
            windows: Windows::of_path(140_000_000, Duration::from_millis(600)),
            floor_bytes: FLOOR_BYTES,
            send_buffer_bytes: 2 << 20,
            send_buffer_total_bytes: 64 << 20,
            max_streams: 65_536,
            quantum_bytes: 64 << 10,
            many_payloads: 8192,
            control_class: Class::SIGNALLING,
            bundle_lifetime: Duration::from_secs(24 * 3600),
        }
    }
}
