//! Messages of TCPCLv4 (RFC 9174, 4.2, 4.6 and 5) as bytes, one file for each kind. Parsing is
//! incremental and takes no memory for announced bytes that have not come; a segment's data is
//! passed on in the pieces in which it arrives.

mod contact;
mod control;
mod cursor;
mod decoder;
mod extension;
mod init;
mod segment;

pub use contact::{CONTACT_HEADER_BYTES, ContactError, ContactHeader, VERSION};
pub use control::{
    RefuseReason, RejectReason, TermReason, XferAck, emit_ack, emit_keepalive, emit_refuse,
    emit_reject, emit_term,
};
pub use decoder::{DecodeError, Decoder, Frame, Limits};
pub use extension::{CRITICAL, ExtensionItem, ExtensionList, MalformedExtensions};
pub use init::SessInit;
pub use segment::{SegmentHeader, TRANSFER_LENGTH, emit_segment_header};

/// Message type codes (RFC 9174, table 2).
pub mod code {
    /// Data of a transfer.
    pub const XFER_SEGMENT: u8 = 0x01;
    /// Acknowledges the data of a transfer.
    pub const XFER_ACK: u8 = 0x02;
    /// Refuses a transfer.
    pub const XFER_REFUSE: u8 = 0x03;
    /// Shows that the sender lives.
    pub const KEEPALIVE: u8 = 0x04;
    /// Begins or confirms the end of the session.
    pub const SESS_TERM: u8 = 0x05;
    /// Rejects a message.
    pub const MSG_REJECT: u8 = 0x06;
    /// Parameters of the session.
    pub const SESS_INIT: u8 = 0x07;
}

/// Flags of XFER_SEGMENT and XFER_ACK (RFC 9174, table 5).
pub mod segment_flag {
    /// The transfer's last segment.
    pub const END: u8 = 0x01;
    /// The transfer's first segment.
    pub const START: u8 = 0x02;
}
