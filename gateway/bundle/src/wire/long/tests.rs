use std::time::Duration;

use underpass_payloads::{Limits, Payloads};

use super::super::write_trailer;
use super::super::{HopBlocks, decode, ipn, seal_payload, seal_primary, write_header};
use super::*;

fn decoder() -> LongDecoder {
    LongDecoder::new(3, None, DecodeLimits::default(), CodePoints::default())
}

fn bundle(crc: CrcKind, payload: &[u8]) -> Vec<u8> {
    let timestamp = bp7::CreationTimestamp::with_time_and_seq(1, 2);
    let (to, from) = (ipn(3, 40), ipn(1, 40));
    let hour = Duration::from_hours(1);
    let (_, primary) = seal_primary(to, from.clone(), from, timestamp, hour, 0);
    let piece = [Bytes::copy_from_slice(payload)];
    let (head, tail) = seal_payload(&piece, crc);
    let hop = HopBlocks {
        previous_node: (2, &ipn(1, 0)),
        age_ms: (3, 500),
        hop_count: Some((4, 30, 1)),
        cteb: None,
        creb: None,
    };
    let header = write_header(&CodePoints::default(), &primary, &hop, &[], &head);
    [&header[..], payload, &write_trailer(&tail)].concat()
}

/// Decodes in pieces; the file gets the payload as the decoder returned it.
fn decode_long(raw: &[u8], piece: usize) -> Result<(Bundle, Vec<u8>), Malformed> {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        quota_bytes: 1 << 20,
        payload_bytes: 1 << 20,
        leave_free_bytes: 0,
    };
    let payloads = Payloads::open(folder.path(), limits).unwrap();
    let mut decoder = decoder();
    let mut payload = Vec::new();
    for piece in raw.chunks(piece) {
        let part = decoder.take(Bytes::copy_from_slice(piece));
        payload.extend_from_slice(&part.map_err(|error| error.reason)?);
    }
    let writer = payloads.reserve(1, payload.len() as u64).unwrap();
    let mut writer = writer.begin(payload.len() as u64).unwrap();
    writer.write(&payload).unwrap();
    let bundle = decoder.finish(writer.finish().unwrap());
    bundle
        .map(|long| (long.bundle, payload))
        .map_err(|error| error.reason)
}

#[test]
fn pieces_of_any_size_give_what_the_whole_gives() {
    let payload: Vec<u8> = (0..2000).map(|i| (i % 251) as u8).collect();
    for crc in [CrcKind::None, CrcKind::Crc16, CrcKind::Crc32c] {
        let raw = bundle(crc, &payload);
        let whole = Bytes::from(raw.clone());
        let whole = decode(&whole, &DecodeLimits::default(), &CodePoints::default()).unwrap();
        for piece in [1, 7, 100, 1999, raw.len()] {
            let (long, read) = decode_long(&raw, piece).unwrap();
            assert_eq!(read, payload);
            assert_eq!(long.payload_bytes(), 2000);
            assert_eq!(long.primary_raw, whole.primary_raw);
            assert_eq!(long.payload_head, whole.payload_head);
            assert_eq!(long.payload_tail, whole.payload_tail);
            assert_eq!(
                (long.age_ms, long.hop_count),
                (whole.age_ms, whole.hop_count)
            );
        }
    }
}

#[test]
fn what_the_whole_decoder_refuses_is_refused() {
    let payload = [7; 300];
    for crc in [CrcKind::None, CrcKind::Crc16, CrcKind::Crc32c] {
        let good = bundle(crc, &payload);
        for at in 0..good.len() {
            for change in [0x01, 0x80] {
                let mut bad = good.clone();
                bad[at] ^= change;
                let whole = Bytes::from(bad.clone());
                let limits = DecodeLimits::default();
                let whole = decode(&whole, &limits, &CodePoints::default());
                let long = decode_long(&bad, 50);
                assert_eq!(
                    whole.is_err(),
                    long.is_err(),
                    "{crc:?}, byte {at}: {long:?}"
                );
            }
        }
        assert!(decode_long(&good[..good.len() - 1], 50).is_err());
        assert!(decode_long(&[&good[..], &[0]].concat(), 50).is_err());
    }
}

#[test]
fn a_header_without_end_is_not_kept() {
    let mut decoder = decoder();
    let mut raw = bundle(CrcKind::None, b"");
    // An unknown block that announces 4 GiB follows the primary block.
    let at = raw.len() - 7;
    raw.truncate(at);
    raw.extend([
        0x85, 0x18, 0xC8, 0x09, 0x00, 0x00, 0x5A, 0xFF, 0xFF, 0xFF, 0xFF,
    ]);
    let mut taken = decoder.take(raw.into());
    for _ in 0..100 {
        if taken.is_err() {
            break;
        }
        taken = decoder.take(Bytes::from(vec![0; 1024]));
    }
    assert!(taken.is_err());
    assert!(decoder.kept.len() <= 2 * MAX_HEADER_BYTES + 1024);
}

#[test]
fn a_payload_length_that_lies_is_told_before_its_bytes_come() {
    let mut raw = bundle(CrcKind::None, &[0; 300]);
    let at = raw.len() - 300 - 1 - 3;
    assert_eq!(raw[at..at + 3], [0x59, 1, 44]);
    raw.splice(at..at + 3, [0x5B, 0x7F, 0, 0, 0, 0, 0, 0, 0]);
    let mut decoder = decoder();
    decoder.take(raw.into()).unwrap();
    let announced = decoder.opened().unwrap().1;
    assert_eq!(announced, 0x7F << 56);
}
