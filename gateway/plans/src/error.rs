//! What may be wrong with a plan.

use thiserror::Error;

use crate::plan::{
    MAX_BEAM_BYTES, MAX_DOCUMENT_BYTES, MAX_PLAN, MAX_RATE_BPS, MAX_TERMINAL, MAX_TIME_MS, VERSION,
};

/// Why a document is no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// It is too large to be looked at.
    #[error("a document of {0} bytes is more than {MAX_DOCUMENT_BYTES}")]
    Large(usize),
    /// It is JSON of another kind.
    #[error("a plan is a JSON object")]
    NoObject,
    /// It is not the JSON that it should be.
    #[error("malformed plan: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Another version of the format.
    #[error("a document of version {0}, not {VERSION}")]
    Version(u64),
    /// The beam's id.
    #[error(
        "a beam's id is 1 to {MAX_BEAM_BYTES} of a-z, 0-9, - and _, the first one of a-z and 0-9"
    )]
    Beam,
    /// The plan's version.
    #[error("plan {0}: must be 1 to {MAX_PLAN}")]
    Plan(u64),
    /// It was issued behind its start.
    #[error("issued_ms {issued_ms} lies behind start_ms {start_ms}")]
    Issued {
        /// Issued, ms.
        issued_ms: u64,
        /// Begin, ms.
        start_ms: u64,
    },
    /// A plan that ends before it begins, or beyond the calendar.
    #[error(
        "it begins at {start_ms} and ends at {end_ms}: it must end later, by {MAX_TIME_MS} at the latest"
    )]
    Span {
        /// Begin, ms.
        start_ms: u64,
        /// End, ms.
        end_ms: u64,
    },
    /// More lines, terminals, segments or steps than allowed.
    #[error("{count} {what}, more than {most}")]
    Many {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// The capacity is not known from the plan's start on, or out of order.
    #[error("capacity: steps must ascend in from_ms, and the first begin by start_ms")]
    Capacity,
    /// A rate beyond what is possible.
    #[error("{what} of {rate_bps} bit/s is more than {MAX_RATE_BPS}")]
    Rate {
        /// Which.
        what: &'static str,
        /// How much.
        rate_bps: u64,
    },
    /// A line for nobody.
    #[error("line {0}: terminals must not be empty")]
    Nobody(usize),
    /// A line for nothing.
    #[error("line {0}: segments must not be empty")]
    Empty(usize),
    /// No node number.
    #[error("terminal {0}: must be 1 to {MAX_TERMINAL}")]
    Terminal(u64),
    /// A terminal in two lines, or twice in one.
    #[error("terminal {0} is there twice")]
    Twice(u64),
    /// Segments with a gap, an overlap, or another span than the plan's.
    #[error("line {line}: segment {segment} must follow at {expected_ms}")]
    Gap {
        /// The line, from 0.
        line: usize,
        /// Its segment, from 0.
        segment: usize,
        /// Where it must begin, ms.
        expected_ms: u64,
    },
    /// A segment that ends where it begins or before.
    #[error("line {line}: segment {segment} ends before it has begun")]
    Backwards {
        /// The line, from 0.
        line: usize,
        /// Its segment, from 0.
        segment: usize,
    },
    /// The last segment does not end with the plan.
    #[error("line {line}: segments must follow each other up to the plan's end, at {end_ms}")]
    End {
        /// The line, from 0.
        line: usize,
        /// Where it must end, ms.
        end_ms: u64,
    },
    /// A blocked segment with a rate.
    #[error("line {line}: segment {segment} is blocked and has a rate of {rate_bps} bit/s")]
    BlockedRate {
        /// The line, from 0.
        line: usize,
        /// Its segment, from 0.
        segment: usize,
        /// The rate.
        rate_bps: u64,
    },
    /// Not one terminal's part of a return link's plan.
    #[error("a message to a terminal has the return link's plan with one line, for one terminal")]
    NoPart,
}
