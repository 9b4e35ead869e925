//! Recorded bundles that Hardy's tool has secured.

use bytes::Bytes;
use skipped::recorded::{bytes_of, folder};
use underpass_bpsec::integrity::Hash;
use underpass_bpsec::{Key, Rule};
use underpass_bundle::{Insecure, Reject};

use crate::nodes::{Node, RECEIVER, authenticated, blocks};

/// The keys of the recordings.
const K1: &str = "1a2b1a2b1a2b1a2b1a2b1a2b1a2b1a2b";
const K2: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const K3: &str = "71776572747975696f7061736466676871776572747975696f70617364666768";
/// The node and the service that the bundles come from.
const SENDER: u64 = 2;
const SERVICE: u64 = 2;

#[track_caller]
fn recorded(name: &str) -> Option<Bytes> {
    Some(bytes_of(&folder()?.join(format!("hardy/bpsec-{name}.hex"))).into())
}

/// The payload that the receiver delivers from a bundle, with these keys, or why it
/// refuses it: the same in memory and on the disk.
fn received(raw: &Bytes, integrity: &[&str], confidentiality: &[&str]) -> Result<Bytes, Reject> {
    let keys = |texts: &[&str]| texts.iter().map(|text| Key::parse(text).unwrap()).collect();
    let rule = Rule {
        source: "ipn:2.*".parse().unwrap(),
        integrity_keys: keys(integrity),
        hash: Hash::Sha384,
        confidentiality_keys: keys(confidentiality),
        ..authenticated()
    };
    let mut receiver = Node::of_service(RECEIVER, SERVICE, vec![rule.clone()]);
    let taken = receiver.takes(SENDER, raw);
    let payload = taken.map(|()| receiver.delivered().remove(0).payload);
    let mut receiver = Node::of_application(RECEIVER, SERVICE, vec![rule]);
    let on_disk = receiver.takes_long(SENDER, raw);
    assert_eq!(on_disk.map(Bytes::from), payload);
    payload
}

/// The payload of all recordings.
fn plain() -> Option<Bytes> {
    Some(blocks(&recorded("plain")?).pop().unwrap().data)
}

#[test]
fn an_integrity_block_of_hardys_is_verified() {
    let (Some(raw), Some(payload)) = (recorded("bib-sha384"), plain()) else {
        return;
    };
    assert_eq!(received(&raw, &[K1], &[]), Ok(payload.clone()));
    // Hardy's own tool tries only the first of two keys.
    assert_eq!(received(&raw, &[K2, K1], &[]), Ok(payload));
    let failed = Err(Reject::Insecure(Insecure::Failed));
    assert_eq!(received(&raw, &[K2], &[]), failed);
}

#[test]
fn what_hardy_has_encrypted_with_its_integrity_block_is_read() {
    let (Some(raw), Some(payload)) = (recorded("bib-sha384-and-bcb"), plain()) else {
        return;
    };
    assert_eq!(received(&raw, &[K1], &[K3]), Ok(payload));
    let failed = Err(Reject::Insecure(Insecure::Failed));
    assert_eq!(received(&raw, &[K2], &[K3]), failed);
    assert_eq!(received(&raw, &[K1], &[K2]), failed);
}

#[test]
fn what_hardy_has_encrypted_is_read_where_no_more_is_asked_for() {
    let (Some(raw), Some(payload)) = (recorded("bcb-aes256gcm"), plain()) else {
        return;
    };
    assert_eq!(received(&raw, &[], &[K3]), Ok(payload));
    let failed = Err(Reject::Insecure(Insecure::Failed));
    assert_eq!(received(&raw, &[], &[K2]), failed);
}

/// An operation that leaves out the payload or the primary block proves too little.
#[test]
fn what_hardy_has_secured_in_part_is_missing_the_rest() {
    let missing = Err(Reject::Insecure(Insecure::Missing));
    for (name, integrity) in [
        ("plain", K1),
        ("bib-sha256-scope0", K2),
        ("bib-primary-sha256", K2),
        ("bcb-aes256gcm", K1),
    ] {
        let Some(raw) = recorded(name) else { return };
        assert_eq!(received(&raw, &[integrity], &[K3]), missing, "{name}");
    }
}
