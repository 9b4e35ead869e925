//! Datagrams: a symbol each.
//!
//! All begin with kind, 1 byte; the datagram's number, 3; its block, 2; and the symbol's number in
//! the block, 2. These are the low bits of larger numbers. One of the block's own symbols continues
//! with its *body*; a repair symbol with the number of the block's own symbols, 2, and the code
//! over their bodies.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::MOST_SYMBOLS;
use crate::code::most_repair;

const SOURCE: u8 = 1;
const REPAIR: u8 = 2;

/// Bytes of a datagram before the body.
pub const SOURCE_HEADER_BYTES: usize = 8;
/// Bytes of a repair datagram before the code.
pub const REPAIR_HEADER_BYTES: usize = 10;
/// Bytes of a body before the bundle's own: bundle, 2, its length, 3, and the
/// place of these bytes in it, 3.
pub const BODY_HEADER_BYTES: usize = 8;
/// The shortest body that a block may be cut into.
pub const LEAST_BODY_BYTES: usize = 64;

/// Low bits that go of a datagram's number.
pub const DATAGRAM_BITS: u32 = 24;
/// Low bits that are sent of the number of a block, and of a bundle.
pub const NUMBER_BITS: u32 = 16;

/// A datagram's symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Low bits of the datagram's number.
    pub datagram: u32,
    /// Low bits of the block's number.
    pub block: u16,
    /// Its number in the block: among the block's own, or among the repair.
    pub number: u16,
    /// What it has.
    pub part: Part<'a>,
}

/// What a symbol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Bytes of a bundle, behind their header; without the padding.
    Source(&'a [u8]),
    /// The code over the bodies of the block, padded to its own length.
    Repair {
        /// How many symbols of its own the block has.
        symbols: u16,
        /// The code.
        code: &'a [u8],
    },
}

/// Why a datagram is no symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SymbolError {
    /// It is too short for its header, or has no body.
    #[error("it is too short")]
    Short,
    /// Another kind.
    #[error("kind {0} is not known")]
    Kind(u8),
    /// A number that no block has.
    #[error("a block has no such symbol")]
    Number,
    /// Bytes that are not the bundle's, or none.
    #[error("its bytes do not lie in their bundle")]
    Place,
    /// Code of a length that no body is padded to.
    #[error("its length is odd")]
    Odd,
}

impl<'a> Symbol<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// When it is no symbol.
    pub fn parse(datagram: &'a [u8]) -> Result<Symbol<'a>, SymbolError> {
        let mut from = datagram;
        if from.len() < SOURCE_HEADER_BYTES {
            return Err(SymbolError::Short);
        }
        let kind = from.get_u8();
        let number = u32::try_from(from.get_uint(3)).unwrap_or(0);
        let block = from.get_u16();
        let index = from.get_u16();
        let part = match kind {
            SOURCE if index >= MOST_SYMBOLS => return Err(SymbolError::Number),
            SOURCE => {
                Body::parse(from)?;
                Part::Source(from)
            }
            REPAIR => repair(from, index)?,
            unknown => return Err(SymbolError::Kind(unknown)),
        };
        Ok(Symbol {
            datagram: number,
            block,
            number: index,
            part,
        })
    }

    /// The datagram.
    pub fn emit(&self) -> Bytes {
        let length = match self.part {
            Part::Source(body) => SOURCE_HEADER_BYTES + body.len(),
            Part::Repair { code, .. } => REPAIR_HEADER_BYTES + code.len(),
        };
        let mut to = BytesMut::with_capacity(length);
        to.put_u8(match self.part {
            Part::Source(_) => SOURCE,
            Part::Repair { .. } => REPAIR,
        });
        to.put_uint(u64::from(self.datagram) & 0xff_ffff, 3);
        to.put_u16(self.block);
        to.put_u16(self.number);
        match self.part {
            Part::Source(body) => to.put_slice(body),
            Part::Repair { symbols, code } => {
                to.put_u16(symbols);
                to.put_slice(code);
            }
        }
        to.freeze()
    }
}

fn repair(mut from: &[u8], index: u16) -> Result<Part<'_>, SymbolError> {
    if from.len() < 2 + BODY_HEADER_BYTES {
        return Err(SymbolError::Short);
    }
    let symbols = from.get_u16();
    if !(1..=MOST_SYMBOLS).contains(&symbols) || index >= most_repair(symbols) {
        return Err(SymbolError::Number);
    }
    if !from.len().is_multiple_of(2) {
        return Err(SymbolError::Odd);
    }
    Ok(Part::Repair {
        symbols,
        code: from,
    })
}

/// What a symbol carries of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body<'a> {
    /// Low bits of the bundle's number.
    pub bundle: u16,
    /// The bundle's length, bytes: at least 1.
    pub length: u32,
    /// Where the bytes begin.
    pub offset: u32,
    /// The bytes, at least one.
    pub bytes: &'a [u8],
}

