//! Messages between the running process and the next one. The reader ignores fields that it does
//! not know.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use underpass_edge::Switch;
use underpass_edge::dial::Families;
use underpass_edge::relay::RelayState;
use underpass_engine::NodeState;

use crate::privileged::PathCommands;
use crate::shell::{Dial, StreamEdge};

/// The first message of the running process. The sockets follow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The node's number.
    pub node: u64,
    /// Its run, which goes on.
    pub incarnation: u64,
    /// How long that has run, ms.
    pub age_ms: u64,
    /// Whether its custody is on a disk.
    pub is_durable: bool,
    pub has_helper: bool,
    /// Whether that sets MPTCP endpoints.
    #[serde(default)]
    pub manages_paths: bool,
    #[serde(default)]
    pub commands: BTreeMap<String, PathCommands>,
    /// The paths on demand that are up.
    #[serde(default)]
    pub up: BTreeSet<String>,
    /// What its proxies do not take in.
    pub proxies: Switch,
    /// What interception does not take in, if it is configured.
    pub interception: Option<(Switch, Families)>,
    /// The key of its listeners over QUIC.
    #[serde(default)]
    pub quic_key: Option<[u8; 32]>,
    /// The names of its sockets, in their order.
    pub sockets: Vec<String>,
    /// Whether the next process may set sessions up beforehand.
    #[serde(default)]
    pub sets_up_sessions: bool,
}

/// What the next process says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It has all that it needs, and waits for the state.
    Ready,
    /// It has all that it needs, and can set sessions up beforehand.
    CanSetUp,
    /// A session is up that has brought this key.
    Key {
        /// Its path or listener.
        path: String,
        /// The peer's node id.
        peer: String,
        key: [u8; 32],
    },
    /// It has the sessions, or has waited long enough; it waits for the state.
    SetUp,
    /// It goes on as soon as it is told to.
    TakenOver,
    /// It does not; for an operator to read.
    Refused(String),
}

/// What it is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Asks to dial and accept, and to wait until these sessions are up.
    SetUp {
        /// How many, of different classes and paths, by their peers' node ids.
        sessions: BTreeMap<String, usize>,
        /// For so long at most, ms.
        within_ms: u64,
    },
    /// The node is its own from now on.
    Go,
    /// A client of the former process has asked for a stream; its socket
    /// follows.
    Open {
        /// The node that the stream is opened to.
        peer: u64,
        /// Where it goes to.
        dial: Dial,
    },
}

/// The state. The sockets of the relays follow, in their order, then that of
/// the helper.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProcessState {
    /// Streams and custody.
    pub engines: NodeState,
    /// What edge tasks know of the streams.
    pub streams: Vec<StreamEdge>,
    /// Connections that carry streams.
    pub relays: Vec<RelayState>,
    /// Numbers of neighbours' sessions of LTP whose blocks were not received to the end, by path.
    #[serde(default)]
    pub unfinished_blocks: BTreeMap<String, Vec<u64>>,
}
