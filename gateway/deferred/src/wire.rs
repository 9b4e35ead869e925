//! The messages between the two nodes: one per bundle payload.
//!
//! `docs/store-and-forward.md` specifies it. All numbers are big-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::id::Id;
use crate::object::Object;

/// The ipn service of these messages; 1 to 127 are for private use.
pub const SERVICE: u64 = 81;

const VERSION: u8 = 1;
/// Version, kind, id, attempt.
const HEAD_BYTES: usize = 22;
/// Longest text of a notice, bytes.
pub const MAX_TEXT_BYTES: usize = 1024;

/// One attempt of a client to have a request answered: a repetition that the
/// client asks for is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The request.
    pub id: Id,
    /// Counts from 1.
    pub attempt: u32,
}

/// What an acknowledgement is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Of {
    /// Parts of the request.
    Request = 1,
    /// Parts of the response.
    Response = 2,
    /// A notice of an end.
    Notice = 4,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fate {
    /// It is being sent to the origin; this is no end, and is not acknowledged.
    Sent = 1,
    /// It was sent, and the origin's reaction is unknown.
    Unknown = 2,
    /// Its lifetime ended.
    Expired = 3,
    /// The client has cancelled it.
    Cancelled = 4,
}

/// A message about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The request and attempt.
    pub key: Key,
    /// What is said.
    pub body: Body,
}

/// What is said of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A part of the request, to the dispatching node.
    Request {
        /// Whether it may be sent to the origin more than once.
        repeatable: bool,
        /// What is left of its lifetime, ms.
        lifetime_ms: u64,
        /// The part.
        part: Part,
    },
    /// A part of the response, to the client's node.
    Response {
        /// Whether the dispatching node has made it itself.
        own: bool,
        /// The part.
        part: Part,
    },
    /// All parts below `next` have come.
    Ack {
        /// Of what.
        of: Of,
        /// The lowest part that is missing.
        next: u32,
    },
    /// The outcome of the request, if there is no response.
    Notice {
        /// What.
        fate: Fate,
        /// In words.
        text: String,
    },
    /// The client wants it no more.
    Cancel {
        /// What is left of its lifetime, ms.
        lifetime_ms: u64,
    },
}

/// A part of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The whole.
    pub object: Object,
    /// Which part.
    pub index: u32,
    /// Its bytes.
    pub data: Bytes,
}

/// The payload is no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum WireError {
    #[error("the message is cut short")]
    Short,
    #[error("version {0} is not understood")]
    Version(u8),
    #[error("kind {0} is not understood")]
    Kind(u8),
    #[error("a field has an impossible value")]
    Value,
}

impl Message {
    /// The message as a payload.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64 + self.body.data_len());
        out.put_u8(VERSION);
        out.put_u8(self.body.kind());
        out.put_slice(&self.key.id.0);
        out.put_u32(self.key.attempt);
        match &self.body {
            Body::Request {
                repeatable,
                lifetime_ms,
                part,
            } => {
                out.put_u8(u8::from(*repeatable));
                out.put_u64(*lifetime_ms);
                part.encode(&mut out);
            }
            Body::Response { own, part } => {
                out.put_u8(u8::from(*own));
                part.encode(&mut out);
            }
            Body::Ack { of, next } => {
                out.put_u8(*of as u8);
                out.put_u32(*next);
            }
            Body::Notice { fate, text } => {
                out.put_u8(*fate as u8);
                out.put_slice(shortened(text).as_bytes());
            }
            Body::Cancel { lifetime_ms } => out.put_u64(*lifetime_ms),
        }
        out.freeze()
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is no message of this version.
    pub fn decode(mut payload: Bytes) -> Result<Message, WireError> {
        if payload.len() < HEAD_BYTES {
            return Err(WireError::Short);
        }
        let version = payload.get_u8();
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let kind = payload.get_u8();
        let mut id = Id([0; 16]);
        payload.copy_to_slice(&mut id.0);
        let attempt = payload.get_u32();
        Ok(Message {
            key: Key { id, attempt },
            body: Body::decode(kind, payload)?,
        })
    }
}

impl Message {
    /// The message as it is `age_ms` later: lifetimes are shorter then.
    #[must_use]
    pub fn aged(mut self, age_ms: u64) -> Message {
        if let Body::Request { lifetime_ms, .. } | Body::Cancel { lifetime_ms } = &mut self.body {
            *lifetime_ms = lifetime_ms.saturating_sub(age_ms);
        }
        self
    }
}

/// A text cut to what a notice may carry.
pub(crate) fn shortened(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Body::Request { .. } => 1,
            Body::Response { .. } => 2,
            Body::Ack { .. } => 3,
            Body::Notice { .. } => 4,
            Body::Cancel { .. } => 5,
        }
    }

    fn data_len(&self) -> usize {
        match self {
            Body::Request { part, .. } | Body::Response { part, .. } => part.data.len(),
            Body::Notice { text, .. } => text.len(),
            Body::Ack { .. } | Body::Cancel { .. } => 0,
        }
    }

    fn decode(kind: u8, mut rest: Bytes) -> Result<Body, WireError> {
        let short = |_| WireError::Short;
        match kind {
            1 => Ok(Body::Request {
                repeatable: flag(rest.try_get_u8().map_err(short)?)?,
                lifetime_ms: rest.try_get_u64().map_err(short)?,
                part: Part::decode(rest)?,
            }),
            2 => Ok(Body::Response {
                own: flag(rest.try_get_u8().map_err(short)?)?,
                part: Part::decode(rest)?,
            }),
            3 if rest.len() > 5 => Err(WireError::Value),
            3 => Ok(Body::Ack {
                of: match rest.try_get_u8().map_err(short)? {
                    1 => Of::Request,
                    2 => Of::Response,
                    4 => Of::Notice,
                    _ => return Err(WireError::Value),
                },
                next: rest.try_get_u32().map_err(short)?,
            }),
            4 => Ok(Body::Notice {
                fate: match rest.try_get_u8().map_err(short)? {
                    1 => Fate::Sent,
                    2 => Fate::Unknown,
                    3 => Fate::Expired,
                    4 => Fate::Cancelled,
                    _ => return Err(WireError::Value),
                },
                text: notice_text(&rest)?,
            }),
            5 if rest.len() > 8 => Err(WireError::Value),
            5 => Ok(Body::Cancel {
                lifetime_ms: rest.try_get_u64().map_err(short)?,
            }),
            other => Err(WireError::Kind(other)),
        }
    }
}

fn flag(octet: u8) -> Result<bool, WireError> {
    match octet {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Value),
    }
}

fn notice_text(octets: &[u8]) -> Result<String, WireError> {
    if octets.len() > MAX_TEXT_BYTES {
        return Err(WireError::Value);
    }
    let text = std::str::from_utf8(octets).map_err(|_| WireError::Value)?;
    Ok(text.to_owned())
}

impl Part {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.object.total_bytes);
        out.put_u32(self.object.head_bytes);
        out.put_u32(self.object.part_bytes);
        out.put_u32(self.index);
        out.put_slice(&self.data);
    }

    fn decode(mut rest: Bytes) -> Result<Part, WireError> {
        if rest.len() < 20 {
            return Err(WireError::Short);
        }
        let part = Part {
            object: Object {
                total_bytes: rest.get_u64(),
                head_bytes: rest.get_u32(),
                part_bytes: rest.get_u32(),
            },
            index: rest.get_u32(),
            data: rest,
        };
        let sound = part.object.is_sound()
            && part.index < part.object.parts()
            && part.data.len() as u64 == part.object.part_len(part.index);
        sound.then_some(part).ok_or(WireError::Value)
    }
}
