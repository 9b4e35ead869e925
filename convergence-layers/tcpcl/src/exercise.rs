//! An entry for fuzzers.

use std::time::Instant;

use bytes::Bytes;
use underpass_cla::Transfer;

use crate::session::{Event, Role, SessionConfig, SessionCore};

/// The bytes that a session gets before arbitrary ones, so that these reach beyond the handshake.
const UP: &[u8] = b"dtn!\x04\0\
    \x07\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x10\0\0\x07ipn:9.0\0\0\0\0";

/// Runs a session over `data` as its peer's bytes; the first byte chooses the
/// role, whether the session is up before, and the size of the pieces. Panics
/// only where an invariant of this crate is broken.
pub fn exercise(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let role = if choice & 1 == 0 {
        Role::Active
    } else {
        Role::Passive
    };
    let mut config = SessionConfig::new(role, "ipn:1.0");
    config.segment_mru_bytes = 1 << 12;
    config.transfer_mru_bytes = 1 << 14;
    let now = Instant::now();
    let mut run = Run {
        core: SessionCore::new(config, now),
        now,
        unread: Vec::new(),
    };
    if choice & 2 == 0 {
        run.feed(UP);
        for key in 0..2 {
            let chunks = vec![Bytes::from(vec![0; 5000])];
            run.core.offer(Transfer::new(key, chunks));
        }
    }
    for piece in data.chunks(usize::from(choice >> 2) + 1) {
        run.feed(piece);
    }
    run.core.connection_lost("the data ended");
    run.settle();
    assert!(run.core.is_closed(), "a lost session is closed");
}

struct Run {
    core: SessionCore,
    now: Instant,
    unread: Vec<u8>,
}

impl Run {
    fn feed(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        loop {
            let taken = self.core.handle_input(self.now, &self.unread);
            self.unread.drain(..taken);
            if !self.settle() && taken == 0 {
                break;
            }
        }
        let header = 8192;
        assert!(
            self.core.is_closed() || self.unread.len() < header,
            "a live session leaves less than a message's head"
        );
    }

    fn settle(&mut self) -> bool {
        let mut answered = false;
        while self.core.poll_output(self.now).is_some() {}
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Admit { length, .. } => {
                    assert!(length.is_none_or(|length| length <= 1 << 14));
                }
                Event::Received(bundle) => assert!(bundle.len() <= 1 << 14),
                _ => continue,
            }
            self.core.answer(Ok(()));
            answered = true;
        }
        answered
    }
}
