//! Secured bundles that were cut on their way are judged once they are whole.

use std::ops::Range;

use bytes::Bytes;
use underpass_bpsec::{Operation, Outcome, Rule};
use underpass_bundle::wire::{
    Bundle, CodePoints, CrcKind, DecodeLimits, Extension, block_type, decode, encode_primary,
};
use underpass_bundle::{Insecure, Reject};
use underpass_cla::Class;

use crate::nodes::*;

const PAYLOAD: &[u8] = b"what nobody else may read or change";

/// A fragment of a bundle with this range of its payload, as a relay makes it that does not heed
/// the bundle's flags. The first one has all blocks (RFC 9171 §5.8).
pub fn fragment(whole: &Bundle, range: Range<usize>, total: usize) -> Bytes {
    let mut primary = whole.primary.clone();
    primary.bundle_control_flags |= 0x01;
    primary.fragmentation_offset = range.start as u64;
    primary.total_data_length = total as u64;
    let mut raw = vec![0x9F];
    raw.extend(encode_primary(&primary, CrcKind::Crc32c));
    let others = whole.others.iter();
    let others = others.filter(|block| range.start == 0 || block.flags & 0x01 != 0);
    others.for_each(|block| raw.extend(&block.raw));
    raw.extend(Extension::new(block_type::PAYLOAD, 1, 0, &whole.payload[range]).raw);
    raw.push(0xFF);
    Bytes::from(raw)
}

/// A bundle in fragments that begin at these places of its payload.
pub fn cut(raw: &Bytes, places: &[usize]) -> Vec<Bytes> {
    let whole = decode(raw, &DecodeLimits::default(), &CodePoints::default()).unwrap();
    let total = whole.payload.len();
    let ends = places.iter().skip(1).copied().chain([total]);
    let ranges = places.iter().zip(ends).map(|(start, end)| *start..end);
    ranges.map(|range| fragment(&whole, range, total)).collect()
}

#[test]
fn what_was_cut_on_its_way_is_delivered_once_it_is_whole_and_proved() {
    for rule in [authenticated(), encrypted(), only_encrypted()] {
        let operation = match rule.integrity_keys.is_empty() {
            true => Operation::Confidentiality,
            false => Operation::Integrity,
        };
        let (mut sender, mut receiver) = neighbours(rule);
        let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
        let fragments = cut(&raw, &[0, 10, 20]);
        for place in [2, 0, 1] {
            assert!(receiver.delivered().is_empty());
            assert_eq!(receiver.count(operation, Outcome::Verified), 0);
            assert_eq!(receiver.takes(SENDER, &fragments[place]), Ok(()));
        }
        let delivered = receiver.delivered();
        assert_eq!(delivered.len(), 1);
        assert_eq!(delivered[0].payload, PAYLOAD);
        assert_eq!(receiver.count(operation, Outcome::Verified), 1);
    }
}

#[test]
fn what_was_changed_in_a_fragment_is_not_delivered_and_is_forgotten() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let good = cut(&raw, &[0, 10]);
    let changed = replaced(&good[1], &PAYLOAD[20..25], b"sells");
    assert_eq!(receiver.takes(SENDER, &good[0]), Ok(()));
    let refused = Err(Reject::Insecure(Insecure::Failed));
    assert_eq!(receiver.takes(SENDER, &changed), refused);
    assert!(receiver.delivered().is_empty());
    for fragment in &good {
        assert_eq!(receiver.takes(SENDER, fragment), Ok(()));
    }
    assert_eq!(receiver.delivered()[0].payload, PAYLOAD);
}

/// Only the first fragment has what proves its primary block.
#[test]
fn what_another_fragment_says_of_its_bundle_does_not_count() {
    for rule in [authenticated(), encrypted(), only_encrypted()] {
        let (mut sender, mut receiver) = neighbours(rule);
        let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
        let fragments = cut(&raw, &[0, 10]);
        let last = &fragments[1];
        let said = decode(last, &DecodeLimits::default(), &CodePoints::default()).unwrap();
        let mut primary = said.primary.clone();
        // An administrative record, whose time is over sooner.
        primary.bundle_control_flags |= 0x02;
        primary.lifetime /= 2;
        let lie = encode_primary(&primary, CrcKind::Crc32c);
        let lying = replaced(last, &said.primary_raw, &lie);
        assert_eq!(receiver.takes(SENDER, &fragments[0]), Ok(()));
        assert_eq!(receiver.takes(SENDER, &lying), Ok(()));
        let delivered = receiver.delivered();
        assert_eq!(delivered[0].payload, PAYLOAD);
        assert!(delivered[0].left > primary.lifetime);
    }
}

#[test]
fn what_was_never_secured_is_missed_once_it_is_whole() {
    let (_, mut receiver) = neighbours(authenticated());
    let mut liar = Node::new(SENDER, RECEIVER, Vec::new());
    let raw = liar.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let fragments = cut(&raw, &[0, 10]);
    assert_eq!(receiver.takes(SENDER, &fragments[0]), Ok(()));
    let missing = Err(Reject::Insecure(Insecure::Missing));
    assert_eq!(receiver.takes(SENDER, &fragments[1]), missing);
    assert!(receiver.delivered().is_empty());
}

#[test]
fn a_fragment_under_custody_is_refused_and_its_custodian_not_told() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let first = &cut(&raw, &[0, 10])[0];
    // Number 1 in sequence 2 of the sender, as CCSDS 734.6 has it.
    let content = [0x83, 1, 2, 0x82, 2, 0x82, SENDER as u8, 0];
    let custody = Extension::new(13, 9, 0, &content);
    let payload = Extension::new(block_type::PAYLOAD, 1, 0, &PAYLOAD[..10]);
    let both = [&custody.raw[..], &payload.raw].concat();
    let first = replaced(first, &payload.raw, &both);
    let missing = Err(Reject::Insecure(Insecure::Missing));
    assert_eq!(receiver.takes(SENDER, &first), missing);
    receiver.now += std::time::Duration::from_secs(10);
    receiver.agent.handle_timeout(receiver.now);
    assert_eq!(receiver.offers(SENDER, Class::SIGNALLING), None);
}

#[test]
fn a_relay_that_verifies_passes_no_fragment_on() {
    let (mut sender, _) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let mut relay = Node::relay(vec![Rule {
        verify_in_transit: true,
        ..authenticated()
    }]);
    let missing = Err(Reject::Insecure(Insecure::Missing));
    for fragment in cut(&raw, &[0, 10]) {
        assert_eq!(relay.takes(SENDER, &fragment), missing);
    }
}
