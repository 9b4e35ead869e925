//! Gives a stored response to its client.

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};
use underpass_deferred::store::StoreError;
use underpass_deferred::{Handle, Id, Object, Owner, Refusal, State};

use super::super::reply::{self, Body};
use super::intake::refusal_page;
use super::message::read_response;
use super::range::{Wanted, wanted};

/// Parts that are read from the store at once.
const TOGETHER: u32 = 16;
/// Batches of parts that wait for the client.
const WAITING: usize = 2;

/// The stored response: the origin's status, fields and body, or a range of
/// it; `owner` is None where all may be seen.
pub async fn response(
    handle: &Handle,
    id: Id,
    owner: Option<Owner>,
    method: &Method,
    request: &HeaderMap,
) -> Response<Body> {
    let found = handle
        .call(move |node, _| {
            let found = node.request(id, owner.as_ref()).cloned();
            let Ok(stored) = found else {
                return Ok(Err(Refusal::Unknown));
            };
            let object = stored.response.filter(|_| is_answered(stored.state));
            let head = match object {
                Some(object) => head_of(&object, |index| node.response_part(id, index))?,
                None => Vec::new(),
            };
            Ok(Ok((stored.state, object.map(|object| (object, head)))))
        })
        .await;
    match found {
        Err(error) => reply::page(StatusCode::INSUFFICIENT_STORAGE, &error.to_string()),
        Ok(Err(refusal)) => refusal_page(refusal),
        Ok(Ok((state, None))) => {
            let text = format!("there is no response; the request is {}", state.name());
            reply::page(StatusCode::NOT_FOUND, &text)
        }
        Ok(Ok((_, Some((object, head))))) => serve(handle, id, object, &head, method, request),
    }
}

fn is_answered(state: State) -> bool {
    matches!(state, State::Answered | State::Failed)
}

fn head_of(
    object: &Object,
    part: impl Fn(u32) -> Result<Option<Bytes>, StoreError>,
) -> Result<Vec<u8>, StoreError> {
    let wanted = object.head_bytes as usize;
    let mut head = Vec::with_capacity(wanted);
    for index in 0..object.parts() {
        if head.len() >= wanted {
            break;
        }
        head.extend(part(index)?.unwrap_or_default());
    }
    head.truncate(wanted);
    Ok(head)
}

fn serve(
    handle: &Handle,
    id: Id,
    object: Object,
    head: &[u8],
    method: &Method,
    request: &HeaderMap,
) -> Response<Body> {
    let Some((status, stored, told)) = read_response(head) else {
        let text = "the other node has sent a response that cannot be read";
        return reply::page(StatusCode::BAD_GATEWAY, text);
    };
    let length = object.body_bytes();
    let ranges = status == StatusCode::OK && *method == Method::GET;
    let wanted = match ranges {
        true => wanted(request, &stored, length),
        false => Wanted::Whole,
    };
    let mut headers = stored;
    if status == StatusCode::OK {
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }
    let (status, first, count) = match wanted {
        Wanted::Whole => (status, 0, length),
        Wanted::Range(first, last) => {
            content_range(&mut headers, &format!("bytes {first}-{last}/{length}"));
            (StatusCode::PARTIAL_CONTENT, first, last - first + 1)
        }
        Wanted::Unsatisfiable => {
            let text = format!("the response has {length} bytes");
            let mut page = reply::page(StatusCode::RANGE_NOT_SATISFIABLE, &text);
            content_range(page.headers_mut(), &format!("bytes */{length}"));
            return page;
        }
    };
    let bodiless = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
    if !bodiless {
        let told = told_length(method, count, told);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(told));
    }
    let body = match *method == Method::HEAD || count == 0 {
        true => reply::empty(),
        false => {
            let (sender, channel) = Channel::new(WAITING);
            let section = Section {
                id,
                object,
                first,
                count,
            };
            tokio::spawn(section.send(handle.clone(), sender));
            channel.boxed()
        }
    };
    if *method == Method::GET && count == 0 {
        handle.tell(move |node, now_ms| node.fetched(now_ms, id));
    }
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The Content-Length of an answer of `count` octets. A stored response to HEAD has no body; the
/// length that it declares is passed on only to a HEAD.
fn told_length(method: &Method, count: u64, told: Option<u64>) -> u64 {
    match told {
        Some(told) if *method == Method::HEAD && count == 0 => told,
        _ => count,
    }
}

fn content_range(headers: &mut HeaderMap, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(CONTENT_RANGE, value);
    }
}

/// Octets of a stored body.
struct Section {
    id: Id,
    object: Object,
    first: u64,
    count: u64,
}

impl Section {
    /// Sends the octets as fast as the client takes them. If they end too early the connection
    /// ends, and the client notices: Content-Length declares their number.
    async fn send(self, handle: Handle, mut sender: Sender<Bytes, hyper::Error>) {
        let Section { id, object, .. } = self;
        let part_bytes = u64::from(object.part_bytes);
        let start = u64::from(object.head_bytes) + self.first;
        let (mut at, end) = (start, start + self.count);
        while at < end {
            let first = u32::try_from(at / part_bytes).unwrap_or(u32::MAX);
            let last = first.saturating_add(TOGETHER).min(object.parts());
            let read = handle.call(move |node, _| {
                let parts = (first..last).map(|index| node.response_part(id, index));
                let parts: Result<Option<Vec<Bytes>>, StoreError> = parts.collect();
                parts
            });
            let Ok(Some(parts)) = read.await else {
                return;
            };
            let mut whole = Bytes::from(parts.concat());
            let skipped = usize::try_from(at % part_bytes).unwrap_or(usize::MAX);
            let mut wanted = whole.split_off(skipped.min(whole.len()));
            wanted.truncate(usize::try_from(end - at).unwrap_or(usize::MAX));
            if wanted.is_empty() {
                return;
            }
            at += wanted.len() as u64;
            if sender.send_data(wanted).await.is_err() {
                return;
            }
        }
        if end == object.total_bytes {
            handle.tell(move |node, now_ms| node.fetched(now_ms, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_for_the_response_to_a_head_has_the_length_that_this_tells() {
        assert_eq!(told_length(&Method::HEAD, 0, Some(5)), 5);
        // A message with a body is framed by the body's length.
        assert_eq!(told_length(&Method::GET, 0, Some(5)), 0);
        assert_eq!(told_length(&Method::HEAD, 7, Some(5)), 7);
        assert_eq!(told_length(&Method::HEAD, 0, None), 0);
    }
}
