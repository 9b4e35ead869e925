//! Reasons for the refusals that hyper gives by itself.
//!
//! hyper answers a request head that it cannot read with a status alone. A person at the client
//! gets a sentence as well, as from other refusals. Which bytes are hyper's own is known by when it
//! writes them, which is while it answers no request: those of an origin may be the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::Response;

use super::reply::Body;
use super::server::MAX_FIELDS;

/// Counts the requests of one connection and their answers, all within one task.
#[derive(Debug, Default)]
pub(super) struct Answers {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// An answer that hyper has yet to write to its end; dropping this tells that it has written it.
#[derive(Debug)]
pub(super) struct Answering(Arc<Answers>);

impl Answers {
    /// A request has come.
    pub fn begin(self: &Arc<Self>) -> Answering {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Answering(self.clone())
    }

    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Those whose last byte hyper has written to its buffer.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Answering {
    /// Lasts as long as the response's body.
    pub fn until_the_end_of(self, response: Response<Body>) -> Response<Body> {
        let last = move |error| {
            let _until_here = &self;
            error
        };
        response.map(|body| body.map_err(last).boxed())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// hyper's refusal `answer` with its reason as the body; `None` for other bytes.
pub(super) fn with_reason(answer: &[u8]) -> Option<BytesMut> {
    let head = std::str::from_utf8(answer).ok()?.strip_suffix("\r\n\r\n")?;
    let (first, fields) = head.split_once("\r\n")?;
    let (_, status) = first.split_once(' ')?;
    let reason = match status.split(' ').next()? {
        "400" => "this is no request of HTTP/1.1, or a malformed one".to_owned(),
        "414" => "the request's target is too long".to_owned(),
        // hyper may take somewhat more than its limit, by how the bytes come.
        "431" => format!("the request's head is too long, or has more than {MAX_FIELDS} fields"),
        _ => return None,
    };
    let body = format!("underpass: {status}: {reason}\n");
    let mut whole = format!("{first}\r\n");
    for field in fields.split("\r\n") {
        if !field.starts_with("content-length:") {
            whole.push_str(field);
            whole.push_str("\r\n");
        }
    }
    let length = body.len();
    whole.push_str("content-type: text/plain; charset=utf-8\r\n");
    whole.push_str(&format!("content-length: {length}\r\n\r\n{body}"));
    Some(BytesMut::from(whole.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_gets_its_reason_and_keeps_its_fields() {
        let bare = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\
            date: Mon, 30 Nov 2026 00:00:00 GMT\r\n\r\n";
        let whole = with_reason(bare).expect("a refusal");
        let whole = std::str::from_utf8(&whole).expect("text");
        let (head, body) = whole.split_once("\r\n\r\n").expect("a body");
        assert!(
            head.contains("\r\nconnection: close\r\ndate: Mon, 30 Nov"),
            "{head}"
        );
        assert!(
            head.ends_with(&format!("\r\ncontent-length: {}", body.len())),
            "{head}"
        );
        assert!(
            body.starts_with("underpass: 400 Bad Request: this is no request"),
            "{body}"
        );
        assert!(body.ends_with('\n') && body.lines().count() == 1, "{body}");
    }

    #[test]
    fn other_bytes_stay_as_they_are() {
        let answers: [&[u8]; 4] = [
            b"",
            b"\x16\x03\x01\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ];
        for answer in answers {
            assert!(with_reason(answer).is_none(), "{answer:?}");
        }
    }
}
