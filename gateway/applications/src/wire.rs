//! The protocol of the applications' socket: frames of a JSON head and a
//! payload.
//!
//! A frame is the length of its head and that of its payload, each a 32-bit number in
//! network order, and then both. The kind of the head says what its payload is.

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version that the node's greeting names.
pub const VERSION: u32 = 1;

/// The most bytes of a head.
pub const MAX_HEAD_BYTES: u32 = 4096;

/// The lengths in front of each frame.
const LENGTHS_BYTES: usize = 8;

/// Events that status reports are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reported {
    /// A node has received the bundle.
    Received,
    /// A node has forwarded it.
    Forwarded,
    /// It was delivered.
    Delivered,
    /// It was deleted.
    Deleted,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Get the bundles for a service of this node.
    Register {
        /// The answer repeats it.
        id: u64,
        /// The ipn service number; none for any free one.
        #[serde(default)]
        service: Option<u64>,
        /// The service's name in the dtn scheme, instead of the number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Send the payload as a bundle.
    Send {
        /// The answer repeats it.
        id: u64,
        /// A service that this client has registered; the bundle's source.
        service: u64,
        /// The endpoint that it is sent to, such as `ipn:NODE.SERVICE`.
        destination: String,
        /// Its lifetime, ms.
        #[serde(default)]
        lifetime_ms: Option<u64>,
        /// Whether it is sent under custody, where the route takes it.
        /// Default true.
        #[serde(default)]
        custody: Option<bool>,
        /// The events of which this service is sent status reports.
        #[serde(default)]
        reports: Vec<Reported>,
    },
    /// Send a bundle whose payload of `bytes` follows in parts and waits on disk until it
    /// is whole. A client sends one such payload at a time.
    Begin {
        /// The answers and the parts repeat it.
        id: u64,
        /// As in [`Request::Send`].
        service: u64,
        /// As in [`Request::Send`].
        destination: String,
        /// As in [`Request::Send`].
        #[serde(default)]
        lifetime_ms: Option<u64>,
        /// As in [`Request::Send`].
        #[serde(default)]
        custody: Option<bool>,
        /// As in [`Request::Send`].
        #[serde(default)]
        reports: Vec<Reported>,
        /// The length of the payload, bytes.
        bytes: u64,
    },
    /// The next part of the payload that was begun. The node sends the bundle after the
    /// last part.
    Part {
        /// The id of [`Request::Begin`].
        id: u64,
    },
    /// Read part of a bundle's payload that is on disk.
    Read {
        /// The answer repeats it.
        id: u64,
        /// The delivery's number.
        delivery: u64,
        /// The offset at which to begin, bytes.
        offset: u64,
    },
    /// The application has stored a bundle safely, or no longer needs it.
    Acknowledge {
        /// The delivery's number.
        delivery: u64,
    },
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The frame breaks this protocol; the connection ends.
    Protocol,
    /// Another client has the service.
    Taken,
    /// No application may have the service, or this client has not registered it.
    NotAllowed,
    /// The client has too many services, or the node too many clients.
    TooMany,
    /// The destination is not an endpoint that bundles can be sent to.
    Destination,
    /// No route leads to the destination.
    NoRoute,
    /// There is no room at present; the client should try again later.
    NoRoom,
    /// The payload is larger than the node takes.
    TooLarge,
    /// The client has no such bundle.
    Unknown,
    /// The node is shutting down.
    Closing,
}

