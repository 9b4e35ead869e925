//! A bundle of which only the sequence number changes.

use underpass_bundle::wire::{ARRAY, BYTES, UNSIGNED, write_head};

/// CRC-32C, as RFC 9171, 4.2.1 numbers it, and its size, bytes.
const CRC32C: u64 = 2;
const CRC_BYTES: usize = 4;
/// Numbers from here up to 2³² take five bytes, so all bundles are of one size.
const FIRST: u32 = 1 << 16;
const LIFETIME_MS: u64 = 3_600_000;
/// Milliseconds from 1970 to 2000, the DTN epoch.
const EPOCH_MS: u64 = 946_684_800_000;

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

/// A bundle's bytes, and where its number and its primary block's CRC are.
#[derive(Clone, Debug)]
pub struct Template {
    pub bytes: Vec<u8>,
    number_at: usize,
    primary: std::ops::Range<usize>,
}

impl Template {
    /// A bundle from `ipn:source.1` to `ipn:sink.1`, made at `unix_ms`.
    pub fn new(source: u64, sink: u64, payload: &[u8], unix_ms: u64) -> Template {
        let mut bytes = vec![0x9f];
        let began = bytes.len();
        write_head(&mut bytes, ARRAY, 9);
        // Version 7, no flags.
        for value in [7, 0, CRC32C] {
            write_head(&mut bytes, UNSIGNED, value);
        }
        write_ipn(&mut bytes, sink);
        write_ipn(&mut bytes, source);
        // No reports.
        write_head(&mut bytes, ARRAY, 2);
        write_head(&mut bytes, UNSIGNED, 1);
        write_head(&mut bytes, UNSIGNED, 0);
        write_head(&mut bytes, ARRAY, 2);
        write_head(&mut bytes, UNSIGNED, unix_ms.saturating_sub(EPOCH_MS));
        let number_at = bytes.len() + 1;
        write_head(&mut bytes, UNSIGNED, u64::from(FIRST));
        write_head(&mut bytes, UNSIGNED, LIFETIME_MS);
        write_head(&mut bytes, BYTES, CRC_BYTES as u64);
        bytes.extend([0; CRC_BYTES]);
        let primary = began..bytes.len();
        let block = bytes.len();
        write_head(&mut bytes, ARRAY, 6);
        for value in [1, 1, 0, CRC32C] {
            write_head(&mut bytes, UNSIGNED, value);
        }
        write_head(&mut bytes, BYTES, payload.len() as u64);
        bytes.extend(payload);
        write_head(&mut bytes, BYTES, CRC_BYTES as u64);
        bytes.extend([0; CRC_BYTES]);
        let crc = crc32c::crc32c(&bytes[block..]);
        let at = bytes.len() - CRC_BYTES;
        bytes[at..].copy_from_slice(&crc.to_be_bytes());
        bytes.push(0xff);
        Template {
            bytes,
            number_at,
            primary,
        }
    }

    /// Gives the bundle whose bytes begin at `at` in `out` its number.
    pub fn number(&self, out: &mut [u8], number: u32) {
        let (sequence, primary) = (FIRST + number, &mut out[self.primary.clone()]);
        let at = self.number_at - self.primary.start;
        primary[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
        let crc_at = primary.len() - CRC_BYTES;
        primary[crc_at..].fill(0);
        let crc = crc32c::crc32c(primary);
        primary[crc_at..].copy_from_slice(&crc.to_be_bytes());
    }

    /// How many bytes of the bundle change: those up to the end of its primary block.
    pub fn head_bytes(&self) -> usize {
        self.primary.end
    }
}

/// The number of a bundle by its sequence number; `None` if it is none of ours.
pub fn number_of(sequence: u64) -> Option<u64> {
    sequence.checked_sub(u64::from(FIRST))
}

fn write_ipn(out: &mut Vec<u8>, node: u64) {
    write_head(out, ARRAY, 2);
    write_head(out, UNSIGNED, 2);
    write_head(out, ARRAY, 2);
    write_head(out, UNSIGNED, node);
    write_head(out, UNSIGNED, 1);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use underpass_bundle::wire::{CodePoints, DecodeLimits, decode, ipn};

    use super::*;

    #[test]
    fn each_bundle_decodes_and_has_its_number() {
        for size in [0, 1, 1024, 70_000] {
            let payload = payload(size);
            let template = Template::new(50, 60, &payload, 1_800_000_000_000);
            for number in [0, 1, 70_000, u32::MAX - FIRST] {
                let mut bytes = template.bytes.clone();
                template.number(&mut bytes, number);
                let bundle = decode(
                    &Bytes::from(bytes),
                    &DecodeLimits::default(),
                    &CodePoints::default(),
                )
                .expect("the CRCs are right");
                assert_eq!(bundle.primary.source, ipn(50, 1));
                let sequence = bundle.primary.creation_timestamp.seqno();
                assert_eq!(number_of(sequence), Some(u64::from(number)));
                assert_eq!(bundle.payload, payload);
            }
        }
    }
}
