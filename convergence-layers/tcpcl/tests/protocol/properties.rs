//! Properties that hold for all inputs.

use proptest::prelude::*;
use underpass_tcpcl::exercise;
use underpass_tcpcl::wire::{Decoder, Frame, Limits};

use crate::peer::{AgainstPeer, ack, item, refuse, segment};

/// A peer's well-formed messages.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let extensions = prop_oneof![
        Just(Vec::new()),
        Just(vec![item(0, 1, &700u64.to_be_bytes())]),
        Just(vec![item(1, 0x8001, b"?")]),
    ];
    prop_oneof![
        4 => (0u8..4, 0u8..3, extensions, 0usize..1100)
            .prop_map(|(flags, id, extensions, length)| segment(flags, id, &extensions, length)),
        1 => (0u8..4, 0u64..3, 0u64..3000).prop_map(|(flags, id, length)| ack(flags, id, length)),
        1 => (0u8..8, 0u64..3).prop_map(|(reason, id)| refuse(reason, id)),
        1 => Just(vec![4]),
        1 => (0u8..4, 2u8..5).prop_map(|(reason, kind)| vec![6, reason, kind]),
    ]
}

fn run(pieces: &[&[u8]]) -> (Vec<String>, String) {
    let mut session = AgainstPeer::up();
    session.offer(1, 900);
    session.offer(2, 300);
    let mut said = session.sent();
    for piece in pieces {
        session.hear(piece);
        said.extend(session.sent());
    }
    (said, format!("{:?}", session.events))
}

proptest! {
    #[test]
    fn how_the_stream_is_cut_makes_no_difference(
        messages in prop::collection::vec(message(), 1..12),
        cuts in prop::collection::vec(1usize..700, 1..8),
    ) {
        let stream = messages.concat();
        let mut pieces = Vec::new();
        let mut rest = &stream[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        prop_assert_eq!(run(&pieces), run(&[&stream]));
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(data in prop::collection::vec(any::<u8>(), 0..3000)) {
        exercise(&data);
    }

    #[test]
    fn damaged_messages_do_no_harm(
        messages in prop::collection::vec(message(), 1..12),
        choice in any::<u8>(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut stream = messages.concat();
        let at = at.index(stream.len());
        stream[at] = value;
        stream.insert(0, choice & !2);
        exercise(&stream);
    }

    #[test]
    fn the_decoder_gives_all_data_and_no_more(
        lengths in prop::collection::vec(0usize..2000, 1..6),
        cut in 1usize..500,
    ) {
        let stream: Vec<u8> = lengths.iter().flat_map(|n| segment(3, 1, &[], *n)).collect();
        let mut decoder = Decoder::new(Limits::default());
        let (mut data, mut unread) = (0, Vec::new());
        for piece in stream.chunks(cut) {
            unread.extend_from_slice(piece);
            while let Some((frame, taken)) = decoder.next(&unread).expect("well-formed") {
                if let Frame::Data(piece) = frame {
                    data += piece.len();
                }
                unread.drain(..taken);
            }
        }
        prop_assert!(unread.is_empty());
        prop_assert_eq!(data, lengths.iter().sum::<usize>());
    }
}
