//! Hands the engines and their streams over to another process.
//!
//! During the hand-over everything stands still: all shards are locked, and callers wait. So a call
//! of an edge task comes either before, and its effect is in the state, or after. Then it finds a
//! bridge to the process that has the stream, or, if the hand-over failed, the engines again.

use std::sync::{Arc, MutexGuard};

use serde::{Deserialize, Serialize};
use underpass_bundle::{MemoryStore, Store};
use underpass_cla::Class;
use underpass_edge::stream::{Conduit, Failure, FailureCode, StreamName};
use underpass_engine::{Engine, EngineConfig, EngineError, NodeState};
use underpass_streams::{Open, Target, TraceContext};

use super::conduit::{StreamConduit, key_of, name_of};
use super::shard::Inner;
use super::streams::Entry;
use super::{Inbound, Shell};

/// What the edge task of a stream knows, and what it does not know yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEdge {
    pub stream: StreamName,
    /// This side has finished.
    pub finished: bool,
    connected: bool,
    peer_finished: bool,
    end_told: bool,
    stopped: bool,
    refused: bool,
    closed: bool,
    failure: Option<(u8, String)>,
    /// What the peer has asked for, if the origin has not answered yet.
    dial: Option<Dial>,
    /// Where it leads.
    #[serde(default)]
    target: Option<String>,
}

/// What a stream is to be opened to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dial {
    class: u8,
    host: String,
    port: u16,
    is_name: bool,
    client: Option<std::net::SocketAddr>,
    report_connected: bool,
    /// The trace that it belongs to, and the span there.
    #[serde(default)]
    trace: Option<([u8; 16], [u8; 8])>,
}

impl Dial {
    pub fn of(open: &Open) -> Dial {
        let (host, port, is_name) = match &open.target {
            Target::Address(address) => (address.ip().to_string(), address.port(), false),
            Target::Name { host, port } => (host.clone(), *port, true),
        };
        Dial {
            class: open.class.0,
            host,
            port,
            is_name,
            client: open.client,
            report_connected: open.report_connected,
            trace: open.trace.map(|trace| (trace.trace_id, trace.span_id)),
        }
    }

    /// The same; none if the host should be an address and is not.
    pub fn open(&self) -> Option<Open> {
        let (host, port) = (self.host.clone(), self.port);
        let target = match self.is_name {
            true => Target::Name { host, port },
            false => Target::Address((host.parse::<std::net::IpAddr>().ok()?, port).into()),
        };
        Some(Open {
            class: Class(self.class),
            target,
            client: self.client,
            report_connected: self.report_connected,
            trace: self
                .trace
                .map(|(trace_id, span_id)| TraceContext { trace_id, span_id }),
        })
    }
}

impl StreamEdge {
    fn of(stream: StreamName, entry: &Entry) -> StreamEdge {
        let failure = entry.failure.as_ref();
        StreamEdge {
            stream,
            finished: entry.finished,
            connected: entry.connected,
            peer_finished: entry.peer_finished,
            end_told: entry.end_told,
            stopped: entry.stopped,
            refused: entry.refused,
            closed: entry.closed,
            failure: failure.map(|failure| (failure.code as u8, failure.text.clone())),
            dial: entry.dial.as_ref().map(Dial::of),
            target: entry.target.as_deref().map(str::to_owned),
        }
    }

    /// Whether the origin is still to be dialled.
    pub fn is_dialled(&self) -> bool {
        self.dial.is_some()
    }
}

/// All engines of a shell; they stand still while this lives.
pub struct Stopped<'a> {
    shell: &'a Shell,
    shards: Vec<MutexGuard<'a, Inner>>,
}

impl Shell {
    /// Ends all sessions, before the engines are handed over. Until the hand-over, another session
    /// that comes up is used.
    pub fn end_sessions(&self) {
        self.with_each(|engine, now| {
            engine.flush_store();
            engine.end_sessions(now);
        });
    }

