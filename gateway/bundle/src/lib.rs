//! The bundle node: BPv7 (RFC 9171) with custody transfer (CCSDS 734.6), as a
//! state machine without I/O.
//!
//! [`wire`] reads and writes bundles. A payload is never copied: a bundle to be sent is a list of
//! pieces, header, payload, trailer, and a received payload is a slice of what came. [`Agent`]
//! stores bundles and has custody of them, decides what is offered to a neighbour next, gathers and
//! obeys custody signals, and runs the timers; the node's shell moves its input and output.
//! [`Store`] stores payloads, and keeps bundles in custody beyond the end of the process.
//!
//! Three rules keep custody safe:
//!
//! - A bundle under custody is released only by a signal of the next
//!   custodian, never by the CL's acknowledgement.
//! - A signal counts only from the neighbour that the bundle was sent to, by
//!   whichever way it may come, and custody sequences of different runs have
//!   different names.
//! - A node signals that it has custody only if it holds the bundle (as safely
//!   as its store makes it), has delivered it, or answers a retransmission of
//!   the very transfer that it has accepted before.
//!
//! A node may be made of several agents, each with a part of the neighbours ([`Sharding`]), in
//! threads of their own. They share the quota and the state that keeps names unique ([`Common`]);
//! all else they pass to each other ([`Passed`]).
//!
//! Lifetime is judged by the bundle age block alone, so a step of the clock
//! neither expires nor revives anything.

mod agent;
mod store;
pub mod wire;

pub use agent::{
    Agent, AgentState, Amount, Applications, BundleId, BundleInfo, ClassFigures, Common, Config,
    CustodyFigures, CustodyTimer, Decoded, Decoder, DeleteReason, Delivery, DuplicateLimits,
    ECHO_NAME, Encrypted, Event, Following, Forgery, Insecure, Limits, LongDecoded, LongDecoding,
    NamedRoutes, NeighbourFigures, NeighbourId, NextHops, Note, Offer, Opened, OwnNames, Passed,
    PlanChanged, PlannedRoutes, Quota, Reject, Relaying, ReportRequest, Route, Routes, Secured,
    Security, Send, SendError, Sharding, Signed, Unopened, Unsigned, destination_of,
    is_named_service, largest_bundle_bytes, named_service,
};
pub use store::{DurableRecord, MemoryStore, Payload, Restored, Store, StoreEvent};
