//! Block CRCs (RFC 9171 §4.2.1), fed piece by piece.

use bp7::crc::{CRC_16, CRC_32, CRC_NO, X25};

/// The type of a block's CRC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrcKind {
    /// No CRC.
    None,
    /// X.25 CRC-16.
    Crc16,
    /// CRC-32C (Castagnoli), computed by the processor where it can.
    #[default]
    Crc32c,
}

impl CrcKind {
    /// The code on the wire.
    pub fn code(self) -> u8 {
        match self {
            CrcKind::None => CRC_NO,
            CrcKind::Crc16 => CRC_16,
            CrcKind::Crc32c => CRC_32,
        }
    }

    /// The type of a code on the wire.
    pub fn from_code(code: u64) -> Option<CrcKind> {
        match code {
            0 => Some(CrcKind::None),
            1 => Some(CrcKind::Crc16),
            2 => Some(CrcKind::Crc32c),
            _ => None,
        }
    }

    /// Bytes of the CRC's value.
    pub fn size(self) -> usize {
        match self {
            CrcKind::None => 0,
            CrcKind::Crc16 => 2,
            CrcKind::Crc32c => 4,
        }
    }

    /// The CRC over a block given in pieces, the CRC's own bytes left out:
    /// they count as zeros, and the head of their byte string is kept
    /// (erratum 8043).
    pub(crate) fn over<'a>(
        self,
        before: impl IntoIterator<Item = &'a [u8]>,
        after: &[u8],
    ) -> CrcBytes {
        let mut value = [0; 4];
        match self {
            CrcKind::None => {}
            CrcKind::Crc16 => {
                let mut digest = X25.digest();
                before.into_iter().for_each(|piece| digest.update(piece));
                digest.update(&[0; 2]);
                digest.update(after);
                value[..2].copy_from_slice(&digest.finalize().to_be_bytes());
            }
            CrcKind::Crc32c => {
                let crc = before.into_iter().fold(0, crc32c::crc32c_append);
                let crc = crc32c::crc32c_append(crc, &[0; 4]);
                value = crc32c::crc32c_append(crc, after).to_be_bytes();
            }
        }
        CrcBytes { value, kind: self }
    }
}

/// A CRC's value in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrcBytes {
    value: [u8; 4],
    kind: CrcKind,
}

impl CrcBytes {
    pub fn as_slice(&self) -> &[u8] {
        &self.value[..self.kind.size()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_give_the_crc_of_the_whole() {
        let block = b"123456789";
        for kind in [CrcKind::Crc16, CrcKind::Crc32c] {
            let whole = kind.over([&block[..]], b"tail");
            let pieces = kind.over([&block[..4], &block[4..]], b"tail");
            assert_eq!(whole, pieces);
        }
    }
}
