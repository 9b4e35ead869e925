//! Bundles that are not secured as required are refused, and other bundles do not suffer.

use bytes::Bytes;
use proptest::prelude::*;
use underpass_bpsec::integrity::{self, Hash};
use underpass_bpsec::{
    BIB_HMAC_SHA2, Header, Key, Operation, Outcome, Rule, Scope, SecurityBlock, Target, Value,
};
use underpass_bundle::wire::{CodePoints, Content, Eid, block_type, ipn};
use underpass_bundle::{Insecure, NamedRoutes, NeighbourId, Reject, Send};

use crate::nodes::*;

const PAYLOAD: &[u8] = b"pay 100 to the bearer";

/// The receiver refuses the bundle for this reason, and accepts the next good one.
fn refuses(receiver: &mut Node, sender: &mut Node, raw: &Bytes, why: Insecure) {
    assert_eq!(receiver.takes(SENDER, raw), Err(Reject::Insecure(why)));
    assert!(receiver.delivered().is_empty());
    let good = sender.sends(RECEIVER, RECEIVER, b"and on", None);
    receiver.takes(SENDER, &good).unwrap();
    assert_eq!(receiver.delivered()[0].payload, b"and on"[..]);
}

/// The bundle without its block of this kind.
fn without(raw: &Bytes, kind: u64) -> Bytes {
    let block = blocks(raw).into_iter().find(|block| block.kind == kind);
    replaced(raw, &encoded(&block.unwrap()), &[])
}

/// The bundle with another content in its BIB.
fn with_content(raw: &Bytes, content: &[u8]) -> Bytes {
    let bib = blocks(raw)
        .into_iter()
        .find(|block| block.kind == block_type::BIB);
    let bib = bib.unwrap();
    let mut other = bib.clone();
    other.data = Bytes::copy_from_slice(content);
    replaced(raw, &encoded(&bib), &encoded(&other))
}

fn bib_of(raw: &Bytes) -> Vec<u8> {
    let bib = blocks(raw)
        .into_iter()
        .find(|block| block.kind == block_type::BIB);
    bib.unwrap().data.to_vec()
}

#[test]
fn a_stripped_block_is_missed() {
    for (rule, kind) in [
        (authenticated(), block_type::BIB),
        (encrypted(), block_type::BIB),
        (encrypted(), block_type::BCB),
    ] {
        let (mut sender, mut receiver) = neighbours(rule);
        let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
        refuses(
            &mut receiver,
            &mut sender,
            &without(&raw, kind),
            Insecure::Missing,
        );
    }
}

#[test]
fn a_bundle_that_was_never_secured_is_missed_too() {
    let (_, mut receiver) = neighbours(authenticated());
    let mut liar = Node::new(SENDER, RECEIVER, Vec::new());
    let raw = liar.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let mut sender = Node::new(SENDER, RECEIVER, vec![authenticated()]);
    refuses(&mut receiver, &mut sender, &raw, Insecure::Missing);
    assert_eq!(receiver.count(Operation::Integrity, Outcome::Missing), 1);
}

#[test]
fn what_comes_to_the_nodes_name_is_judged_as_what_comes_to_its_number() {
    let (mut sender, mut receiver) = neighbours(encrypted());
    let mut liar = Node::new(SENDER, RECEIVER, Vec::new());
    let sends = |node: &mut Node| {
        node.agent.set_named_routes(NamedRoutes {
            others: Some((NeighbourId(RECEIVER), true)),
            ..NamedRoutes::default()
        });
        let to = Eid::with_dtn("//node-1/in").unwrap();
        let send = Send::new(to, SERVICE, CLASS, vec![PAYLOAD.into()]);
        node.agent.send(node.now, send).unwrap();
        node.offers(RECEIVER, CLASS).unwrap()
    };
    let unsecured = sends(&mut liar);
    let missing = Err(Reject::Insecure(Insecure::Missing));
    assert_eq!(receiver.takes(SENDER, &unsecured), missing);
    let secured = sends(&mut sender);
    receiver.takes(SENDER, &secured).unwrap();
    assert_eq!(receiver.delivered()[0].payload, PAYLOAD);
}

#[test]
fn a_changed_payload_fails() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let raw = replaced(&raw, b"pay 100", b"pay 900");
    refuses(&mut receiver, &mut sender, &raw, Insecure::Failed);
    assert_eq!(receiver.count(Operation::Integrity, Outcome::Failed), 1);
}

