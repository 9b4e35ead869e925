//! What RFC 9171 requires of a node that receives others' bundles, clause by clause.

use std::time::Instant;

use crate::net::{BULK, SERVICE, bundle, next, node, primary, read, route};
use bp7::administrative_record::{DELETED_BUNDLE, RECEIVED_BUNDLE, StatusReport};
use bp7::dtntime::CreationTimestamp;
use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_bundle::wire::{
    CodePoints, DecodeLimits, Eid, Extension, Malformed, Record, block_type, decode, decode_record,
    ipn,
};
use underpass_bundle::{Agent, Event, NeighbourId, Reject};

const SOURCE: u64 = 1;
const RELAY: u64 = 2;
const DESTINATION: u64 = 3;

const FRAGMENT: u64 = 0x1;
const ADMINISTRATIVE: u64 = 0x2;
const STATUS_TIME: u64 = 0x40;
const ALL_REPORTS: u64 = 0x7_4000;
const DELETION: u64 = 0x4_0000;

const CONTENT: &[u8] = b"content";

fn relay() -> (Agent, Instant) {
    let mut config = node(RELAY);
    config.status_reports_per_s = 100;
    config.routes = vec![route(DESTINATION, DESTINATION)];
    let (mut agent, now) = (Agent::new(config), Instant::now());
    agent.set_clock(now, 848_523_100_000);
    for neighbour in [SOURCE, DESTINATION] {
        agent.neighbour_up(now, NeighbourId(neighbour));
    }
    (agent, now)
}

fn onward(flags: u64) -> PrimaryBlock {
    primary(flags, SOURCE, ipn(DESTINATION, SERVICE))
}

fn refusal(raw: Vec<u8>) -> Malformed {
    let raw = Bytes::from(raw);
    let decoded = decode(&raw, &DecodeLimits::default(), &CodePoints::default());
    decoded.unwrap_err().reason
}

/// The status report that goes back to the source.
fn report(agent: &mut Agent, now: Instant) -> Option<StatusReport> {
    let bundle = next(agent, now, SOURCE)?;
    assert!(bundle.is_administrative());
    match decode_record(&bundle.payload, &CodePoints::default()) {
        Ok(Record::Status(report)) => Some(report),
        other => panic!("{other:?}"),
    }
}

fn is_asserted(report: &StatusReport, status: u32) -> bool {
    report.status_information[status as usize].asserted
}

#[test]
fn an_endpoint_that_is_no_uri_or_too_long_is_refused() {
    let long = format!("//{}/in", "n".repeat(255));
    for name in [
        &*long,
        "//rover/\u{1b}[2J",
        "//rover/a b",
        "//rover/in\n",
        "//r\u{f6}ver/in",
    ] {
        let named = Eid::with_dtn(name).unwrap();
        for place in 0..3 {
            let mut primary = onward(0);
            *[
                &mut primary.destination,
                &mut primary.source,
                &mut primary.report_to,
            ][place] = named.clone();
            let raw = bundle(&primary, &[], CONTENT);
            assert_eq!(refusal(raw.into()), Malformed::Endpoint, "{name:?} {place}");
        }
    }
}

#[test]
fn an_unknown_block_is_passed_on_reported_or_discarded_as_its_flags_ask() {
    for (flags, passed, reported) in [
        (0x00, true, false),
        (0x01, true, false),
        (0x02, true, true),
        (0x10, false, false),
        (0x12, false, true),
        // Reserved flags change nothing.
        (0x28, true, false),
    ] {
        let (mut agent, now) = relay();
        let block = Extension::new(200, 9, flags, b"of another kind");
        let raw = bundle(&onward(0), std::slice::from_ref(&block), CONTENT);
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        let kept = next(&mut agent, now, DESTINATION).unwrap().others;
        let expected: &[Extension] = if passed { &[block] } else { &[] };
        assert_eq!(kept, expected, "{flags:#x}");
        let report = report(&mut agent, now);
        assert_eq!(report.is_some(), reported, "{flags:#x}");
        if let Some(report) = report {
            assert!(is_asserted(&report, RECEIVED_BUNDLE));
            assert_eq!(report.report_reason, 11, "block unsupported");
        }
    }
}

