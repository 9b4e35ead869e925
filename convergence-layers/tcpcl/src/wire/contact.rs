//! The contact header (RFC 9174, 4.2).

use bytes::BufMut;
use thiserror::Error;

/// Size of the contact header.
pub const CONTACT_HEADER_BYTES: usize = 6;
/// The version this crate speaks.
pub const VERSION: u8 = 4;

const MAGIC: [u8; 4] = *b"dtn!";
const CAN_TLS: u8 = 0x01;

/// A contact header of version 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContactHeader {
    /// Whether the sender is able and willing to use TLS. Reserved flags are
    /// ignored on receipt, as RFC 9174, 4.2 asks.
    pub can_tls: bool,
}

/// Why the first bytes of a connection are no contact header of version 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ContactError {
    /// The peer does not speak TCPCL at all.
    #[error("the connection does not begin with \"dtn!\"")]
    Magic,
    /// The peer speaks another version.
    #[error("the peer speaks TCPCL version {0}, not 4")]
    Version(u8),
}

impl ContactHeader {
    /// Parses a whole header.
    pub fn parse(bytes: &[u8; CONTACT_HEADER_BYTES]) -> Result<Self, ContactError> {
        let [m0, m1, m2, m3, version, flags] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(ContactError::Magic);
        }
        if version != VERSION {
            return Err(ContactError::Version(version));
        }
        Ok(Self {
            can_tls: flags & CAN_TLS != 0,
        })
    }

    /// Whether `bytes`, the first of a connection, can still become a header.
    pub fn may_begin_with(bytes: &[u8]) -> bool {
        bytes.iter().zip(MAGIC).all(|(got, want)| *got == want)
    }

    /// Appends the header to `out`.
    pub fn emit(&self, out: &mut impl BufMut) {
        out.put_slice(&MAGIC);
        out.put_u8(VERSION);
        out.put_u8(if self.can_tls { CAN_TLS } else { 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_as_it_was_written() {
        for can_tls in [false, true] {
            let mut bytes = Vec::new();
            ContactHeader { can_tls }.emit(&mut bytes);
            let bytes: [u8; 6] = bytes.try_into().expect("six bytes");
            assert_eq!(ContactHeader::parse(&bytes), Ok(ContactHeader { can_tls }));
        }
    }

    #[test]
    fn reserved_flags_are_ignored() {
        assert_eq!(
            ContactHeader::parse(b"dtn!\x04\xfe"),
            Ok(ContactHeader { can_tls: false })
        );
    }

    #[test]
    fn other_protocols_and_versions_are_told_apart() {
        assert_eq!(ContactHeader::parse(b"GET / "), Err(ContactError::Magic));
        assert_eq!(
            ContactHeader::parse(b"dtn!\x03\x00"),
            Err(ContactError::Version(3))
        );
        assert!(ContactHeader::may_begin_with(b"dt"));
        assert!(!ContactHeader::may_begin_with(b"dx"));
    }
}
