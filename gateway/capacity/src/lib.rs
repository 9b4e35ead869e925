//! What a hop's link carries in one direction, found by its sender from what its
//! transports tell: how much was sent, how much of it arrived, and how long that
//! took.
//!
//! [`Estimator`] is a state machine without I/O and clock: [`Reading`]s and the
//! time go in; the capacity, the rate to send at and what is to be drained come
//! out. `docs/capacity.md` explains how it works and what it was tried on.

mod base;
mod estimator;
mod history;
mod probe;
mod told;
mod view;
mod word;

pub use estimator::{Estimator, Limits};

use std::time::Duration;

/// What an estimate of a capacity goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The configuration, what the last run had measured, or what a modem has said since:
    /// nothing has been seen of the link as it is.
    Hint,
    /// What arrived of the first packets: the link may well carry more.
    Start,
    /// A probe that arrived: the link carries this much, and may carry more.
    Probe,
    /// More was sent than arrived: the link carries this much and no more.
    Limit,
}

/// What the transports of a hop tell at one moment. Amounts are totals since the
/// hop began, in bits of IP packets; they never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Packets with data that were sent, those sent again included.
    pub sent_bits: u64,
    /// Of these, those that were sent again.
    pub repeated_bits: u64,
    /// Of the data, what has arrived: acknowledged in order or selectively.
    pub delivered_bits: u64,
    /// What else was sent and is not acknowledged: pure ACKs.
    pub other_bits: u64,
    /// Data that is on its way at this moment. No total.
    pub in_flight_bits: u64,
    /// Data that is known to be lost and has not been sent again. No total.
    pub lost_bits: u64,
    /// Smoothed round-trip time of the sessions for which something arrived
    /// since the last reading, of these the least.
    pub rtt: Option<Duration>,
    /// Whether more waited to be sent than was allowed.
    pub backlogged: bool,
    /// Whether of that a transport had some that waited for acknowledgements: its window
    /// was full.
    pub window_full: bool,
    /// The rate that is allowed at this moment, bit/s; `None` is unlimited.
    pub allowed_bps: Option<u64>,
    /// What all hops that share the medium with this one have of queue at this
    /// moment: that is not this one's doing alone. `None`: it shares with none.
    pub shared_queue: Option<Duration>,
    /// What of the round trip is queue on the way back. `None`: nobody tells.
    pub way_back: Option<Duration>,
    /// What the peer tells of this direction. `None`: it does not.
    pub way_there: Option<WayThere>,
}

/// What may leave at first on a link of which nothing is known but its round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstFlight {
    /// How many there were before it. Each may leave at once.
    pub number: u64,
    /// So much at once, bits of IP packets.
    pub bits: u64,
    /// Not faster than this, bit/s of IP packets.
    pub bps: u64,
    /// Behind it so much, until it has been answered, bit/s of IP packets.
    pub then_bps: u64,
}

/// What the peer tells of the queue in this direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WayThere {
    /// How late the last packet was that it tells of.
    pub late: Duration,
    /// How old that may be beside the round trip.
    pub each: Duration,
}
