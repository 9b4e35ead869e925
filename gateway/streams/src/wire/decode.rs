//! Decodes bytes to frames. Memory is allocated only after a length was checked against the bytes
//! that are there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use thiserror::Error;
use underpass_cla::Class;

use super::varint;
use super::{
    Announcement, FLOOR_BYTES, Frame, HEADER_BYTES, Hello, MAX_HOST_BYTES, MAX_REASON_BYTES, Open,
    ResetCode, StreamId, Target, TraceContext, VARINT_MAX, VERSION, kind,
};

/// Why a payload does not belong to this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// Not even a header.
    #[error("the payload ends within its header")]
    ShortHeader,
    /// Another version.
    #[error("the payload has version {0}, this node speaks {VERSION}")]
    Version(u8),
    /// The sender's incarnation is 0, which stands for *unknown*.
    #[error("the sender's incarnation is 0")]
    NoIncarnation,
    /// A frame is cut short.
    #[error("a frame of type {0:#x} ends early")]
    Truncated(u64),
    /// A field of a frame is out of its range.
    #[error("a frame of type {0:#x} has an invalid {1}")]
    Invalid(u64, &'static str),
}

/// The header of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's incarnation, never 0.
    pub sender: u64,
    /// The receiver's incarnation as the sender knows it; 0 if it does not.
    pub receiver: u64,
}

/// Decodes a whole payload.
pub fn decode_frames(payload: &Bytes) -> Result<(Header, Vec<Frame>), WireError> {
    let frames = Frames::new(payload)?;
    let header = frames.header();
    Ok((header, frames.collect::<Result<_, _>>()?))
}

/// The frames of a payload, one after the other. Ends after the first error.
pub struct Frames<'a> {
    payload: &'a Bytes,
    rest: &'a [u8],
    header: Header,
}

impl<'a> Frames<'a> {
    /// Checks the header.
    pub fn new(payload: &'a Bytes) -> Result<Self, WireError> {
        let (&version, rest) = payload.split_first().ok_or(WireError::ShortHeader)?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        if payload.len() < HEADER_BYTES {
            return Err(WireError::ShortHeader);
        }
        let number = |at: usize| {
            rest[at..at + 8]
                .iter()
                .fold(0, |value, byte| value << 8 | u64::from(*byte))
        };
        let header = Header {
            sender: number(0),
            receiver: number(8),
        };
        if header.sender == 0 {
            return Err(WireError::NoIncarnation);
        }
        Ok(Self {
            payload,
            rest: &rest[HEADER_BYTES - 1..],
            header,
        })
    }

    /// The payload's header.
    pub fn header(&self) -> Header {
        self.header
    }

    fn frame(&mut self) -> Result<Frame, WireError> {
        let rest = &mut self.rest;
        let kind = varint::take(rest).ok_or(WireError::Truncated(u64::MAX))?;
        let length = varint::take(rest).ok_or(WireError::Truncated(kind))?;
        let length = usize::try_from(length).map_err(|_| WireError::Truncated(kind))?;
        let (body, rest) = rest
            .split_at_checked(length)
            .ok_or(WireError::Truncated(kind))?;
        self.rest = rest;
        Body { kind, rest: body }.frame(self.payload)
    }
}

impl Iterator for Frames<'_> {
    type Item = Result<Frame, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let frame = self.frame();
        if frame.is_err() {
            self.rest = &[];
        }
        Some(frame)
    }
}

/// What is left of a frame's body. Bytes behind the known fields belong to a
/// later version and are skipped.
struct Body<'a> {
    kind: u64,
    rest: &'a [u8],
}

