//! The heads of HTTP/1 messages, as far as they describe a flow.

use std::sync::Arc;

/// A head that is longer is none.
pub(super) const MOST_HEAD_BYTES: usize = 16 * 1024;
const MOST_FIELDS: usize = 100;
/// Names and types, which are keys of tables, are cut to this length.
const MOST_TEXT_BYTES: usize = 253;
/// The size of an object with a longer path is not looked up.
pub(super) const MOST_TARGET_BYTES: usize = 2_048;

/// What the first bytes of a flow are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// More bytes have to come.
    Partial,
    /// No HTTP/1 message.
    Other,
    Message(Head),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub head_bytes: usize,
    /// Of the body; none if the head does not declare it.
    pub body_bytes: Option<u64>,
    /// It is a response, and the whole requested object follows.
    pub is_object: bool,
    /// Type and subtype in lower case; empty if the message does not give them.
    pub content_type: Arc<str>,
    /// The host of a request, in lower case, without the port.
    pub host: Option<Arc<str>>,
    /// Of a request: path and query.
    pub target: Option<Box<str>>,
}

/// Whether these may be the first bytes of a message: a method, or the start of a response.
pub(super) fn may_begin(data: &[u8]) -> bool {
    let token = data.iter().take(16).take_while(|b| b.is_ascii_uppercase());
    let length = token.count();
    let answer = b"HTTP/1.";
    let is_answer = answer.starts_with(&data[..data.len().min(answer.len())]);
    is_answer || length >= 3 && data.get(length).is_none_or(|b| *b == b' ')
}

pub(super) fn begins_request(data: &[u8]) -> bool {
    may_begin(data) && !data.starts_with(b"HTTP/")
}

/// Whether an empty line after the first `before` bytes ends a head.
pub(super) fn ends_within(data: &[u8], before: usize) -> bool {
    let fresh = &data[before.saturating_sub(3)..];
    let mut lines = fresh.split(|byte| *byte == b'\n').skip(1);
    // The last piece is not a complete line yet.
    let whole = fresh.iter().filter(|byte| **byte == b'\n').count();
    lines
        .by_ref()
        .take(whole.saturating_sub(1))
        .any(|line| line.is_empty() || line == b"\r")
}

pub(super) fn parse(data: &[u8]) -> Beginning {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    if data.starts_with(b"HTTP/") {
        let mut answer = httparse::Response::new(&mut fields);
        return match answer.parse(data) {
            Ok(httparse::Status::Complete(head_bytes)) => {
                let told = length_of(answer.headers);
                let body_bytes = match answer.code.unwrap_or(0) {
                    // What follows is another protocol's.
                    101 => None,
                    100..200 | 204 | 304 => Some(0),
                    _ => told.unwrap_or(None),
                };
                Beginning::Message(Head {
                    head_bytes,
                    body_bytes,
                    is_object: matches!(answer.code, Some(200 | 203)),
                    content_type: text_of(answer.headers, "content-type", ';'),
                    host: None,
                    target: None,
                })
            }
            Ok(httparse::Status::Partial) => Beginning::Partial,
            Err(_) => Beginning::Other,
        };
    }
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(data) {
        Ok(httparse::Status::Complete(head_bytes)) => {
            let host = text_of(request.headers, "host", ':');
            Beginning::Message(Head {
                head_bytes,
                // A request without these fields has no body (RFC 9112 § 6.3).
                body_bytes: length_of(request.headers).unwrap_or(Some(0)),
                is_object: false,
                content_type: text_of(request.headers, "content-type", ';'),
                host: (!host.is_empty()).then_some(host),
                target: request.path.and_then(target_of),
            })
        }
        Ok(httparse::Status::Partial) => Beginning::Partial,
        Err(_) => Beginning::Other,
    }
}

/// Path and query of a request's target. In a request to a proxy the target also has scheme and
/// authority (RFC 9112 § 3.2).
fn target_of(target: &str) -> Option<Box<str>> {
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => &rest[rest.find('/')?..],
        _ => target,
    };
    (path.starts_with('/') && path.len() <= MOST_TARGET_BYTES).then(|| path.into())
}

/// The length of the body: `None` if no field gives one, `Some(None)` if the fields say that it is
/// unknown or are invalid.
fn length_of(fields: &[httparse::Header<'_>]) -> Option<Option<u64>> {
    let is = |field: &httparse::Header<'_>, name: &str| field.name.eq_ignore_ascii_case(name);
    if fields.iter().any(|field| is(field, "transfer-encoding")) {
        return Some(None);
    }
    let mut lengths = fields.iter().filter(|field| is(field, "content-length"));
    let first = lengths.next()?;
    // Different lengths are an error (RFC 9112 § 6.3); this code need not answer it.
    if lengths.any(|other| other.value != first.value) {
        return Some(None);
    }
    let digits = first.value.trim_ascii();
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| plain);
    Some(text.and_then(|text| text.parse().ok()))
}

