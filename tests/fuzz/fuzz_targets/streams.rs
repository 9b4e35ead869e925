//! The streams of a peer over any payload: first one's own stream is open, so
//! that frames can mean it.
#![no_main]

use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use underpass_cla::Class;
use underpass_streams::{Config, Mux, Side};

const INCARNATION: u64 = 1;
const PAYLOADS: usize = 8;

fuzz_target!(|data: &[u8]| {
    let Some((&cuts, data)) = data.split_first() else {
        return;
    };
    let mut mux = Mux::new(Config::default(), Side::of(1, 2), INCARNATION);
    let now = Instant::now();
    // Several payloads: what one leaves behind, the next one meets.
    let size = data.len() / (usize::from(cuts) % PAYLOADS + 1) + 1;
    for piece in data.chunks(size) {
        let payload = Bytes::copy_from_slice(piece);
        let taken = mux.handle_payload(now, Class(2), payload.clone());
        if taken.is_err() {
            assert!(mux.poll_event().is_none(), "a refused payload has no effect");
        }
        let _ = mux.handle_expired(payload);
        while mux.poll_event().is_some() {}
        while mux.poll_payload(Class(2), 4096).is_some() {}
        let ids: Vec<_> = mux.streams().map(|stream| stream.id).collect();
        for id in ids {
            while mux.read(id, 1 << 16).is_some_and(|bytes| !bytes.is_empty()) {}
        }
    }
});
