//! Bundles in bundles, under custody (BIBE), as ION-DTN 4.1.3 has them.
//!
//! The bundle that carries another one is an administrative record, the BPDU; so
//! is the signal that custody was taken. ION numbers its record types 7 and 8,
//! and counts deadlines in seconds since 1970; draft-ietf-dtn-bibect-03, which
//! has expired, has other numbers.

use bytes::Bytes;

use super::cbor::{ARRAY, BYTES, CborError, Reader, UNSIGNED, write_head};
use super::custody::CodePoints;
use super::record::{ACCEPTED, Disposition, MAX_RECORD_BYTES};
use super::seal::{HopBlocks, payload_ends, write_header};
use crate::wire::CrcKind;

/// Administrative record type of a BPDU.
pub const BPDU_RECORD: u64 = 7;
/// Administrative record type of a BIBE custody signal.
pub const BIBE_SIGNAL_RECORD: u64 = 8;

/// The most bytes before the bundle in a BPDU: the heads of two arrays and of the bundle, two
/// numbers, and the record's type.
pub(crate) const MAX_BPDU_HEAD_BYTES: usize = 3 * 9 + 2 * 9 + 9;

/// Custody was accepted, and the bundle was there before: both release it.
const TAKEN: [u64; 2] = [0, 3];

/// The head of a BPDU, about the bundle in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BpduHead {
    /// The transmission's number, by which custody is signalled; 0 asks for no
    /// custody.
    pub transmission: u64,
    /// When the sender would send it again, s since 1970.
    pub deadline_s: u64,
    /// The bundle's bytes, which end the record.
    pub bundle_bytes: u64,
}

impl BpduHead {
    /// Reads it from the beginning of an administrative record. Also returns its length, bytes;
    /// `None` if the record is of another type.
    ///
    /// # Errors
    /// When it is not well-formed; [`CborError::Truncated`] when it is not all there.
    pub fn read(record: &[u8]) -> Result<Option<(BpduHead, usize)>, CborError> {
        let mut reader = Reader::new(record);
        if reader.array()? != Some(2) || reader.unsigned()? != BPDU_RECORD {
            return Ok(None);
        }
        if reader.array()? != Some(3) {
            return Err(CborError::WrongCount);
        }
        let head = BpduHead {
            transmission: reader.unsigned()?,
            deadline_s: reader.unsigned()?,
            bundle_bytes: reader.byte_string_head()?,
        };
        Ok(Some((head, reader.position())))
    }

    /// The record up to the bundle.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_BPDU_HEAD_BYTES);
        write_head(&mut out, ARRAY, 2);
        write_head(&mut out, UNSIGNED, BPDU_RECORD);
        write_head(&mut out, ARRAY, 3);
        write_head(&mut out, UNSIGNED, self.transmission);
        write_head(&mut out, UNSIGNED, self.deadline_s);
        write_head(&mut out, BYTES, self.bundle_bytes);
        out
    }
}

/// The bundle in a BPDU, and the BPDU's head; `None` if the payload of this administrative bundle
/// is another record.
///
/// # Errors
/// When the record is not well-formed.
pub(crate) fn read_bpdu(payload: &Bytes) -> Result<Option<(BpduHead, Bytes)>, CborError> {
    let Some((head, at)) = BpduHead::read(payload)? else {
        return Ok(None);
    };
    let bundle = payload.slice(at..);
    match bundle.len() as u64 == head.bundle_bytes {
        true => Ok(Some((head, bundle))),
        false => Err(CborError::WrongCount),
    }
}

/// Writes all of a BPDU's bundle before the bundle in it. [`BPDU_TAIL`] follows that. The payload
/// block has no CRC, as in ION: the bundle in it has its own.
pub(crate) fn write_bpdu_header(
    codes: &CodePoints,
    primary_raw: &[u8],
    hop: &HopBlocks<'_>,
    head: &BpduHead,
) -> Bytes {
    let record = head.encode();
    let bytes = (record.len() as u64).saturating_add(head.bundle_bytes);
    let (mut before, _) = payload_ends(bytes, CrcKind::None);
    before.extend(record);
    write_header(codes, primary_raw, hop, &[], &before)
}

/// The end of a bundle whose payload block has no CRC.
pub(crate) const BPDU_TAIL: &[u8] = &[0xFF];

