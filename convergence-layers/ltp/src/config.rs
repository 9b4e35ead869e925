//! What a span goes by.

use std::sync::Arc;
use std::time::Duration;

use crate::memory::CommonMemory;

/// The client service that is the Bundle Protocol (RFC 7116).
pub const BUNDLE_PROTOCOL: u64 = 1;

/// The least bytes of a segment: its head, with numbers of any size, and data.
pub const LEAST_SEGMENT_BYTES: usize = 128;

/// The configuration of a span, and its bounds. Each bound is for this one peer.
#[derive(Clone, Debug)]
pub struct Config {
    /// This engine's number.
    pub local: u64,
    /// The peer's engine number.
    pub remote: u64,
    /// The client services that there are here.
    pub services: Vec<u64>,
    /// The largest segment that is sent, bytes: what a datagram holds. At least
    /// [`LEAST_SEGMENT_BYTES`].
    pub segment_bytes: usize,
    /// The round trip, until it is measured.
    pub rtt: Duration,
    /// How long the peer may take to answer, beyond the round trip.
    pub margin: Duration,
    /// How often a segment is sent again without an answer before its session
    /// is cancelled (RFC 5326, 6.7, 6.8, 6.16). Time in blockages does not count.
    pub tries: u32,
    /// The longest wait for an answer: it doubles at each try.
    pub longest_wait: Duration,
    /// How many times its length may be retransmitted of a block in all (RFC 5326, 6.22), including
    /// the heads of segments. Parts that are elsewhere may be read again as often.
    pub cycles: u64,
    /// Blocks under way to the peer.
    pub sent_sessions: usize,
    /// Blocks under way from the peer.
    pub received_sessions: usize,
    /// The largest block that is taken, bytes.
    pub block_bytes: u64,
    /// Memory for blocks from the peer that the client has not taken, bytes.
    pub receive_bytes: usize,
    /// If a block takes more memory than this, bytes, the client keeps what comes of it
    /// ([`Event::Keep`](crate::Event::Keep)).
    pub in_memory_bytes: usize,
    /// How much of `receive_bytes` no other span can take, bytes, and the common
    /// memory that the rest comes from. `None`: all of it is this span's own.
    pub common: Option<(usize, Arc<CommonMemory>)>,
    /// Gaps in one block from the peer.
    pub gaps: usize,
    /// Claims of one report that is sent; further ones go in further reports.
    pub claims: usize,
    /// Reports to one session (RFC 5326, 6.11).
    pub reports: usize,
    /// How long a block from the peer may make no progress. Time in blockages does
    /// not count.
    pub idle: Duration,
    /// The first session and serial numbers are drawn from this: numbers should not repeat after a
    /// restart (RFC 5326, 3.1).
    pub seed: u64,
}

/// The bounds for a peer that an operator may choose; [`Config`] explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks in transfer to the peer, and as many from it.
    pub sessions: usize,
    /// Memory for blocks from the peer that the client has not taken, bytes.
    pub receive_bytes: usize,
    /// How often a segment is sent again without an answer.
    pub tries: u32,
    /// How many times its length may be retransmitted of a block in all, and read again.
    pub cycles: u64,
    /// Gaps in one block from the peer.
    pub gaps: usize,
    /// Claims of one report that is sent; a segment may have room for fewer.
    pub claims: usize,
    /// Reports to one session.
    pub reports: usize,
    /// How long a block from the peer may make no progress.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sessions: 1_024,
            receive_bytes: 64 << 20,
            tries: 20,
            cycles: 20,
            gaps: 4_096,
            claims: 64,
            reports: 1_024,
            idle: Duration::from_secs(600),
        }
    }
}

impl Config {
    /// The usual values between two engines.
    pub fn new(local: u64, remote: u64, seed: u64) -> Config {
        Config::within(Limits::default(), local, remote, seed)
    }

    /// The usual values between two engines, but for these bounds.
    pub fn within(limits: Limits, local: u64, remote: u64, seed: u64) -> Config {
        Config {
            local,
            remote,
            services: vec![BUNDLE_PROTOCOL],
            segment_bytes: 1_472,
            rtt: Duration::from_millis(600),
            margin: Duration::from_millis(200),
            tries: limits.tries,
            longest_wait: Duration::from_secs(60),
            cycles: limits.cycles,
            sent_sessions: limits.sessions,
            received_sessions: limits.sessions,
            block_bytes: 16 << 20,
            receive_bytes: limits.receive_bytes,
            in_memory_bytes: usize::MAX,
            common: None,
            gaps: limits.gaps,
            claims: limits.claims,
            reports: limits.reports,
            idle: limits.idle,
            seed,
        }
    }
}
