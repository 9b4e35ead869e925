//! The format of a payload: a header, then frames up to its end.

mod code;
mod decode;
mod frame;
mod packed;
mod seal;
mod varint;
#[cfg(test)]
mod vectors;

pub use code::ResetCode;
pub use decode::{Frames, Header, WireError, decode_frames};
pub use frame::{
    Announcement, Frame, Hello, MAX_HOST_BYTES, MAX_REASON_BYTES, Open, StreamId, Target,
    TraceContext,
};
pub(crate) use packed::{frames_of, packed};
pub(crate) use seal::Sealer;
pub use varint::VARINT_MAX;

/// The version this crate speaks.
pub const VERSION: u8 = 1;

/// Bytes of the payload header: version, sender's and receiver's incarnation.
pub const HEADER_BYTES: usize = 17;

/// Credit a stream has before anything is known of the peer, and the least
/// that any node may announce as floor.
pub const FLOOR_BYTES: u64 = 64 * 1024;

pub(crate) mod kind {
    //! Frame types.
    pub const HELLO: u64 = 0x01;
    pub const OPEN: u64 = 0x02;
    pub const OPENED: u64 = 0x03;
    pub const CREDIT: u64 = 0x04;
    pub const RESET: u64 = 0x05;
    pub const STOP: u64 = 0x06;
    pub const SETTLED: u64 = 0x07;
    pub const DATA: u64 = 0x08;
    pub const DATA_FIN: u64 = 0x09;
    pub const EXPIRED: u64 = 0x0a;
    pub const HELD: u64 = 0x0b;
    pub const LIMIT: u64 = 0x0c;
}
