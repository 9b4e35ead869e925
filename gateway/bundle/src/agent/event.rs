//! The agent's events and answers to the node.

use std::sync::Arc;
use std::time::Duration;

use bp7::administrative_record::StatusReport;
use bp7::dtntime::CreationTimestamp;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use underpass_cla::{Class, Refusal, Resume};
use underpass_payloads::PayloadFile;

use super::authority::Forgery;
use super::config::NeighbourId;
use super::deliver::counted_node;
use super::passing::Passed;
use super::security::Insecure;
use super::stored::Note;
use crate::wire::{Disposition, Eid, Malformed};

/// The agent's own name for a bundle in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BundleId(pub u64);

impl From<u64> for BundleId {
    fn from(id: u64) -> BundleId {
        BundleId(id)
    }
}

impl From<BundleId> for u64 {
    fn from(id: BundleId) -> u64 {
        id.0
    }
}

/// A payload to be sent as a bundle.
#[derive(Clone, Debug)]
pub struct Send {
    /// Where it goes.
    pub destination: Eid,
    /// The service of this node that sends it.
    pub service: u64,
    /// Its class.
    pub class: Class,
    /// The payload, in pieces that are sent one after the other.
    pub payload: Vec<Bytes>,
    /// For how long it is of use; the configured default if `None`.
    pub lifetime: Option<Duration>,
    /// Whether it is sent under custody.
    pub custody: bool,
    /// Whether it stays behind all earlier bundles of the service to the same destination that have
    /// not arrived yet; only under custody.
    pub last: bool,
    /// A number by which its service recognises it when a later run of the node restores it
    /// ([`Event::Restored`]).
    pub label: u64,
    /// The status reports that are asked for, and where they go.
    pub reports: Option<ReportRequest>,
}

impl Send {
    /// A payload that a service sends under custody, without other requests.
    pub fn new(destination: Eid, service: u64, class: Class, payload: Vec<Bytes>) -> Send {
        Send {
            destination,
            service,
            class,
            payload,
            lifetime: None,
            custody: true,
            last: false,
            label: 0,
            reports: None,
        }
    }
}

/// A request for status reports (RFC 9171 §4.2.3).
#[derive(Clone, Debug)]
pub struct ReportRequest {
    /// Where reports go.
    pub to: Eid,
    /// Report reception.
    pub reception: bool,
    /// Report forwarding.
    pub forwarding: bool,
    /// Report delivery.
    pub delivery: bool,
    /// Report deletion.
    pub deletion: bool,
}

/// Why a payload is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The store is full: the source has to wait.
    #[error("the bundle store is full")]
    NoRoom,
    /// No route leads to the destination, or only one by another agent's
    /// neighbour: [`crate::Agent::shard_to`] names that agent.
    #[error("no route to the destination")]
    NoRoute,
    /// The destination is no endpoint of a node.
    #[error("the destination is no endpoint of a node")]
    Destination,
    /// The service has a name, and the node has none any more.
    #[error("this node has no such endpoint any more")]
    Source,
    /// The payload is larger than a bundle may carry.
    #[error("the payload is too large for a bundle")]
    TooLarge,
    /// The payload is on disk, and the bundle cannot be sent so.
    #[error("a payload on disk cannot be sent to this node itself, nor less secured than required")]
    OnDisk,
}

/// Why a received bundle is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Reject {
    /// The bytes are not an acceptable bundle.
    #[error("not acceptable: {0}")]
    Malformed(#[from] Malformed),
    /// The neighbour may not say what the bundle says.
    #[error("not believed: {0}")]
    Forged(#[from] Forgery),
    /// It is not secured as it has to be.
    #[error("not secured: {0}")]
    Insecure(#[from] Insecure),
    /// By the blocks before its payload, the bundle would be deleted.
    #[error("not wanted: {0:?}")]
    Unwanted(DeleteReason),
    /// The store is full.
    #[error("the bundle store is full")]
    NoResources,
}

impl From<Reject> for Refusal {
    fn from(reject: Reject) -> Refusal {
        match reject {
            Reject::Malformed(_)
            | Reject::Forged(_)
            | Reject::Insecure(_)
            | Reject::Unwanted(_) => Refusal::NotAcceptable,
            Reject::NoResources => Refusal::NoResources,
        }
    }
}

/// Why a bundle was deleted, as status reports have it (RFC 9171 §9.5,
/// RFC 9172 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeleteReason {
    /// Its lifetime ended.
    LifetimeExpired,
    /// An operator gave it up.
    Cancelled,
    /// The store had no room for it, or has lost it.
    DepletedStorage,
    /// No service of this node takes it.
    DestinationUnavailable,
    /// No route leads on.
    NoRoute,
    /// A block is not understood or its CRC is wrong.
    BlockUnintelligible,
    /// It took too many hops.
    HopLimitExceeded,
    /// The next hop's CL does not accept it.
    TrafficPared,
    /// It needs a block or a function that this node does not have.
    BlockUnsupported,
    /// A security operation that is required is not there.
    MissingSecurity,
    /// A security operation is of an unknown kind.
    UnknownSecurity,
    /// A security operation failed.
    FailedSecurity,
    /// Security operations contradict each other.
    ConflictingSecurity,
}

impl DeleteReason {
    /// The reason code of status reports.
    pub fn code(self) -> u32 {
        match self {
            DeleteReason::LifetimeExpired => 1,
            DeleteReason::Cancelled => 3,
            DeleteReason::DepletedStorage => 4,
            DeleteReason::DestinationUnavailable => 5,
            DeleteReason::NoRoute => 6,
            DeleteReason::BlockUnintelligible => 8,
            DeleteReason::HopLimitExceeded => 9,
            DeleteReason::TrafficPared => 10,
            DeleteReason::BlockUnsupported => 11,
            DeleteReason::MissingSecurity => 12,
            DeleteReason::UnknownSecurity => 13,
            DeleteReason::FailedSecurity => 15,
            DeleteReason::ConflictingSecurity => 16,
        }
    }
}

/// A bundle for a service of this node.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Who sent it.
    pub source: Eid,
    /// Its creation timestamp.
    pub timestamp: CreationTimestamp,
    /// The service of this node it is for.
    pub service: u64,
    /// The class it came in.
    pub class: Class,
    /// The neighbour it came from; `None` if from this node itself.
    pub from: Option<NeighbourId>,
    /// Its age on arrival.
    pub age: Duration,
    /// How much of its lifetime is left.
    pub left: Duration,
    /// To be given to [`crate::Agent::confirm`] once the bundle is safe, where
    /// its custodian waits for that.
    pub ticket: Option<u64>,
    /// The payload; empty where it is on disk.
    pub payload: Bytes,
    /// The payload, where it is on disk.
    pub file: Option<Arc<PayloadFile>>,
}

