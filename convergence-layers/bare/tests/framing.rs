//! Splits streams into bundles, including streams that other implementations have sent.

use proptest::prelude::*;
use skipped::recorded::{self, bytes_of};
use underpass_bare::framing::{Decoder, Frame, Framing, FramingError};

const MOST: u64 = 1 << 20;

/// All frames of a stream that arrives in pieces of these sizes.
fn frames(framing: Framing, stream: &[u8], pieces: &[usize]) -> Result<Vec<Frame>, FramingError> {
    let mut decoder = Decoder::new(framing, MOST);
    let (mut frames, mut rest) = (Vec::new(), stream);
    let mut pieces = pieces.iter().copied().cycle();
    while !rest.is_empty() {
        let count = pieces.next().unwrap_or(rest.len()).clamp(1, rest.len());
        let (mut piece, left) = rest.split_at(count);
        rest = left;
        while !piece.is_empty() {
            frames.extend(decoder.take(&mut piece)?);
        }
    }
    Ok(frames)
}

fn both() -> impl Strategy<Value = Framing> {
    prop::sample::select(vec![Framing::Stcp, Framing::Mtcp])
}

proptest! {
    #[test]
    fn bundles_come_back_however_the_stream_is_cut(
        framing in both(),
        lengths in prop::collection::vec(prop::sample::select(vec![0usize, 1, 23, 24, 255, 256, 70_000]), 0..8),
        pieces in prop::collection::vec(1usize..5_000, 1..8),
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for (index, length) in lengths.into_iter().enumerate() {
            let bundle = vec![index as u8; length];
            stream.extend(framing.head(length as u64).expect("a length that fits"));
            stream.extend(&bundle);
            expected.push(if length == 0 { Frame::Keepalive } else { Frame::Bundle(bundle.into()) });
        }
        prop_assert_eq!(frames(framing, &stream, &pieces), Ok(expected));
    }

    #[test]
    fn random_streams_never_give_more_than_came(
        framing in both(),
        stream in prop::collection::vec(any::<u8>(), 0..2_000),
        pieces in prop::collection::vec(1usize..50, 1..4),
    ) {
        if let Ok(frames) = frames(framing, &stream, &pieces) {
            let bytes: usize = frames.iter().map(|frame| match frame {
                Frame::Bundle(bundle) | Frame::Part { bytes: bundle, .. } => bundle.len(),
                Frame::Keepalive | Frame::Begin(_) => 0,
            }).sum();
            prop_assert!(bytes <= stream.len());
        }
    }
}

#[test]
fn a_long_bundle_comes_in_parts_between_others() {
    for framing in [Framing::Stcp, Framing::Mtcp] {
        let (short, long) = (vec![1; 100], vec![2; 5_000]);
        let mut stream = Vec::new();
        for bundle in [&short, &long, &short] {
            stream.extend(framing.head(bundle.len() as u64).expect("it fits"));
            stream.extend(bundle);
        }
        let mut decoder = Decoder::new(framing, 100).in_parts(5_000);
        let (mut frames, mut parts) = (Vec::new(), Vec::new());
        for mut piece in stream.chunks(700) {
            while !piece.is_empty() {
                match decoder.take(&mut piece).expect("a stream") {
                    Some(Frame::Part { bytes, last }) => {
                        parts.extend(bytes);
                        assert_eq!(last, parts.len() == long.len());
                    }
                    frame => frames.extend(frame),
                }
            }
        }
        let whole = Frame::Bundle(short.into());
        assert_eq!(frames, [whole.clone(), Frame::Begin(5_000), whole]);
        assert_eq!(parts, long);
        let mut decoder = Decoder::new(framing, 100).in_parts(4_999);
        let too_long = FramingError::TooLong {
            length: 5_000,
            most: 4_999,
        };
        let head = framing.head(5_000).expect("it fits");
        assert_eq!(decoder.take(&mut &head[..]), Err(too_long));
    }
}

#[test]
fn a_length_that_lies_is_refused_before_any_byte_of_it_is_kept() {
    let whole = |framing, bytes: &[u8]| frames(framing, bytes, &[usize::MAX]);
    let too_long = |length| Err(FramingError::TooLong { length, most: MOST });
    assert_eq!(whole(Framing::Stcp, &[0xff; 4]), too_long(u32::MAX.into()));
    assert_eq!(whole(Framing::Stcp, &[0, 0x10, 0, 1]), too_long(MOST + 1));
    let mut largest = vec![0x5b];
    largest.extend([0xff; 8]);
    assert_eq!(whole(Framing::Mtcp, &largest), too_long(u64::MAX));
    for other in [0x00, 0x5c, 0x5f, 0x60, 0x9f, 0xff] {
        let refused = Err(FramingError::NoByteString(other));
        assert_eq!(whole(Framing::Mtcp, &[other]), refused);
    }
    assert_eq!(Framing::Stcp.head(1 << 32), None);
}

/// Encodes frames as this project does.
fn written(framing: Framing, frames: &[Frame]) -> Vec<u8> {
    let mut stream = Vec::new();
    for frame in frames {
        let bundle = match frame {
            Frame::Bundle(bundle) => &bundle[..],
            _ => &[],
        };
        stream.extend(framing.head(bundle.len() as u64).expect("it fits"));
        stream.extend(bundle);
    }
    stream
}

#[test]
fn recorded_streams_come_apart_to_the_last_byte_and_are_written_alike() {
    let Some(folder) = recorded::folder() else {
        return;
    };
    let recorded = [
        (Framing::Stcp, "ion/stcp-stream-2to3.hex", 10, 7),
        (Framing::Stcp, "ion/stcp-stream-3to2.hex", 8, 8),
        (Framing::Stcp, "ion/stcp-frame-20.hex", 1, 0),
        (Framing::Stcp, "ion/stcp-frame-2000.hex", 1, 0),
        (Framing::Mtcp, "dtn7-rs/mtcp-1to2.hex", 2, 0),
        (Framing::Mtcp, "dtn7-rs/mtcp-2to1.hex", 1, 0),
    ];
    for (framing, file, bundles, keepalives) in recorded {
        let stream = bytes_of(&folder.join(file));
        let frames = frames(framing, &stream, &[7, 1_000]).expect("a stream");
        let count = frames
            .iter()
            .filter(|frame| **frame == Frame::Keepalive)
            .count();
        assert_eq!(
            (frames.len() - count, count),
            (bundles, keepalives),
            "{file}"
        );
        assert_eq!(written(framing, &frames), stream, "{file}");
    }
    let frames = frames(
        Framing::Stcp,
        &bytes_of(&folder.join("ion/stcp-frame-20.hex")),
        &[9],
    );
    let bundle = bytes_of(&folder.join("ion/bundle-20.hex"));
    assert_eq!(frames, Ok(vec![Frame::Bundle(bundle.into())]));
}
