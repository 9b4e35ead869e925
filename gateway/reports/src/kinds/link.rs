//! Of links: how they are, and when they are blocked.

use serde::{Deserialize, Serialize};

/// What a node's links do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The node's clock, ms since the Unix epoch; absent if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    /// The node's clock minus the control service's, ms; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_offset_ms: Option<i64>,
    /// Whether the kernel says that the node's clock is synchronised.
    #[serde(default)]
    pub synchronised: bool,
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
    /// The version of the plan in force; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_version: Option<u64>,
    /// Bits per unit of the beam's capacity in the present MODCOD, above 0;
    /// absent if it is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<f64>,
}

/// The direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// A blockage that a node has seen of a link on which it sends: told when it
/// begins, and again, with the same entry, when it ends. Times are the control
/// service's, as far as the node knows its own clock's offset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Blockage {
    /// The terminal's ipn node number.
    pub terminal: u64,
    /// The sender's name of the path.
    pub path: String,
    /// The direction in which this node sends.
    pub direction: Direction,
    /// When it began, ms since the Unix epoch; for one found by probing, when
    /// the peer was last heard.
    pub entry_ms: u64,
    /// Who said so first.
    pub source: BlockageSource,
    /// When it ended, ms since the Unix epoch; absent while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_ms: Option<u64>,
}

/// Who says that a link is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockageSource {
    /// The plan.
    Plan,
    /// The modem.
    Modem,
    /// An operator.
    Operator,
    /// The peer's silence.
    Probing,
}
