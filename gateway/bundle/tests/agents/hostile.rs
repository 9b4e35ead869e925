//! Bytes from untrusted senders.

use std::time::{Duration, Instant};

use crate::net::{BULK, Net, SERVICE, bundle, node, primary, record_bundle};
use bp7::dtntime::CreationTimestamp;
use bytes::Bytes;
use proptest::prelude::*;
use underpass_bundle::wire::{
    CodePoints, CrcKind, DecodeLimits, Extension, MAX_HEADER_BYTES, Malformed, decode,
    decode_record, ipn,
};
use underpass_bundle::{Agent, Config, Event, NeighbourId, Reject};
use underpass_cla::{Class, Outcome};

/// A bundle under custody from node 1 to node 2.
fn sealed(payload: &[u8], crc: CrcKind) -> Bytes {
    let mut config = node(1);
    config.payload_crc = crc;
    let mut net = Net::of([config, node(2)]);
    net.send(0, 2, payload).unwrap();
    net.offer(0, 2).unwrap().chunks.concat().into()
}

fn reason(raw: Vec<u8>) -> Malformed {
    let raw = Bytes::from(raw);
    decode(&raw, &DecodeLimits::default(), &CodePoints::default())
        .expect_err("hostile bytes decode")
        .reason
}

/// A bundle's bytes up to its second block.
fn primary_only() -> Vec<u8> {
    let raw = sealed(b"", CrcKind::Crc32c);
    let bundle = decode(&raw, &DecodeLimits::default(), &CodePoints::default()).unwrap();
    raw[..1 + bundle.primary_raw.len()].to_vec()
}

#[test]
fn a_thousand_blocks_end_at_the_bound() {
    let mut raw = primary_only();
    for number in 0..1000u16 {
        raw.extend([0x85, 0x18, 0xC8, 0x19]);
        raw.extend((number + 2).to_be_bytes());
        raw.extend([0x00, 0x00, 0x40]);
    }
    raw.push(0xFF);
    assert_eq!(reason(raw), Malformed::TooManyBlocks);
}

/// A bundle from node 1 to node 3 with a tiny payload and large other blocks.
fn top_heavy(sequence: u64) -> Bytes {
    let mut primary = primary(0, 1, ipn(3, SERVICE));
    primary.creation_timestamp = CreationTimestamp::with_time_and_seq(1_000, sequence);
    let block = Extension::new(200, 2, 0, &[7; 15_000]);
    bundle(&primary, &[block], b"x")
}

#[test]
fn a_payload_that_is_kept_does_not_keep_large_headers_in_memory() {
    let raw = top_heavy(1);
    let bundle = decode(&raw, &DecodeLimits::default(), &CodePoints::default()).unwrap();
    assert_eq!(&bundle.payload[..], b"x");
    assert!(!raw.as_ptr_range().contains(&bundle.payload.as_ptr()));
}

#[test]
fn a_block_that_is_kept_does_not_keep_a_large_one_in_memory() {
    // The first block is dropped where its type is unknown.
    let blocks = [
        Extension::new(200, 2, 0x10, &[7; 15_000]),
        Extension::new(201, 3, 0, b"kept"),
    ];
    let raw = bundle(&primary(0, 1, ipn(3, SERVICE)), &blocks, b"x");
    let read = decode(&raw, &DecodeLimits::default(), &CodePoints::default()).unwrap();
    assert_eq!(read.others, blocks[1..]);
    assert!(!raw.as_ptr_range().contains(&read.others[0].raw.as_ptr()));
}

