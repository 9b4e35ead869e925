//! A neighbour that is away uses up its own share of the store, and slows only itself.

use std::time::{Duration, Instant};

use underpass_bundle::NeighbourId;
use underpass_cla::{Outcome, SessionId};
use underpass_engine::StreamKey;
use underpass_streams::Event;

use crate::bench::{BULK, Node, Offered, config};

const AWAY: u64 = 10;
const THERE: u64 = 11;
const STORE_BYTES: u64 = 400_000;
/// Half of the store is guaranteed to two neighbours.
const SHARE_BYTES: u64 = STORE_BYTES / 4;

/// Writes as much as is accepted; the link takes all offers, and nobody signals custody.
fn fill(hub: &mut Node, streams: &[StreamKey]) -> (usize, Vec<Offered>) {
    let (mut written, mut offered) = (0, Vec::new());
    loop {
        let before = written;
        for key in streams {
            let capacity = hub.engine.send_capacity(*key);
            hub.write(*key, capacity);
            written += capacity;
            for (session, transfer) in hub.offers() {
                hub.finish(transfer.key, Outcome::Acknowledged);
                hub.ready(session);
                offered.push((session, transfer));
            }
        }
        if written == before {
            return (written, offered);
        }
    }
}

fn used(hub: &Node, neighbour: u64) -> u64 {
    hub.engine.custody_by_neighbour()[&NeighbourId(neighbour)]
        .used
        .bytes
}

#[test]
fn what_waits_for_a_neighbour_that_is_away_stops_no_other() {
    let now = Instant::now();
    let mut hub = config(1, &[AWAY, THERE]);
    hub.agent.store_bytes = STORE_BYTES;
    hub.send_buffer_bytes = Some(16_000);
    let mut hub = Node::new(now, hub);
    hub.up(0, 100);
    hub.up(1, 200);
    let terminal = |number, base| {
        let mut terminal = Node::new(now, config(number, &[1]));
        terminal.up(0, base);
        terminal
    };
    let (mut away, mut there) = (terminal(AWAY, 100), terminal(THERE, 200));

    let of_away: Vec<StreamKey> = (0..20).map(|_| hub.open(AWAY, BULK)).collect();
    let (_, mut offered) = fill(&mut hub, &of_away);
    // Its own share, and half of the rest.
    let most = SHARE_BYTES * 2;
    assert!(used(&hub, AWAY) <= most && used(&hub, AWAY) > most / 4 * 3);
    assert!(
        of_away
            .iter()
            .all(|key| hub.engine.send_capacity(*key) == 0)
    );

    let of_there: Vec<StreamKey> = (0..20).map(|_| hub.open(THERE, BULK)).collect();
    let (written, more) = fill(&mut hub, &of_there);
    offered.extend(more);
    assert!(used(&hub, THERE) > SHARE_BYTES, "{written}");
    assert!(hub.engine.custody(hub.now).used_bytes <= STORE_BYTES);

    // One stream goes on once its bundles' custody is taken; the other stays as it is.
    hub.events.clear();
    deliver(&mut there, 200, &mut hub, &offered);
    let written_to = |hub: &mut Node, number| {
        hub.has(|_| true);
        let writable =
            |(peer, event): &(u64, Event)| *peer == number && matches!(event, Event::Writable(_));
        hub.events.iter().any(writable)
    };
    assert!(written_to(&mut hub, THERE));
    assert!(!written_to(&mut hub, AWAY));

    // Then the other stream goes on from where it was.
    deliver(&mut away, 100, &mut hub, &offered);
    assert!(written_to(&mut hub, AWAY));
}

/// A terminal, whose session numbers start at `base`, receives what it was offered, and
/// the hub receives its signals.
fn deliver(terminal: &mut Node, base: u64, hub: &mut Node, offered: &[Offered]) {
    let is_its = |session: &SessionId| (base..base + 100).contains(&session.0);
    for (session, transfer) in offered.iter().filter(|(session, _)| is_its(session)) {
        let raw = transfer.chunks.concat().into();
        assert_eq!(terminal.receive(*session, raw), Ok(()));
    }
    let at = hub.now + Duration::from_millis(200);
    terminal.pass(at);
    hub.pass(at);
    while let offered = terminal.offers()
        && !offered.is_empty()
    {
        for (session, transfer) in offered {
            let raw = transfer.chunks.concat().into();
            assert_eq!(hub.receive(session, raw), Ok(()));
            terminal.finish(transfer.key, Outcome::Acknowledged);
            terminal.ready(session);
        }
    }
}
