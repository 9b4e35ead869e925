//! Segments recorded from another implementation.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use skipped::recorded::{bytes_of, folder};
use underpass_ltp::segment::{Body, Segment};
use underpass_ltp::{Config, Event, Span};

/// The recorded segments of ION, or `None` if the recording is missing.
#[track_caller]
fn vectors() -> Option<PathBuf> {
    Some(folder()?.join("ion"))
}

#[test]
fn recorded_segments_parse_to_the_last_byte_and_are_written_alike() {
    let Some(folder) = vectors() else { return };
    let mut count = 0;
    for file in fs::read_dir(folder).expect("a folder").flatten() {
        if !file.file_name().to_string_lossy().starts_with("ltp-") {
            continue;
        }
        let bytes = bytes_of(&file.path());
        let mut input = &bytes[..];
        let segment = Segment::take(&mut input).expect("a segment");
        assert!(input.is_empty(), "{segment:?}");
        let mut out = Vec::new();
        segment.put(&mut out);
        assert_eq!(out, bytes, "{segment:?}");
        count += 1;
    }
    assert_eq!(count, 8);
}

#[test]
fn a_span_takes_the_recorded_blocks_and_reports_them_as_the_recorded_receiver_did() {
    let Some(folder) = vectors() else { return };
    for (name, segments, reported) in [("20", 1, "2-report"), ("2000", 3, "4-report")] {
        let now = Instant::now();
        let mut span = Span::new(Config::new(3, 2, 1), now);
        for index in 1..=segments {
            let file = folder.join(format!("ltp-{name}-{index}-data.hex"));
            span.handle_input(now, &bytes_of(&file));
        }
        let Some(Event::Received { session, block, .. }) = span.poll_event() else {
            panic!("the block is whole");
        };
        let bundle = folder.join(format!("bundle-ltp-block-{name}.hex"));
        assert_eq!(block, bytes_of(&bundle));
        let mut out = Vec::new();
        assert!(!span.poll_transmit(now, &mut out), "it is not taken yet");
        span.answer(now, session, Ok(()));
        assert!(span.poll_transmit(now, &mut out));
        let theirs = bytes_of(&folder.join(format!("ltp-{name}-{reported}.hex")));
        let (ours, theirs) = (
            Segment::take(&mut &out[..]),
            Segment::take(&mut &theirs[..]),
        );
        let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
            panic!("both are segments");
        };
        assert_eq!(ours.session, theirs.session);
        let (Body::Report(ours), Body::Report(theirs)) = (ours.body, theirs.body) else {
            panic!("both are reports");
        };
        assert_eq!(ours.claims, theirs.claims);
        assert_eq!(
            (ours.checkpoint, ours.lower, ours.upper),
            (theirs.checkpoint, theirs.lower, theirs.upper)
        );
    }
}