impl Body<'_> {
    fn frame(mut self, payload: &Bytes) -> Result<Frame, WireError> {
        Ok(match self.kind {
            kind::HELLO => Frame::Hello(self.hello()?),
            kind::OPEN => Frame::Open {
                id: self.id()?,
                open: self.open()?,
            },
            kind::OPENED => Frame::Opened { id: self.id()? },
            kind::CREDIT => Frame::Credit {
                id: self.id()?,
                consumed: self.number()?,
            },
            kind::RESET => self.reset()?,
            kind::STOP => Frame::Stop {
                id: self.id()?,
                code: ResetCode::from_number(self.number()?),
            },
            kind::SETTLED => Frame::Settled,
            kind::DATA | kind::DATA_FIN => {
                let id = self.id()?;
                let offset = self.number()?;
                if self.rest.len() as u64 > VARINT_MAX - offset {
                    return Err(self.invalid("offset"));
                }
                Frame::Data {
                    id,
                    offset,
                    fin: self.kind == kind::DATA_FIN,
                    data: payload.slice_ref(self.rest),
                }
            }
            kind::EXPIRED => Frame::Expired {
                id: self.id()?,
                below: self.number()?,
            },
            kind::HELD => Frame::Held {
                run: self.incarnation()?,
                id: self.id()?,
            },
            kind::LIMIT => Frame::Limit {
                run: self.incarnation()?,
                id: self.id()?,
                below: Some(self.number()?).filter(|below| *below < VARINT_MAX),
            },
            kind => Frame::Unknown { kind },
        })
    }

    fn hello(&mut self) -> Result<Hello, WireError> {
        let sequence = self.number()?;
        let peer_window_bytes = self.number()?;
        let stream_window_bytes = self.number()?;
        let floor_bytes = self.number()?;
        if floor_bytes < FLOOR_BYTES {
            return Err(self.invalid("floor"));
        }
        let first_valid = self.id()?;
        let families = self.number()?;
        Ok(Hello {
            sequence,
            peer_window_bytes,
            stream_window_bytes,
            floor_bytes,
            first_valid,
            announcement: Announcement {
                ipv4: families & 1 != 0,
                ipv6: families & 2 != 0,
            },
        })
    }

    fn open(&mut self) -> Result<Open, WireError> {
        let class = Class(self.array::<1>()?[0]);
        let flags = self.number()?;
        let target = match self.array::<1>()?[0] {
            0 => Target::Name {
                port: u16::from_be_bytes(self.array()?),
                host: self.text(MAX_HOST_BYTES)?,
            },
            family => Target::Address(self.address(family)?),
        };
        let client = match self.array::<1>()?[0] {
            0 => None,
            family => Some(self.address(family)?),
        };
        let trace = match flags & 2 != 0 {
            true => self.trace()?,
            false => None,
        };
        Ok(Open {
            class,
            target,
            client,
            report_connected: flags & 1 != 0,
            trace,
        })
    }

    /// Ids that are all zero name nothing (W3C Trace Context), so there is no trace.
    fn trace(&mut self) -> Result<Option<TraceContext>, WireError> {
        let context = TraceContext {
            trace_id: self.array()?,
            span_id: self.array()?,
        };
        let named = context.trace_id != [0; 16] && context.span_id != [0; 8];
        Ok(named.then_some(context))
    }

    fn reset(&mut self) -> Result<Frame, WireError> {
        Ok(Frame::Reset {
            id: self.id()?,
            code: ResetCode::from_number(self.number()?),
            final_offset: self.number()?,
            at_once: self.number()? & 1 != 0,
            reason: self.text(MAX_REASON_BYTES)?,
        })
    }

    fn address(&mut self, family: u8) -> Result<SocketAddr, WireError> {
        let port = u16::from_be_bytes(self.array()?);
        let ip: IpAddr = match family {
            4 => Ipv4Addr::from(self.array::<4>()?).into(),
            6 => Ipv6Addr::from(self.array::<16>()?).into(),
            _ => return Err(self.invalid("address family")),
        };
        Ok(SocketAddr::new(ip, port))
    }

    /// Reads text that is too long, or not UTF-8, as empty: a bad host name or reason harms only
    /// its own stream, not the others in the payload.
    fn text(&mut self, limit: usize) -> Result<String, WireError> {
        let cut_short = WireError::Truncated(self.kind);
        let length = usize::try_from(self.number()?).map_err(|_| cut_short)?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or(cut_short)?;
        self.rest = rest;
        let text = Some(text).filter(|text| text.len() <= limit);
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        Ok(text.unwrap_or_default().to_owned())
    }

    fn id(&mut self) -> Result<StreamId, WireError> {
        self.number().map(StreamId)
    }

    fn incarnation(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    fn number(&mut self) -> Result<u64, WireError> {
        varint::take(&mut self.rest).ok_or(WireError::Truncated(self.kind))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(WireError::Truncated(self.kind))?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn invalid(&self, what: &'static str) -> WireError {
        WireError::Invalid(self.kind, what)
    }
}