#[test]
fn large_headers_count_against_the_store_as_payloads_do() {
    let mut config = node(2);
    config.store_bytes = 1 << 20;
    let (mut agent, now) = (Agent::new(config), Instant::now());
    for neighbour in [1, 3] {
        agent.neighbour_up(now, NeighbourId(neighbour));
    }
    let heard =
        |agent: &mut Agent, sequence| agent.receive(now, NeighbourId(1), BULK, top_heavy(sequence));
    let taken = (0..1_000).take_while(|sequence| heard(&mut agent, *sequence).is_ok());
    let taken = taken.count();
    assert!((20..=80).contains(&taken), "{taken}");
    // All room is free again once the bundles are gone.
    while let Some(offer) = agent.next_for(now, NeighbourId(3), BULK, u64::MAX) {
        agent.transfer_finished(now, offer.key, Outcome::Acknowledged);
    }
    assert_eq!(agent.custody(now).bundles, 0);
    assert!(heard(&mut agent, 2_000).is_ok());
    let again = (3_000..4_000).take_while(|sequence| heard(&mut agent, *sequence).is_ok());
    assert_eq!(again.count() + 1, taken);
}

#[test]
fn a_huge_extension_block_is_no_header() {
    let mut raw = primary_only();
    raw.extend([0x85, 0x18, 0xC8, 0x02, 0x00, 0x00, 0x5A]);
    raw.extend((MAX_HEADER_BYTES as u32 + 1).to_be_bytes());
    raw.resize(raw.len() + MAX_HEADER_BYTES + 1, 0);
    assert_eq!(reason(raw), Malformed::HeaderTooLarge);
}

#[test]
fn a_bundle_without_payload_block_or_with_two_is_malformed() {
    let mut raw = primary_only();
    raw.push(0xFF);
    assert_eq!(reason(raw), Malformed::Payload);
    let mut raw = sealed(b"x", CrcKind::None).to_vec();
    raw.pop();
    raw.extend([0x85, 0x01, 0x01, 0x00, 0x00, 0x41, b'y', 0xFF]);
    assert_eq!(reason(raw), Malformed::Payload);
}

#[test]
fn an_unknown_block_that_asks_for_deletion_is_obeyed_and_reported_as_malformed() {
    let mut raw = primary_only();
    raw.extend([0x85, 0x18, 0xC8, 0x02, 0x04, 0x00, 0x40]);
    raw.extend([0x85, 0x01, 0x01, 0x00, 0x00, 0x40, 0xFF]);
    assert_eq!(reason(raw.clone()), Malformed::Unsupported(200));
    let mut agent = Agent::new(node(2));
    let result = agent.receive(Instant::now(), NeighbourId(1), BULK, raw.into());
    assert_eq!(result, Err(Reject::Malformed(Malformed::Unsupported(200))));
}

#[test]
fn nested_arrays_stop_at_the_first_byte_that_is_not_due() {
    assert!(matches!(reason(vec![0x9F; 1 << 20]), Malformed::Cbor(_)));
    assert!(matches!(reason(vec![0x81; 1 << 20]), Malformed::Cbor(_)));
}

#[test]
fn payload_crcs_of_all_kinds_are_written_and_verified() {
    for crc in [CrcKind::None, CrcKind::Crc16, CrcKind::Crc32c] {
        let raw = sealed(b"some payload", crc);
        let decoded = decode(&raw, &DecodeLimits::default(), &CodePoints::default()).unwrap();
        assert_eq!(&decoded.payload[..], b"some payload");
        let mut wrong = raw.to_vec();
        let at = wrong.len() - 12;
        wrong[at] ^= 1;
        if crc != CrcKind::None {
            assert_eq!(reason(wrong), Malformed::Crc(1));
        }
    }
}

/// A signal from node 2 to node 1 that accepts every number of a sequence.
fn signal_for_all_of(sequence: u32) -> Bytes {
    let mut record = vec![0x82, 0x0D, 0xA1, 0x01, 0x81, 0x83, 0x1A];
    record.extend(sequence.to_be_bytes());
    record.extend([0x00, 0x1B]);
    record.extend(u64::MAX.to_be_bytes());
    record_bundle(2, 1, record)
}

