//! The reports themselves.

use serde::{Deserialize, Serialize};

/// One report, with the time at which it was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Report {
    /// What the node's links do.
    Status(Status),
}

/// The kinds of reports: of each the newest matters most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// [`Report::Status`].
    Status,
}

impl Report {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Report::Status(_) => Kind::Status,
        }
    }
}

/// What a node's links do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The node's clock, ms since the Unix epoch; absent if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    /// For how long the node runs, ms: orders the reports of one run, whatever
    /// the clock does.
    pub uptime_ms: u64,
    /// The run.
    pub incarnation: u64,
    /// Its links.
    pub links: Vec<LinkReport>,
}

/// One direction of one terminal's link, as its sending node sees it. Counts
/// are since the node's start, so that a lost report loses nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The terminal's ipn node number.
    pub terminal: u64,
    /// The sender's name of the path.
    pub path: String,
    /// The direction in which this node sends.
    pub direction: Direction,
    /// Whether it can be sent on.
    pub state: LinkState,
    /// Bytes that clients have handed in for it, streams' payload.
    pub offered_bytes: u64,
    /// Bytes that wait to be sent.
    pub backlogged_bytes: u64,
    /// IP bytes sent.
    pub sent_bytes: u64,
    /// Streams open.
    pub streams: u64,
    /// The allocated rate, bit/s of IP bytes; absent if it is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
}

/// The direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the hub to a terminal.
    Forward,
    /// From a terminal to the hub.
    Return,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// A session is up and may send.
    Up,
    /// Sending is held.
    Blocked,
    /// No session is up.
    Down,
}
