//! Estimates what a hop's link carries in one direction. The sender measures it from what its
//! transports report: how much was sent, how much of it arrived, and how long that took.
//!
//! [`Estimator`] is a state machine without I/O and clock: [`Reading`]s and the time go in; the
//! capacity, the rate to send at and the amount to drain come out. `docs/capacity.md` explains how
//! it works and what it was tried on.

mod base;
mod estimator;
mod history;
mod limits;
mod probe;
mod told;
mod view;
mod word;

pub use estimator::Estimator;
pub use limits::Limits;

use std::time::Duration;

/// What the estimate of a capacity is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The configuration, the measurement of the last run, or the modem's latest word: the link as
    /// it is now has not been measured.
    Hint,
    /// How fast the first packets arrived: the link may well carry more.
    Start,
    /// A probe that arrived: the link carries this much, and may carry more.
    Probe,
    /// More was sent than arrived: the link carries this much and no more.
    Limit,
}

/// What the transports of a hop report at one moment. Amounts are totals since the hop began, in
/// bits of IP packets; they never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Data packets that were sent, retransmissions included.
    pub sent_bits: u64,
    /// The retransmissions among these.
    pub repeated_bits: u64,
    /// Data that has arrived: acknowledged in order or selectively.
    pub delivered_bits: u64,
    /// Pure ACKs that were sent; nobody acknowledges them.
    pub other_bits: u64,
    /// Data in flight at this moment; not a total.
    pub in_flight_bits: u64,
    /// Data that is known to be lost and not yet retransmitted; not a total.
    pub lost_bits: u64,
    /// The smoothed round-trip time of the session for which most arrived since the last reading;
    /// `None` if nothing arrived.
    pub rtt: Option<Duration>,
    /// Whether more waited to be sent than was allowed.
    pub backlogged: bool,
    /// Whether some of that waited because a transport's congestion window was full.
    pub window_full: bool,
    /// The rate that is allowed at this moment, bit/s; `None` is unlimited.
    pub allowed_bps: Option<u64>,
    /// The queue that all hops on a shared medium have in common at this moment, which this hop
    /// does not cause alone. `None`: the hop shares its medium with no other, or nothing but the
    /// hops measures that medium.
    pub shared_queue: Option<Duration>,
    /// How much of the round trip is queue on the way back. `None`: unknown.
    pub way_back: Option<Duration>,
    /// What the peer reports about the queue in this direction. `None`: it reports nothing.
    pub way_there: Option<WayThere>,
}

/// What may be sent at first on a link of which only the round trip is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstFlight {
    /// How many first flights came before this one. Each may leave at once.
    pub number: u64,
    /// How much may leave at once, bits of IP packets.
    pub bits: u64,
    /// The highest rate of that, bit/s of IP packets.
    pub bps: u64,
    /// The rate behind it until it has been answered, bit/s of IP packets.
    pub then_bps: u64,
}

/// What the peer reports about the queue in this direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WayThere {
    /// How late the last beacon was that the peer has reported on.
    pub late: Duration,
    /// The time between two reports: `late` may be older than a round trip by this.
    pub each: Duration,
}
