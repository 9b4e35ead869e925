//! Requests that are kept for later.

use std::fmt;

use prometheus_client::registry::Unit;
use underpass_deferred::{Figures, State};

use super::families::Families;

/// Counts and bytes of the store.
pub(super) fn encode(figures: &Figures, families: &mut Families<'_>) -> fmt::Result {
    let by_state = State::ALL.map(|state| {
        let count = figures.requests.get(&state).copied().unwrap_or(0);
        (vec![("state", state.name().to_owned())], count)
    });
    families.gauge(
        "deferred_requests",
        "Requests of this node's clients that are kept for later",
        by_state,
    )?;
    families.gauge(
        "deferred_dispatching",
        "Requests of peers that this node sends to origins or remembers",
        [(vec![], figures.dispatching)],
    )?;
    families.gauge(
        ("deferred_stored", Unit::Bytes),
        "Requests and responses kept",
        [(vec![], figures.bytes)],
    )?;
    families.gauge(
        ("deferred_quota", Unit::Bytes),
        "Requests and responses that may be kept",
        [(vec![], figures.quota_bytes)],
    )
}
