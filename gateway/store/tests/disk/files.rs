//! Custody of payloads in files, over a simulated disk and a real folder.
//!
//! The folder is as bad as a loss of power can leave it: a name that is removed is gone
//! at once, whatever the records' disk has lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::wire::ipn;
use underpass_bundle::{Agent, Config, Event, NeighbourId, Offer, Route, Send};
use underpass_cla::{Class, Outcome};
use underpass_payloads::{Limits as Folder, PayloadFile, Payloads};
use underpass_store::simulated::{Crash, Fault, SimulatedDisk};
use underpass_store::{DiskStore, Identity, Limits, Worker};

use crate::bench::LIMITS;

const BULK: Class = Class(3);
const CRASHES: [Crash; 3] = [Crash::Kill, Crash::PowerInOrder, Crash::PowerInAnyOrder];
const CONTENT: &[u8] = b"a payload that is too long for memory";
const SIGNALS: Duration = Duration::from_millis(150);

/// A node with custody on a disk and long payloads in a folder.
struct Node {
    number: u64,
    disk: SimulatedDisk,
    folder: tempfile::TempDir,
    payloads: Arc<Payloads>,
    agent: Agent,
    worker: Worker<SimulatedDisk>,
    runs: u64,
    now: Instant,
}

/// The neighbour by which a node reaches node 1.
fn onward(number: u64) -> u64 {
    match number {
        10 => 5,
        _ => 1,
    }
}

/// A run of the node: it takes up the files of an earlier run, and deletes orphans.
fn start(
    number: u64,
    run: u64,
    disk: &SimulatedDisk,
    folder: &tempfile::TempDir,
    now: Instant,
) -> (Arc<Payloads>, Agent, Worker<SimulatedDisk>) {
    let (payloads, mut agent, worker) = open(number, (run, run), disk, folder, now);
    agent.restore(now);
    payloads.keep_only(&BTreeSet::new()).unwrap();
    (payloads, agent, worker)
}

/// A process of a run of the node that has taken nothing up yet.
fn open(
    number: u64,
    (run, seed): (u64, u64),
    disk: &SimulatedDisk,
    folder: &tempfile::TempDir,
    now: Instant,
) -> (Arc<Payloads>, Agent, Worker<SimulatedDisk>) {
    let limits = Folder {
        quota_bytes: 1 << 20,
        payload_bytes: 1 << 18,
        leave_free_bytes: 0,
    };
    let payloads = Payloads::open(folder.path(), limits).unwrap();
    let mut config = Config::new(number, run << 40 | number << 34 | run);
    config.lifetime = Duration::from_secs(600);
    config.payloads = Some(payloads.clone());
    let route = |node: u64, via: u64| Route {
        nodes: node..=node,
        neighbour: NeighbourId(via),
        take_custody: true,
    };
    // Terminal 10 reaches node 1 through relay 5.
    config.routes = vec![route(1, onward(number)), route(10, 10)];
    let identity = Identity {
        node: number,
        boot: [1; 16],
        boot_ms: 1000,
        seed,
    };
    let limits = Limits {
        memory_bytes: 1 << 20,
        ..LIMITS
    };
    let opened = DiskStore::over(disk.clone(), identity, limits, now, || {});
    let (store, worker, _) = opened.expect("it opens");
    (payloads, Agent::with_store(config, Box::new(store)), worker)
}

impl Node {
    fn new(number: u64) -> Node {
        let (disk, now) = (SimulatedDisk::default(), Instant::now());
        let folder = tempfile::tempdir().unwrap();
        let (payloads, agent, worker) = start(number, 1, &disk, &folder, now);
        Node {
            number,
            disk,
            folder,
            payloads,
            agent,
            worker,
            runs: 1,
            now,
        }
    }

