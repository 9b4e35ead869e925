//! Secured bundles are accepted and delivered.

use underpass_bpsec::{Key, Operation, Outcome, Rule};
use underpass_bundle::wire::block_type;
use underpass_bundle::{Event, Insecure, Reject};
use underpass_cla::Class;

use crate::nodes::*;

const SECRET: &[u8] = b"what nobody else may read or change";

fn kinds(raw: &bytes::Bytes) -> Vec<u64> {
    blocks(raw).iter().map(|block| block.kind).collect()
}

#[test]
fn an_authenticated_bundle_is_delivered_as_it_was_sent() {
    let (mut sender, mut receiver) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, SECRET, None);
    assert!(kinds(&raw).contains(&block_type::BIB));
    assert!(!kinds(&raw).contains(&block_type::BCB));
    receiver.takes(SENDER, &raw).unwrap();
    let delivered = receiver.delivered();
    assert_eq!(delivered[0].payload, SECRET);
    assert_eq!(sender.count(Operation::Integrity, Outcome::Added), 1);
    assert_eq!(receiver.count(Operation::Integrity, Outcome::Verified), 1);
}

#[test]
fn an_encrypted_bundle_shows_nothing_of_its_payload_on_the_way() {
    let (mut sender, mut receiver) = neighbours(encrypted());
    let raw = sender.sends(RECEIVER, RECEIVER, SECRET, None);
    assert!(
        !raw.windows(8)
            .any(|part| SECRET.windows(8).any(|secret| secret == part))
    );
    receiver.takes(SENDER, &raw).unwrap();
    assert_eq!(receiver.delivered()[0].payload, SECRET);
    let verified = |operation| receiver.count(operation, Outcome::Verified);
    assert_eq!(Operation::ALL.map(verified), [1, 1]);
}

#[test]
fn two_bundles_with_the_same_payload_look_different() {
    let (mut sender, _) = neighbours(encrypted());
    let [first, second] = [0, 1].map(|_| {
        let raw = sender.sends(RECEIVER, RECEIVER, SECRET, None);
        blocks(&raw).pop().unwrap().data
    });
    assert_eq!(first.len(), SECRET.len());
    assert_ne!(first, second);
}

#[test]
fn an_empty_payload_is_secured_too() {
    for rule in [authenticated(), encrypted()] {
        let (mut sender, mut receiver) = neighbours(rule);
        let raw = sender.sends(RECEIVER, RECEIVER, b"", None);
        receiver.takes(SENDER, &raw).unwrap();
        assert_eq!(receiver.delivered()[0].payload, b""[..]);
    }
}

/// RFC 9171 §4.3.1 and RFC 9173 §3.8.1: a target of a BIB has no CRC.
#[test]
fn targets_of_an_integrity_block_have_no_crc() {
    let (mut sender, _) = neighbours(authenticated());
    let raw = sender.sends(RECEIVER, RECEIVER, SECRET, None);
    let payload = blocks(&raw).pop().unwrap();
    assert_eq!(payload.crc, underpass_bundle::wire::CrcKind::None);
    // The block has eight elements, and CRC type 0.
    assert_eq!(raw[1], 0x88);
}

/// RFC 9172 §3.8.
#[test]
fn an_encrypted_payload_is_marked_for_every_fragment() {
    let (mut sender, _) = neighbours(encrypted());
    let raw = sender.sends(RECEIVER, RECEIVER, SECRET, None);
    let bcb = blocks(&raw)
        .into_iter()
        .find(|block| block.kind == block_type::BCB);
    assert_eq!(bcb.unwrap().flags & 1, 1);
}