/// A neighbour may speak for other nodes, too, for which there are no rules of their own.
#[test]
fn a_changed_source_fails_where_a_rule_is_for_all() {
    for rule in [authenticated(), encrypted()] {
        let (mut sender, mut receiver) = neighbours_with_rule_for_all(rule);
        let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
        let source = |node| [0x82, 2, 0x82, node, 0x18, SERVICE as u8];
        let raw = replaced(&raw, &source(SENDER as u8), &source(4));
        refuses(&mut receiver, &mut sender, &raw, Insecure::Failed);
    }
}

#[test]
fn another_key_fails() {
    let wrong = Rule {
        integrity_keys: vec![key(9)],
        ..authenticated()
    };
    let mut liar = Node::new(SENDER, RECEIVER, vec![wrong]);
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = liar.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    refuses(&mut receiver, &mut sender, &raw, Insecure::Failed);
}

#[test]
fn blocks_that_are_swapped_between_two_bundles_fail() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let first = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let second = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let swapped = with_content(&first, &bib_of(&second));
    refuses(&mut receiver, &mut sender, &swapped, Insecure::Failed);
}

#[test]
fn a_payload_with_its_result_cannot_move_to_another_bundle() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let first = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let second = sender.sends(RECEIVER, RECEIVER, b"pay 999 to the bearer", None);
    // The primary block's result is from the first bundle; the payload and its result are
    // from the second.
    let mut block = SecurityBlock::parse(&bib_of(&first)).unwrap();
    let other = SecurityBlock::parse(&bib_of(&second)).unwrap();
    block = SecurityBlock::new(
        block.targets.clone(),
        block.context,
        block.source.clone(),
        block.parameters().to_vec(),
        vec![block.results(0).to_vec(), other.results(1).to_vec()],
    );
    let mixed = replaced(
        &with_content(&first, &block.encode()),
        b"pay 100",
        b"pay 999",
    );
    refuses(&mut receiver, &mut sender, &mixed, Insecure::Failed);
}

#[test]
fn a_replayed_bundle_is_not_delivered_again() {
    for rule in [authenticated(), encrypted()] {
        let (mut sender, mut receiver) = neighbours(rule);
        let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
        receiver.takes(SENDER, &raw).unwrap();
        assert_eq!(receiver.delivered().len(), 1);
        receiver.takes(SENDER, &raw).unwrap();
        assert!(receiver.delivered().is_empty());
    }
}

#[test]
fn a_truncated_block_is_malformed() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let content = bib_of(&raw);
    for end in 0..content.len() {
        let cut = with_content(&raw, &content[..end]);
        assert_eq!(
            receiver.takes(SENDER, &cut),
            Err(Reject::Insecure(Insecure::Malformed)),
            "{end} bytes"
        );
    }
    let outcome = receiver.count(Operation::Integrity, Outcome::Malformed);
    assert_eq!(outcome, content.len() as u64);
}

#[test]
fn a_truncated_result_fails() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let block = SecurityBlock::parse(&bib_of(&raw)).unwrap();
    let short = |place: usize| {
        let mut results = block.results(place).to_vec();
        if let (_, underpass_bpsec::Value::Bytes(tag)) = &mut results[0] {
            tag.truncate(16);
        }
        results
    };
    let cut = SecurityBlock::new(
        block.targets.clone(),
        block.context,
        block.source.clone(),
        block.parameters().to_vec(),
        vec![short(0), short(1)],
    );
    let raw = with_content(&raw, &cut.encode());
    refuses(&mut receiver, &mut sender, &raw, Insecure::Failed);
}

#[test]
fn an_operation_that_is_there_twice_conflicts() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let bib = blocks(&raw)
        .into_iter()
        .find(|block| block.kind == block_type::BIB);
    let bib = bib.unwrap();
    let mut again = bib.clone();
    again.number += 100;
    let both = [encoded(&bib), encoded(&again)].concat();
    let raw = replaced(&raw, &encoded(&bib), &both);
    refuses(&mut receiver, &mut sender, &raw, Insecure::Conflicting);
}

/// RFC 9172 §3.7 and §3.8.
#[test]
fn an_operation_on_what_it_must_not_be_on_conflicts() {
    let (mut sender, mut receiver) = neighbours(encrypted());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let number = |kind| {
        blocks(&raw)
            .into_iter()
            .find(|block| block.kind == kind)
            .unwrap()
            .number
    };
    let [bib, bcb] = [block_type::BIB, block_type::BCB].map(number);
    for (kind, target) in [
        (block_type::BIB, bib),
        (block_type::BIB, bcb),
        (block_type::BCB, bcb),
        (block_type::BCB, 0),
    ] {
        let found = blocks(&raw)
            .into_iter()
            .find(|block| block.kind == kind)
            .unwrap();
        let mut other = found.clone();
        let mut content = SecurityBlock::parse(&found.data).unwrap();
        content.targets = vec![target];
        other.data = content.encode().into();
        let bad = replaced(&raw, &encoded(&found), &encoded(&other));
        refuses(&mut receiver, &mut sender, &bad, Insecure::Conflicting);
    }
}

