//! The order of bundles after a restart: those that earlier runs have left, and those of
//! new streams.

use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use underpass_bundle::{MemoryStore, Store};
use underpass_cla::{Outcome, SessionId};
use underpass_engine::{Engine, EngineConfig, NodeState, StreamKey};
use underpass_handover::{read, write};
use underpass_streams::{Frame, StreamId};

use crate::bench::{BULK, Node, Offered, config, live};
use crate::durable::{Durable, Kept};
use crate::reading_on::{self, SECOND};
use crate::restarts::{offered_in, payloads};

/// The number of bundles that the earlier run leaves, and the bytes of each.
const LEFT: usize = 6;
const LEFT_BYTES: usize = 100_000;
/// More than any of these bundles with its header.
const LONGEST_BYTES: u64 = LEFT_BYTES as u64 + 1_000;
/// The bytes of a new stream: more than a light one has, and no more than it may send
/// before the peer is heard.
const BEGUN_BYTES: usize = 60_000;
const WHILE: Duration = Duration::from_millis(300);

fn on(disk: &Arc<Mutex<Kept>>) -> Box<dyn Store> {
    Box::new(Durable(MemoryStore::default(), disk.clone()))
}

fn next_config() -> EngineConfig {
    let mut next = config(10, &[1]);
    next.incarnation = 2;
    next.agent.run_nonce += 1 << 30;
    next.send_buffer_bytes = Some(1 << 20);
    next
}

/// The next run of a node that was killed with bundles in transit; its sessions are up.
fn next_run(disk: &Arc<Mutex<Kept>>) -> Node {
    let (mut before, mut peer) = reading_on::pair_on(disk, |config| {
        config.window_bytes = Some(8 << 20);
        config.send_buffer_bytes = Some(1 << 20);
    });
    let key = before.send(1, BULK, 1_000);
    live(&mut before, &mut peer, SECOND);
    for _ in 0..LEFT {
        before.write(key, LEFT_BYTES);
        assert!(!offered_in(&mut before, Duration::from_millis(20)).is_empty());
    }
    let mut next = Node::with_store(before.now, next_config(), on(disk));
    assert!(next.engine.custody(next.now).used_bytes > (LEFT * LEFT_BYTES) as u64);
    next.up(0, 200);
    next
}

fn begin(node: &mut Node) -> StreamKey {
    let key = node.send(1, BULK, BEGUN_BYTES);
    node.pass(node.now + Duration::from_millis(5));
    key
}

/// For each bundle offered to a session: the run that has sealed it, and its bytes.
fn runs(offers: &[Offered], session: u64) -> Vec<(u64, u64)> {
    let offers = offers.iter().filter(|offered| offered.0.0 == session);
    let runs = offers.flat_map(|offered| {
        let payloads = payloads(slice::from_ref(offered)).into_iter();
        payloads.map(move |(header, _)| (header.sender, offered.1.len()))
    });
    runs.collect()
}

/// Asserts that just one bundle is of a stream begun after the restart, and that it goes
/// second.
fn assert_second(runs: &[(u64, u64)]) {
    let runs: Vec<u64> = runs.iter().map(|(run, _)| *run).collect();
    let mut expected = vec![1; LEFT + 1];
    expected[1] = 2;
    assert_eq!(runs, expected);
}

#[test]
fn a_stream_that_begins_waits_for_one_bundle_of_an_earlier_run_and_not_for_all() {
    let mut next = next_run(&Arc::default());
    begin(&mut next);
    assert_second(&runs(&offered_in(&mut next, WHILE), 202));
}

#[test]
fn bundles_of_an_earlier_run_and_streams_that_begin_have_half_of_the_bytes_each() {
    let mut next = next_run(&Arc::default());
    for _ in 0..12 {
        begin(&mut next);
    }
    let runs = runs(&offered_in(&mut next, WHILE), 202);
    let left = runs.iter().filter(|(run, _)| *run == 1);
    assert_eq!(left.count(), LEFT);
    let last = runs.iter().rposition(|(run, _)| *run == 1);
    let (mut earlier, mut present) = (0, 0);
    for &(run, bytes) in &runs[..=last.expect("it was left")] {
        match run {
            1 => earlier += bytes,
            _ => present += bytes,
        }
        assert!(earlier <= present + LONGEST_BYTES, "{runs:?}");
        assert!(present <= earlier + LONGEST_BYTES, "{runs:?}");
    }
}

/// The next bundle for the bulk session, the stream that it opens, and its run.
fn next_of_bulk(node: &mut Node) -> (Offered, Option<StreamId>, u64) {
    let offers = node.offers().into_iter();
    let mut bulk = offers.filter(|(session, _)| *session == SessionId(202));
    let offered = bulk.next().expect("something waits");
    let (header, frames) = payloads(slice::from_ref(&offered)).remove(0);
    let opened = frames.into_iter().find_map(|frame| match frame {
        Frame::Open { id, .. } => Some(id),
        _ => None,
    });
    node.ready(SessionId(202));
    (offered, opened, header.sender)
}

#[test]
fn in_its_turn_this_run_sends_again_before_it_begins_anything() {
    let mut next = next_run(&Arc::default());
    let first = begin(&mut next);
    let (_, _, run) = next_of_bulk(&mut next);
    assert_eq!(run, 1);
    let (broken, opened, _) = next_of_bulk(&mut next);
    assert_eq!(opened, Some(first.id));
    // The session already has the next bundle.
    let second = begin(&mut next);
    let outcome = Outcome::Broken { acknowledged: 0 };
    next.finish(broken.1.key, outcome);
    let order: Vec<_> = (0..4).map(|_| next_of_bulk(&mut next)).collect();
    let order: Vec<_> = order
        .iter()
        .map(|(_, opened, run)| (*opened, *run))
        .collect();
    let left = (None, 1);
    let again = (Some(first.id), 2);
    assert_eq!(order, [left, again, (Some(second.id), 2), left]);
}

#[test]
fn another_process_of_the_run_goes_on_with_the_turns() {
    let disk = Arc::default();
    let mut next = next_run(&disk);
    next.engine.end_sessions(next.now);
    next.offers();
    assert_eq!(next.engine.handover_obstacle(), None);
    let empty = Engine::new(next.now, config(99, &[])).expect("a valid configuration");
    let engine = std::mem::replace(&mut next.engine, empty);
    let mut bytes = Vec::new();
    write(&Engine::hand_over(next.now, vec![engine]), &mut bytes).expect("it is in memory");
    let state: NodeState = read(bytes.as_slice(), 1 << 20).expect("it was just written");
    let mut engines = Engine::take_over(next.now, &next_config(), vec![on(&disk)], state)
        .expect("the state of this run");
    next.engine = engines.remove(0);
    next.up(0, 300);
    begin(&mut next);
    assert_second(&runs(&offered_in(&mut next, WHILE), 302));
}
