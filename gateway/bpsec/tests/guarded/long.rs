//! Encrypted bundles whose payloads are too long for memory: encrypted and decrypted on the disk,
//! with the same outcome as in memory.

use bytes::Bytes;
use underpass_bpsec::{Operation, Outcome, Rule};
use underpass_bundle::wire::{CodePoints, DecodeLimits, decode, ipn};
use underpass_bundle::{Insecure, Reject, Send};

use crate::nodes::*;

/// Pieces of this many bytes are read and written at once.
const PIECE_BYTES: usize = 256 << 10;

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8).collect()
}

/// A bundle of the sender, encrypted in memory.
fn sent(rule: Rule, payload: &[u8]) -> Bytes {
    let mut sender = Node::new(SENDER, RECEIVER, vec![rule]);
    sender.sends(RECEIVER, RECEIVER, payload, None)
}

fn receiver(rule: Rule) -> Node {
    Node::of_application(RECEIVER, SERVICE, vec![rule])
}

#[test]
fn what_was_encrypted_in_memory_is_decrypted_on_the_disk() {
    for rule in [encrypted(), only_encrypted()] {
        for bytes in [
            1,
            15,
            16,
            17,
            PIECE_BYTES - 1,
            PIECE_BYTES,
            PIECE_BYTES + 1,
            600_000,
        ] {
            let (payload, mut receiver) = (content(bytes), receiver(rule.clone()));
            let received = receiver.takes_long(SENDER, &sent(rule.clone(), &payload));
            assert!(received.unwrap() == payload, "{bytes}");
            let verified = |operation| receiver.count(operation, Outcome::Verified);
            assert_eq!(verified(Operation::Confidentiality), 1);
            let signed = u64::from(!rule.integrity_keys.is_empty());
            assert_eq!(verified(Operation::Integrity), signed);
        }
    }
}

#[test]
fn what_is_encrypted_on_the_disk_is_decrypted_in_memory_and_on_the_disk() {
    for rule in [encrypted(), only_encrypted(), authenticated()] {
        for bytes in [1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1] {
            let (folder, payload) = (Folder::new(), content(bytes));
            let mut sender = Node::new(SENDER, RECEIVER, vec![rule.clone()]);
            let raw = sender.sends_long(&folder, RECEIVER, &payload);
            let encrypts = !rule.confidentiality_keys.is_empty();
            let added = sender.count(Operation::Confidentiality, Outcome::Added);
            assert_eq!(added, u64::from(encrypts));
            let shows = raw.windows(payload.len()).any(|window| window == payload);
            assert!(shows != encrypts || bytes == 1, "{bytes}");
            let received = receiver(rule.clone()).takes_long(SENDER, &raw);
            assert!(received.unwrap() == payload, "{bytes}");
            let mut receiver = Node::new(RECEIVER, SENDER, vec![rule.clone()]);
            receiver.takes(SENDER, &raw).unwrap();
            assert!(receiver.delivered()[0].payload == payload, "{bytes}");
        }
    }
}

#[test]
fn what_has_no_room_for_its_encryption_is_not_sent() {
    let folder = Folder::new();
    let full = [(); 2].map(|()| folder.file(&[0; 1 << 20]));
    let used = folder.payloads.used();
    let mut sender = Node::new(SENDER, RECEIVER, vec![encrypted()]);
    let send = Send::new(ipn(RECEIVER, SERVICE), SERVICE, CLASS, Vec::new());
    let unsigned = sender.agent.draft_file(sender.now, &send).unwrap();
    let unsigned = unsigned.expect("it is to be encrypted");
    assert!(unsigned.sign(&full[0]).is_err());
    assert_eq!(folder.payloads.used(), used);
}

#[test]
fn nothing_is_released_of_what_is_not_as_it_was_encrypted() {
    let raw = sent(encrypted(), &content(PIECE_BYTES + 100));
    let whole = decode(&raw, &DecodeLimits::default(), &CodePoints::default()).unwrap();
    let begin = find(&raw, &whole.payload);
    let end = begin + whole.payload.len();
    for place in [begin, begin + PIECE_BYTES, end - 1] {
        let mut changed = raw.to_vec();
        changed[place] ^= 1;
        let mut receiver = receiver(encrypted());
        let refused = receiver.takes_long(SENDER, &changed.into());
        assert_eq!(refused, Err(Reject::Insecure(Insecure::Failed)));
        assert!(receiver.delivered().is_empty());
        let failed = receiver.count(Operation::Confidentiality, Outcome::Failed);
        assert_eq!(failed, 1);
        assert_eq!(receiver.count(Operation::Integrity, Outcome::Verified), 0);
    }
    let mut receiver = receiver(encrypted());
    let refused = receiver.takes_long(SENDER, &raw.slice(..end - 1));
    assert!(matches!(refused, Err(Reject::Malformed(_))));
    assert!(receiver.delivered().is_empty());
}

#[test]
fn what_no_key_opens_or_was_not_encrypted_is_refused_before_its_payload_comes() {
    for (rule, why) in refused_rules() {
        let raw = sent(rule, &content(100_000));
        let mut decoder = receiver(encrypted()).agent.decoder().long();
        decoder.take(raw.slice(..1_000)).unwrap();
        assert_eq!(decoder.secured(), Err(why));
    }
}

#[test]
fn while_a_key_is_replaced_both_decrypt() {
    let both = Rule {
        confidentiality_keys: vec![key(3), key(2)],
        ..encrypted()
    };
    let new_key = encrypted_with_other_key();
    let payload = content(100_000);
    for rule in [encrypted(), new_key] {
        let received = receiver(both.clone()).takes_long(SENDER, &sent(rule, &payload));
        assert!(received.unwrap() == payload);
    }
}

#[test]
fn a_payload_that_has_another_handle_is_not_decrypted_under_it() {
    let raw = sent(encrypted(), &content(1_000));
    let (folder, receiver) = (Folder::new(), receiver(encrypted()));
    let mut decoder = receiver.agent.decoder().long();
    let ciphertext = decoder.take(raw).unwrap();
    let file = folder.file(&ciphertext);
    assert!(decoder.finish(file.clone()).is_err());
    let mut kept = Vec::new();
    file.each_piece(|piece| kept.extend_from_slice(piece))
        .unwrap();
    assert_eq!(kept, ciphertext);
    let verified = receiver.count(Operation::Confidentiality, Outcome::Verified);
    assert_eq!(verified, 0);
}
