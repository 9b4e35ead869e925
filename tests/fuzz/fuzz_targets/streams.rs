//! The streams of a peer over any payload. The node's own stream is opened first, so that
//! frames can refer to it.
#![no_main]

use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use underpass_cla::Class;
use underpass_streams::{Config, Peer, Side};

const INCARNATION: u64 = 1;
const PAYLOADS: usize = 8;

fuzz_target!(|data: &[u8]| {
    let Some((&cuts, data)) = data.split_first() else {
        return;
    };
    let mut peer = Peer::new(Config::default(), Side::of(1, 2), INCARNATION);
    let now = Instant::now();
    // Several payloads: each one meets the state that the one before has left.
    let size = data.len() / (usize::from(cuts) % PAYLOADS + 1) + 1;
    for piece in data.chunks(size) {
        let payload = Bytes::copy_from_slice(piece);
        let taken = peer.handle_payload(now, Class(2), payload.clone());
        if taken.is_err() {
            assert!(
                peer.poll_event().is_none(),
                "a refused payload has no effect"
            );
        }
        let _ = peer.handle_expired(payload);
        while peer.poll_event().is_some() {}
        while peer.poll_payload(now, Class(2), 4096).is_some() {}
        while peer.poll_settled(Class(0)).is_some() {}
        let keys: Vec<_> = peer
            .streams()
            .map(|(epoch, info)| (epoch, info.id))
            .collect();
        for (epoch, id) in keys {
            let Some(mux) = peer.streams_of(epoch, id) else {
                continue;
            };
            while mux.read(id, 1 << 16).is_some_and(|bytes| !bytes.is_empty()) {}
        }
    }
});