/// A custody signal on transmissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BibeSignal {
    /// The outcome: 0 and 3 mean that custody was taken, all else that it was not.
    pub disposition: u64,
    /// Runs of transmissions: the first one's number, and how many.
    pub runs: Vec<(u64, u64)>,
}

impl BibeSignal {
    /// Whether custody was taken.
    pub fn accepts(&self) -> bool {
        TAKEN.contains(&self.disposition)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<BibeSignal, CborError> {
        let length = reader.array()?;
        let disposition = reader.unsigned()?;
        let count = reader.array()?;
        let mut runs = Vec::new();
        while reader.more(count, runs.len() as u64)? {
            let pair = reader.array()?;
            runs.push((reader.unsigned()?, reader.unsigned()?));
            reader.array_end(pair, 2)?;
        }
        reader.array_end(length, 2)?;
        Ok(BibeSignal { disposition, runs })
    }
}

/// The signal that custody was accepted. No other is sent, since ION sends a refused bundle again
/// at once, and one without a signal at its deadline.
pub(super) fn encode_bibe_signal(dispositions: &[Disposition]) -> Vec<u8> {
    let accepted = dispositions.iter().filter(|d| d.code == ACCEPTED);
    let ranges = accepted
        .flat_map(|d| &d.sequences)
        .flat_map(|sequence| sequence.ranges());
    let runs: Vec<(u64, u64)> = ranges.collect();
    let mut out = Vec::with_capacity(16 + 8 * runs.len());
    write_head(&mut out, ARRAY, 2);
    write_head(&mut out, UNSIGNED, BIBE_SIGNAL_RECORD);
    write_head(&mut out, ARRAY, 2);
    write_head(&mut out, UNSIGNED, TAKEN[0]);
    write_head(&mut out, ARRAY, runs.len() as u64);
    for (first, last) in runs {
        write_head(&mut out, ARRAY, 2);
        write_head(&mut out, UNSIGNED, first);
        write_head(&mut out, UNSIGNED, (last - first).saturating_add(1));
    }
    debug_assert!(out.len() <= MAX_RECORD_BYTES);
    out
}

#[cfg(test)]
mod tests {
    use super::super::record::{Sequence, SequenceName};
    use super::*;

    #[test]
    fn a_bpdu_begins_as_ions_does() {
        // From a recorded BPDU: transmission 1, deadline 1795208263, 97 bytes.
        let recorded = [
            0x82, 0x07, 0x83, 0x01, 0x1A, 0x6B, 0x00, 0xB4, 0x47, 0x58, 0x61,
        ];
        let head = BpduHead {
            transmission: 1,
            deadline_s: 1_795_208_263,
            bundle_bytes: 97,
        };
        assert_eq!(head.encode(), recorded);
        assert_eq!(BpduHead::read(&recorded), Ok(Some((head, recorded.len()))));
        for end in 0..recorded.len() {
            assert_eq!(BpduHead::read(&recorded[..end]), Err(CborError::Truncated));
        }
    }

    #[test]
    fn a_bundle_that_is_shorter_or_longer_than_it_says_is_none() {
        for bundle in [&[1, 2][..], &[1, 2, 3, 4]] {
            let head = BpduHead {
                transmission: 1,
                deadline_s: 0,
                bundle_bytes: 3,
            };
            let record = [&head.encode()[..], bundle].concat();
            assert_eq!(read_bpdu(&record.into()), Err(CborError::WrongCount));
        }
    }

    #[test]
    fn a_signal_has_a_run_for_each_gap() {
        let sequences = vec![Sequence {
            name: SequenceName::Id(1),
            first: 12,
            runs: vec![2, 4, 5],
        }];
        let accepted = Disposition {
            code: ACCEPTED,
            sequences,
        };
        let record = encode_bibe_signal(&[accepted]);
        let expected = [
            0x82, 0x08, 0x82, 0x00, 0x82, 0x82, 0x0C, 0x02, 0x82, 0x12, 0x05,
        ];
        assert_eq!(record, expected);
        let mut reader = Reader::new(&record[2..]);
        let read = BibeSignal::read(&mut reader).unwrap();
        assert_eq!(
            (read.accepts(), &read.runs[..]),
            (true, &[(12, 2), (18, 5)][..])
        );
    }
}
