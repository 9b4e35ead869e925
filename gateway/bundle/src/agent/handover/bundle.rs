//! A stored bundle, as one process hands it over to the next.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use underpass_handover::{HandoverError, Moment, ensure};

use super::super::event::{BundleId, DeleteReason};
use super::super::stored::{Phase, Sent, StoredBundle};
use super::super::stored_record::{self, NamedFile};
use super::names::malformed;

/// A bundle, which no session has.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BundleState {
    pub id: u64,
    /// What a store on a disk keeps of it.
    record: Bytes,
    /// Its payload; `None` if the store finds that itself.
    pub payload: Option<Vec<Bytes>>,
    bytes: u64,
    /// Whether reports may be sent: the record does not say whether the request was believed.
    reports: bool,
    custody: bool,
    since: Moment,
    expires: Moment,
    /// Its number in the neighbour's custody sequence.
    number: Option<u64>,
    pub phase: PhaseState,
    transmissions: u32,
    unanswered: u32,
    acknowledged: Option<Moment>,
    sent: Option<SentState>,
    /// Whether it takes turns as one of an earlier run.
    #[serde(default)]
    restored: bool,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PhaseState {
    /// It waits to be sent, or for those before it.
    Queued,
    Withheld,
    Waiting(Moment),
    Suspended,
    /// It is given up for this reason, once its payload is here.
    Ending(DeleteReason),
}

#[derive(Debug, Serialize, Deserialize)]
struct SentState {
    key: u64,
    header: Bytes,
    encoded: Moment,
    acknowledged: u64,
}

impl BundleState {
    pub fn of(
        id: BundleId,
        stored: StoredBundle,
        payload: Option<Vec<Bytes>>,
        now: Instant,
    ) -> BundleState {
        let moment = |at| Moment::of(at, now);
        BundleState {
            id: id.0,
            record: stored_record::encode(&stored),
            payload,
            bytes: stored.bytes,
            reports: stored.reports,
            custody: stored.custody,
            since: moment(stored.since),
            expires: moment(stored.expires),
            number: stored.number,
            phase: match stored.phase {
                Phase::Withheld => PhaseState::Withheld,
                Phase::Waiting(until) => PhaseState::Waiting(moment(until)),
                Phase::Suspended => PhaseState::Suspended,
                Phase::Ending(reason) => PhaseState::Ending(reason),
                // Neither is in transmission or passed on any more.
                Phase::AwaitingEarlier
                | Phase::Queued
                | Phase::Leaving
                | Phase::InTransmission(_)
                | Phase::Passing => PhaseState::Queued,
            },
            transmissions: stored.transmissions,
            unanswered: stored.unanswered,
            acknowledged: stored.acknowledged.map(moment),
            sent: stored.sent.map(|sent| SentState {
                key: sent.key,
                header: sent.header,
                encoded: moment(sent.encoded),
                acknowledged: sent.acknowledged,
            }),
            restored: stored.restored,
        }
    }

    /// The bundle, queued or withheld, and its file, if it has one. The caller puts its phase into
    /// effect and opens the file.
    pub fn stored(&self, now: Instant) -> Result<(StoredBundle, Option<NamedFile>), HandoverError> {
        let decoded = stored_record::decode(now, &self.record, self.bytes, Duration::ZERO);
        let (mut stored, named) = decoded.map_err(malformed)?;
        if let Some(payload) = &self.payload {
            let bytes: u64 = payload.iter().map(|piece| piece.len() as u64).sum();
            ensure(bytes == self.bytes, "a payload has another length")?;
        }
        stored.reports &= self.reports;
        stored.custody = self.custody;
        stored.since = self.since.instant(now);
        stored.expires = self.expires.instant(now);
        stored.number = self.number;
        stored.phase = match self.phase {
            PhaseState::Withheld => Phase::Withheld,
            _ => Phase::Queued,
        };
        stored.transmissions = self.transmissions;
        stored.unanswered = self.unanswered;
        stored.acknowledged = self.acknowledged.map(|at| at.instant(now));
        stored.sent = self.sent.as_ref().map(|sent| {
            Box::new(Sent {
                key: sent.key,
                header: sent.header.clone(),
                encoded: sent.encoded.instant(now),
                acknowledged: sent.acknowledged,
            })
        });
        stored.restored = self.restored;
        Ok((stored, named))
    }
}
