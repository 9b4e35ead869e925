//! A request as clients and operators see it.

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::id::Id;
use crate::record::{Request, State};

/// The status document, JSON. Times are UTC (RFC 3339), sizes of bodies.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// The request's name.
    pub id: Id,
    /// Where the request stands.
    pub state: State,
    /// Why, where there is something to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Whether it is to be cancelled.
    pub cancelling: bool,
    /// How often the client has had it begun.
    pub attempt: u32,
    /// Whether it may be sent to the origin more than once.
    pub repeatable: bool,
    /// Its method.
    pub method: String,
    /// Its target URI.
    pub target: String,
    /// The dispatching node.
    pub node: u64,
    /// Its body's bytes.
    pub request_bytes: u64,
    /// When it was stored.
    pub created: String,
    /// When its lifetime ends.
    pub expires: String,
    /// When the dispatching node had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarded: Option<String>,
    /// When it was heard that it was being sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
    /// When it came to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<String>,
    /// When its response was fetched whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetched: Option<String>,
    /// Where this document is.
    pub url: String,
    /// Where the response is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_url: Option<String>,
    /// The response's body's bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u64>,
    /// Where to have it done anew, by POST.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat_url: Option<String>,
}

impl Document {
    /// The document of a request that is found at `url`.
    pub fn of(request: &Request, url: String) -> Document {
        let answered = matches!(request.state, State::Answered | State::Failed);
        let response = request.response.filter(|_| answered);
        let repeats = request.state.may_repeat();
        Document {
            id: request.id,
            state: request.state,
            reason: request.reason.clone(),
            cancelling: request.cancelling,
            attempt: request.attempt,
            repeatable: request.repeatable,
            method: request.method.clone(),
            target: request.target.clone(),
            node: request.peer,
            request_bytes: request.request.body_bytes(),
            created: utc(request.created_ms),
            expires: utc(request.expires_ms),
            forwarded: request.forwarded_ms.map(utc),
            sent: request.sent_ms.map(utc),
            finished: request.finished_ms.map(utc),
            fetched: request.fetched_ms.map(utc),
            response_url: response.map(|_| format!("{url}/response")),
            response_bytes: response.map(|object| object.body_bytes()),
            repeat_url: repeats.then(|| format!("{url}/repeat")),
            url,
        }
    }
}

fn utc(ms: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000);
    let text = time.ok().and_then(|time| time.format(&Rfc3339).ok());
    // Beyond the year 9999 there is no such text.
    text.unwrap_or_else(|| "9999-12-31T23:59:59Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        assert_eq!(utc(1_795_250_000_500), "2026-11-21T08:33:20.5Z");
        assert_eq!(utc(u64::MAX), "9999-12-31T23:59:59Z");
    }
}
