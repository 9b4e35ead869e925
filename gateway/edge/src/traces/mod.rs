//! Traced exchanges: the times of the events of one client's connection at this node.
//!
//! The conduit of a traced stream records them and reports them at its end. Other streams have no
//! such conduit: for them tracing costs one check when they are opened.

mod conduit;
mod context;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use underpass_cla::Class;

use crate::stream::{Conduit, Failure, OpenRequest, StreamTimes};
use conduit::TracedConduit;
pub use context::TraceContext;

/// Where an exchange begins at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning<'a> {
    /// A client's, at a listener.
    Client {
        /// Its `traceparent` header, if it has sent one.
        traceparent: Option<&'a str>,
    },
    /// A stream that a peer has opened.
    Peer {
        /// The peer's ipn node number.
        node: u64,
        /// What the peer says of its trace.
        context: TraceContext,
    },
}

/// The span of an exchange at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeSpan {
    /// The span.
    pub context: TraceContext,
    /// The span that it is a child of, if any.
    pub parent: Option<[u8; 8]>,
    /// The peer that has opened the stream; `None` for a client's exchange.
    pub peer: Option<u64>,
}

/// Chooses what is traced, and takes the traces. Both are called where
/// exchanges begin and end, and must not wait.
pub trait Traces: Send + Sync {
    /// The span of an exchange that begins, if it is traced.
    fn begin(&self, beginning: Beginning<'_>) -> Option<ExchangeSpan>;

    /// One is over.
    fn ended(&self, exchange: Exchange);
}

/// What is known of a traced exchange at its end.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Its span.
    pub span: ExchangeSpan,
    /// What it asked for.
    pub request: OpenRequest,
    /// The class of what was sent last.
    pub class: Class,
    /// The path that was chosen for it last, where the node chooses one.
    pub path: Option<String>,
    /// When it began.
    pub began: Instant,
    /// When the addresses of the origin were known here.
    pub resolved: Option<Instant>,
    /// When the origin was connected to this node.
    pub connected: Option<Instant>,
    /// The origin's address.
    pub origin: Option<SocketAddr>,
    /// What the stream layer has noted.
    pub stream: StreamTimes,
    /// When the first byte went to the peer.
    pub first_sent: Option<Instant>,
    /// When the first byte came from the peer.
    pub first_received: Option<Instant>,
    /// Payload to the peer, bytes.
    pub sent_bytes: u64,
    /// Payload from the peer, bytes.
    pub received_bytes: u64,
    /// Why it broke, or did not come about.
    pub failure: Option<Failure>,
    /// The other edge node, by its ipn node number, where the stream has a name.
    pub far: Option<u64>,
    /// Another process of the node goes on with it.
    pub left: bool,
    /// When it was over here.
    pub ended: Instant,
}

/// The conduit of a stream that is traced.
pub fn trace(
    traces: Arc<dyn Traces>,
    span: ExchangeSpan,
    request: OpenRequest,
    conduit: Box<dyn Conduit>,
) -> Box<dyn Conduit> {
    Box::new(TracedConduit::new(traces, span, request, conduit))
}
