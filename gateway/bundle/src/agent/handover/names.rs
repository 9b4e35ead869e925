//! Names of the wire, in wire format.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use underpass_handover::HandoverError;

use super::super::config::NeighbourId;
use super::super::signals::Way;
use super::super::stored::{NameGroup, WireName};
use super::super::stored_record::{decoded_cteb, encoded_cteb};
use crate::wire::{Cteb, Eid, read_eid, whole, write_eid};

pub(super) fn malformed(error: impl ToString) -> HandoverError {
    HandoverError::Malformed(error.to_string())
}

/// An endpoint, as CBOR (RFC 9171 §4.2.5.1).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct EidState(Bytes);

impl From<&Eid> for EidState {
    fn from(eid: &Eid) -> EidState {
        let mut out = Vec::new();
        write_eid(&mut out, eid);
        EidState(out.into())
    }
}

impl EidState {
    pub fn eid(&self) -> Result<Eid, HandoverError> {
        whole(&self.0, read_eid).map_err(malformed)
    }
}

/// A CTEB, its dialect before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct CtebState(Bytes);

impl From<&Cteb> for CtebState {
    fn from(cteb: &Cteb) -> CtebState {
        CtebState(encoded_cteb(cteb).into())
    }
}

impl CtebState {
    pub fn cteb(&self) -> Result<Cteb, HandoverError> {
        decoded_cteb(&self.0).map_err(malformed)
    }
}

/// The neighbour that it came from, and the one by which the answer goes.
pub(crate) type WayState = (u64, u64);

pub(crate) fn way_state(way: Way) -> WayState {
    (way.from.0, way.via.0)
}

pub(crate) fn way((from, via): WayState) -> Way {
    Way {
        from: NeighbourId(from),
        via: NeighbourId(via),
    }
}

/// A bundle's name but for its sequence number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NameGroupState {
    source: EidState,
    time: u64,
    fragment: Option<(u64, u64)>,
}

impl From<&NameGroup> for NameGroupState {
    fn from(group: &NameGroup) -> NameGroupState {
        NameGroupState {
            source: (&group.source).into(),
            time: group.time,
            fragment: group.fragment,
        }
    }
}

impl NameGroupState {
    pub fn group(&self) -> Result<NameGroup, HandoverError> {
        Ok(NameGroup {
            source: self.source.eid()?,
            time: self.time,
            fragment: self.fragment,
        })
    }
}

/// A bundle's name.
pub(crate) type WireNameState = (NameGroupState, u64);

pub(crate) fn wire_name((group, sequence): WireNameState) -> Result<WireName, HandoverError> {
    let group = group.group()?;
    Ok(WireName { group, sequence })
}