#[test]
fn what_a_source_has_encrypted_of_extension_blocks_passes_a_relay_as_it_came() {
    for kind in [
        block_type::PREVIOUS_NODE,
        block_type::BUNDLE_AGE,
        block_type::HOP_COUNT,
    ] {
        // Encrypted bytes may look like what the block would hold.
        for content in [&[0xF6][..], &[5], &[0x82, 1, 1]] {
            let block = Extension::new(kind, 2, 0x14, content);
            // Target 2, BCB-AES-GCM, no parameters, its source, a result.
            let mut secures = vec![0x81, 2, 0x02, 0x00];
            secures.extend([0x82, 0x02, 0x82, 0x01, 0x00, 0x81, 0x80]);
            let bcb = Extension::new(block_type::BCB, 9, 0, &secures);
            for blocks in [[block.clone(), bcb.clone()], [bcb, block]] {
                let (mut agent, now) = relay();
                let raw = bundle(&onward(0), &blocks, CONTENT);
                agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
                let passed = next(&mut agent, now, DESTINATION).unwrap();
                assert_eq!(passed.others, blocks);
                let own = [
                    passed.previous_node.is_some(),
                    passed.age_ms.is_some(),
                    passed.hop_count.is_some(),
                ];
                let kinds = [block_type::PREVIOUS_NODE, block_type::BUNDLE_AGE];
                let [previous_node, age] = kinds.map(|own| own != kind);
                assert_eq!(own, [previous_node, age, false], "no second one is added");
            }
        }
        let other = [
            Extension::new(kind, 2, 0, &[0xF6]),
            Extension::new(block_type::BCB, 9, 0, &[0x81, 3]),
        ];
        let raw = bundle(&onward(0), &other, CONTENT).to_vec();
        assert_eq!(refusal(raw), Malformed::Unintelligible(kind));
    }
}

#[test]
fn an_unknown_block_may_have_its_bundle_deleted_which_is_reported_if_asked_for() {
    for asked in [0, DELETION] {
        let (mut agent, now) = relay();
        let raw = bundle(
            &onward(asked),
            &[Extension::new(200, 9, 0x04, b"")],
            CONTENT,
        );
        let refused = agent.receive(now, NeighbourId(SOURCE), BULK, raw);
        assert_eq!(refused, Err(Reject::Malformed(Malformed::Unsupported(200))));
        assert!(next(&mut agent, now, DESTINATION).is_none());
        let reason = report(&mut agent, now).map(|report| report.report_reason);
        assert_eq!(reason, (asked != 0).then_some(11));
    }
}

