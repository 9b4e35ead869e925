//! Outlets and conduits: the way from the edge to the other side.

use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use underpass_cla::Class;
use underpass_deferred::Handle;

use super::{Failure, OpenRequest, Target};

/// Where taken-in connections go.
pub trait Outlet: Send + Sync + 'static {
    /// Opens a stream, at once and without a round trip; whether the origin
    /// answers is learned from the conduit.
    ///
    /// # Errors
    /// When the node cannot take another stream, or knows that the target
    /// cannot be reached.
    fn open(&self, request: OpenRequest) -> Result<Box<dyn Conduit>, Failure>;

    /// The store of deferred requests, if there is one.
    fn deferred(&self) -> Option<&Handle> {
        None
    }

    /// The node that would dispatch a deferred request for `target`; none if it leaves from this
    /// node.
    fn dispatcher(&self, _target: &Target) -> Option<u64> {
        None
    }
}

/// What is known once the origin has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    /// The origin's address, if the far edge reports it.
    pub origin: Option<SocketAddr>,
    /// When the origin's addresses were known, where this node has dialled.
    pub resolved: Option<Instant>,
}

/// What the stream layer has noted of a stream that is traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTimes {
    /// When the request to open it was sealed into a bundle.
    pub sealed: Option<Instant>,
    /// When the next custodian had acknowledged the first of its bundles.
    pub acknowledged: Option<Instant>,
}

/// The name of a stream in its node, by which another task can take up where
/// the last one has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StreamName {
    /// The other edge node.
    pub peer: u64,
    /// The run of it that the stream belongs to.
    pub epoch: u64,
    /// The stream.
    pub id: u64,
}

/// Where a flow goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowPath {
    /// The round trip of its path, where the node chooses one.
    pub round_trip: Option<Duration>,
    /// The estimated time from now until it is complete on that path.
    pub completes: Option<Duration>,
    /// Why this path was chosen, if that was asked and the node knows.
    pub why: Option<PathChoice>,
}

/// What a node has compared and chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct PathChoice {
    /// The policy of the class.
    pub policy: &'static str,
    /// The estimate of completion, if the policy uses one.
    pub estimate: Option<&'static str>,
    /// The path; none if each bundle gets its own, or if no path can carry now.
    pub chosen: Option<String>,
    /// Those that could carry and that the policy lets it use.
    pub compared: Vec<ComparedPath>,
}

/// A path that a flow could go by, and what was known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedPath {
    /// The path's or terminal's name.
    pub path: String,
    /// One way, queues included.
    pub delay: Duration,
    /// bit/s of IP bytes; none is not limited.
    pub capacity_bps: Option<u64>,
    /// Part of the packets that it loses, 0 to 1.
    pub loss: f64,
    /// Until all that it was given has left.
    pub busy: Duration,
    /// Flows that compete.
    pub flows: u64,
    /// What these send meanwhile, bytes.
    pub competing_bytes: u64,
    /// What goes before all of them, bytes.
    pub before_bytes: u64,
    /// When the flow would be complete; none where the policy does not ask.
    pub completes: Option<Duration>,
    /// By how much it delays other flows, all together.
    pub others_wait: Duration,
}

/// Bytes from the peer; `None` when it has finished; `Err` when it has reset the stream, or its
/// dial has failed.
pub type Received = Result<Option<Bytes>, Failure>;

/// One stream, both directions, which ends as a socket does. Dropping it
/// without [`Conduit::finish`] resets it. Dropping it after that closes it:
/// what was sent is still delivered, then its end, and bytes that the peer
/// sends from then on reset the stream.
///
/// All polls of a conduit are made from one task at a time, so an
/// implementation may keep a single waker for all of them, and must wake it
/// for progress in either direction.
pub trait Conduit: Send {
    /// How many bytes [`Conduit::send`] takes now, above zero. `Err` when the
    /// peer has reset the stream.
    fn poll_send_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Failure>>;

    /// Sends `data`, at most as long as the capacity last polled. The bytes are kept without a
    /// copy. The caller polls the conduit afterwards, so this call may leave the work to that poll.
    fn send(&mut self, data: Bytes);

    /// Ends this side's data: the far socket is shut down for writing once it
    /// has all of it.
    fn finish(&mut self);

    /// Takes no more bytes from the peer, whose sender then need not wait.
    fn stop(&mut self);

    /// Gives the stream up in both directions; the far socket is reset behind
    /// what was sent.
    fn reset(&mut self, failure: Failure);

    /// The next bytes, at most `max` (above zero). Taking bytes gives the peer credit for as many.
    fn poll_receive(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Received>;

    /// Whether the peer has closed the stream: its end has been received here, and it takes no more
    /// bytes. As on a socket whose other end is closed, this is an error only if bytes are still
    /// sent. A task that has polled the conduit since that end is woken.
    fn peer_has_closed(&self) -> bool {
        false
    }

    /// The outcome of the far edge's dial, for callers that wait for it.
    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connected, Failure>>;

    /// Tells the peer, on a stream that it has opened, that the origin has
    /// answered. A failed dial is reported by [`Conduit::reset`].
    fn connected(&mut self, connected: Connected);

    /// Begins a flow with the next bytes that are sent; `size_bytes` is its size as far as known.
    /// The node may choose another path for them. With `explain` it returns why.
    fn begin_flow(&mut self, _size_bytes: u64, _explain: bool) -> FlowPath {
        FlowPath::default()
    }

    /// Bytes that are sent from now on travel in another class.
    fn set_class(&mut self, _class: Class) {}

    /// The stream's name, where it can be taken up by another conduit.
    fn stream(&self) -> Option<StreamName> {
        None
    }

    /// What the stream layer has noted of it, if it is traced.
    fn times(&self) -> StreamTimes {
        StreamTimes::default()
    }

    /// Leaves the stream as it is for another conduit to take up: dropping this conduit then
    /// changes nothing.
    fn leave(&mut self) {}
}
