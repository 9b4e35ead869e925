//! The job: what is stored of a request of a peer's client, its stages, and the times that end each
//! of them.

use serde::{Deserialize, Serialize};

use crate::agenda::{Item, Party, Wants};
use crate::node::Limits;
use crate::object::Object;
use crate::store::{RecordKey, Side};
use crate::transfer::{Incoming, Outgoing};
use crate::wire::{Fate, Key};

/// How long a key is remembered past its lifetime, ms: clocks differ.
const MARGIN_MS: u64 = 3_600_000;
/// Pauses between attempts on an origin, ms, doubled each time.
const FIRST_RETRY_MS: u64 = 1_000;
const LAST_RETRY_MS: u64 = 300_000;
/// No request waits longer than this, whatever the peer says, ms.
pub(super) const MAX_LIFETIME_MS: u64 = 30 * 24 * 3_600_000;

/// Names a request of a peer's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobKey {
    /// The client's node.
    pub peer: u64,
    /// The request and attempt.
    pub key: Key,
}

impl JobKey {
    pub(crate) fn of(record: &RecordKey) -> JobKey {
        JobKey {
            peer: record.peer,
            key: record.key,
        }
    }

    pub(super) fn record(self) -> RecordKey {
        RecordKey {
            side: Side::Dispatch,
            peer: self.peer,
            key: self.key,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    Receiving,
    Stored,
    Sent,
    Answered,
    Unknown,
    Expired,
    Cancelled,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub class: u8,
    pub repeatable: bool,
    pub stage: Stage,
    /// None if it was cancelled before it came.
    pub request: Option<Object>,
    pub response: Option<Object>,
    /// Whether the response is this node's own.
    pub own: bool,
    pub reason: String,
    pub expires_ms: u64,
    /// How often it was sent to the origin.
    pub sent: u32,
    /// The client's node has the response or knows that there is none.
    pub told: bool,
}

/// A request of a peer's client, and what is in progress for it.
pub(crate) struct Job {
    pub(super) number: u64,
    peer: u64,
    pub(super) record: Record,
    pub(super) incoming: Incoming,
    /// The response, until the client's node has it.
    pub parts: Option<Outgoing>,
    /// The notice of its end, until the client's node has it.
    pub word: Option<Outgoing>,
    /// An exchange with the origin is under way.
    pub(super) running: bool,
    /// When it waits for an exchange again, ms; 0 if it does.
    pub(super) retry_at_ms: u64,
    pub(super) retry_ms: u64,
    /// Parts of the response so far.
    pub(super) answered_parts: u32,
    pub(super) answered_bytes: u64,
}

impl Job {
    pub(super) fn new(number: u64, peer: u64, record: Record) -> Job {
        Job {
            number,
            peer,
            record,
            incoming: Incoming::default(),
            parts: None,
            word: None,
            running: false,
            retry_at_ms: 0,
            retry_ms: FIRST_RETRY_MS,
            answered_parts: 0,
            answered_bytes: 0,
        }
    }

    pub fn transfers(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        self.parts.iter_mut().chain(&mut self.word)
    }

    pub fn keeps_request(&self) -> bool {
        matches!(
            self.record.stage,
            Stage::Receiving | Stage::Stored | Stage::Sent
        )
    }

    pub fn keeps_response(&self) -> bool {
        self.record.stage == Stage::Answered && !self.record.told
    }

    /// Whether it was cancelled before any of it came.
    pub(super) fn is_early(&self) -> bool {
        self.record.stage == Stage::Cancelled && self.record.request.is_none()
    }

    /// Missing bytes of the request, while it comes.
    fn awaited_bytes(&self) -> u64 {
        let receiving = self.record.stage == Stage::Receiving;
        let object = self.record.request.filter(|_| receiving);
        object.map_or(0, |object| {
            let here = u64::from(self.incoming.next()) * u64::from(object.part_bytes);
            object.total_bytes.saturating_sub(here)
        })
    }

    fn request_bytes(&self) -> u64 {
        let request = self.record.request.filter(|_| self.keeps_request());
        request.map_or(0, |object| object.total_bytes)
    }

    /// Bytes of the response, as far as it has come.
    fn response_bytes(&self) -> u64 {
        if self.record.stage == Stage::Sent {
            return self.answered_bytes;
        }
        let response = self.record.response.filter(|_| self.keeps_response());
        response.map_or(0, |object| object.total_bytes)
    }

    pub(super) fn retry_later(&mut self, now_ms: u64) {
        self.record.stage = Stage::Stored;
        self.retry_at_ms = now_ms + self.retry_ms;
        self.retry_ms = (self.retry_ms * 2).min(LAST_RETRY_MS);
    }

    pub(super) fn fate(&self) -> Option<Fate> {
        match self.record.stage {
            Stage::Unknown => Some(Fate::Unknown),
            Stage::Expired => Some(Fate::Expired),
            Stage::Cancelled => Some(Fate::Cancelled),
            Stage::Receiving | Stage::Stored | Stage::Sent | Stage::Answered => None,
        }
    }

    /// Until when its end is reported, ms.
    pub(super) fn kept_until_ms(&self, limits: &Limits) -> u64 {
        self.record.expires_ms.saturating_add(limits.keep_ms)
    }

    /// When time ends its present stage, ms.
    pub(super) fn ends_ms(&self, limits: &Limits) -> u64 {
        match self.record.stage {
            // The exchange has its own time limit.
            Stage::Sent => u64::MAX,
            Stage::Stored if self.running => u64::MAX,
            Stage::Receiving | Stage::Stored => self.record.expires_ms,
            _ if self.record.told => self.record.expires_ms.saturating_add(MARGIN_MS),
            _ => self
                .kept_until_ms(limits)
                .max(self.record.expires_ms.saturating_add(MARGIN_MS)),
        }
    }
}

impl Item for Job {
    fn wants(&self, limits: &Limits) -> Wants {
        let transfers = self.parts.iter().chain(&self.word);
        let repeat = transfers.filter_map(Outgoing::due_ms);
        let waits = self.record.stage == Stage::Stored && !self.running;
        let retry = (waits && self.retry_at_ms > 0).then_some(self.retry_at_ms);
        let ends = self.ends_ms(limits);
        Wants {
            party: Party::Peer(self.peer),
            request_bytes: self.request_bytes(),
            response_bytes: self.response_bytes(),
            peer: self.peer,
            number: self.number,
            sends: self.parts.is_some(),
            has_word: self.word.is_some(),
            says: self.word.as_ref().is_some_and(|word| word.next().is_some()),
            waits: waits && self.retry_at_ms == 0,
            running: self.running,
            awaited_bytes: self.awaited_bytes(),
            due_ms: repeat.chain(retry).chain([ends]).min(),
        }
    }
}