impl<'a> Body<'a> {
    /// Reads a body without its padding.
    ///
    /// # Errors
    /// When its bytes do not lie in their bundle.
    pub fn parse(body: &'a [u8]) -> Result<Body<'a>, SymbolError> {
        let body = Body::parse_head(body)?;
        if u64::from(body.offset) + body.bytes.len() as u64 > u64::from(body.length) {
            return Err(SymbolError::Place);
        }
        Ok(body)
    }

    /// Reads a body, which may be padded.
    ///
    /// # Errors
    /// When its bytes do not lie in their bundle.
    pub fn parse_padded(body: &'a [u8]) -> Result<Body<'a>, SymbolError> {
        let mut body = Body::parse_head(body)?;
        let most = body.length.saturating_sub(body.offset) as usize;
        body.bytes = &body.bytes[..body.bytes.len().min(most)];
        if body.bytes.is_empty() {
            return Err(SymbolError::Place);
        }
        Ok(body)
    }

    fn parse_head(mut from: &'a [u8]) -> Result<Body<'a>, SymbolError> {
        if from.len() <= BODY_HEADER_BYTES {
            return Err(SymbolError::Short);
        }
        Ok(Body {
            bundle: from.get_u16(),
            length: u32::try_from(from.get_uint(3)).unwrap_or(0),
            offset: u32::try_from(from.get_uint(3)).unwrap_or(0),
            bytes: from,
        })
    }

    /// The header of a body, ahead of its bytes.
    pub fn put_head(to: &mut BytesMut, bundle: u64, length: u64, offset: u64) {
        to.put_u16((bundle & 0xffff) as u16);
        to.put_uint(length, 3);
        to.put_uint(offset, 3);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn body(bundle: u64, length: u64, offset: u64, bytes: &[u8]) -> BytesMut {
        let mut body = BytesMut::new();
        Body::put_head(&mut body, bundle, length, offset);
        body.put_slice(bytes);
        body
    }

    #[test]
    fn symbols_are_as_documented() {
        let body = body(0x1_0203, 0x05_0607, 0x01_0001, b"ab");
        let source = Symbol {
            datagram: 0x0a0b0c,
            block: 0x0d0e,
            number: 15,
            part: Part::Source(&body),
        };
        let bytes = [
            1, 0xa, 0xb, 0xc, 0xd, 0xe, 0, 15, 2, 3, 5, 6, 7, 1, 0, 1, b'a', b'b',
        ];
        assert_eq!(source.emit()[..], bytes);
        assert_eq!(Symbol::parse(&bytes), Ok(source));
        let code = [7; 10];
        let repair = Symbol {
            datagram: 1,
            block: 2,
            number: 3,
            part: Part::Repair {
                symbols: 1024,
                code: &code,
            },
        };
        let emitted = repair.emit();
        assert_eq!(emitted[..10], [2, 0, 0, 1, 0, 2, 0, 3, 4, 0]);
        assert_eq!(Symbol::parse(&emitted), Ok(repair));
    }

    #[test]
    fn what_no_block_or_bundle_has_is_refused() {
        let parse = |bytes: &[u8]| Symbol::parse(bytes).map(|_| ());
        assert_eq!(parse(&[1; 7]), Err(SymbolError::Short));
        assert_eq!(parse(&[3; 20]), Err(SymbolError::Kind(3)));
        let with = |number: u16, body: &[u8]| {
            let part = Part::Source(body);
            let symbol = Symbol {
                datagram: 0,
                block: 0,
                number,
                part,
            };
            parse(&symbol.emit())
        };
        assert_eq!(with(1024, &body(0, 9, 0, b"x")), Err(SymbolError::Number));
        assert_eq!(with(0, &body(0, 9, 0, b"")), Err(SymbolError::Short));
        assert_eq!(with(0, &body(0, 9, 8, b"xy")), Err(SymbolError::Place));
        assert_eq!(with(0, &body(0, 0, 0, b"x")), Err(SymbolError::Place));
        assert_eq!(with(0, &body(0, 9, 8, b"x")), Ok(()));
        let repair = |number: u16, symbols: u16, length: usize| {
            let code = &vec![0; length];
            let part = Part::Repair { symbols, code };
            let symbol = Symbol {
                datagram: 0,
                block: 0,
                number,
                part,
            };
            parse(&symbol.emit())
        };
        assert_eq!(repair(0, 0, 20), Err(SymbolError::Number));
        assert_eq!(repair(0, 1025, 20), Err(SymbolError::Number));
        assert_eq!(repair(256, 1024, 20), Err(SymbolError::Number));
        assert_eq!(repair(0, 1024, 21), Err(SymbolError::Odd));
        assert_eq!(repair(0, 1024, 6), Err(SymbolError::Short));
        assert_eq!(repair(255, 1024, 20), Ok(()));
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_alike(bytes: Vec<u8>, kind in 0u8..4) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(symbol) = Symbol::parse(&bytes) {
                prop_assert_eq!(&symbol.emit()[..], &bytes[..]);
            }
        }
    }
}