impl Delivery {
    /// The node for which it counts while it waits: that of its source. If the source has no number
    /// it is the neighbour that the bundle came from, since anybody may invent names; 0 if that is
    /// this node.
    pub fn counted_node(&self) -> u64 {
        counted_node(&self.source, self.from)
    }

    /// The payload's bytes, wherever it is.
    pub fn payload_bytes(&self) -> u64 {
        let here = self.payload.len() as u64;
        self.file.as_ref().map_or(here, |file| file.len())
    }
}

/// A transfer for a session of the neighbour.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Names the transfer until [`crate::Agent::transfer_finished`].
    pub key: u64,
    /// The bundle.
    pub id: BundleId,
    /// The whole encoded bundle, in pieces.
    pub chunks: Vec<Bytes>,
    /// The payload, if it is on disk: it follows the first piece.
    pub file: Option<Arc<PayloadFile>>,
    /// The broken transfer of the same bytes that this one may go on with.
    pub resume: Option<Resume>,
    /// Whether somebody has custody of the bundle, or it signals custody.
    pub reliable: bool,
    /// Whether it was in transmission before.
    pub again: bool,
    /// Whether it takes turns as one of an earlier run of this node
    /// ([`crate::Agent::set_restored`]).
    pub restored: bool,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A bundle for a service of this node.
    Deliver(Delivery),
    /// A bundle of this node is released: the next custodian signalled, or, without custody, the CL
    /// delivered it.
    Released {
        /// The bundle.
        id: BundleId,
        /// Its payload's bytes.
        bytes: u64,
    },
    /// A bundle of this node, sent by an earlier run, is in custody again: its end will be reported
    /// like that of any other.
    Restored {
        /// The bundle.
        id: BundleId,
        /// Where it goes.
        destination: Eid,
        /// The service that sent it.
        service: u64,
        /// [`Send::label`].
        label: u64,
        /// What was given to [`Agent::withhold`](super::Agent::withhold), if the
        /// bundle was withheld; it is again.
        note: Option<Note>,
    },
    /// A bundle in the store is of a form that this version does not know.
    Unreadable(BundleId),
    /// A bundle of this node is given up: its lifetime ended, an operator
    /// cancelled it, or the store lost it.
    GivenUp {
        /// The bundle.
        id: BundleId,
        /// Where it was to go.
        destination: Eid,
        /// Why.
        reason: DeleteReason,
        /// Its payload, or the rest of it if the store lost it.
        payload: Vec<Bytes>,
    },
    /// Nothing can be made durable at present, for this reason: sources are
    /// slowed.
    StoreStalled(String),
    /// The store can write again.
    StoreResumed,
    /// A neighbour has claimed something that it may not claim; the bundle was refused.
    Forged {
        /// The neighbour.
        from: NeighbourId,
        /// The bundle's source, as it says.
        source: Eid,
        /// The claim that was not believed.
        forgery: Forgery,
    },
    /// Something is for another agent of this node: to be given to its
    /// [`Agent::take_passed`](super::Agent::take_passed), all that one agent
    /// passes to another in the order in which it comes.
    Passed {
        /// Which agent.
        shard: usize,
        /// What.
        passed: Passed,
    },
    /// A bundle was deleted.
    Deleted {
        /// The bundle, if it was stored.
        id: Option<BundleId>,
        /// Who sent it.
        source: Eid,
        /// Why.
        reason: DeleteReason,
    },
    /// There is something more to send, or sending is no longer paused.
    Woken {
        /// To whom.
        neighbour: NeighbourId,
        /// In which class; `None` is in any.
        class: Option<Class>,
    },
    /// A status report arrived.
    StatusReport {
        /// Who reports.
        reporter: Eid,
        /// What.
        report: StatusReport,
    },
    /// A compressed reporting signal arrived.
    CompressedReport {
        /// Who reports.
        reporter: Eid,
        /// What.
        dispositions: Vec<Disposition>,
    },
}
