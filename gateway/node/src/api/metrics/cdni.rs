//! The source of objects' sizes.

use std::fmt;

use prometheus_client::registry::Unit;

use super::super::ApiState;
use super::families::Families;

pub fn encode(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let Some(cdni) = &state.cdni else {
        return Ok(());
    };
    let figures = cdni.figures();
    families.gauge(
        "cdni_documents",
        "Documents of CDNI metadata that are kept",
        [(vec![], figures.documents as u64)],
    )?;
    families.gauge(
        ("cdni_documents", Unit::Bytes),
        "What they take of memory",
        [(vec![], figures.bytes as u64)],
    )?;
    let outcome = |name: &str| vec![("outcome", name.to_owned())];
    families.counter(
        "cdni_requests",
        "Requests by what the metadata say of their object's size",
        [
            (outcome("known"), figures.known),
            (outcome("untold"), figures.untold),
            (outcome("awaited"), figures.awaited),
        ],
    )?;
    families.counter(
        "cdni_fetches",
        "Documents by what became of them: failed are those that were refused, too",
        [
            (outcome("fetched"), figures.fetched),
            (outcome("failed"), figures.failed),
        ],
    )
}
