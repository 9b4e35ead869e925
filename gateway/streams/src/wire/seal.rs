//! Encodes frames into a payload: small header chunks between the written bytes themselves.

use std::net::{IpAddr, SocketAddr};

use bytes::{Bytes, BytesMut};

use super::varint;
use super::{Frame, HEADER_BYTES, Hello, Open, StreamId, Target, VARINT_MAX, VERSION, kind};
use crate::stream::Pieces;

/// Data shorter than this is copied among the headers: another chunk would
/// cost the layers below more than the copy.
const INLINE_BYTES: usize = 512;

/// Most bytes that a DATA frame takes beside its data: type 1, length 4 (the
/// payload is below 2^30 bytes), id 8, offset 8.
const DATA_HEAD_BYTES: usize = 21;

/// A payload in the making, of at most `limit` bytes.
pub(crate) struct Sealer {
    head: BytesMut,
    chunks: Vec<Bytes>,
    length: usize,
    limit: usize,
    scratch: Vec<u8>,
}

impl Sealer {
    pub(crate) fn new(limit: usize, sender: u64, receiver: u64) -> Self {
        let mut head = BytesMut::with_capacity(256);
        head.extend_from_slice(&[VERSION]);
        head.extend_from_slice(&sender.to_be_bytes());
        head.extend_from_slice(&receiver.to_be_bytes());
        Self {
            head,
            chunks: Vec::new(),
            length: HEADER_BYTES,
            limit: limit.min((1 << 30) - 1),
            scratch: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == HEADER_BYTES
    }

    /// Bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        self.limit - self.length
    }

    /// Data bytes that one more DATA frame may have.
    pub(crate) fn data_room(&self) -> usize {
        self.room().saturating_sub(DATA_HEAD_BYTES)
    }

    /// Appends a frame if it fits; every kind but DATA.
    pub(crate) fn frame(&mut self, frame: &Frame) -> bool {
        self.scratch.clear();
        let kind = emit(frame, &mut self.scratch);
        let body = self.scratch.len();
        let length = varint::size(kind) + varint::size(body as u64) + body;
        if length > self.room() {
            return false;
        }
        varint::put(&mut self.head, kind);
        varint::put(&mut self.head, body as u64);
        self.head.extend_from_slice(&self.scratch);
        self.length += length;
        true
    }

    /// Appends a DATA frame with the next `count` bytes of `pieces`; they fit
    /// in [`Self::data_room`].
    pub(crate) fn data(
        &mut self,
        id: StreamId,
        offset: u64,
        fin: bool,
        pieces: &mut Pieces,
        mut count: usize,
    ) {
        let body = varint::size(id.0) + varint::size(offset) + count;
        self.length += 1 + varint::size(body as u64) + body;
        let kind = if fin { kind::DATA_FIN } else { kind::DATA };
        self.head.reserve(DATA_HEAD_BYTES);
        varint::put(&mut self.head, kind);
        varint::put(&mut self.head, body as u64);
        varint::put(&mut self.head, id.0);
        varint::put(&mut self.head, offset);
        while count > 0 {
            let Some(piece) = pieces.pop(count) else {
                debug_assert!(false, "count is within the pieces");
                break;
            };
            count -= piece.len();
            if piece.len() < INLINE_BYTES {
                self.head.extend_from_slice(&piece);
            } else {
                self.flush();
                self.chunks.push(piece);
            }
        }
    }

    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        self.flush();
        self.chunks
    }

    fn flush(&mut self) {
        if !self.head.is_empty() {
            self.chunks.push(self.head.split().freeze());
        }
    }
}

/// Writes a frame's body and returns its type.
fn emit(frame: &Frame, out: &mut Vec<u8>) -> u64 {
    match frame {
        Frame::Hello(hello) => {
            emit_hello(hello, out);
            kind::HELLO
        }
        Frame::Open { id, open } => {
            varint::put(out, id.0);
            emit_open(open, out);
            kind::OPEN
        }
        Frame::Opened { id } => {
            varint::put(out, id.0);
            kind::OPENED
        }
        Frame::Credit { id, consumed } => {
            varint::put(out, id.0);
            varint::put(out, *consumed);
            kind::CREDIT
        }
        Frame::Reset {
            id,
            code,
            final_offset,
            at_once,
            reason,
        } => {
            varint::put(out, id.0);
            varint::put(out, code.number());
            varint::put(out, *final_offset);
            varint::put(out, u64::from(*at_once));
            varint::put(out, reason.len() as u64);
            out.extend_from_slice(reason.as_bytes());
            kind::RESET
        }
        Frame::Stop { id, code } => {
            varint::put(out, id.0);
            varint::put(out, code.number());
            kind::STOP
        }
        Frame::Settled => kind::SETTLED,
        Frame::Expired { id, below } => {
            varint::put(out, id.0);
            varint::put(out, *below);
            kind::EXPIRED
        }
        Frame::Held { run, id } => {
            out.extend_from_slice(&run.to_be_bytes());
            varint::put(out, id.0);
            kind::HELD
        }
        Frame::Limit { run, id, below } => {
            out.extend_from_slice(&run.to_be_bytes());
            varint::put(out, id.0);
            varint::put(out, below.unwrap_or(VARINT_MAX));
            kind::LIMIT
        }
        Frame::Data { .. } | Frame::Unknown { .. } => {
            unreachable!("DATA is sealed from its pieces, unknown frames are never sent")
        }
    }
}

fn emit_hello(hello: &Hello, out: &mut Vec<u8>) {
    for number in [
        hello.sequence,
        hello.peer_window_bytes,
        hello.stream_window_bytes,
        hello.floor_bytes,
        hello.first_valid.0,
        u64::from(hello.announcement.ipv4) | u64::from(hello.announcement.ipv6) << 1,
    ] {
        varint::put(out, number);
    }
}

fn emit_open(open: &Open, out: &mut Vec<u8>) {
    out.push(open.class.0);
    let traced = u64::from(open.trace.is_some());
    varint::put(out, u64::from(open.report_connected) | traced << 1);
    match &open.target {
        Target::Address(address) => emit_address(Some(address), out),
        Target::Name { host, port } => {
            out.push(0);
            out.extend_from_slice(&port.to_be_bytes());
            varint::put(out, host.len() as u64);
            out.extend_from_slice(host.as_bytes());
        }
    }
    emit_address(open.client.as_ref(), out);
    if let Some(trace) = &open.trace {
        out.extend_from_slice(&trace.trace_id);
        out.extend_from_slice(&trace.span_id);
    }
}

fn emit_address(address: Option<&SocketAddr>, out: &mut Vec<u8>) {
    let Some(address) = address else {
        out.push(0);
        return;
    };
    out.push(if address.is_ipv4() { 4 } else { 6 });
    out.extend_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
    }
}