/// A message of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The first frame of a connection.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The node's ipn node number.
        node: u64,
        /// The largest payload it takes in one frame, bytes.
        max_payload_bytes: u64,
        /// The largest payload it takes in parts, bytes; 0 for none.
        #[serde(default)]
        max_file_bytes: u64,
    },
    /// The node has begun the payload: its parts may come.
    Begun {
        /// The id of the request.
        id: u64,
    },
    /// Bytes of a payload; empty at or behind its end.
    Data {
        /// The id of the request.
        id: u64,
    },
    /// The client has the service now.
    Registered {
        /// The id of the request.
        id: u64,
        /// Its number; for a service with a name, the number by which the node knows it.
        service: u64,
        /// The endpoint.
        endpoint: String,
    },
    /// The node has taken the bundle.
    Sent {
        /// The id of the request.
        id: u64,
        /// The endpoint that the bundle is from.
        source: String,
        /// Its creation timestamp, DTN time, ms; none for a bundle to this
        /// node itself.
        time_ms: Option<u64>,
        /// The timestamp's sequence number.
        sequence: Option<u64>,
    },
    /// A request was refused.
    Error {
        /// The id of the request; none if the frame could not be read.
        id: Option<u64>,
        /// Why.
        code: ErrorCode,
        /// The reason in words.
        message: String,
    },
    /// A bundle, with its payload. Until it is acknowledged, later connections get it
    /// again.
    Bundle {
        /// Its number, for the acknowledgement.
        delivery: u64,
        /// The service that it is for.
        service: u64,
        /// Who sent it.
        source: String,
        /// Its creation timestamp, DTN time, ms.
        time_ms: u64,
        /// The timestamp's sequence number.
        sequence: u64,
        /// Its age when it came to this node, ms.
        age_ms: u64,
        /// The length of a payload that is on disk and is to be read in parts, bytes;
        /// this frame then has no payload.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_bytes: Option<u64>,
    },
    /// A status report on a bundle that this endpoint has sent.
    Report(Report),
}

/// A status report on a bundle of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The service that has sent the bundle.
    pub service: u64,
    /// The node that reports.
    pub reporter: String,
    /// The bundle's creation timestamp, DTN time, ms.
    pub time_ms: u64,
    /// The timestamp's sequence number.
    pub sequence: u64,
    /// The events that it reports.
    pub events: Vec<Reported>,
    /// When they happened, DTN time, ms, if the reporter says so.
    pub at_ms: Option<u64>,
    /// The reason code (RFC 9171 §9.5).
    pub reason: u32,
}

/// Why a frame breaks this protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FrameError {
    /// A head of more than [`MAX_HEAD_BYTES`].
    #[error("a head of {0} bytes is above {MAX_HEAD_BYTES}")]
    Head(u32),
    #[error("a payload of {bytes} bytes is above {most}")]
    Payload { bytes: u32, most: u32 },
    #[error("the head is not understood: {0}")]
    Malformed(String),
    #[error("a payload follows a head that has none")]
    Unexpected,
}

/// Encodes a frame's lengths and head; the caller sends the payload after them.
pub fn encode_head(head: &impl Serialize, payload_bytes: usize) -> Vec<u8> {
    // Serialising the types of this module cannot fail.
    let json = serde_json::to_vec(head).unwrap_or_default();
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let mut frame = Vec::with_capacity(LENGTHS_BYTES + json.len());
    frame.extend(length(json.len()));
    frame.extend(length(payload_bytes));
    frame.extend(json);
    frame
}

/// Splits a stream of bytes into frames. It holds at most one frame of the largest size,
/// and the bytes that were read with its end.
#[derive(Debug)]
pub struct FrameReader {
    max_payload_bytes: u32,
    buffer: BytesMut,
}

impl FrameReader {
    /// Reads frames with payloads up to `max_payload_bytes`.
    pub fn new(max_payload_bytes: u32) -> FrameReader {
        FrameReader {
            max_payload_bytes,
            buffer: BytesMut::new(),
        }
    }