#[test]
fn an_unknown_context_is_told_apart() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let mut content = bib_of(&raw);
    // [0, 1], then the context.
    assert_eq!(content[..4], [0x82, 0, 1, 1]);
    content[3] = 0x18;
    content.insert(4, 200);
    let raw = with_content(&raw, &content);
    refuses(&mut receiver, &mut sender, &raw, Insecure::Unknown);
}

/// The content of a BIB on the primary block and payload of a bundle of the sender, made
/// with another key and with a wrapped key in it.
fn signed(raw: &Bytes, key: &Key, wrapped: Option<&[u8]>, scope: Scope) -> Vec<u8> {
    let bib = blocks(raw)
        .into_iter()
        .find(|block| block.kind == block_type::BIB);
    let header = Header {
        kind: block_type::BIB,
        number: bib.unwrap().number,
        flags: 0,
    };
    let seen = underpass_bundle::wire::inspect(raw, &Default::default(), &CodePoints::default());
    let (primary, crc) = seen.primary.unwrap();
    let primary = underpass_bundle::wire::encode_primary(&primary, crc);
    let pieces = [Bytes::from_static(PAYLOAD)];
    let payload = Header {
        kind: 1,
        number: 1,
        flags: 0,
    };
    let payload = Target::Block(payload, Content::Here(&pieces));
    let results = [Target::Primary, payload].map(|target| {
        let signed = integrity::sign(key, Hash::Sha256, scope, &primary, &target, header);
        signed.unwrap()
    });
    let results = results.to_vec();
    let mut parameters = integrity::parameters(Hash::Sha256, scope);
    // Parameter 2 is the wrapped key (RFC 9173 §3.3.2).
    parameters.extend(wrapped.map(|wrapped| (2, Value::Bytes(wrapped.to_vec()))));
    SecurityBlock::new(vec![0, 1], BIB_HMAC_SHA2, ipn(20, 0), parameters, results).encode()
}

#[test]
fn a_result_that_does_not_cover_the_primary_block_is_not_enough() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    let made = |scope| with_content(&raw, &signed(&raw, &key(1), None, scope));
    let unbound = made(Scope(0));
    refuses(&mut receiver, &mut sender, &unbound, Insecure::Missing);
    receiver
        .takes(SENDER, &made(Scope(Scope::PRIMARY)))
        .unwrap();
}

/// AES key wrap needs at least two semiblocks (RFC 3394 §2). The initial value alone
/// would unwrap to the empty key under any key, and anybody can compute a result with the
/// empty key.
#[test]
fn a_wrapped_key_that_is_too_short_for_a_key_signs_nothing() {
    const INITIAL_VALUE: [u8; 8] = [0xA6; 8];
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    for wrapped in [&INITIAL_VALUE[..], &[], &[0xA6; 16]] {
        let forged = signed(&raw, &Key::new(Vec::new()), Some(wrapped), Scope::ALL);
        let forged = with_content(&raw, &forged);
        refuses(&mut receiver, &mut sender, &forged, Insecure::Failed);
    }
}

/// A fragment that is the whole bundle is refused, too, even if it holds an administrative
/// record: otherwise a forged custody signal would be believed.
#[test]
fn a_fragment_is_refused_since_it_proves_nothing() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let signal = b"\x82\x0d\xa1\x01\x81\x83\x00\x00\x01";
    let service: &[u8] = &[0x82, 2, 0x82, 1, 0x18, 64];
    let administrative: &[u8] = &[0x82, 2, 0x82, 1, 0];
    for (flags, destination) in [(0x01, service), (0x03, administrative)] {
        let mut raw = vec![0x9F, 0x8A, 7, flags, 0];
        raw.extend(destination);
        raw.extend([
            0x82,
            2,
            0x82,
            SENDER as u8,
            0,
            0x82,
            1,
            0,
            0x82,
            1,
            2,
            0x19,
            0x27,
            0x10,
            0,
            9,
        ]);
        raw.extend([0x85, 1, 1, 0, 0, 0x49]);
        raw.extend(signal);
        raw.push(0xFF);
        refuses(&mut receiver, &mut sender, &raw.into(), Insecure::Missing);
    }
}

#[test]
fn what_is_secured_must_not_be_fragmented() {
    for rule in [authenticated(), encrypted()] {
        let (mut sender, _) = neighbours(rule);
        let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
        let seen =
            underpass_bundle::wire::inspect(&raw, &Default::default(), &CodePoints::default());
        let flags = seen.primary.unwrap().0.bundle_control_flags;
        assert_eq!(flags & 0x04, 0x04);
    }
}

