//! Requests and replies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::beam::{Direction, LinkStatistics, QueueSeries};
use crate::config::BlockageConfig;
use crate::trace::TraceConfig;

/// What a client asks for. Where `terminal` or `direction` is left out, all
/// terminals or both directions are meant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Changes keys of links, as the configuration names them. A table that
    /// is given (`loss`, `queue`) takes the place of the one before.
    Set {
        /// Name of the terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
        /// Direction of the link.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        direction: Option<Direction>,
        /// The keys to change.
        link: Map<String, Value>,
    },
    /// Changes keys of the shared capacity.
    SetBeam {
        /// Direction of the capacity.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        direction: Option<Direction>,
        /// The keys to change.
        beam: Map<String, Value>,
    },
    /// Blocks a terminal, from now.
    Block {
        /// Name of the terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
        /// For how long, in s; until `unblock` if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_s: Option<f64>,
    },
    /// Ends the blockage that is on.
    Unblock {
        /// Name of the terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
    },
    /// Replaces a terminal's schedule of blockages.
    Schedule {
        /// Name of the terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
        /// The blockages, relative to the epoch.
        blockages: Vec<BlockageConfig>,
    },
    /// Lets terminals follow a trace from the epoch on.
    Trace {
        /// Name of the terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
        /// The trace as its file has it; without one, the links are as configured again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<TraceConfig>,
    },
    /// Allocates rates of the capacity, and enforces them. A terminal that is
    /// not named gets nothing.
    Allocate {
        /// Direction of the capacity.
        direction: Direction,
        /// Rates in bit/s by terminal name.
        rates_bps: BTreeMap<String, u64>,
        /// When, in s after the epoch; now if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_s: Option<f64>,
    },
    /// Asks for all counts.
    Stats {},
    /// Asks how long packets waited in a link's queue since counts were reset.
    Queue {
        /// Name of the terminal.
        terminal: String,
        /// Direction of the link.
        direction: Direction,
    },
    /// Sets all counts to zero.
    ResetStats {},
    /// Makes now the epoch; schedules and traces begin again.
    Epoch {},
    /// Begins the loss and jitter patterns again.
    Seed {
        /// The seed.
        seed: u64,
    },
    /// Ends the program.
    Shutdown {},
}

/// What a client gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Whether it was done.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it took effect, in s after the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now_s: Option<f64>,
    /// The answer to `stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<BeamStatistics>,
    /// The answer to `queue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueSeries>,
}

impl Reply {
    /// A refusal.
    pub fn refused(error: impl ToString) -> Self {
        Reply {
            error: Some(error.to_string()),
            ..Reply::default()
        }
    }
}

/// All counts of a beam. Times are of the machine's monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BeamStatistics {
    /// When these counts were true, ns.
    pub now_ns: u64,
    /// The epoch, ns.
    pub epoch_ns: u64,
    /// Counts by terminal name.
    pub terminals: BTreeMap<String, TerminalStatistics>,
    /// Packets from the hub to no terminal's prefix.
    pub unrouted_packets: u64,
    /// Multicast, broadcast and link-local packets, which stay off the beam.
    pub link_local_packets: u64,
    /// Packets that the kernel refused at the exit.
    pub refused_packets: u64,
    /// Packets that the kernel dropped before they could be read. Above 0 the
    /// machine is too slow for what is being measured.
    pub unread_packets: u64,
    /// Most ns by which a packet came out later than it should.
    pub lateness_max_ns: u64,
    /// Packets that came out more than 1 ms late.
    pub late_packets: u64,
}

/// The counts of one terminal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalStatistics {
    /// Whether it is blocked now.
    pub blocked: bool,
    /// Hub to terminal.
    pub forward: LinkReport,
    /// Terminal to hub.
    #[serde(rename = "return")]
    pub ret: LinkReport,
}

/// One link's counts beside the rate in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The link's own rate now, bit/s, by its trace or configuration, if it has one.
    pub rate_bps: Option<u64>,
    /// The rate allocated to it, bit/s, if allocations are in force.
    pub allocated_bps: Option<u64>,
    /// The counts.
    #[serde(flatten)]
    pub counts: LinkStatistics,
}

/// Reads `NAME=RATE_BPS`.
pub fn parse_rate(text: &str) -> Result<(String, u64), String> {
    let (name, rate) = text
        .rsplit_once('=')
        .ok_or("wanted: TERMINAL=RATE_BPS, such as t1=20000000")?;
    let rate = rate
        .parse()
        .map_err(|error| format!("{rate}: {error}; wanted: bit/s as a whole number"))?;
    Ok((name.to_owned(), rate))
}

/// Reads `START_S:DURATION_S`.
pub fn parse_blockage(text: &str) -> Result<BlockageConfig, String> {
    let wanted = "wanted: START_S:DURATION_S, such as 12.5:20";
    let (start, duration) = text.split_once(':').ok_or(wanted)?;
    let seconds = |text: &str| text.parse().map_err(|_| format!("{text}: {wanted}"));
    let blockage = BlockageConfig {
        start_s: seconds(start)?,
        duration_s: seconds(duration)?,
    };
    blockage.interval()?;
    Ok(blockage)
}
