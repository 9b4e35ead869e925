//! Frames that one process of a node hands over to the next, in wire format.

use bytes::Bytes;
use underpass_handover::HandoverError;

use super::{Frame, Sealer, decode_frames};

/// The incarnation in the header, which has no meaning here.
const NOBODY: u64 = 1;

/// A payload with these frames, DATA excepted.
pub(crate) fn packed<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Bytes {
    let mut sealer = Sealer::new(usize::MAX, NOBODY, 0);
    for frame in frames {
        let sealed = sealer.frame(frame);
        debug_assert!(sealed, "a payload has room for all frames that wait");
    }
    sealer.finish().concat().into()
}

pub(crate) fn frames_of(payload: &Bytes) -> Result<Vec<Frame>, HandoverError> {
    let (_, frames) =
        decode_frames(payload).map_err(|error| HandoverError::Malformed(error.to_string()))?;
    let sent = |frame: &Frame| !matches!(frame, Frame::Data { .. } | Frame::Unknown { .. });
    match frames.iter().all(sent) {
        true => Ok(frames),
        false => Err(HandoverError::Inconsistent("a frame waits that is none")),
    }
}
