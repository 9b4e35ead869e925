//! The contract between the edge and the stream layer.
//!
//! The edge turns each taken-in connection into an [`OpenRequest`], gives it
//! to an [`Outlet`] and moves bytes over the [`Conduit`] it gets back. The
//! stream layer stands behind both at a node with a peer; in single-box mode
//! [`crate::direct`] does.

mod conduit;
mod failure;
mod request;

pub use conduit::{
    ComparedPath, Conduit, Connected, FlowPath, Outlet, PathChoice, Received, StreamName,
    StreamTimes,
};
pub use failure::{Failure, FailureCode};
pub use request::{Host, HostError, OpenRequest, Protocol, Target};
