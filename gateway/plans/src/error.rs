//! What may be wrong with a plan.

use thiserror::Error;

use crate::plan::{
    MAX_BEAM_BYTES, MAX_DOCUMENT_BYTES, MAX_PLAN, MAX_RATE_BPS, MAX_TERMINAL, MAX_TIME_MS, VERSION,
};

/// Why a document is no plan.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PlanError {
    #[error("a document of {0} bytes is more than {MAX_DOCUMENT_BYTES}")]
    Large(usize),
    #[error("a plan is a JSON object")]
    NoObject,
    #[error("malformed plan: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("a document of version {0}, not {VERSION}")]
    Version(u64),
    #[error(
        "a beam's id is 1 to {MAX_BEAM_BYTES} of a-z, 0-9, - and _, the first one of a-z and 0-9"
    )]
    Beam,
    #[error("plan {0}: must be 1 to {MAX_PLAN}")]
    Plan(u64),
    #[error("issued_ms {issued_ms} lies behind start_ms {start_ms}")]
    Issued { issued_ms: u64, start_ms: u64 },
    #[error(
        "it begins at {start_ms} and ends at {end_ms}: it must end later, by {MAX_TIME_MS} at the latest"
    )]
    Span { start_ms: u64, end_ms: u64 },
    #[error("{count} {what}, more than {most}")]
    Many {
        what: &'static str,
        count: usize,
        most: usize,
    },
    /// The capacity is not known from the plan's start on, or out of order.
    #[error("capacity: steps must ascend in from_ms, and the first begin by start_ms")]
    Capacity,
    #[error("{what} of {rate_bps} bit/s is more than {MAX_RATE_BPS}")]
    Rate { what: &'static str, rate_bps: u64 },
    #[error("line {0}: terminals must not be empty")]
    Nobody(usize),
    #[error("line {0}: segments must not be empty")]
    Empty(usize),
    #[error("terminal {0}: must be 1 to {MAX_TERMINAL}")]
    Terminal(u64),
    #[error("terminal {0} is there twice")]
    Twice(u64),
    #[error("line {line}: segment {segment} must follow at {expected_ms}")]
    Gap {
        /// The line, from 0.
        line: usize,
        /// Its segment, from 0.
        segment: usize,
        /// Where it must begin, ms.
        expected_ms: u64,
    },
    #[error("line {line}: segment {segment} ends before it has begun")]
    Backwards {
        /// The line, from 0.
        line: usize,
        /// Its segment, from 0.
        segment: usize,
    },
    #[error("line {line}: segments must follow each other up to the plan's end, at {end_ms}")]
    End {
        /// The line, from 0.
        line: usize,
        /// Where it must end, ms.
        end_ms: u64,
    },
    #[error("line {line}: segment {segment} is blocked and has a rate of {rate_bps} bit/s")]
    BlockedRate {
        /// The line, from 0.
        line: usize,
        /// Its segment, from 0.
        segment: usize,
        rate_bps: u64,
    },
    #[error("a message to a terminal has the return link's plan with one line, for one terminal")]
    NoPart,
}