    /// A lasting obstacle to handing the engines over, if any.
    pub fn lasting_obstacle(&self) -> Option<&'static str> {
        let obstacles = self.read_each(Engine::lasting_obstacle);
        obstacles.into_iter().flatten().next()
    }

    /// Whether a task of this process still serves a stream that another process has.
    pub fn has_bridges(&self) -> bool {
        let mut numbers = self.numbers();
        numbers.any(|shard| {
            let mut inner = self.lock(shard);
            inner
                .streams
                .iter_mut()
                .any(|(_, entry)| entry.bridge.is_some())
        })
    }

    /// Stops all engines. For one caller at a time, and not from a task: it may wait for callers
    /// that are in an engine.
    pub fn stop(&self) -> Stopped<'_> {
        // No other caller waits for a shard while it holds another.
        let shards = self.numbers().map(|shard| self.lock(shard)).collect();
        Stopped {
            shell: self,
            shards,
        }
    }

    /// Restores what edge tasks knew of the streams that came with the engines. Origins that were
    /// not reached yet are dialled.
    pub fn take_edges(&self, edges: Vec<StreamEdge>) {
        for edge in edges {
            let key = key_of(edge.stream);
            let shard = self.directory().of_peer(key.peer);
            let open = edge.dial.as_ref().and_then(Dial::open);
            let failure = edge.failure;
            let entry = Entry {
                connected: edge.connected,
                peer_finished: edge.peer_finished,
                end_told: edge.end_told,
                stopped: edge.stopped,
                refused: edge.refused,
                closed: edge.closed,
                finished: edge.finished,
                failure: failure
                    .map(|(code, text)| Failure::new(FailureCode::from_wire(code), text)),
                dial: open.clone(),
                target: edge.target.map(String::into_boxed_str),
                ..Entry::default()
            };
            self.lock(shard).streams.insert(key, entry);
            if let Some(open) = open {
                let _ = self.inbound.send(Inbound { key, open, shard });
            }
        }
    }

    /// The conduit of a stream that another conduit, possibly in another process, has left.
    pub fn conduit_again(self: &Arc<Self>, stream: StreamName, finished: bool) -> Box<dyn Conduit> {
        let key = key_of(stream);
        let shard = self.directory().of_peer(key.peer);
        Box::new(StreamConduit::of(self.clone(), shard, key, finished))
    }
}

impl Stopped<'_> {
    /// The present obstacle to handing the engines over, if any.
    pub fn obstacle(&self) -> Option<&'static str> {
        let mut shards = self.shards.iter();
        shards.find_map(|inner| match inner.acting || !inner.effects.is_empty() {
            true => Some("there is something to be done outside"),
            false => inner.engine.handover_obstacle(),
        })
    }

    /// Takes the engines out, with what edge tasks know of the streams. Empty engines take their
    /// place.
    ///
    /// # Errors
    /// When not even engines without neighbours can be made of `config`.
    pub fn take(
        &mut self,
        config: &EngineConfig,
    ) -> Result<(NodeState, Vec<StreamEdge>), EngineError> {
        let now = super::timer::now();
        let without = EngineConfig {
            hops: Vec::new(),
            routes: Vec::new(),
            ..config.clone()
        };
        let stores = self.shards.iter();
        let stores = stores.map(|_| Box::<MemoryStore>::default() as Box<dyn Store>);
        let others = Engine::of_shards(now, &without, stores.collect())?;
        let shards = self.shards.iter_mut().zip(others);
        let engines = shards.map(|(inner, other)| std::mem::replace(&mut inner.engine, other));
        let state = Engine::hand_over(now, engines.collect());
        let mut edges = Vec::new();
        for inner in &mut self.shards {
            let streams = inner.streams.iter_mut();
            edges.extend(streams.map(|(key, entry)| StreamEdge::of(name_of(key), entry)));
        }
        Ok((state, edges))
    }

    /// Puts back engines that have taken over the state of those that were taken out.
    pub fn put_back(mut self, engines: Vec<Engine>) {
        for (inner, engine) in self.shards.iter_mut().zip(engines) {
            inner.engine = engine;
        }
        self.go_on();
    }

    /// Connects the streams that tasks of this process still serve to another process.
    pub fn bridge(mut self, bridges: Vec<(StreamName, Box<dyn Conduit>)>) {
        for (stream, bridge) in bridges {
            let mut shards = self.shards.iter_mut();
            let entry = shards.find_map(|inner| inner.streams.get_mut(key_of(stream)));
            if let Some(entry) = entry {
                let mut bridge = bridge;
                if entry.finished {
                    bridge.finish();
                }
                entry.bridge = Some(bridge);
            }
        }
        for inner in &mut self.shards {
            for (_, entry) in inner.streams.iter_mut() {
                // The other process dials it, or its task no longer exists.
                if entry.bridge.is_none() {
                    let text = "another process of this node goes on";
                    entry.failure = Some(Failure::new(FailureCode::Unavailable, text));
                }
            }
        }
        self.go_on();
    }

    /// Lets everybody look again.
    fn go_on(mut self) {
        let mut wakers = Vec::new();
        for inner in &mut self.shards {
            inner.armed = None;
            let entries = inner.streams.iter_mut();
            wakers.extend(entries.filter_map(|(_, entry)| entry.waker.take()));
        }
        let shell = self.shell;
        drop(self);
        wakers.into_iter().for_each(std::task::Waker::wake);
        for shard in &shell.shards {
            shard.timer.notify_one();
        }
    }
}
