//! Security operations on bundles (RFC 9172).

use std::fmt;

use underpass_bpsec::{Operation, Outcome};

use super::super::ApiState;
use super::families::{Families, Labels};

pub fn encode(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let counts = state.bpsec.counts();
    let rows = Operation::ALL.into_iter().flat_map(|operation| {
        Outcome::ALL.into_iter().map(move |outcome| {
            let labels: Labels = vec![
                ("operation", operation.name().to_owned()),
                ("outcome", outcome.name().to_owned()),
            ];
            (labels, counts.get(operation, outcome))
        })
    });
    families.counter(
        "bpsec_bundles",
        "Bundles that were secured, verified or refused by the rules of [bpsec]",
        rows,
    )
}
