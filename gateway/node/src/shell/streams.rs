//! What the shell keeps of each stream for its edge task.

use std::collections::HashMap;
use std::task::Waker;

use underpass_edge::stream::{Conduit, Failure, FailureCode, StreamTimes};
use underpass_engine::StreamKey;
use underpass_streams::{Epoch, Event, Open, ResetCode, Target};

use super::shard::{Effect, Inner};
use super::{Inbound, timer};

/// The streams that have an edge task.
#[derive(Default)]
pub(super) struct StreamTable {
    entries: HashMap<StreamKey, Entry>,
}

/// What an edge task has not been told yet.
#[derive(Default)]
pub(super) struct Entry {
    pub waker: Option<Waker>,
    /// The far edge is connected to the origin.
    pub connected: bool,
    /// The peer has finished, and all its bytes have been read.
    pub peer_finished: bool,
    /// The edge task has been told so.
    pub end_told: bool,
    /// The peer wants no more bytes.
    pub stopped: bool,
    /// Bytes were sent none the less, and dropped.
    pub refused: bool,
    /// The stream has ended before its time.
    pub failure: Option<Failure>,
    /// Both directions ended in order.
    pub closed: bool,
    /// This side has finished.
    pub finished: bool,
    /// What the peer has asked for, until the origin has answered.
    pub dial: Option<Open>,
    /// Where it leads, for operators.
    pub target: Option<Box<str>>,
    /// What is noted of a stream that is traced.
    pub times: Option<Box<StreamTimes>>,
    /// If another process has the stream: leads there.
    pub bridge: Option<Box<dyn Conduit>>,
}

impl Entry {
    /// Of a stream that has just been opened.
    pub fn to(target: &Target) -> Entry {
        Entry {
            target: Some(target.to_string().into()),
            ..Entry::default()
        }
    }

    fn times(&mut self) -> &mut StreamTimes {
        self.times.get_or_insert_default()
    }
}

impl StreamTable {
    pub fn insert(&mut self, key: StreamKey, entry: Entry) {
        self.entries.insert(key, entry);
    }

    /// Where a stream leads, as long as an edge task has it.
    pub fn target(&self, key: StreamKey) -> Option<&str> {
        self.entries.get(&key)?.target.as_deref()
    }

    pub fn get_mut(&mut self, key: StreamKey) -> Option<&mut Entry> {
        self.entries.get_mut(&key)
    }

    pub fn remove(&mut self, key: StreamKey) -> Option<Entry> {
        self.entries.remove(&key)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (StreamKey, &mut Entry)> {
        self.entries.iter_mut().map(|(key, entry)| (*key, entry))
    }
}

impl Inner {
    /// Notes what happened to a stream and wakes its edge task.
    pub(super) fn stream_event(
        &mut self,
        peer: u64,
        epoch: Epoch,
        event: Event,
        effects: &mut Vec<Effect>,
    ) {
        let (id, note): (_, fn(&mut Entry)) = match event {
            Event::Opened { id, open } => {
                let key = StreamKey { peer, epoch, id };
                let entry = Entry {
                    dial: Some(open.clone()),
                    ..Entry::to(&open.target)
                };
                self.streams.insert(key, entry);
                let shard = self.own.own;
                effects.push(Effect::Inbound(Inbound { key, open, shard }));
                return;
            }
            Event::Reset { id, code, reason } => {
                let key = StreamKey { peer, epoch, id };
                if let Some(entry) = self.streams.get_mut(key) {
                    entry.failure = Some(failure_of(code, reason));
                    effects.extend(entry.waker.take().map(Effect::Wake));
                }
                return;
            }
            Event::PeerRestarted { incarnation } => {
                tracing::warn!(
                    peer,
                    incarnation,
                    "the peer has restarted; its streams end when what it had in custody is here"
                );
                self.restarted(peer, effects);
                return;
            }
            Event::IncarnationRaised { incarnation } => {
                tracing::error!(
                    peer,
                    incarnation,
                    "the peer knows a later incarnation of this node: is node.state_dir lost, or are there two nodes of this number?"
                );
                return;
            }
            Event::AnnouncementChanged(announcement) => {
                tracing::info!(
                    peer,
                    ipv4 = announcement.ipv4,
                    ipv6 = announcement.ipv6,
                    "the peer says what it reaches"
                );
                return;
            }
            Event::Connected(id) => (id, |entry| entry.connected = true),
            Event::PeerFinished(id) => (id, |entry| entry.peer_finished = true),
            Event::Stopped { id, .. } => (id, |entry| entry.stopped = true),
            Event::Closed(id) => (id, |entry| entry.closed = true),
            Event::OpenSealed(id) => (id, |entry| entry.times().sealed = Some(timer::now())),
            Event::OpenAcknowledged(id) => {
                (id, |entry| entry.times().acknowledged = Some(timer::now()))
            }
            Event::Readable(id) | Event::Writable(id) => (id, |_| {}),
        };
        if let Some(entry) = self.streams.get_mut(StreamKey { peer, epoch, id }) {
            note(entry);
            effects.extend(entry.waker.take().map(Effect::Wake));
        }
    }
}

/// The edge's failure for a reset of the stream layer.
fn failure_of(code: ResetCode, reason: String) -> Failure {
    let kind = match code {
        ResetCode::Refused => FailureCode::Refused,
        ResetCode::Unreachable | ResetCode::FamilyUnavailable => FailureCode::Unreachable,
        ResetCode::TimedOut => FailureCode::TimedOut,
        ResetCode::UnknownHost => FailureCode::UnknownHost,
        ResetCode::Forbidden => FailureCode::Forbidden,
        ResetCode::Busy => FailureCode::Exhausted,
        ResetCode::ShuttingDown | ResetCode::Restarted => FailureCode::Unavailable,
        _ => FailureCode::Reset,
    };
    let text = if reason.is_empty() {
        code.to_string()
    } else {
        reason
    };
    Failure::new(kind, text)
}

/// The stream layer's code for a failure of the edge.
pub(super) fn code_of(failure: &Failure) -> ResetCode {
    match failure.code {
        FailureCode::Reset => ResetCode::Aborted,
        FailureCode::Refused => ResetCode::Refused,
        FailureCode::Unreachable => ResetCode::Unreachable,
        FailureCode::TimedOut => ResetCode::TimedOut,
        FailureCode::UnknownHost => ResetCode::UnknownHost,
        FailureCode::Forbidden => ResetCode::Forbidden,
        FailureCode::Exhausted => ResetCode::Busy,
        FailureCode::Unavailable => ResetCode::ShuttingDown,
    }
}