#[test]
fn what_cannot_be_read_further_on_was_received_all_the_same() {
    let (mut agent, now) = relay();
    let block = Extension::new(200, 9, 0x04, b"");
    let raw = bundle(&onward(ALL_REPORTS), &[block], CONTENT);
    let refused = agent.receive(now, NeighbourId(SOURCE), BULK, raw);
    assert_eq!(refused, Err(Reject::Malformed(Malformed::Unsupported(200))));
    let reports = std::iter::from_fn(|| report(&mut agent, now));
    let told = reports.map(|report| {
        let status = [RECEIVED_BUNDLE, DELETED_BUNDLE].map(|of| is_asserted(&report, of));
        (status, report.report_reason)
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told, [([true, false], 0), ([false, true], 11)]);
}

#[test]
fn an_unknown_block_that_has_its_bundle_deleted_may_ask_for_a_report_all_the_same() {
    for asked in [0, DELETION] {
        let (mut agent, now) = relay();
        let block = Extension::new(200, 9, 0x06, b"");
        let raw = bundle(&onward(asked), &[block], CONTENT);
        let refused = agent.receive(now, NeighbourId(SOURCE), BULK, raw);
        assert_eq!(refused, Err(Reject::Malformed(Malformed::Unsupported(200))));
        let received = report(&mut agent, now).expect("the block asks for it");
        assert!(is_asserted(&received, RECEIVED_BUNDLE));
        assert_eq!(received.report_reason, 11, "block unsupported");
        let deleted = report(&mut agent, now);
        assert_eq!(deleted.is_some(), asked != 0);
        assert!(deleted.is_none_or(|told| is_asserted(&told, DELETED_BUNDLE)));
    }
}

#[test]
fn a_bundle_at_its_hop_limit_goes_no_further() {
    for (count, goes_on) in [(2, true), (3, false), (200, false)] {
        let (mut agent, now) = relay();
        let mut content = vec![0x82, 0x03];
        match count {
            0..24 => content.push(count),
            _ => content.extend([0x18, count]),
        }
        let hops = Extension::new(block_type::HOP_COUNT, 2, 0, &content);
        let raw = bundle(&onward(DELETION), &[hops], CONTENT);
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        let passed = next(&mut agent, now, DESTINATION);
        assert_eq!(passed.is_some(), goes_on, "{count}");
        if let Some(passed) = passed {
            assert_eq!(passed.hop_count, Some((2, 3, count + 1)));
        } else {
            let report = report(&mut agent, now).unwrap();
            assert!(is_asserted(&report, DELETED_BUNDLE));
            assert_eq!(report.report_reason, 9, "hop limit exceeded");
        }
    }
}

#[test]
fn a_bundle_without_an_age_is_as_old_as_its_creation_time_says_where_the_time_is_known() {
    const TIME: u64 = 848_523_100_000;
    let hour = TIME - 3_600_000;
    // It lives for 60 s. None: its lifetime is over.
    for (known, created, block, age) in [
        (true, hour, None, None),
        (true, TIME - 60_000, None, None),
        (true, TIME - 10_000, None, Some(10_000)),
        (true, TIME + 10_000, None, Some(0)),
        (true, 0, None, Some(0)),
        (false, hour, None, Some(0)),
        // The block tells it, whatever the source's clock shows.
        (true, hour, Some(5), Some(5)),
    ] {
        let (mut agent, now) = relay();
        agent.set_known_time(now, known.then_some(TIME));
        let mut primary = onward(DELETION);
        primary.creation_timestamp = CreationTimestamp::with_time_and_seq(created, 7);
        let block = block.map(|age| Extension::new(block_type::BUNDLE_AGE, 2, 0, &[age]));
        let raw = bundle(&primary, block.as_slice(), CONTENT);
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        let passed = next(&mut agent, now, DESTINATION);
        let passed = passed.map(|passed| passed.age_ms.unwrap().1);
        assert_eq!(passed, age, "{known} {created}");
        let told = report(&mut agent, now).map(|report| report.report_reason);
        assert_eq!(told, age.is_none().then_some(1), "lifetime expired");
    }
}

#[test]
fn a_report_names_its_bundle_and_of_a_fragment_its_place() {
    let (mut agent, now) = relay();
    let mut part = onward(FRAGMENT | DELETION);
    (part.fragmentation_offset, part.total_data_length) = (5, 100);
    let hops = Extension::new(block_type::HOP_COUNT, 2, 0, &[0x82, 1, 1]);
    for (primary, place) in [
        (onward(DELETION), (0, 0)),
        (part, (5, CONTENT.len() as u64)),
    ] {
        let raw = bundle(&primary, std::slice::from_ref(&hops), CONTENT);
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        let report = report(&mut agent, now).unwrap();
        assert_eq!(report.source_node, ipn(SOURCE, SERVICE));
        assert_eq!(report.timestamp, primary.creation_timestamp);
        assert_eq!((report.frag_offset, report.frag_len), place);
    }
}

#[test]
fn a_report_has_the_time_if_the_bundle_asks_for_it() {
    for (asked, has_time) in [(0, false), (STATUS_TIME, true)] {
        let (mut agent, now) = relay();
        let raw = bundle(
            &primary(DELETION | asked, SOURCE, ipn(RELAY, 99)),
            &[],
            CONTENT,
        );
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        let report = report(&mut agent, now).unwrap();
        let item = &report.status_information[DELETED_BUNDLE as usize];
        assert_eq!((item.status_requested, item.time > 0), (has_time, has_time));
    }
}

#[test]
fn what_can_go_nowhere_is_deleted_for_its_reason() {
    let elsewhere = Eid::with_dtn("//elsewhere/in").unwrap();
    for (destination, reason) in [(ipn(RELAY, 99), 5), (ipn(77, 1), 6), (elsewhere, 6)] {
        let (mut agent, now) = relay();
        let raw = bundle(&primary(DELETION, SOURCE, destination), &[], CONTENT);
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        let told = report(&mut agent, now).map(|report| report.report_reason);
        assert_eq!(told, Some(reason));
    }
}

#[test]
fn what_is_deleted_where_it_came_in_was_received_first() {
    let hops = [Extension::new(block_type::HOP_COUNT, 2, 0, &[0x82, 1, 1])];
    let cases: [(Eid, &[Extension], u32); 3] = [
        (ipn(RELAY, 99), &[], 5),
        (ipn(77, 1), &[], 6),
        (ipn(DESTINATION, SERVICE), &hops, 9),
    ];
    for (destination, blocks, reason) in cases {
        let (mut agent, now) = relay();
        let primary = primary(ALL_REPORTS, SOURCE, destination);
        let raw = bundle(&primary, blocks, CONTENT);
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        let reports: Vec<_> = std::iter::from_fn(|| report(&mut agent, now)).collect();
        let [received, deleted] = &reports[..] else {
            panic!("{reports:?}");
        };
        assert!(is_asserted(received, RECEIVED_BUNDLE));
        assert_eq!(received.report_reason, 0);
        assert!(is_asserted(deleted, DELETED_BUNDLE));
        assert_eq!(deleted.report_reason, reason);
    }
}

#[test]
fn nobody_is_told_of_an_administrative_record() {
    let (mut agent, now) = relay();
    // A record of an unknown type is forwarded, or ignored if it is for this node.
    let record = [0x82, 0x18, 0x63, 0x00];
    for destination in [
        ipn(DESTINATION, 0),
        ipn(RELAY, 0),
        ipn(RELAY, 99),
        ipn(77, 0),
    ] {
        let primary = primary(ADMINISTRATIVE | ALL_REPORTS, SOURCE, destination);
        let raw = bundle(&primary, &[], &record);
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        assert!(report(&mut agent, now).is_none());
    }
    assert_eq!(
        next(&mut agent, now, DESTINATION).unwrap().payload,
        record[..]
    );
    let events: Vec<Event> = std::iter::from_fn(|| agent.poll_event()).collect();
    let delivered = |event: &Event| matches!(event, Event::Deliver(_));
    assert!(!events.iter().any(delivered), "{events:?}");
}

#[test]
fn nobody_is_told_of_a_bundle_without_a_source() {
    for source in [Eid::none(), ipn(0, 0)] {
        for destination in [ipn(DESTINATION, SERVICE), ipn(RELAY, SERVICE), ipn(77, 1)] {
            let (mut agent, now) = relay();
            let mut nameless = primary(ALL_REPORTS, SOURCE, destination);
            nameless.source = source.clone();
            let unknown = Extension::new(200, 9, 0x02, b"to be reported");
            let raw = bundle(&nameless, &[unknown], CONTENT);
            agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
            assert!(report(&mut agent, now).is_none());
        }
    }
}

#[test]
fn a_fragment_that_can_be_of_no_bundle_goes_nowhere() {
    for (offset, total) in [(101, 100), (u64::MAX - 2, u64::MAX), (u64::MAX, 5)] {
        let (mut agent, now) = relay();
        let mut part = onward(FRAGMENT);
        (part.fragmentation_offset, part.total_data_length) = (offset, total);
        let raw = bundle(&part, &[], &[0; 4_000]);
        let refused = agent.receive(now, NeighbourId(SOURCE), BULK, raw);
        assert_eq!(refused, Err(Reject::Malformed(Malformed::Fragment)));
        assert!(
            agent
                .next_for(now, NeighbourId(DESTINATION), BULK, 1_500)
                .is_none()
        );
    }
}

#[test]
fn the_primary_block_goes_on_as_it_came_with_reserved_flags_too() {
    let (mut agent, now) = relay();
    let reserved = 0x8 | 0x10 | 0x80 | 0x10_0000;
    let raw = bundle(&onward(reserved), &[], CONTENT);
    agent
        .receive(now, NeighbourId(SOURCE), BULK, raw.clone())
        .unwrap();
    let passed = next(&mut agent, now, DESTINATION).unwrap();
    assert_eq!(passed.primary_raw, read(&raw).primary_raw);
}

#[test]
fn an_anonymous_bundle_goes_on_whole_even_if_it_does_not_ask_for_it() {
    const MOST: u64 = 1_500;
    let mut nameless = onward(0);
    nameless.source = Eid::none();
    for (primary, fragmented) in [(onward(0), true), (nameless, false)] {
        let (mut agent, now) = relay();
        let raw = bundle(&primary, &[], &[0; 4_000]);
        agent.receive(now, NeighbourId(SOURCE), BULK, raw).unwrap();
        let first = agent.next_for(now, NeighbourId(DESTINATION), BULK, MOST);
        assert_eq!(first.is_some(), fragmented);
    }
}

#[test]
fn another_version_and_an_unknown_crc_are_no_bundle() {
    let raw = bundle(&onward(0), &[], CONTENT);
    // The array's head, version, flags, type of CRC.
    assert_eq!(raw[1..5], [0x89, 7, 0, 2]);
    for (place, value, reason) in [
        (2, 6, Malformed::Version(6)),
        (2, 8, Malformed::Version(8)),
        (4, 3, Malformed::CrcKind(3)),
    ] {
        let mut other = raw.to_vec();
        other[place] = value;
        assert_eq!(refusal(other), reason);
    }
}

#[test]
fn an_array_of_definite_length_is_a_bundle_too() {
    let mut raw = bundle(&onward(0), &[], CONTENT).to_vec();
    raw[0] = 0x82;
    raw.pop();
    assert_eq!(read(&raw.clone().into()).payload, CONTENT);
    raw[0] = 0x83;
    // Another block is required behind the payload.
    assert_eq!(refusal(raw), Malformed::Payload);
}

#[test]
fn a_block_of_a_kind_that_is_there_once_is_not_there_twice() {
    let node = [0x82, 0x02, 0x82, 0x01, 0x00];
    for (kind, content) in [
        (block_type::PREVIOUS_NODE, &node[..]),
        (block_type::BUNDLE_AGE, &[5]),
        (block_type::HOP_COUNT, &[0x82, 3, 1]),
    ] {
        let twice = [2, 3].map(|number| Extension::new(kind, number, 0, content));
        let raw = bundle(&onward(0), &twice, CONTENT).to_vec();
        assert_eq!(refusal(raw), Malformed::Repeated(kind));
        let unfit = [Extension::new(kind, 2, 0, &[0xF6])];
        let raw = bundle(&onward(0), &unfit, CONTENT).to_vec();
        assert_eq!(refusal(raw), Malformed::Unintelligible(kind));
    }
    let same = [200, 201].map(|kind| Extension::new(kind, 2, 0, b""));
    let raw = bundle(&onward(0), &same, CONTENT).to_vec();
    assert_eq!(refusal(raw), Malformed::Repeated(2));
}
