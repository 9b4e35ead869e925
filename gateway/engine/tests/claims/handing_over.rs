//! Another process takes over a node.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::Bytes;
use ciborium::Value;
use underpass_bundle::{BundleId, MemoryStore, Store};
use underpass_cla::SessionId;
use underpass_engine::{Engine, EngineConfig, HopId, NodeState, StreamKey, TakeOverError};
use underpass_handover::{HandoverError, VERSION, read, write};
use underpass_streams::{Event, ResetCode, StreamInfo};

use crate::bench::{BULK, Node, URGENT, config, exchange, live, pair};

const MOST_BYTES: u64 = 1 << 20;
const VECTOR: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/vectors/node-state-1.hex"
);

fn stores() -> Vec<Box<dyn Store>> {
    vec![Box::<MemoryStore>::default()]
}

/// A node's state in its transfer format.
fn written(node: &mut Node) -> Vec<u8> {
    node.engine.end_sessions(node.now);
    node.offers();
    assert_eq!(node.engine.handover_obstacle(), None);
    let empty = Engine::new(node.now, config(99, &[])).unwrap();
    let engine = std::mem::replace(&mut node.engine, empty);
    let mut bytes = Vec::new();
    write(&Engine::hand_over(node.now, vec![engine]), &mut bytes).unwrap();
    bytes
}

fn taken_over(node: &Node, config: &EngineConfig, bytes: &[u8]) -> Result<Engine, TakeOverError> {
    let state: NodeState = read(bytes, MOST_BYTES)?;
    let mut engines = Engine::take_over(node.now, config, stores(), state)?;
    Ok(engines.remove(0))
}

fn streams(engine: &Engine) -> BTreeMap<u64, StreamInfo> {
    let streams = engine.streams(100).into_iter();
    streams.map(|(.., info)| (info.id.0, info)).collect()
}

fn read_all(node: &mut Node, key: StreamKey) -> Vec<u8> {
    let pieces = std::iter::from_fn(|| node.engine.read(node.now, key, usize::MAX));
    pieces.flatten().collect()
}

fn content(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at ^ (at >> 8)) as u8).collect()
}

/// A hub with some of everything: a stream that is partly read, one with a gap, one with
/// waiting bytes, one that has ended, and custody.
fn busy() -> (Node, Node, Vec<StreamKey>) {
    let (mut terminal, mut hub) = pair();
    let keys: Vec<StreamKey> = (0..4).map(|_| terminal.open(1, BULK)).collect();
    for key in &keys {
        terminal
            .engine
            .write(terminal.now, *key, content(900))
            .unwrap();
    }
    live(&mut terminal, &mut hub, Duration::from_millis(50));
    // At the hub, the peer's run has the same name and the streams have the same ids.
    let there = |key: StreamKey| StreamKey { peer: 10, ..key };
    hub.engine.read(hub.now, there(keys[0]), 300);
    // The terminal's first bundle for the hub never arrives.
    let data = content(700);
    terminal.engine.write(terminal.now, keys[0], data).unwrap();
    let lost = terminal.offers().remove(0);
    terminal.ready(lost.0);
    for key in &keys[..3] {
        let data = content(700);
        terminal.engine.write(terminal.now, *key, data).unwrap();
        hub.engine
            .write(hub.now, there(*key), content(2_000))
            .unwrap();
    }
    while let Some(offered) = terminal.offers().pop() {
        terminal.carry(offered, &mut hub);
    }
    hub.engine
        .reset(hub.now, there(keys[3]), ResetCode::Cancelled, "enough")
        .unwrap();
    hub.send(10, URGENT, 100);
    hub.pass(hub.now + Duration::from_millis(5));
    (terminal, hub, keys)
}