    fn step(&mut self, steps: usize) {
        for _ in 0..steps {
            self.worker.step(true);
            self.agent.handle_store(self.now);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.agent.handle_timeout(self.now);
    }

    fn crash(&mut self, how: Crash) {
        self.runs += 1;
        self.disk.crash(how, self.runs);
        let run = self.runs;
        let started = start(self.number, run, &self.disk, &self.folder, self.now);
        (self.payloads, self.agent, self.worker) = started;
    }

    /// Hands everything over to another process of the same run.
    fn upgrade(self) -> Node {
        let state = self.agent.hand_over(self.now);
        drop(self.worker);
        let seeds = (self.runs, 100 + self.runs);
        let opened = open(self.number, seeds, &self.disk, &self.folder, self.now);
        let (payloads, mut agent, worker) = opened;
        agent.take_over(self.now, state).expect("it agrees");
        payloads.keep_only(&BTreeSet::new()).unwrap();
        Node {
            payloads,
            agent,
            worker,
            ..self
        }
    }

    fn write(&self) -> Arc<PayloadFile> {
        let bytes = CONTENT.len() as u64;
        let room = self.payloads.reserve(1, bytes).unwrap();
        let mut writer = room.begin(bytes).unwrap();
        writer.write(CONTENT).unwrap();
        writer.finish().unwrap()
    }

    fn send(&mut self, to: u64) {
        let send = Send::new(ipn(to, 40), 64, BULK, Vec::new());
        let file = self.write();
        self.agent.send_file(self.now, send, file).expect("room");
    }

    fn offer(&mut self, to: u64, class: Class) -> Option<Offer> {
        let to = NeighbourId(to);
        self.agent.set_takes_files(to, BULK, true);
        for _ in 0..20 {
            let offer = self.agent.next_for(self.now, to, class, u64::MAX);
            if offer.is_some() || !self.agent.is_loading(to, class) {
                return offer;
            }
            self.step(1);
        }
        None
    }

    /// Gives its next long bundle to another node, which receives it as a long bundle.
    fn carry(&mut self, to: &mut Node) {
        let offer = self.offer(to.number, BULK).expect("it has one");
        let file = offer.file.as_ref().expect("it is a file");
        let (head, tail) = offer.chunks.split_first().unwrap();
        let raw = [&head[..], &content(file), &tail.concat()].concat();
        let mut decoder = to.agent.decoder().long();
        let payload = decoder.take(Bytes::from(raw.clone())).unwrap();
        assert_eq!(&payload[..], CONTENT);
        let bundle = decoder.finish(to.write()).unwrap();
        let decoded = underpass_bundle::Decoded::long(raw.len() as u64, bundle);
        let from = NeighbourId(self.number);
        let taken = to.agent.receive_decoded(to.now, from, BULK, decoded);
        taken.expect("taken");
        let acknowledged = Outcome::Acknowledged;
        self.agent
            .transfer_finished(self.now, offer.key, acknowledged);
    }

    /// Gives its custody signals to another node; returns their number.
    fn signal(&mut self, to: &mut Node) -> usize {
        let mut count = 0;
        while let Some(offer) = self.offer(to.number, Class::SIGNALLING) {
            let (from, raw) = (NeighbourId(self.number), offer.chunks.concat());
            let taken = to
                .agent
                .receive(to.now, from, Class::SIGNALLING, raw.into());
            taken.expect("taken");
            self.agent
                .transfer_finished(self.now, offer.key, Outcome::Acknowledged);
            count += 1;
        }
        count
    }

    fn bundles(&self) -> usize {
        self.agent.custody(self.now).bundles
    }

    fn names(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count()
    }

    fn lost(&mut self) -> bool {
        let events = std::iter::from_fn(|| self.agent.poll_event());
        events.fold(false, |lost, event| {
            lost | matches!(event, Event::GivenUp { .. } | Event::Deleted { .. })
        })
    }

    /// Checks that each bundle has its payload, and that each name belongs to a bundle.
    fn check(&mut self, where_: &str) {
        assert!(!self.lost(), "{where_}: a payload is missing");
        assert_eq!(self.names(), self.bundles(), "{where_}");
        let used = (self.bundles(), (self.bundles() * CONTENT.len()) as u64);
        assert_eq!(self.payloads.used(), used, "{where_}");
        if self.bundles() > 0 {
            let offer = self.offer(onward(self.number), BULK).expect(where_);
            assert_eq!(content(&offer.file.expect(where_)), CONTENT, "{where_}");
        }
    }
}

fn content(file: &PayloadFile) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(file.len()).unwrap()];
    file.read_at(&mut content, 0).unwrap();
    content
}

#[test]
fn what_was_sent_survives_any_crash_once_it_is_written_and_leaves_no_orphan_before() {
    for how in CRASHES {
        for steps in 0..4 {
            let mut terminal = Node::new(10);
            terminal.send(1);
            terminal.pass(Duration::from_millis(300));
            terminal.step(steps);
            terminal.crash(how);
            terminal.check(&format!("{how:?} after {steps} steps"));
            let expected = usize::from(steps > 0);
            assert_eq!(terminal.bundles(), expected, "{how:?} after {steps}");
        }
    }
}

#[test]
fn a_relay_signals_custody_only_when_record_and_file_are_durable_and_keeps_both() {
    for how in CRASHES {
        let (mut terminal, mut relay) = (Node::new(10), Node::new(5));
        relay.now = terminal.now;
        terminal.send(1);
        terminal.carry(&mut relay);
        relay.pass(SIGNALS);
        assert_eq!(relay.signal(&mut terminal), 0, "nothing is written yet");
        relay.step(3);
        relay.pass(SIGNALS);
        assert!(relay.signal(&mut terminal) > 0);
        assert_eq!(terminal.bundles(), 0);
        relay.crash(how);
        relay.check(&format!("{how:?}"));
        assert_eq!(relay.bundles(), 1);
        terminal.step(3);
        assert_eq!((terminal.names(), terminal.payloads.used()), (0, (0, 0)));
    }
}