#[test]
fn a_signal_for_two_to_the_64_bundles_releases_only_those_that_were_offered() {
    let mut net = Net::of([node(1), node(2)]);
    let offered = net.send(0, 2, b"data").unwrap();
    let waiting = net.send(0, 2, b"data").unwrap();
    let offer = net.offer(0, 2).unwrap();
    let raw: Bytes = offer.chunks.concat().into();
    let bundle = decode(&raw, &DecodeLimits::default(), &CodePoints::default()).unwrap();
    let sequence = bundle.cteb.unwrap().1.sequence as u32;
    for (guess, released) in [(sequence + 7, vec![]), (sequence, vec![offered])] {
        let now = net.now;
        net.agents[0]
            .receive(now, NeighbourId(2), Class(0), signal_for_all_of(guess))
            .unwrap();
        assert_eq!(net.released(0), released);
    }
    assert_eq!(net.agents[0].list(net.now, None, 10)[0].id, waiting);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(512)
    })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let raw = Bytes::from(bytes);
        let _ = decode(&raw, &DecodeLimits::default(), &CodePoints::default());
        let _ = decode_record(&raw, &CodePoints::default());
    }

    #[test]
    fn a_mutated_bundle_never_panics_the_agent(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        payload in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut raw = sealed(&payload, CrcKind::None).to_vec();
        for (at, value) in changes {
            let at = at.index(raw.len());
            raw[at] = value;
        }
        raw.truncate(cut.index(raw.len()) * 8);
        let now = Instant::now();
        for number in [2, 5] {
            let mut config = Config::new(number, 7);
            config.services.insert(SERVICE);
            let mut agent = Agent::new(config);
            let raw = Bytes::from(raw.clone());
            let _ = agent.receive(now, NeighbourId(1), Class(0), raw);
            agent.handle_timeout(now + Duration::from_secs(1));
            while let Some(event) = agent.poll_event() {
                let delivered = matches!(event, Event::Deliver(_));
                prop_assert!(!delivered || number == 2);
            }
        }
    }

    #[test]
    fn what_is_sealed_decodes_to_the_same(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..6),
        kind in 0u64..3,
    ) {
        let mut config = node(1);
        config.payload_crc = CrcKind::from_code(kind).unwrap();
        let mut net = Net::of([config, node(2)]);
        let payload: Vec<Bytes> = pieces.iter().cloned().map(Bytes::from).collect();
        net.send_pieces(0, 2, SERVICE, payload).unwrap();
        let offer = net.offer(0, 2).unwrap();
        let raw: Bytes = offer.chunks.concat().into();
        let bundle = decode(&raw, &DecodeLimits::default(), &CodePoints::default()).unwrap();
        prop_assert_eq!(&bundle.payload[..], &pieces.concat()[..]);
        let (_, cteb) = bundle.cteb.unwrap();
        prop_assert_eq!(cteb.number, 0);
        prop_assert_eq!(bundle.age_ms.unwrap().1, 0);
    }
}

#[test]
fn whoever_asks_for_a_flood_of_reports_takes_none_from_others() {
    use underpass_bundle::{ReportRequest, Send};

    let mut second = node(2);
    second.status_reports_per_s = 5;
    let mut net = Net::of([node(1), second, node(3)]);
    for asker in [3; 50].into_iter().chain([1]) {
        let send = Send {
            custody: false,
            reports: Some(ReportRequest {
                to: ipn(asker, 0),
                reception: true,
                forwarding: false,
                delivery: true,
                deletion: false,
            }),
            ..Send::new(
                ipn(2, SERVICE),
                SERVICE,
                BULK,
                vec![Bytes::from_static(b"data")],
            )
        };
        let (now, from) = (net.now, asker as usize - 1);
        net.agents[from].send(now, send).unwrap();
        let offer = net.offer(from, 2).unwrap();
        net.arrive(1, asker, &offer);
    }
    let mut reports = |to| std::iter::from_fn(|| net.offer(1, to)).count();
    assert_eq!((reports(3), reports(1)), (5, 2));
}