#[test]
fn streams_go_on_and_only_what_was_under_way_is_sent_again() {
    let (mut terminal, mut hub, keys) = busy();
    let stored = |hub: &Node| -> BTreeSet<BundleId> {
        let stored = hub.engine.stored_bundles(hub.now, 100).into_iter();
        stored.map(|bundle| bundle.id).collect()
    };
    let (custody, known) = (stored(&hub), streams(&hub.engine));
    assert!(custody.len() > 1, "{custody:?}");
    assert!(known.len() >= 4, "{known:?}");
    let bytes = written(&mut hub);
    hub.engine = taken_over(&hub, &config(1, &[10]), &bytes).unwrap();
    assert_eq!(stored(&hub), custody);
    assert_eq!(streams(&hub.engine), known);
    assert!(hub.offers().is_empty(), "no session is up yet");

    let run = terminal.engine.run_of(1);
    terminal.up(0, 300);
    hub.up(0, 300);
    for old in 100..103 {
        let old = underpass_cla::SessionId(old);
        terminal.engine.session_down(terminal.now, old);
    }
    live(&mut terminal, &mut hub, Duration::from_millis(500));
    assert_eq!(terminal.engine.run_of(1), run, "it is the same run");
    for (number, key) in keys[..3].iter().enumerate() {
        let here = read_all(&mut terminal, *key);
        assert!(here == content(2_000), "what the hub had written");
        let there = StreamKey { peer: 10, ..*key };
        let left = match number {
            0 => [&content(900)[300..], &content(700), &content(700)].concat(),
            _ => [content(900), content(700)].concat(),
        };
        assert!(read_all(&mut hub, there) == left, "what it had not read");
    }
    assert!(terminal.has(|event| matches!(event, Event::Reset { .. })));
    exchange(&mut terminal, &mut hub);
    assert!(!terminal.has(|event| matches!(event, Event::PeerRestarted { .. })));
}

#[test]
fn it_is_not_handed_over_while_sessions_are_up() {
    let (_, mut hub, _) = busy();
    hub.offers();
    assert_eq!(hub.engine.handover_obstacle(), Some("sessions are up"));
    hub.engine.end_sessions(hub.now);
    assert!(hub.engine.handover_obstacle().is_some(), "they are to end");
    hub.offers();
    assert_eq!(hub.engine.handover_obstacle(), None);
}

#[test]
fn standbys_can_end_beforehand_and_streams_go_on_by_what_carries() {
    let (mut terminal, mut hub) = pair();
    let hop = HopId(0);
    let carrying = hub.engine.sessions_of(hop);
    assert_eq!(hub.engine.carried_classes(hop), carrying.len());
    let end = |hub: &mut Node, hop| hub.engine.end_standbys(hub.now, hop, |info| info.tls);
    assert_eq!(end(&mut hub, hop), 0, "there are none");
    hub.up(0, 300);
    // The next process cannot take its place.
    hub.session_with(0, 303, Some(BULK), |info| info.tls = false);
    let beside = hub.engine.sessions_of(hop).len();
    assert_eq!(end(&mut hub, hop), 3);
    assert_eq!(hub.engine.sessions_of(hop).len(), beside - 3);
    assert_eq!(end(&mut hub, hop), 0, "only that one is left");
    hub.engine.session_down(hub.now, SessionId(303));
    assert_eq!(hub.engine.sessions_of(hop), carrying);
    assert_eq!(end(&mut hub, HopId(9)), 0, "no such hop");
    exchange(&mut terminal, &mut hub);
    hub.session_with(0, 350, None, |_| {});
    assert_eq!(hub.engine.carried_classes(hop), carrying.len() + 1);
    // In a blockage no sessions can be set up with another process, so nothing waits for
    // them.
    hub.up(0, 400);
    hub.engine.block(hub.now, hop, true);
    assert_eq!(hub.engine.carried_classes(hop), 0);
    assert_eq!(end(&mut hub, hop), 0);
}

#[test]
fn another_node_or_division_does_not_take_it() {
    let (_, mut hub, _) = busy();
    let bytes = written(&mut hub);
    let refused = taken_over(&hub, &config(2, &[10]), &bytes).err().unwrap();
    assert!(refused.to_string().contains("another node's"), "{refused}");
    let state: NodeState = read(&*bytes, MOST_BYTES).unwrap();
    let two = [stores(), stores()].into_iter().flatten().collect();
    let refused = Engine::take_over(hub.now, &config(1, &[10]), two, state);
    let refused = refused.err().unwrap();
    let inconsistent = TakeOverError::State(HandoverError::Inconsistent("")).to_string();
    assert!(refused.to_string().starts_with(&inconsistent), "{refused}");
}

fn integers<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    match value {
        Value::Integer(_) => found.push(value),
        Value::Array(values) => values.iter_mut().for_each(|value| integers(value, found)),
        Value::Map(entries) => {
            let values = entries.iter_mut().map(|(_, value)| value);
            values.for_each(|value| integers(value, found));
        }
        _ => {}
    }
}

