//! Events for the application, and the reasons why a call is refused.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use underpass_cla::Class;

use crate::wire::{Announcement, Open, ResetCode, StreamId, WireError};

/// What happened. Of [`Event::Reset`] and [`Event::Closed`] each stream gets
/// one, as its last event; a stream reset here gets none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer opened a stream.
    Opened {
        /// The stream.
        id: StreamId,
        /// Its request.
        open: Open,
    },
    /// The peer is connected to the target; only where
    /// [`Open::report_connected`] asked for it.
    Connected(StreamId),
    /// The OPEN of a stream that is traced is sealed, with the first bytes.
    OpenSealed(StreamId),
    /// The next custodian has acknowledged the first bundle of a stream that is
    /// traced.
    OpenAcknowledged(StreamId),
    /// [`crate::Mux::read`] has bytes. Sent again only after that has returned `None`.
    Readable(StreamId),
    /// [`crate::Mux::send_capacity`], which had been 0, has risen.
    Writable(StreamId),
    /// The peer finished and all its bytes have been read.
    PeerFinished(StreamId),
    /// The peer's application wants no more bytes; what was not sealed is
    /// dropped. The other direction goes on.
    Stopped {
        /// The stream.
        id: StreamId,
        /// Why.
        code: ResetCode,
    },
    /// The stream has ended before its time. Bytes that the peer had sealed
    /// before a reset of its own have been read.
    Reset {
        /// The stream.
        id: StreamId,
        /// Why.
        code: ResetCode,
        /// For people.
        reason: String,
    },
    /// Both directions ended in order.
    Closed(StreamId),
    /// The peer has a new incarnation. The streams of the former run
    /// receive what is still on its way, and then end.
    PeerRestarted {
        /// The new incarnation.
        incarnation: u64,
    },
    /// The peer had heard from a later incarnation of this node than this
    /// one claimed to be. The streams have been reset and the incarnation
    /// raised; the node keeps it for its next start.
    IncarnationRaised {
        /// The new incarnation.
        incarnation: u64,
    },
    /// The peer said what it reaches, first or anew.
    AnnouncementChanged(Announcement),
}

impl Event {
    /// The stream that it is about.
    pub fn stream(&self) -> Option<StreamId> {
        match self {
            Event::Opened { id, .. }
            | Event::Connected(id)
            | Event::OpenSealed(id)
            | Event::OpenAcknowledged(id)
            | Event::Readable(id)
            | Event::Writable(id)
            | Event::PeerFinished(id)
            | Event::Stopped { id, .. }
            | Event::Reset { id, .. }
            | Event::Closed(id) => Some(*id),
            Event::PeerRestarted { .. }
            | Event::IncarnationRaised { .. }
            | Event::AnnouncementChanged(_) => None,
        }
    }
}

/// Why a stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// `max_streams` are there.
    #[error("too many streams with this peer")]
    TooManyStreams,
    /// The host name is empty or too long.
    #[error("the host name has {0} bytes, 1 to 255 are allowed")]
    HostLength(usize),
    /// The node would have to restart first.
    #[error("no stream ids are left")]
    NoIds,
}

/// Why a call on a stream has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StreamError {
    /// It is closed, or was reset, or never was.
    #[error("no such stream")]
    Unknown,
}

/// Why bytes are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The stream is closed, or was reset, or never was.
    #[error("no such stream")]
    Unknown,
    /// This direction was finished, or the peer wants no more.
    #[error("the stream takes no more bytes")]
    Finished,
    /// More than the send buffer holds.
    #[error("the send buffer of the stream is full")]
    Full,
}

/// Why a payload has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PayloadError {
    /// It is malformed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It claims the last incarnation there could be of this node.
    #[error("the payload is for an incarnation that cannot be")]
    Incarnation,
}

/// What waits to be sealed in a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Written bytes of the streams that have credit.
    pub bytes: u64,
    /// Frames without data, such as OPEN, wait: they should leave at once.
    pub has_control: bool,
    /// Streams that have something to seal.
    pub streams: usize,
}

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamState {
    /// Bytes arrived before the OPEN.
    Early,
    /// Both directions are open.
    Open,
    /// The application here has finished; the peer has not.
    HalfClosedLocal,
    /// The peer has finished and all was read; the application here has not.
    HalfClosedRemote,
    /// Closed here; the peer has not consumed or confirmed everything.
    Draining,
}

impl StreamState {
    /// Its name for operators.
    pub fn name(self) -> &'static str {
        match self {
            StreamState::Early => "early",
            StreamState::Open => "open",
            StreamState::HalfClosedLocal => "half-closed-local",
            StreamState::HalfClosedRemote => "half-closed-remote",
            StreamState::Draining => "draining",
        }
    }
}

/// A stream, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub id: StreamId,
    /// Class of what is sent from here.
    pub class: Class,
    /// The queue in which these bytes wait, or would: the class' own, or a lane of it.
    pub queue: Class,
    /// Where it stands.
    pub state: StreamState,
    /// When it was opened, or first heard of.
    pub opened_at: Instant,
    /// Bytes sealed so far.
    pub sent_bytes: u64,
    /// Bytes given to the application so far.
    pub read_bytes: u64,
    /// Bytes written and not sealed.
    pub send_buffered_bytes: u64,
    /// Credit in use by bytes received and not read, gaps included.
    pub unread_bytes: u64,
}

/// Sums since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Streams opened from here.
    pub opened: u64,
    /// Streams the peer opened.
    pub accepted: u64,
    /// Streams of the peer that were refused for want of room.
    pub refused: u64,
    /// Streams that ended in order.
    pub closed: u64,
    /// Streams reset from here.
    pub resets_sent: u64,
    /// Streams reset by the peer.
    pub resets_received: u64,
    /// Streams reset because the peer broke the protocol.
    pub violations: u64,
    /// Streams lost to an expired payload.
    pub expired: u64,
    /// CREDIT frames sealed.
    pub credits_sent: u64,
    /// Payloads sealed.
    pub payloads_sent: u64,
    /// Payloads taken in.
    pub payloads_received: u64,
    /// Payloads of or for another incarnation, ignored.
    pub payloads_stale: u64,
    /// Frames of unknown type, skipped.
    pub frames_unknown: u64,
    /// Stream bytes sealed, by class.
    pub sent_bytes: Vec<u64>,
    /// Stream bytes received for the first time, by class.
    pub received_bytes: Vec<u64>,
}

impl Counters {
    /// Adds the sums of another run, or peer.
    pub fn absorb(&mut self, other: &Counters) {
        self.opened += other.opened;
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.closed += other.closed;
        self.resets_sent += other.resets_sent;
        self.resets_received += other.resets_received;
        self.violations += other.violations;
        self.expired += other.expired;
        self.credits_sent += other.credits_sent;
        self.payloads_sent += other.payloads_sent;
        self.payloads_received += other.payloads_received;
        self.payloads_stale += other.payloads_stale;
        self.frames_unknown += other.frames_unknown;
        for (sums, bytes) in [
            (&mut self.sent_bytes, &other.sent_bytes),
            (&mut self.received_bytes, &other.received_bytes),
        ] {
            for (class, bytes) in (0..).zip(bytes) {
                Counters::add(sums, Class(class), *bytes);
            }
        }
    }

    pub(crate) fn add(sums: &mut Vec<u64>, class: Class, bytes: u64) {
        let index = usize::from(class.0);
        if sums.len() <= index {
            sums.resize(index + 1, 0);
        }
        sums[index] += bytes;
    }
}
