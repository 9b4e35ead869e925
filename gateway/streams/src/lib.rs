//! Many proxied TCP connections (*streams*) with one peer node, carried in
//! the payloads of BPv7 bundles. `docs/stream-protocol.md` is the
//! specification.
//!
//! Custody below delivers each payload in the end, maybe late, out of order and more than once, or
//! reports that it expired. So bytes carry offsets, every frame may arrive at any time and any
//! number of times, and nothing is retransmitted here. [`Peer`] holds no socket, clock or task:
//! writes and payloads go in, payloads and [`Event`]s come out, and a payload is sealed only when
//! [`Peer::poll_payload`] asks for it.
//!
//! The folders: [`wire`] is the format, `stream` the state of one stream, `mux` what the streams
//! between two runs share (credit, turns), `peer` what one run of a node leaves to the next.

mod mux;
mod peer;
mod stream;
pub mod wire;

pub use mux::{
    Ahead, Backlog, Config, Counters, Event, Flow, Mux, OpenError, PayloadError, Sealed, Side,
    StreamError, StreamInfo, StreamState, Windows, WriteError, class_of, lane, lanes,
};
pub use peer::{Epoch, FormerLimit, Peer, PeerState};
pub use wire::{
    Announcement, Frame, Header, Hello, Open, ResetCode, StreamId, Target, TraceContext, WireError,
    decode_frames,
};