#[test]
fn no_custody_signal_answers_what_may_be_a_lie() {
    let (_, mut receiver) = neighbours(authenticated());
    let mut liar = Node::new(SENDER, RECEIVER, Vec::new());
    let raw = liar.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    receiver.takes(SENDER, &raw).unwrap_err();
    receiver.now += std::time::Duration::from_secs(10);
    receiver.agent.handle_timeout(receiver.now);
    let signal = receiver.offers(SENDER, underpass_cla::Class::SIGNALLING);
    assert_eq!(signal, None);
}

/// An encrypted record that fails is no malformed one: it cannot be read at all.
#[test]
fn a_record_that_cannot_be_decrypted_fails_and_is_not_read() {
    let both = Rule {
        source: "*".parse().unwrap(),
        ..encrypted()
    };
    let (mut sender, mut receiver) = neighbours(both);
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
    receiver.takes(SENDER, &raw).unwrap();
    receiver.now += std::time::Duration::from_secs(1);
    receiver.agent.handle_timeout(receiver.now);
    let signal = receiver.offers(SENDER, underpass_cla::Class::SIGNALLING);
    let signal = signal.unwrap();
    let payload = blocks(&signal).pop().unwrap().data;
    // As plain text this would not even begin as a record does.
    let changed = replaced(&signal, &payload, &vec![0; payload.len()]);
    let failed = Err(Reject::Insecure(Insecure::Failed));
    assert_eq!(sender.takes(RECEIVER, &changed), failed);
    sender.takes(RECEIVER, &signal).unwrap();
}

/// RFC 9172 §7.1.
#[test]
fn reports_that_are_asked_for_tell_of_the_reception_and_name_the_reason() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let report_to = Some(ipn(SENDER, SERVICE));
    let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, report_to);
    let bad = replaced(&raw, b"pay 100", b"pay 900");
    let missing = without(&raw, block_type::BIB);
    for (raw, reason) in [(bad, 15), (missing, 12)] {
        receiver.takes(SENDER, &raw).unwrap_err();
        assert_eq!(receiver.reports(SENDER), [(0, 0), (3, reason)]);
    }
}

#[test]
fn a_relay_that_verifies_refuses_what_it_would_else_pass_on() {
    let rule = Rule {
        verify_in_transit: true,
        ..authenticated()
    };
    let mut sender = Node::new(SENDER, RELAY, vec![rule.clone()]);
    let mut relay = Node::relay(vec![rule]);
    let raw = sender.sends(RECEIVER, RELAY, PAYLOAD, None);
    let changed = replaced(&raw, b"pay 100", b"pay 900");
    assert_eq!(
        relay.takes(SENDER, &changed),
        Err(Reject::Insecure(Insecure::Failed))
    );
    assert_eq!(relay.offers(RECEIVER, CLASS), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Changes any byte of the primary block, the security blocks or the payload.
    #[test]
    fn no_change_of_what_is_secured_goes_unseen(
        encrypt in any::<bool>(),
        at in any::<prop::sample::Index>(),
        change in 1u8..,
    ) {
        let rule = if encrypt { encrypted() } else { authenticated() };
        let (mut sender, mut receiver) = neighbours_with_rule_for_all(rule);
        let raw = sender.sends(RECEIVER, RECEIVER, PAYLOAD, None);
        let all = blocks(&raw);
        // Other blocks may change on the way: no operation has them as targets.
        let free = all.iter().filter(|block| !matches!(block.kind, 1 | 11 | 12));
        let free: Vec<_> = free.map(|block| {
            let block = encoded(block);
            let at = find(&raw, &block);
            at..at + block.len()
        }).collect();
        let at = at.index(raw.len());
        prop_assume!(!free.iter().any(|range| range.contains(&at)));
        let mut bytes = raw.to_vec();
        bytes[at] ^= change;
        let changed = receiver.takes(SENDER, &Bytes::from(bytes));
        // An unsecured field of a security block, such as its security source, may
        // differ; the payload may not.
        for delivery in receiver.delivered() {
            prop_assert_eq!(&delivery.payload[..], PAYLOAD);
            prop_assert_eq!(delivery.source, ipn(SENDER, SERVICE));
            prop_assert!(changed.is_ok());
        }
    }

    #[test]
    fn no_content_of_a_security_block_makes_it_panic(
        content in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Ok(block) = SecurityBlock::parse(&content) {
            let again = SecurityBlock::parse(&block.encode()).unwrap();
            prop_assert_eq!(again.targets, block.targets);
        }
    }
}