/// The example of RFC 9173, appendix A.4.
#[test]
fn a_bib_that_is_encrypted_with_its_payload_is_verified() {
    let hex = "9f88070000820282010282028202018202820201820018281a000f4240850b0300\
        005846438ed6208eb1c1ffb94d952175167df0902902064a2983910c4fb2340790bf\
        420a7d1921d5bf7c4721e02ab87a93ab1e0b75cf62e4948727c8b5dae46ed2af0543\
        9b88029191850c0201005849820301020182028202018382014c5477656c76653132\
        313231328202038204078281820150220ffc45c8a901999ecc60991dd78b29818201\
        50d2c51cb2481792dae8b21d848cede99b8501010000582390eab6457593379298a8\
        724e16e61f837488e127212b59ac91f8a86287b7d07630a122ff";
    let bytes = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16));
    let raw: bytes::Bytes = bytes.collect::<Result<Vec<_>, _>>().unwrap().into();
    let rule = |hmac_key: &str| Rule {
        source: "ipn:2.1".parse().unwrap(),
        integrity_keys: vec![Key::parse(hmac_key).unwrap()],
        confidentiality_keys: vec![
            Key::parse(&"71776572747975696f70617364666768".repeat(2)).unwrap(),
        ],
        ..authenticated()
    };
    let wrong = "2b1a2b1a2b1a2b1a2b1a2b1a2b1a2b1a";
    let mut receiver = Node::of_service(RECEIVER, 2, vec![rule(wrong)]);
    let refused = receiver.takes(2, &raw);
    assert_eq!(refused, Err(Reject::Insecure(Insecure::Failed)));
    let mut receiver = Node::of_application(RECEIVER, 2, vec![rule(wrong)]);
    let refused = receiver.takes_long(2, &raw);
    assert_eq!(refused, Err(Reject::Insecure(Insecure::Failed)));
    assert_eq!(receiver.count(Operation::Integrity, Outcome::Failed), 1);
    let right = "1a2b1a2b1a2b1a2b1a2b1a2b1a2b1a2b";
    let mut receiver = Node::of_service(RECEIVER, 2, vec![rule(right)]);
    receiver.takes(2, &raw).unwrap();
    let delivered = receiver.delivered();
    let payload = b"Ready to generate a 32-byte payload";
    assert_eq!(delivered[0].payload, payload[..]);
    let mut other_key_first = rule(right);
    other_key_first.confidentiality_keys.insert(0, key(9));
    let mut receiver = Node::of_application(RECEIVER, 2, vec![other_key_first]);
    assert_eq!(receiver.takes_long(2, &raw).unwrap(), payload);
}

#[test]
fn a_relay_without_rules_passes_blocks_on_as_they_came() {
    for rule in [authenticated(), encrypted()] {
        let mut sender = Node::new(SENDER, RELAY, vec![rule.clone()]);
        let mut relay = Node::relay(Vec::new());
        let mut receiver = Node::new(RECEIVER, RELAY, vec![rule]);
        let raw = sender.sends(RECEIVER, RELAY, SECRET, None);
        relay.takes_from_sender(&raw);
        let onward = relay.offers(RECEIVER, CLASS).unwrap();
        let security = |raw| {
            let mut blocks = blocks(raw);
            blocks.retain(|block| matches!(block.kind, 1 | 11 | 12));
            blocks
        };
        assert_eq!(security(&onward), security(&raw));
        receiver.takes(RELAY, &onward).unwrap();
        assert_eq!(receiver.delivered()[0].payload, SECRET);
    }
}

#[test]
fn a_relay_may_verify_what_it_passes_on() {
    let rule = Rule {
        verify_in_transit: true,
        ..authenticated()
    };
    let mut sender = Node::new(SENDER, RELAY, vec![rule.clone()]);
    let mut relay = Node::relay(vec![rule]);
    let raw = sender.sends(RECEIVER, RELAY, SECRET, None);
    relay.takes_from_sender(&raw);
    assert_eq!(relay.count(Operation::Integrity, Outcome::Verified), 1);
    assert!(kinds(&relay.offers(RECEIVER, CLASS).unwrap()).contains(&block_type::BIB));
}

#[test]
fn custody_signals_are_secured_like_all_that_a_node_sends() {
    let both = Rule {
        source: "*".parse().unwrap(),
        ..authenticated()
    };
    let (mut sender, mut receiver) = neighbours(both);
    let raw = sender.sends(RECEIVER, RECEIVER, SECRET, None);
    receiver.takes(SENDER, &raw).unwrap();
    receiver.now += std::time::Duration::from_secs(1);
    receiver.agent.handle_timeout(receiver.now);
    let signal = receiver.offers(SENDER, Class::SIGNALLING).unwrap();
    assert!(kinds(&signal).contains(&block_type::BIB));
    sender.takes(RECEIVER, &signal).unwrap();
    let mut events = std::iter::from_fn(|| sender.agent.poll_event());
    assert!(events.any(|event| matches!(event, Event::Released { .. })));
}

#[test]
fn a_service_gets_back_what_it_had_sent_when_its_bundle_is_given_up() {
    let (mut sender, _) = neighbours(encrypted());
    sender.sends(RECEIVER, RECEIVER, SECRET, None);
    sender.now += std::time::Duration::from_secs(48 * 3600);
    sender.agent.handle_timeout(sender.now);
    let mut events = std::iter::from_fn(|| sender.agent.poll_event());
    let given_up = events.find_map(|event| match event {
        Event::GivenUp { payload, .. } => Some(payload.concat()),
        _ => None,
    });
    assert_eq!(given_up.as_deref(), Some(SECRET));
}

#[test]
fn the_first_rule_that_matches_decides() {
    let exempt = Rule {
        destination: "ipn:*.64".parse().unwrap(),
        integrity_keys: Vec::new(),
        ..authenticated()
    };
    let mut sender = Node::new(SENDER, RECEIVER, vec![exempt, authenticated()]);
    let raw = sender.sends(RECEIVER, RECEIVER, SECRET, None);
    assert!(!kinds(&raw).contains(&block_type::BIB));
}
