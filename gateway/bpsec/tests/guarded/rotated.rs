//! Keys are replaced while bundles are in transit.

use underpass_bpsec::{Key, Rule};
use underpass_bundle::{Insecure, Reject};

use crate::nodes::*;

fn with_keys(integrity: &[u8], confidentiality: &[u8]) -> Rule {
    let keys = |seeds: &[u8]| -> Vec<Key> { seeds.iter().map(|seed| key(*seed)).collect() };
    Rule {
        integrity_keys: keys(integrity),
        confidentiality_keys: keys(confidentiality),
        ..authenticated()
    }
}

#[test]
fn an_old_key_verifies_until_it_is_removed() {
    for confidentiality in [[&[][..]; 3], [&[12], &[12, 11], &[11]]] {
        let rule = |integrity: &[u8], step: usize| with_keys(integrity, confidentiality[step]);
        let (mut sender, mut receiver) = neighbours(rule(&[2], 0));
        let on_its_way = sender.sends(RECEIVER, RECEIVER, b"first", None);
        receiver.guard.replace(vec![rule(&[2, 1], 1)]).unwrap();
        sender.guard.replace(vec![rule(&[1, 2], 1)]).unwrap();
        receiver.takes(SENDER, &on_its_way).unwrap();
        let new = sender.sends(RECEIVER, RECEIVER, b"second", None);
        receiver.takes(SENDER, &new).unwrap();
        assert_eq!(receiver.delivered().len(), 2);

        let late = Node::new(SENDER, RECEIVER, vec![rule(&[2], 0)])
            .sends(RECEIVER, RECEIVER, b"third", None);
        receiver.guard.replace(vec![rule(&[1], 2)]).unwrap();
        let refused = receiver.takes(SENDER, &late);
        assert_eq!(refused, Err(Reject::Insecure(Insecure::Failed)));
    }
}

#[test]
fn a_key_that_is_no_aes_key_leaves_the_rules_as_they_are() {
    let (mut sender, _) = neighbours(authenticated());
    let unfit = Rule {
        confidentiality_keys: vec![Key::new(vec![1; 20])],
        ..authenticated()
    };
    sender.guard.replace(vec![unfit]).unwrap_err();
    assert_eq!(sender.guard.rules_in_force(), 1);
    sender.sends(RECEIVER, RECEIVER, b"still secured", None);
}
