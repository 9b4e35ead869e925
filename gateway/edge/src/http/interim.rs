//! Interim (1xx) responses on their way from an origin to the client
//! (RFC 9110 §15.2).
//!
//! hyper's server writes no interim response of a service's own, so those of
//! the origin go to the client's socket beside it, between two messages.

use std::sync::{Mutex, MutexGuard};

use bytes::{BufMut, BytesMut};
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode, Version};
use tokio::sync::mpsc;

use super::fields;

/// Most interim responses of one exchange that wait for the client's task.
const WAITING: usize = 8;
/// Most bytes of them that wait for the client's socket: a request head's.
const MAX_BYTES: usize = 64 * 1024;

/// One interim response.
pub(super) struct Interim {
    pub status: StatusCode,
    headers: HeaderMap,
}

/// The interim responses to `request`, which is yet to be sent. Those beyond
/// what may wait are lost; they are no more than hints.
pub(super) fn watch<B>(request: &mut Request<B>) -> mpsc::Receiver<Interim> {
    let (sender, receiver) = mpsc::channel(WAITING);
    hyper::ext::on_informational(request, move |response| {
        let _ = sender.try_send(Interim {
            status: response.status(),
            headers: response.headers().clone(),
        });
    });
    receiver
}

/// What is to be written to a client's socket before hyper's next byte.
#[derive(Default)]
pub(super) struct Outbox(Mutex<State>);

struct State {
    /// Whether hyper has handed over all it had. If not, a message of its own may be half written.
    clear: bool,
    bytes: BytesMut,
}

impl Default for State {
    fn default() -> State {
        State {
            clear: true,
            bytes: BytesMut::new(),
        }
    }
}

impl Outbox {
    /// Queues an interim response to the request that is being answered. It is dropped if the
    /// client has not taken the previous response yet, or if too much is waiting.
    pub fn push(&self, mut interim: Interim) {
        fields::strip(&mut interim.headers);
        fields::add_via(&mut interim.headers, Version::HTTP_11);
        let head = encode(&interim);
        let mut state = self.state();
        if state.clear && state.bytes.len() + head.len() <= MAX_BYTES {
            state.bytes.unsplit(head);
        }
    }

    /// Takes what is to be written next.
    pub fn take(&self) -> BytesMut {
        std::mem::take(&mut self.state().bytes)
    }

    /// Gives back what the socket has not taken.
    pub fn give_back(&self, rest: BytesMut) {
        self.state().bytes = rest;
    }

    /// Notes whether hyper has handed over all it had.
    pub fn set_clear(&self, clear: bool) {
        self.state().clear = clear;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn encode(interim: &Interim) -> BytesMut {
    let mut head = BytesMut::new();
    let reason = interim.status.canonical_reason().unwrap_or_default();
    head.put_slice(format!("HTTP/1.1 {} {reason}\r\n", interim.status.as_str()).as_bytes());
    for (name, value) in &interim.headers {
        head.put_slice(name.as_str().as_bytes());
        head.put_slice(b": ");
        head.put_slice(value.as_bytes());
        head.put_slice(b"\r\n");
    }
    head.put_slice(b"\r\n");
    head
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn hint() -> Interim {
        let mut headers = HeaderMap::new();
        headers.insert("link", HeaderValue::from_static("</a>"));
        headers.insert("connection", HeaderValue::from_static("x-hop"));
        headers.insert("x-hop", HeaderValue::from_static("1"));
        Interim {
            status: StatusCode::EARLY_HINTS,
            headers,
        }
    }

    #[test]
    fn an_interim_response_is_a_head_without_fields_of_the_hop() {
        let outbox = Outbox::default();
        outbox.push(hint());
        assert_eq!(
            &outbox.take()[..],
            b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nvia: 1.1 underpass\r\n\r\n"
        );
    }

    #[test]
    fn nothing_is_put_into_the_middle_of_a_message_and_the_rest_is_bounded() {
        let outbox = Outbox::default();
        outbox.set_clear(false);
        outbox.push(hint());
        assert!(outbox.take().is_empty());
        outbox.set_clear(true);
        for _ in 0..100_000 {
            outbox.push(hint());
        }
        assert!(outbox.take().len() <= MAX_BYTES);
    }
}
