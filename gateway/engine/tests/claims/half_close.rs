//! Exchanges whose client ends its direction and waits for the answer, while the link is
//! blocked.

use std::time::Duration;

use underpass_engine::StreamKey;
use underpass_streams::Event;

use crate::bench::{BULK, Node, live};
use crate::reading_on::{self, SECOND, block};

fn finish(node: &mut Node, key: StreamKey) {
    node.engine.finish(node.now, key).expect("it is open");
}

/// Whether a node has read `bytes` of a stream, and then its end.
fn has_all(node: &mut Node, key: StreamKey, bytes: usize) -> bool {
    let mut read = 0;
    while let Some(data) = node.engine.read(node.now, key, usize::MAX) {
        read += data.len();
    }
    let ended = |event: &Event| matches!(event, Event::PeerFinished(id) if *id == key.id);
    read == bytes && node.has(ended)
}

#[test]
fn an_end_and_its_answer_wait_no_longer_than_the_blockage() {
    // Its bytes are sealed into custody before the end, or with it.
    for sealed_apart in [true, false] {
        let (mut terminal, mut hub) = reading_on::pair(|_| {});
        block(&mut terminal, true);
        block(&mut hub, true);
        let key = terminal.send(1, BULK, 1000);
        if sealed_apart {
            terminal.pass(terminal.now + SECOND);
        }
        finish(&mut terminal, key);
        terminal.pass(terminal.now + 12 * SECOND);
        hub.pass(terminal.now);
        block(&mut terminal, false);
        block(&mut hub, false);

        let moment = Duration::from_millis(50);
        live(&mut terminal, &mut hub, moment);
        let there = StreamKey { peer: 10, ..key };
        assert!(
            has_all(&mut hub, there, 1000),
            "sealed apart: {sealed_apart}"
        );

        // The answer begins and ends within the next blockage.
        block(&mut terminal, true);
        block(&mut hub, true);
        hub.write(there, 500);
        hub.pass(hub.now + SECOND);
        finish(&mut hub, there);
        hub.pass(hub.now + 12 * SECOND);
        terminal.pass(hub.now);
        block(&mut terminal, false);
        block(&mut hub, false);
        live(&mut terminal, &mut hub, moment);
        assert!(
            has_all(&mut terminal, key, 500),
            "sealed apart: {sealed_apart}"
        );
    }
}