#[test]
fn a_file_is_deleted_only_once_no_crash_brings_its_bundle_back() {
    for how in CRASHES {
        for steps in 0..4 {
            let mut terminal = Node::new(10);
            terminal.send(1);
            terminal.pass(Duration::from_millis(300));
            terminal.step(3);
            let id = terminal.agent.list(terminal.now, None, 1)[0].id;
            let now = terminal.now;
            terminal.agent.discard(now, id);
            terminal.step(steps);
            terminal.lost();
            assert_eq!(terminal.names(), usize::from(steps == 0));
            terminal.crash(how);
            terminal.check(&format!("{how:?} after {steps} steps"));
        }
    }
}

/// A node with this many bundles; the first is released while the disk has these faults.
fn released_amid(faults: &[Fault], bundles: usize) -> Node {
    let mut terminal = Node::new(10);
    for _ in 0..bundles {
        terminal.send(1);
    }
    terminal.pass(Duration::from_millis(300));
    terminal.step(3);
    terminal.lost();
    let id = terminal.agent.list(terminal.now, None, 1)[0].id;
    let now = terminal.now;
    terminal.agent.discard(now, id);
    faults.iter().for_each(|f| terminal.disk.fail(*f, 100));
    terminal.step(3);
    terminal
}

#[test]
fn while_the_disk_cannot_say_that_it_is_released_its_file_stays() {
    // A release is recorded by a record, or by the deletion of the bundle's segment if
    // that holds nothing else.
    let record: &[Fault] = &[Fault::Sync];
    let both: &[Fault] = &[Fault::Sync, Fault::SyncNames];
    for (faults, bundles) in [(record, 2), (both, 1), (both, 2)] {
        let mut terminal = released_amid(faults, bundles);
        assert_eq!(terminal.names(), bundles, "{faults:?}");
        faults.iter().for_each(|f| terminal.disk.fail(*f, 0));
        terminal.step(3);
        let left = bundles - 1;
        assert_eq!(terminal.names(), left, "{faults:?}");
        let used = (left, (left * CONTENT.len()) as u64);
        assert_eq!(terminal.payloads.used(), used, "{faults:?}");
    }
}

#[test]
fn whatever_of_a_release_the_disk_fails_at_no_crash_brings_a_bundle_back_without_its_file() {
    let all = [Fault::Sync, Fault::SyncNames];
    for faults in [&all[..1], &all[1..], &all[..]] {
        for (how, bundles) in CRASHES.into_iter().flat_map(|how| [(how, 1), (how, 2)]) {
            let mut terminal = released_amid(faults, bundles);
            faults.iter().for_each(|f| terminal.disk.fail(*f, 0));
            terminal.lost();
            terminal.crash(how);
            terminal.check(&format!("{how:?} after {faults:?} of {bundles}"));
        }
    }
}

#[test]
fn one_that_is_released_before_it_is_written_never_has_a_name() {
    let mut terminal = Node::new(10);
    terminal.send(1);
    let id = terminal.agent.list(terminal.now, None, 1)[0].id;
    let now = terminal.now;
    terminal.agent.discard(now, id);
    terminal.pass(Duration::from_millis(300));
    terminal.step(3);
    assert_eq!((terminal.names(), terminal.payloads.used()), (0, (0, 0)));
}

#[test]
fn a_bundle_whose_file_is_gone_is_told_as_lost_and_not_kept() {
    let mut terminal = Node::new(10);
    terminal.send(1);
    terminal.pass(Duration::from_millis(300));
    terminal.step(3);
    for entry in std::fs::read_dir(terminal.folder.path()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    terminal.crash(Crash::Kill);
    assert!(terminal.lost());
    assert_eq!(terminal.bundles(), 0);
    terminal.step(3);
    terminal.crash(Crash::Kill);
    assert!(!terminal.lost());
}

#[test]
fn an_upgrade_waits_for_the_name_and_hands_the_payload_over() {
    let mut terminal = Node::new(10);
    terminal.send(1);
    assert!(terminal.agent.handover_obstacle().is_some());
    terminal.pass(Duration::from_millis(300));
    terminal.step(3);
    assert!(!terminal.lost());
    assert_eq!(terminal.agent.handover_obstacle(), None);
    let mut terminal = terminal.upgrade();
    terminal.check("upgraded");
    assert_eq!(terminal.bundles(), 1);
    let id = terminal.agent.list(terminal.now, None, 1)[0].id;
    let now = terminal.now;
    terminal.agent.discard(now, id);
    terminal.step(3);
    assert_eq!((terminal.names(), terminal.payloads.used()), (0, (0, 0)));
}
