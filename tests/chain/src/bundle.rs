//! Bundles that differ only in their sequence number, and custody signals.

use std::time::{SystemTime, UNIX_EPOCH};

use underpass_bundle::wire::{
    ACCEPTED, ARRAY, BYTES, CodePoints, CustodyDialect, Disposition, Sequence, SequenceName,
    UNSIGNED, encode_signal, write_head,
};

/// CRC-32C, as RFC 9171, 4.2.1 numbers it, and its size, bytes.
const CRC32C: u64 = 2;
const CRC_BYTES: usize = 4;
/// Numbers from here up to 2³² take five bytes, so all bundles have the same size.
const FIRST: u32 = 1 << 16;
const LIFETIME_MS: u64 = 3_600_000;
/// Milliseconds from 1970 to 2000, the DTN epoch.
const EPOCH_MS: u64 = 946_684_800_000;
/// The sequence in which the generator numbers bundles under its custody.
const SEQUENCE: u64 = 0xc0de_0001;
/// Flag of a bundle with an administrative record (RFC 9171, 4.2.3).
const ADMINISTRATIVE: u64 = 0x02;

/// The payload of every bundle.
pub fn payload(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// Source and destination of a bundle: node and service.
#[derive(Clone, Copy, Debug)]
struct Ends {
    source: (u64, u64),
    destination: (u64, u64),
}

/// The bytes of a bundle, and the places that change.
#[derive(Clone, Debug)]
pub struct Template {
    pub bytes: Vec<u8>,
    number_at: usize,
    /// The primary block; its CRC is at its end.
    primary: std::ops::Range<usize>,
    /// The place of its number under custody.
    custody_at: Option<usize>,
}

impl Template {
    /// A bundle from service 1 of node `source` to service 1 of node `sink`, with or
    /// without the source's custody.
    pub fn new(source: u64, sink: u64, payload: &[u8], custody: bool) -> Template {
        let ends = Ends {
            source: (source, 1),
            destination: (sink, 1),
        };
        let (mut bytes, number_at, primary) = begin(ends, 0);
        let custody_at = custody.then(|| write_cteb(&mut bytes, source));
        end(&mut bytes, payload);
        Template {
            bytes,
            number_at,
            primary,
            custody_at,
        }
    }

    /// Writes its number into the bundle at the start of `out`.
    pub fn number(&self, out: &mut [u8], number: u32) {
        let sequence = (FIRST + number).to_be_bytes();
        out[self.number_at..self.number_at + 4].copy_from_slice(&sequence);
        let primary = &mut out[self.primary.clone()];
        let crc_at = primary.len() - CRC_BYTES;
        primary[crc_at..].fill(0);
        let crc = crc32c::crc32c(primary);
        primary[crc_at..].copy_from_slice(&crc.to_be_bytes());
        if let Some(at) = self.custody_at {
            out[at..at + 4].copy_from_slice(&sequence);
        }
    }

    /// The length of the part of the bundle that may change.
    pub fn head_bytes(&self) -> usize {
        self.custody_at.map_or(self.primary.end, |at| at + 4)
    }
}

/// The number of a bundle from its sequence number; `None` if it is not ours.
pub fn number_of(sequence: u64) -> Option<u64> {
    sequence.checked_sub(u64::from(FIRST))
}

/// A custody signal: node `from` has accepted these numbers of a custodian's sequence.
/// There must be at least one range; the ranges are inclusive, in order, and do not
/// touch.
pub fn signal(from: u64, custodian: u64, sequence: u64, ranges: &[(u64, u64)]) -> Vec<u8> {
    let mut runs = Vec::new();
    let mut next = ranges[0].0;
    for (first, last) in ranges {
        if *first > next {
            runs.push(first - next);
        }
        runs.push(last - first + 1);
        next = last + 1;
    }
    let disposition = Disposition {
        code: ACCEPTED,
        sequences: vec![Sequence {
            name: SequenceName::Id(sequence),
            first: ranges[0].0,
            runs,
        }],
    };
    let record = CodePoints::default().ccs_record;
    let payload = encode_signal(record, CustodyDialect::Ion, &[disposition]).remove(0);
    let ends = Ends {
        source: (from, 0),
        destination: (custodian, 0),
    };
    let (mut bytes, ..) = begin(ends, ADMINISTRATIVE);
    end(&mut bytes, &payload);
    bytes
}

/// The start of a bundle up to its primary block, with the places of its sequence number
/// and its primary block.
fn begin(ends: Ends, flags: u64) -> (Vec<u8>, usize, std::ops::Range<usize>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let mut bytes = vec![0x9f];
    let began = bytes.len();
    write_head(&mut bytes, ARRAY, 9);
    for value in [7, flags, CRC32C] {
        write_head(&mut bytes, UNSIGNED, value);
    }
    write_ipn(&mut bytes, ends.destination);
    write_ipn(&mut bytes, ends.source);
    // No reports.
    write_head(&mut bytes, ARRAY, 2);
    write_head(&mut bytes, UNSIGNED, 1);
    write_head(&mut bytes, UNSIGNED, 0);
    write_head(&mut bytes, ARRAY, 2);
    let time_ms = (now.as_millis() as u64).saturating_sub(EPOCH_MS);
    write_head(&mut bytes, UNSIGNED, time_ms);
    let number_at = bytes.len() + 1;
    // Two signals within a millisecond differ too.
    let number = match flags {
        ADMINISTRATIVE => FIRST + now.subsec_nanos(),
        _ => FIRST,
    };
    write_head(&mut bytes, UNSIGNED, u64::from(number));
    write_head(&mut bytes, UNSIGNED, LIFETIME_MS);
    write_crc(&mut bytes, began);
    let primary = began..bytes.len();
    (bytes, number_at, primary)
}

/// Writes the custody block of node `custodian`; returns the place of its number.
fn write_cteb(bytes: &mut Vec<u8>, custodian: u64) -> usize {
    write_head(bytes, ARRAY, 5);
    // Block number 2, replicated in fragments, no CRC.
    for value in [CodePoints::default().cteb_block, 2, 1, 0] {
        write_head(bytes, UNSIGNED, value);
    }
    let mut content = Vec::new();
    write_head(&mut content, ARRAY, 3);
    let number_at = content.len() + 1;
    write_head(&mut content, UNSIGNED, u64::from(FIRST));
    write_head(&mut content, UNSIGNED, SEQUENCE);
    write_ipn(&mut content, (custodian, 0));
    write_head(bytes, BYTES, content.len() as u64);
    let at = bytes.len() + number_at;
    bytes.extend(content);
    at
}

/// Writes the payload block, and the bundle's end.
fn end(bytes: &mut Vec<u8>, payload: &[u8]) {
    let began = bytes.len();
    write_head(bytes, ARRAY, 6);
    for value in [1, 1, 0, CRC32C] {
        write_head(bytes, UNSIGNED, value);
    }
    write_head(bytes, BYTES, payload.len() as u64);
    bytes.extend(payload);
    write_crc(bytes, began);
    bytes.push(0xff);
}

/// Writes the CRC of the block that starts at `began`, computed with the CRC as zeros.
fn write_crc(bytes: &mut Vec<u8>, began: usize) {
    write_head(bytes, BYTES, CRC_BYTES as u64);
    let at = bytes.len();
    bytes.extend([0; CRC_BYTES]);
    let crc = crc32c::crc32c(&bytes[began..]);
    bytes[at..].copy_from_slice(&crc.to_be_bytes());
}

fn write_ipn(out: &mut Vec<u8>, (node, service): (u64, u64)) {
    write_head(out, ARRAY, 2);
    write_head(out, UNSIGNED, 2);
    write_head(out, ARRAY, 2);
    write_head(out, UNSIGNED, node);
    write_head(out, UNSIGNED, service);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use underpass_bundle::wire::{Bundle, DecodeLimits, Record, decode, decode_record, ipn};

    use super::*;

    fn read(bytes: Vec<u8>) -> Bundle {
        let (limits, codes) = (DecodeLimits::default(), CodePoints::default());
        decode(&Bytes::from(bytes), &limits, &codes).expect("the CRCs are right")
    }

    #[test]
    fn each_bundle_decodes_and_has_its_number() {
        for (size, custody) in [(0, false), (1, true), (1024, false), (70_000, true)] {
            let payload = payload(size);
            let template = Template::new(50, 60, &payload, custody);
            for number in [0, 1, 70_000, u32::MAX - FIRST] {
                let mut bytes = template.bytes.clone();
                template.number(&mut bytes, number);
                let bundle = read(bytes);
                assert_eq!(bundle.primary.source, ipn(50, 1));
                let sequence = bundle.primary.creation_timestamp.seqno();
                assert_eq!(number_of(sequence), Some(u64::from(number)));
                let under_custody = bundle.cteb.map(|(_, cteb)| number_of(cteb.number));
                assert_eq!(under_custody, custody.then_some(Some(u64::from(number))));
                assert_eq!(bundle.payload, payload);
            }
        }
    }

    #[test]
    fn a_signal_says_what_was_accepted() {
        let ranges = [(7, 9), (11, 11), (20, 29)];
        let bundle = read(signal(60, 6, 5, &ranges));
        assert!(bundle.is_administrative());
        assert_eq!(bundle.primary.destination, ipn(6, 0));
        let record = decode_record(&bundle.payload, &CodePoints::default());
        let Ok(Record::Custody(said)) = record else {
            panic!("a custody signal");
        };
        let [sequence] = &said[0].sequences[..] else {
            panic!("one sequence");
        };
        assert_eq!(sequence.name, SequenceName::Id(5));
        assert!(sequence.ranges().eq(ranges));
    }
}
