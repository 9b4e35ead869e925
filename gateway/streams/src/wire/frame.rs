//! The frames, as values.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use underpass_cla::Class;

use super::ResetCode;

/// Longest host name in an OPEN, bytes (RFC 1035 allows 253 in text form).
pub const MAX_HOST_BYTES: usize = 255;

/// Longest reason text in a RESET, bytes.
pub const MAX_REASON_BYTES: usize = 256;

/// Names a stream among all between two nodes, in one pair of incarnations.
/// The lowest bit says who opened it: 0 the node with the lower number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What the accepting node is to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An address.
    Address(SocketAddr),
    /// A name, resolved at the accepting node.
    Name {
        /// Host name, at most [`MAX_HOST_BYTES`].
        host: String,
        /// TCP port.
        port: u16,
    },
}

impl Target {
    /// Whether it is an address, or a name with at least one character, all of letters, digits,
    /// hyphens, underscores and dots. Other letters travel as A-labels (RFC 5890).
    pub fn is_dialable(&self) -> bool {
        let of_hosts = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        match self {
            Self::Address(_) => true,
            Self::Name { host, .. } => !host.is_empty() && host.bytes().all(of_hosts),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// The trace that a stream belongs to (W3C Trace Context, §3.2.2); only sampled ones are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace; not all zero.
    pub trace_id: [u8; 16],
    /// The parent of the acceptor's spans in it; not all zero.
    pub span_id: [u8; 8],
}

/// A request to open a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The class of its bytes, both ways, until either end sets another for
    /// its own direction.
    pub class: Class,
    /// What to connect to.
    pub target: Target,
    /// The client's own address, if it may be shown to the origin.
    pub client: Option<SocketAddr>,
    /// The opener waits for [`Frame::Opened`]; without it success is silent.
    pub report_connected: bool,
    /// The trace that it belongs to, if the opener traces it.
    pub trace: Option<TraceContext>,
}

impl Open {
    /// A request without a client address or trace, whose success is not reported.
    pub fn new(class: Class, target: Target) -> Open {
        Open {
            class,
            target,
            client: None,
            report_connected: false,
            trace: None,
        }
    }
}

/// What a node can reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// IPv4 destinations.
    pub ipv4: bool,
    /// IPv6 destinations.
    pub ipv6: bool,
}

/// What a node says about itself: once per incarnation, and at each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Counts the HELLOs of an incarnation; the highest is in force.
    pub sequence: u64,
    /// Unconsumed bytes beyond the floors that all streams together may have.
    pub peer_window_bytes: u64,
    /// Unconsumed bytes that one stream may have.
    pub stream_window_bytes: u64,
    /// Unconsumed bytes that each stream may have whatever the others do.
    pub floor_bytes: u64,
    /// Streams of the sender with a lower id are void.
    pub first_valid: StreamId,
    /// What the sender reaches.
    pub announcement: Announcement,
}

/// One frame of a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// About the node.
    Hello(Hello),
    /// All that the sender's earlier runs had sealed for the receiver has been released. This
    /// frame's bundle stays behind all of theirs.
    Settled,
    /// Opens a stream.
    Open {
        /// The new stream.
        id: StreamId,
        /// The request.
        open: Open,
    },
    /// The accepting node is connected to the target.
    Opened {
        /// The stream.
        id: StreamId,
    },
    /// The application took all bytes below an offset.
    Credit {
        /// The stream.
        id: StreamId,
        /// That offset.
        consumed: u64,
    },
    /// Ends both directions.
    Reset {
        /// The stream.
        id: StreamId,
        /// Why.
        code: ResetCode,
        /// End of the bytes that the sender of the frame had sealed.
        final_offset: u64,
        /// Whether bytes below `final_offset` are given up too; otherwise
        /// they are delivered first.
        at_once: bool,
        /// For people, at most [`MAX_REASON_BYTES`].
        reason: String,
    },
    /// The reader wants no more; the other direction goes on.
    Stop {
        /// The stream.
        id: StreamId,
        /// Why.
        code: ResetCode,
    },
    /// Bytes of a stream.
    Data {
        /// The stream.
        id: StreamId,
        /// Place of the first byte.
        offset: u64,
        /// Whether the stream's direction ends after these bytes.
        fin: bool,
        /// The bytes: a slice of the payload.
        data: Bytes,
    },
    /// Payloads with the sender's bytes below an offset are all delivered, or
    /// their bundles have expired.
    Expired {
        /// The stream.
        id: StreamId,
        /// That offset.
        below: u64,
    },
    /// The sender has payloads of a former run of it in custody, and asks how
    /// many bytes of the stream may leave.
    Held {
        /// That run's incarnation.
        run: u64,
        /// The stream.
        id: StreamId,
    },
    /// Bytes of a former run of the receiver may leave, up to an offset.
    Limit {
        /// That run's incarnation.
        run: u64,
        /// The stream.
        id: StreamId,
        /// That offset; `None` if nobody wants any.
        below: Option<u64>,
    },
    /// A frame of a type this version does not know; it is skipped.
    Unknown {
        /// Its type.
        kind: u64,
    },
}
