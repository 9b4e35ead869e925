//! The small messages: acknowledgement, refusal, keepalive, termination,
//! rejection (RFC 9174, 5.1.1, 5.1.2, 5.2.3, 5.2.4, 6.1).

use bytes::BufMut;

use super::code;

/// Acknowledges one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XferAck {
    /// The flags of the segment; some peers send 0 here.
    pub flags: u8,
    /// The transfer.
    pub transfer_id: u64,
    /// Bytes of the transfer received so far.
    pub acknowledged: u64,
}

/// Appends an XFER_ACK to `out`.
pub fn emit_ack(ack: &XferAck, out: &mut impl BufMut) {
    out.put_u8(code::XFER_ACK);
    out.put_u8(ack.flags);
    out.put_u64(ack.transfer_id);
    out.put_u64(ack.acknowledged);
}

/// Why a transfer is refused (RFC 9174, table 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefuseReason {
    /// Unknown or not said.
    Unknown,
    /// The receiver has the whole bundle.
    Completed,
    /// The receiver has no room.
    NoResources,
    /// The receiver lost the transfer's data and wants it again.
    Retransmit,
    /// The bundle or its size is not acceptable.
    NotAcceptable,
    /// A critical transfer extension is not understood.
    ExtensionFailure,
    /// The session is ending.
    SessionTerminating,
    /// A code this crate does not know.
    Other(u8),
}

impl RefuseReason {
    /// The reason with code `code`.
    pub fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Unknown,
            1 => Self::Completed,
            2 => Self::NoResources,
            3 => Self::Retransmit,
            4 => Self::NotAcceptable,
            5 => Self::ExtensionFailure,
            6 => Self::SessionTerminating,
            other => Self::Other(other),
        }
    }

    /// The reason's code.
    pub fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Completed => 1,
            Self::NoResources => 2,
            Self::Retransmit => 3,
            Self::NotAcceptable => 4,
            Self::ExtensionFailure => 5,
            Self::SessionTerminating => 6,
            Self::Other(other) => other,
        }
    }
}

/// Appends an XFER_REFUSE to `out`.
pub fn emit_refuse(transfer_id: u64, reason: RefuseReason, out: &mut impl BufMut) {
    out.put_u8(code::XFER_REFUSE);
    out.put_u8(reason.code());
    out.put_u64(transfer_id);
}

/// Appends a KEEPALIVE to `out`.
pub fn emit_keepalive(out: &mut impl BufMut) {
    out.put_u8(code::KEEPALIVE);
}

/// Why a session ends (RFC 9174, table 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermReason {
    /// Unknown or not said.
    Unknown,
    /// The session was idle.
    IdleTimeout,
    /// The versions do not match.
    VersionMismatch,
    /// The node has too much to do.
    Busy,
    /// The parameters or identities of the contact are not acceptable.
    ContactFailure,
    /// The node has run out of some resource.
    ResourceExhaustion,
    /// A code this crate does not know.
    Other(u8),
}

impl TermReason {
    /// The reason with code `code`.
    pub fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Unknown,
            1 => Self::IdleTimeout,
            2 => Self::VersionMismatch,
            3 => Self::Busy,
            4 => Self::ContactFailure,
            5 => Self::ResourceExhaustion,
            other => Self::Other(other),
        }
    }

    /// The reason's code.
    pub fn code(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::IdleTimeout => 1,
            Self::VersionMismatch => 2,
            Self::Busy => 3,
            Self::ContactFailure => 4,
            Self::ResourceExhaustion => 5,
            Self::Other(other) => other,
        }
    }
}

/// Flag of SESS_TERM: it confirms the peer's.
pub(super) const TERM_REPLY: u8 = 0x01;

/// Appends a SESS_TERM to `out`.
pub fn emit_term(reply: bool, reason: TermReason, out: &mut impl BufMut) {
    out.put_u8(code::SESS_TERM);
    out.put_u8(if reply { TERM_REPLY } else { 0 });
    out.put_u8(reason.code());
}

/// Why a message is rejected (RFC 9174, table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// The type is not known.
    TypeUnknown,
    /// The type is known but not supported.
    Unsupported,
    /// The message is not expected in this state.
    Unexpected,
    /// A code this crate does not know.
    Other(u8),
}

impl RejectReason {
    /// The reason with code `code`.
    pub fn from_code(code: u8) -> Self {
        match code {
            1 => Self::TypeUnknown,
            2 => Self::Unsupported,
            3 => Self::Unexpected,
            other => Self::Other(other),
        }
    }

    /// The reason's code.
    pub fn code(self) -> u8 {
        match self {
            Self::TypeUnknown => 1,
            Self::Unsupported => 2,
            Self::Unexpected => 3,
            Self::Other(other) => other,
        }
    }
}

/// Appends a MSG_REJECT about a message of type `rejected` to `out`.
pub fn emit_reject(reason: RejectReason, rejected: u8, out: &mut impl BufMut) {
    out.put_u8(code::MSG_REJECT);
    out.put_u8(reason.code());
    out.put_u8(rejected);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_keeps_its_value() {
        for code in 0..=u8::MAX {
            assert_eq!(RefuseReason::from_code(code).code(), code);
            assert_eq!(TermReason::from_code(code).code(), code);
            assert_eq!(RejectReason::from_code(code).code(), code);
        }
    }
}