    /// The buffer to which the next bytes are appended.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Whether a frame has begun and not ended.
    pub fn is_inside(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The next frame, once it is complete: its head and payload.
    ///
    /// # Errors
    /// When a length is above its limit, as soon as that length is read. The stream
    /// cannot be read on after that.
    pub fn next_frame(&mut self) -> Result<Option<(Bytes, Bytes)>, FrameError> {
        let Some((lengths, _)) = self.buffer.split_first_chunk::<LENGTHS_BYTES>() else {
            return Ok(None);
        };
        let [a, b, c, d, e, f, g, h] = *lengths;
        let head = u32::from_be_bytes([a, b, c, d]);
        let payload = u32::from_be_bytes([e, f, g, h]);
        if head > MAX_HEAD_BYTES {
            return Err(FrameError::Head(head));
        }
        if payload > self.max_payload_bytes {
            return Err(FrameError::Payload {
                bytes: payload,
                most: self.max_payload_bytes,
            });
        }
        let (head, payload) = (head as usize, payload as usize);
        if self.buffer.len() < LENGTHS_BYTES + head + payload {
            return Ok(None);
        }
        self.buffer.advance(LENGTHS_BYTES);
        let head = self.buffer.split_to(head).freeze();
        let payload = self.buffer.split_to(payload).freeze();
        // The buffer's memory is freed with the frame, not only with the client.
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        Ok(Some((head, payload)))
    }
}

impl Request {
    /// Parses a request with its payload.
    ///
    /// # Errors
    /// When the head is not understood, or has a payload though its kind has none.
    pub fn parse(head: &[u8], payload: &[u8]) -> Result<Request, FrameError> {
        let parsed = serde_json::from_slice(head);
        let request = parsed.map_err(|error| FrameError::Malformed(error.to_string()))?;
        match request {
            Request::Send { .. } | Request::Part { .. } => {}
            Request::Register { .. }
            | Request::Begin { .. }
            | Request::Read { .. }
            | Request::Acknowledge { .. }
                if payload.is_empty() => {}
            _ => return Err(FrameError::Unexpected),
        }
        Ok(request)
    }
}

impl Event {
    /// Parses a message of the node.
    ///
    /// # Errors
    /// When the head is not understood.
    pub fn parse(head: &[u8]) -> Result<Event, FrameError> {
        let parsed = serde_json::from_slice(head);
        parsed.map_err(|error| FrameError::Malformed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(head: u32, payload: u32, bytes: &[u8]) -> Vec<u8> {
        [&head.to_be_bytes()[..], &payload.to_be_bytes(), bytes].concat()
    }

    #[test]
    fn a_length_that_lies_is_refused_before_its_bytes_come() {
        for (head, payload) in [(MAX_HEAD_BYTES + 1, 0), (u32::MAX, u32::MAX), (2, 101)] {
            let mut reader = FrameReader::new(100);
            reader.buffer().extend(frame(head, payload, b""));
            assert!(reader.next_frame().is_err(), "{head} {payload}");
            assert!(reader.buffer.capacity() < 1024);
        }
    }

    #[test]
    fn requests_read_back() {
        let requests = [
            Request::Register {
                id: 1,
                service: None,
                name: None,
            },
            Request::Register {
                id: 1,
                service: None,
                name: Some("incoming".to_owned()),
            },
            Request::Acknowledge { delivery: u64::MAX },
            Request::Send {
                id: 2,
                service: 40,
                destination: "ipn:1.7".to_owned(),
                lifetime_ms: Some(5),
                custody: Some(false),
                reports: vec![Reported::Received, Reported::Deleted],
            },
        ];
        for request in requests {
            let bytes = encode_head(&request, 0);
            let mut reader = FrameReader::new(0);
            reader.buffer().extend(bytes);
            let (head, payload) = reader.next_frame().unwrap().unwrap();
            assert_eq!(Request::parse(&head, &payload), Ok(request));
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let deep = "[".repeat(4000);
        for head in [
            "",
            "{}",
            "null",
            "[1]",
            r#"{"type":"register"}"#,
            r#"{"type":"register","id":-1}"#,
            r#"{"type":"register","id":1,"service":"x"}"#,
            r#"{"type":"register","id":1,"colour":1}"#,
            r#"{"type":"other","id":1}"#,
            &deep,
        ] {
            assert!(Request::parse(head.as_bytes(), b"").is_err(), "{head}");
        }
        let register = br#"{"type":"register","id":1}"#;
        assert_eq!(Request::parse(register, b"x"), Err(FrameError::Unexpected));
    }

    proptest! {
        #[test]
        fn frames_come_out_whatever_pieces_they_come_in(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
            cuts in prop::collection::vec(1usize..50, 1..100),
        ) {
            let mut stream = Vec::new();
            for (number, payload) in payloads.iter().enumerate() {
                let request = Request::Acknowledge { delivery: number as u64 };
                stream.extend(encode_head(&request, payload.len()));
                stream.extend(payload);
            }
            let mut reader = FrameReader::new(200);
            let mut cuts = cuts.iter().cycle();
            let mut seen = Vec::new();
            let mut rest = &stream[..];
            while !rest.is_empty() {
                let (piece, others) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                reader.buffer().extend(piece);
                rest = others;
                while let Some((_, payload)) = reader.next_frame().unwrap() {
                    seen.push(payload.to_vec());
                }
            }
            prop_assert_eq!(seen, payloads);
            prop_assert!(!reader.is_inside());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut reader = FrameReader::new(100);
            reader.buffer().extend(&bytes);
            while let Ok(Some((head, payload))) = reader.next_frame() {
                let _ = Request::parse(&head, &payload);
                let _ = Event::parse(&head);
            }
        }
    }
}
