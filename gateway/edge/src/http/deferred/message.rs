//! Heads of stored messages, as `message/http` has them (RFC 9112 §10.1) but without framing: the
//! length is the stored object's. Only a response to HEAD keeps its Content-Length, which describes
//! a body that is not there.

use bytes::{BufMut, Bytes, BytesMut};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::{Method, StatusCode, Uri};

/// Most header fields of a response that is taken from an origin.
pub(super) const MOST_TAKEN: usize = 256;
/// Most header fields of a request or response, with room for those that a node adds itself, such
/// as Via.
const MAX_FIELDS: usize = MOST_TAKEN + 16;

/// A request's head.
pub(super) fn request_head(method: &Method, target: &str, headers: &HeaderMap) -> Bytes {
    head(&format!("{method} {target} HTTP/1.1"), headers, None)
}

/// A response's head. The reason phrase, which nobody reads (RFC 9112 §4), is
/// left out.
pub(super) fn response_head(to: &Method, status: StatusCode, headers: &HeaderMap) -> Bytes {
    let told = length(headers).filter(|_| *to == Method::HEAD);
    head(&format!("HTTP/1.1 {} ", status.as_u16()), headers, told)
}

fn head(line: &str, headers: &HeaderMap, told: Option<u64>) -> Bytes {
    let mut out = BytesMut::with_capacity(1024);
    out.put_slice(line.as_bytes());
    out.put_slice(b"\r\n");
    for (name, value) in headers {
        if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
            continue;
        }
        out.put_slice(name.as_str().as_bytes());
        out.put_slice(b": ");
        out.put_slice(value.as_bytes());
        out.put_slice(b"\r\n");
    }
    if let Some(bytes) = told {
        out.put_slice(format!("{CONTENT_LENGTH}: {bytes}\r\n").as_bytes());
    }
    out.put_slice(b"\r\n");
    out.freeze()
}

/// What Content-Length says.
fn length(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get(CONTENT_LENGTH)?;
    value.to_str().ok()?.trim().parse().ok()
}

/// Reads a request's head.
pub(super) fn read_request(head: &[u8]) -> Option<(Method, Uri, HeaderMap)> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    if !request.parse(head).ok()?.is_complete() {
        return None;
    }
    let method = request.method?.parse().ok()?;
    let target = request.path?.parse().ok()?;
    let (headers, _) = read_fields(request.headers)?;
    Some((method, target, headers))
}

/// Reads a response's head, and the length that a response to HEAD declares.
pub(super) fn read_response(head: &[u8]) -> Option<(StatusCode, HeaderMap, Option<u64>)> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    if !response.parse(head).ok()?.is_complete() {
        return None;
    }
    let status = StatusCode::from_u16(response.code?).ok()?;
    let (headers, told) = read_fields(response.headers)?;
    Some((status, headers, told))
}

fn read_fields(fields: &[httparse::Header<'_>]) -> Option<(HeaderMap, Option<u64>)> {
    let mut headers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    let told = length(&headers);
    // The framing is the object's own, whoever has written the head.
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
    Some((headers, told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_read_back_without_framing() {
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_static("1"));
        headers.append("x-a", HeaderValue::from_bytes(b"\xE9").unwrap());
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
        let head = request_head(&Method::POST, "http://a.example/x?y", &headers);
        headers.remove(CONTENT_LENGTH);
        let (method, target, read) = read_request(&head).unwrap();
        assert_eq!((method, target.path()), (Method::POST, "/x"));
        assert_eq!(read, headers);
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
        let head = response_head(&Method::GET, StatusCode::NOT_FOUND, &headers);
        headers.remove(CONTENT_LENGTH);
        let read = read_response(&head).unwrap();
        assert_eq!(read, (StatusCode::NOT_FOUND, headers, None));
        assert!(read_request(b"GET / HTTP/1.1\r\n").is_none());
    }

    #[test]
    fn what_a_node_adds_to_the_longest_head_has_room() {
        let mut headers = HeaderMap::new();
        for number in 0..MOST_TAKEN - 1 {
            headers.append("x-a", HeaderValue::from(number));
        }
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
        headers.append("via", HeaderValue::from_static("1.1 underpass"));
        let head = response_head(&Method::HEAD, StatusCode::OK, &headers);
        headers.remove(CONTENT_LENGTH);
        let read = read_response(&head).unwrap();
        assert_eq!(read, (StatusCode::OK, headers, Some(5)));
    }

    #[test]
    fn a_response_to_head_keeps_the_length_that_it_tells() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
        let head = response_head(&Method::HEAD, StatusCode::OK, &headers);
        let read = read_response(&head).unwrap();
        assert_eq!(read, (StatusCode::OK, HeaderMap::new(), Some(5)));
    }
}
