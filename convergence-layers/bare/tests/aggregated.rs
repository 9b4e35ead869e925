//! Blocks that hold several bundles.

use bytes::Bytes;
use proptest::prelude::*;
use underpass_bare::aggregated::Bundles;

/// A bundle in the form of RFC 9171: a primary block with nested arrays, and a payload
/// that may hold anything, even bytes that end arrays.
fn bundle(payload: &[u8]) -> Vec<u8> {
    let primary = [
        0x89, 0x07, 0x00, 0x02, 0x82, 0x02, 0x82, 0x01, 0x18, 0x28, 0x82, 0x01, 0x00, 0x82, 0x01,
        0x00, 0x82, 0x1a, 0, 1, 2, 3, 0x00, 0x19, 0x27, 0x10, 0x44, 1, 2, 3, 4,
    ];
    let length = (payload.len() as u32).to_be_bytes();
    let head: &[u8] = &[0x85, 0x01, 0x01, 0x00, 0x00, 0x5a];
    [&[0x9f], &primary[..], head, &length, payload, &[0xff]].concat()
}

fn apart(block: Vec<u8>) -> Vec<Vec<u8>> {
    let bundles = Bundles::of(Bytes::from(block));
    bundles.map(|bundle| bundle.to_vec()).collect()
}

proptest! {
    #[test]
    fn bundles_one_behind_the_other_come_apart(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8),
    ) {
        let bundles: Vec<_> = payloads.iter().map(|payload| bundle(payload)).collect();
        prop_assert_eq!(apart(bundles.concat()), bundles);
    }

    #[test]
    fn whatever_a_block_holds_no_byte_is_lost_or_added(
        head in prop::collection::vec(prop::sample::select(vec![0x9f, 0xff, 0x80, 0x9b, 0x5b, 0xbb, 0xd8, 0x00]), 0..40),
        bytes in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let block = [head, bytes].concat();
        let pieces = apart(block.clone());
        prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
        prop_assert_eq!(pieces.concat(), block);
    }
}

#[test]
fn a_bundle_that_is_cut_short_or_lies_about_its_length_is_left_whole_for_the_node_to_refuse() {
    let whole = bundle(b"here");
    let cut = whole[..whole.len() - 1].to_vec();
    let lie = [&[0x9f, 0x5b], &[0xff; 8][..], b"bytes"].concat();
    let nested = vec![0x9f; 100_000];
    // Each of these would cost the node as much as a bundle.
    let tiny = [0x9f_u8, 0xff].repeat(50_000);
    for bad in [cut, lie, nested, tiny, b"no bundle".to_vec()] {
        assert_eq!(
            apart([whole.clone(), bad.clone()].concat()),
            [whole.clone(), bad]
        );
    }
}