/// A field's value up to a separator, in lower case.
fn text_of(fields: &[httparse::Header<'_>], name: &str, until: char) -> Arc<str> {
    let mut fields = fields.iter();
    let field = fields.find(|field| field.name.eq_ignore_ascii_case(name));
    let value = field.and_then(|field| std::str::from_utf8(field.value).ok());
    let value = value.unwrap_or_default();
    // An IPv6 address has colons within its brackets (RFC 3986 § 3.2.2).
    let literal = value.find(']').filter(|_| value.starts_with('['));
    let rest = &value[literal.unwrap_or_default()..];
    let end = rest
        .find(until)
        .map_or(value.len(), |at| value.len() - rest.len() + at);
    let text = value[..end].trim();
    match text.len() <= MOST_TEXT_BYTES && text.is_ascii() {
        true => text.to_ascii_lowercase().into(),
        false => Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn body_of(text: &str) -> Option<u64> {
        match parse(text.as_bytes()) {
            Beginning::Message(head) => head.body_bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_length_is_taken_from_the_head() {
        let answer = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        assert_eq!(body_of(&answer("Content-Length: 1000")), Some(1000));
        assert_eq!(
            body_of(&answer("content-length: 9223372036854775808")),
            Some(1 << 63)
        );
        assert_eq!(
            body_of(&answer("Content-Length: 99999999999999999999")),
            None
        );
        assert_eq!(body_of(&answer("Content-Length: -1")), None);
        assert_eq!(body_of(&answer("Content-Length: +1")), None);
        assert_eq!(
            body_of(&answer("Content-Length: 1\r\nContent-Length: 2")),
            None
        );
        assert_eq!(
            body_of(&answer("Content-Length: 9\r\nTransfer-Encoding: chunked")),
            None
        );
        assert_eq!(body_of(&answer("Server: x")), None);
        assert_eq!(
            body_of("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"),
            Some(0)
        );
        assert_eq!(body_of("HTTP/1.1 101 Switching Protocols\r\n\r\n"), None);
        assert_eq!(body_of("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Some(0));
        assert_eq!(
            body_of("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"),
            Some(5)
        );
    }

    #[test]
    fn host_and_type_are_taken_without_their_parameters() {
        let request = b"GET / HTTP/1.1\r\nHost: A.Example:8080\r\n\r\n";
        let Beginning::Message(head) = parse(request) else {
            panic!("a request");
        };
        assert_eq!(head.host.as_deref(), Some("a.example"));
        for (host, is) in [("[2001:DB8::1]:8080", "[2001:db8::1]"), ("[::1]", "[::1]")] {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let Beginning::Message(head) = parse(request.as_bytes()) else {
                panic!("a request");
            };
            assert_eq!(head.host.as_deref(), Some(is));
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; charset=utf-8\r\n\r\n";
        let Beginning::Message(head) = parse(answer) else {
            panic!("an answer");
        };
        assert_eq!(&*head.content_type, "text/html");
    }

    #[test]
    fn a_target_is_a_path_with_its_query() {
        let of = |target: &str| {
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            match parse(request.as_bytes()) {
                Beginning::Message(head) => head.target,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of("/a/b?x=/1").as_deref(), Some("/a/b?x=/1"));
        assert_eq!(of("http://a.example/b?x").as_deref(), Some("/b?x"));
        assert_eq!(of("/b?to=http://a").as_deref(), Some("/b?to=http://a"));
        for none in [
            "*",
            "http://a.example",
            &format!("/{}", "x".repeat(MOST_TARGET_BYTES)),
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_message_is_seen_at_once() {
        for data in [
            &b"\x16\x03\x01\x02\x00"[..],
            b"SSH-2.0-x",
            b"hello",
            b"G",
            b"{}",
        ] {
            assert!(!may_begin(data), "{data:?}");
        }
        for data in [&b"GET / H"[..], b"HTTP/1.1 200", b"HT", b"OPTIONS", b"PUT "] {
            assert!(may_begin(data), "{data:?}");
        }
        assert!(!begins_request(b"HTTP/1.1 200 OK"));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (may_begin(&data), parse(&data));
        }
    }
}