#[test]
fn a_state_with_a_mistake_is_refused_or_taken_and_never_a_panic() {
    let (_, mut hub, _) = busy();
    let bytes = written(&mut hub);
    let config = config(1, &[10]);
    let (head, state) = bytes.split_at(12);
    let state: Value = ciborium::from_reader(state).unwrap();
    let count = {
        let (mut state, mut found) = (state.clone(), Vec::new());
        integers(&mut state, &mut found);
        found.len()
    };
    assert!(count > 100, "{count}");
    let (mut refused, mut taken) = (0, 0);
    for at in 0..count {
        for wrong in [0, 1, 1 << 32, 1 << 62, u64::MAX] {
            let mut state = state.clone();
            let mut found = Vec::new();
            integers(&mut state, &mut found);
            *found[at] = Value::from(wrong);
            let mut bytes = head.to_vec();
            ciborium::into_writer(&state, &mut bytes).unwrap();
            let over = catch_unwind(AssertUnwindSafe(|| taken_over(&hub, &config, &bytes)));
            match over.unwrap_or_else(|_| panic!("integer {at} as {wrong}")) {
                Ok(_) => taken += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 100 && taken > 100, "{refused} {taken}");
}

fn fields<'a>(value: &'a mut Value, name: &str, found: &mut Vec<&'a mut Value>) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|one| fields(one, name, found)),
        Value::Map(entries) => {
            for (key, value) in entries {
                match key.as_text() == Some(name) {
                    true => found.push(value),
                    false => fields(value, name, found),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn a_number_that_leaves_no_room_for_more_is_refused() {
    let (_, mut hub, _) = busy();
    let bytes = written(&mut hub);
    let (head, state) = bytes.split_at(12);
    let state: Value = ciborium::from_reader(state).unwrap();
    for name in ["first_free_id", "next_key", "next_number"] {
        for great in [1 << 62, u64::MAX] {
            let mut state = state.clone();
            let mut found = Vec::new();
            fields(&mut state, name, &mut found);
            assert!(!found.is_empty(), "{name}");
            *found[0] = Value::from(great);
            let mut bytes = head.to_vec();
            ciborium::into_writer(&state, &mut bytes).unwrap();
            let taken = taken_over(&hub, &config(1, &[10]), &bytes);
            assert!(matches!(taken, Err(TakeOverError::State(_))), "{name}");
        }
    }
}

#[test]
fn bytes_that_are_no_state_are_refused() {
    let (_, mut hub, _) = busy();
    let bytes = written(&mut hub);
    let config = config(1, &[10]);
    for at in (0..bytes.len()).step_by(11) {
        assert!(taken_over(&hub, &config, &bytes[..at]).is_err());
        let mut wrong = bytes.clone();
        wrong[at] ^= 1 << (at % 8);
        // The result does not matter: it must not panic.
        let _ = taken_over(&hub, &config, &wrong);
    }
}

/// The state was written by an earlier version of this program.
#[test]
fn a_state_of_the_first_version_is_still_read() {
    let text = std::fs::read_to_string(VECTOR).expect("the vector");
    let digits: Vec<u32> = text.chars().filter_map(|char| char.to_digit(16)).collect();
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|two| (two[0] << 4 | two[1]) as u8)
        .collect();
    assert_eq!(VERSION, 1, "another version needs a vector of its own");
    let (_, hub, _) = busy();
    let engine = taken_over(&hub, &config(1, &[10]), &bytes).unwrap();
    assert_eq!(streams(&engine), streams(&hub.engine));
    let stored = |engine: &Engine| engine.stored_bundles(hub.now, 100).len();
    assert_eq!(stored(&engine), stored(&hub.engine));
}

#[test]
#[ignore = "writes the vector of the present version anew"]
fn write_the_vector() {
    let (_, mut hub, _) = busy();
    let hex = written(&mut hub).into_iter().enumerate();
    let hex = hex.map(|(at, byte)| match (at + 1) % 48 {
        0 => format!("{byte:02x}\n"),
        _ => format!("{byte:02x}"),
    });
    std::fs::write(VECTOR, hex.collect::<String>() + "\n").unwrap();
}
