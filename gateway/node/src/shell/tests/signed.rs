//! Long bundles that are signed or encrypted: their payloads are on disk at both ends.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::thread;

use underpass_applications::Report;
use underpass_bpsec::integrity::Hash;
use underpass_bpsec::{Guard, Key, Operation, Outcome, Rule};
use underpass_bundle::wire::{
    CodePoints, CrcKind, DecodeLimits, Extension, block_type, decode, encode_primary, ipn,
};
use underpass_bundle::{self as bundle, Agent, Amount, Applications, Delivery};
use underpass_cla::Refusal;
use underpass_payloads::{PayloadFile, Payloads};

use super::super::{ApplicationDesk, drivers};
use super::long::payloads;
use super::opened::{bpdu, part};
use super::*;

const TERMINAL: u64 = 10;
const APPLICATION: u64 = 40;
const BYTES: u64 = 5_000;

/// All bundles are signed by this key.
fn rules(key: u8) -> Vec<Rule> {
    vec![Rule {
        source: "*".parse().expect("a pattern"),
        destination: "*".parse().expect("a pattern"),
        integrity_keys: vec![Key::new(vec![key; 32])],
        hash: Hash::Sha256,
        confidentiality_keys: Vec::new(),
        verify_in_transit: false,
    }]
}

/// The same, and all payloads are encrypted by this key.
fn encrypting(key: u8) -> Vec<Rule> {
    let mut rules = rules(7);
    rules[0].confidentiality_keys = vec![Key::new(vec![key; 32])];
    rules
}

fn content() -> Vec<u8> {
    (0..BYTES).map(|i| (i % 251) as u8).collect()
}

fn written(payloads: &Arc<Payloads>) -> Arc<PayloadFile> {
    let room = payloads.reserve(TERMINAL, BYTES).expect("room");
    let mut writer = room.begin(BYTES).expect("room");
    writer.write(&content()).expect("a disk");
    writer.finish().expect("a disk")
}

fn read(file: &PayloadFile) -> Vec<u8> {
    let mut content = Vec::new();
    let all = file.each_piece(|piece| content.extend_from_slice(piece));
    all.expect("a disk");
    content
}

/// A bundle as it goes over the wire.
fn encoded(chunks: &[Bytes], file: &PayloadFile) -> Vec<u8> {
    let (head, tail) = chunks.split_first().expect("a header");
    [&head[..], &read(file), &tail.concat()].concat()
}

fn to(node: u64) -> bundle::Send {
    bundle::Send {
        custody: false,
        ..bundle::Send::new(ipn(node, APPLICATION), APPLICATION, Class(2), Vec::new())
    }
}

fn terminal(rules: Vec<Rule>) -> Agent {
    let mut config = bundle::Config::new(TERMINAL, 10 << 40 | 0x1234);
    config.services.insert(APPLICATION);
    let guard = Guard::new(TERMINAL, rules).expect("random numbers");
    config.security = Some(Arc::new(guard));
    let mut agent = Agent::new(config);
    agent.neighbour_up(Instant::now(), NeighbourId(HUB));
    agent
}

/// A long bundle of the terminal to the hub's application.
fn sent(rules: Vec<Rule>) -> Vec<u8> {
    let (_folder, payloads) = payloads();
    let (now, file, hub) = (Instant::now(), written(&payloads), NeighbourId(HUB));
    let mut agent = terminal(rules);
    let unsigned = agent.draft_file(now, &to(HUB)).expect("a source");
    let sent = match unsigned {
        Some(unsigned) => {
            let signed = unsigned.sign(&file).expect("a disk").expect("a rule");
            agent.send_signed(now, to(HUB), file, signed)
        }
        None => agent.send_file(now, to(HUB), file),
    };
    sent.expect("room");
    agent.set_takes_files(hub, Class(2), true);
    let offer = agent.next_for(now, hub, Class(2), u64::MAX);
    let offer = offer.expect("the bundle");
    encoded(&offer.chunks, &offer.file.expect("its payload"))
}

/// The same with the payload in memory.
fn sent_from_memory(rules: Vec<Rule>) -> Vec<u8> {
    let (now, mut agent) = (Instant::now(), terminal(rules));
    let send = bundle::Send {
        payload: vec![content().into()],
        ..to(HUB)
    };
    agent.send(now, send).expect("room");
    let offer = agent.next_for(now, NeighbourId(HUB), Class(2), u64::MAX);
    offer.expect("the bundle").chunks.concat()
}

/// A bundle in fragments, as a relay makes them that does not heed its flags. The first one has all
/// blocks (RFC 9171 §5.8).
fn cut(raw: Vec<u8>) -> Vec<Bytes> {
    let raw = Bytes::from(raw);
    let whole = decode(&raw, &DecodeLimits::default(), &CodePoints::default());
    let whole = whole.expect("a bundle");
    let total = whole.payload.len();
    let fragment = |start: usize| {
        let mut primary = whole.primary.clone();
        primary.bundle_control_flags |= 0x01;
        primary.fragmentation_offset = start as u64;
        primary.total_data_length = total as u64;
        let mut raw = vec![0x9F];
        raw.extend(encode_primary(&primary, CrcKind::Crc32c));
        let others = whole.others.iter();
        let others = others.filter(|block| start == 0 || block.flags & 0x01 != 0);
        others.for_each(|block| raw.extend(&block.raw));
        let payload = &whole.payload[start..total.min(start + 2_000)];
        raw.extend(Extension::new(block_type::PAYLOAD, 1, 0, payload).raw);
        raw.push(0xFF);
        Bytes::from(raw)
    };
    (0..total).step_by(2_000).map(fragment).collect()
}

/// Waits until there is something to see.
async fn seen<T>(look: impl Fn() -> Option<T>) -> T {
    for _ in 0..60_000 {
        if let Some(seen) = look() {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it does not come");
}

/// An application that keeps what comes for it.
#[derive(Default)]
struct Kept {
    bundles: Mutex<Vec<Delivery>>,
}

impl ApplicationDesk for Kept {
    fn bundle(&self, delivery: Delivery) {
        self.bundles.lock().unwrap().push(delivery);
    }

    fn report(&self, _: Report) {}
}

/// A hub with an application.
struct Hub {
    shell: Arc<Shell>,
    guard: Arc<Guard>,
    payloads: Arc<Payloads>,
    kept: Arc<Kept>,
    session: SessionId,
    recorded: Arc<Recorded>,
    _folder: tempfile::TempDir,
    _inbound: mpsc::UnboundedReceiver<Inbound>,
}

impl Hub {
    fn new(rules: Vec<Rule>) -> Hub {
        let (folder, payloads) = payloads();
        let mut config = hub(&[TERMINAL]);
        let guard = Arc::new(Guard::new(HUB, rules).expect("random numbers"));
        config.agent.security = Some(guard.clone());
        let most = Amount {
            bytes: 1 << 20,
            bundles: 10,
        };
        let endpoints = vec![APPLICATION..=APPLICATION];
        let applications = Applications::new(endpoints, BTreeSet::new(), None, most);
        config.agent.applications = Some(Arc::new(applications));
        config.agent.payloads = Some(payloads.clone());
        config.agent.long_above_bytes = 200;
        let (shell, inbound) = shell(&config, 1);
        shell.attach_payloads(payloads.clone(), 200);
        let kept = Arc::new(Kept::default());
        let desk: Arc<dyn ApplicationDesk> = kept.clone();
        shell.attach_applications(&desk);
        let recorded = Arc::new(Recorded::default());
        let info = SessionInfo {
            takes_files: true,
            ..info(TERMINAL)
        };
        let session = shell.session_up(SessionId(0), info, recorded.clone());
        Hub {
            shell,
            guard,
            payloads,
            kept,
            session,
            recorded,
            _folder: folder,
            _inbound: inbound,
        }
    }

    /// A long bundle comes in.
    async fn takes(&self, raw: &[u8]) -> Result<(), Refusal> {
        let intake = self.shell.intake(self.session, raw.len() as u64)?;
        let mut intake = intake.expect("it is long");
        for piece in raw.chunks(300) {
            poll_fn(|cx| intake.poll_ready(cx)).await?;
            intake.take(Bytes::copy_from_slice(piece));
        }
        poll_fn(|cx| intake.poll_end(cx)).await
    }

    fn counted(&self, operation: Operation, outcome: Outcome) -> u64 {
        self.guard.counts().get(operation, outcome)
    }

    /// What the application has got last.
    fn delivered(&self) -> Option<Arc<PayloadFile>> {
        let delivery = self.kept.bundles.lock().unwrap().pop();
        delivery.and_then(|delivery| delivery.file)
    }
}

#[tokio::test]
async fn a_long_bundle_that_is_signed_is_verified_as_it_comes() {
    let hub = Hub::new(rules(7));
    assert_eq!(hub.takes(&sent(rules(7))).await, Ok(()));
    let file = hub.delivered().expect("a payload on disk");
    assert!(read(&file) == content());
    assert_eq!(hub.counted(Operation::Integrity, Outcome::Verified), 1);
}

#[tokio::test]
async fn a_long_bundle_that_is_not_as_it_was_signed_leaves_nothing() {
    let good = sent(rules(7));
    let mut changed = good.clone();
    // In the payload, which ends the bundle but for its break.
    let place = changed.len() - 100;
    changed[place] ^= 1;
    for (raw, outcome) in [
        (changed, Outcome::Failed),
        (sent(rules(8)), Outcome::Failed),
        (sent(Vec::new()), Outcome::Missing),
    ] {
        let hub = Hub::new(rules(7));
        assert_eq!(hub.takes(&raw).await, Err(Refusal::NotAcceptable));
        let counted = hub.counted(Operation::Integrity, outcome);
        assert_eq!(counted, 1, "{outcome:?}");
        assert_eq!(hub.kept.bundles.lock().unwrap().len(), 0);
        assert_eq!(hub.payloads.used(), (0, 0));
    }
}

#[tokio::test]
async fn a_long_bundle_that_is_encrypted_is_decrypted_once_it_has_come() {
    for raw in [sent_from_memory(encrypting(3)), sent(encrypting(3))] {
        let hub = Hub::new(encrypting(3));
        assert_eq!(hub.takes(&raw).await, Ok(()));
        let file = hub.delivered().expect("a payload on disk");
        assert!(read(&file) == content());
        assert_eq!(hub.payloads.used(), (1, BYTES));
        for operation in Operation::ALL {
            assert_eq!(hub.counted(operation, Outcome::Verified), 1);
        }
    }
}

#[tokio::test]
async fn a_long_bundle_that_is_not_as_it_was_encrypted_leaves_nothing() {
    let good = sent_from_memory(encrypting(3));
    let mut changed = good.clone();
    // The last byte of the payload, before the bundle's break.
    let place = changed.len() - 2;
    changed[place] ^= 1;
    for (raw, outcome) in [
        (changed, Outcome::Failed),
        (sent_from_memory(encrypting(4)), Outcome::Failed),
        (sent(rules(7)), Outcome::Missing),
    ] {
        let hub = Hub::new(encrypting(3));
        assert_eq!(hub.takes(&raw).await, Err(Refusal::NotAcceptable));
        let counted = hub.counted(Operation::Confidentiality, outcome);
        assert_eq!(counted, 1, "{outcome:?}");
        assert!(hub.delivered().is_none());
        assert_eq!(hub.payloads.used(), (0, 0));
    }
}

#[tokio::test]
async fn a_long_bundle_that_was_cut_on_its_way_is_decrypted_once_it_is_whole() {
    for raw in [sent_from_memory(encrypting(3)), sent(encrypting(3))] {
        let hub = Hub::new(encrypting(3));
        drivers(&hub.shell)
            .into_iter()
            .for_each(|driver| drop(tokio::spawn(driver)));
        for fragment in cut(raw) {
            assert_eq!(hub.shell.received(hub.session, fragment), Ok(()));
        }
        let file = seen(|| hub.delivered()).await;
        assert!(read(&file) == content());
        assert_eq!(hub.payloads.used(), (1, BYTES));
        for operation in Operation::ALL {
            assert_eq!(hub.counted(operation, Outcome::Verified), 1);
        }
    }
}

#[tokio::test]
async fn a_long_bundle_is_judged_though_a_thread_without_a_runtime_finds_it_whole() {
    let hub = Hub::new(encrypting(3));
    for fragment in cut(sent(encrypting(3))) {
        assert_eq!(hub.shell.received(hub.session, fragment), Ok(()));
    }
    let look = || {
        hub.shell
            .with_each(|engine, now| engine.handle_timeout(now));
    };
    let found = || {
        let looked = thread::scope(|scope| scope.spawn(look).join());
        looked.expect("a thread may call the shell");
        hub.delivered()
    };
    let file = seen(found).await;
    assert!(read(&file) == content());
}

#[tokio::test]
async fn a_long_bundle_that_was_cut_and_changed_on_its_way_leaves_nothing() {
    let hub = Hub::new(encrypting(3));
    drivers(&hub.shell)
        .into_iter()
        .for_each(|driver| drop(tokio::spawn(driver)));
    for fragment in cut(sent_from_memory(encrypting(4))) {
        assert_eq!(hub.shell.received(hub.session, fragment), Ok(()));
    }
    let failed = || hub.counted(Operation::Confidentiality, Outcome::Failed);
    seen(|| (failed() == 1).then_some(())).await;
    seen(|| (hub.payloads.used() == (0, 0)).then_some(())).await;
    assert!(hub.delivered().is_none());
}

#[test]
fn a_fragment_in_a_bpdu_that_came_in_fragments_makes_its_bundle_whole() {
    let mut rules = rules(7);
    rules[0].destination = "ipn:1.40".parse().expect("a pattern");
    let (hub, mut terminal) = (Hub::new(rules.clone()), terminal(rules));
    let send = bundle::Send {
        payload: vec![Bytes::from_static(b"in memory")],
        ..to(HUB)
    };
    let now = Instant::now();
    terminal.send(now, send).expect("room");
    let offer = terminal.next_for(now, NeighbourId(HUB), Class(2), u64::MAX);
    let fragments = cut(offer.expect("the bundle").chunks.concat());
    let content = bpdu(0, &fragments[0]);
    let middle = content.len() / 2;
    for range in [0..middle, middle..content.len()] {
        assert!(hub.kept.bundles.lock().unwrap().is_empty());
        let part = part((TERMINAL, 1), &content, range);
        assert_eq!(hub.shell.received(hub.session, part), Ok(()));
    }
    let delivery = hub.kept.bundles.lock().unwrap().pop();
    assert_eq!(delivery.expect("a bundle").payload, &b"in memory"[..]);
    assert_eq!(hub.counted(Operation::Integrity, Outcome::Verified), 1);
}

/// Sends a payload from the disk by the hub's application, and returns what a terminal gets.
fn received_from_the_disk(rules: &[Rule]) -> Vec<u8> {
    let hub = Hub::new(rules.to_vec());
    let file = written(&hub.payloads);
    let sent = hub.shell.send_for_application(to(TERMINAL), Some(file));
    let created = sent.expect("room").created;
    assert_eq!(hub.payloads.used(), (1, BYTES), "only what is sent");
    let mut raw = Bytes::new();
    while raw.is_empty() {
        hub.shell.ready(hub.session);
        for offer in hub.recorded.offers() {
            match &offer.file {
                Some(file) => raw = encoded(&offer.chunks, file).into(),
                // The hub's own announcement goes first.
                None => {
                    let acknowledged = underpass_cla::Outcome::Acknowledged;
                    hub.shell.finished(hub.session, offer.key, acknowledged);
                }
            }
        }
    }
    let mut terminal = terminal(rules.to_vec());
    let taken = terminal.receive(Instant::now(), NeighbourId(HUB), Class(2), raw);
    assert_eq!(taken, Ok(()));
    let events = std::iter::from_fn(|| terminal.poll_event());
    let delivered = events.filter_map(|event| match event {
        bundle::Event::Deliver(delivery) => Some(delivery),
        _ => None,
    });
    let delivered: Vec<Delivery> = delivered.collect();
    let time = &delivered[0].timestamp;
    assert_eq!(created, Some((time.dtntime(), time.seqno())));
    delivered[0].payload.to_vec()
}

#[test]
fn what_an_application_sends_from_the_disk_is_signed() {
    assert!(received_from_the_disk(&rules(7)) == content());
}

#[test]
fn what_an_application_sends_from_the_disk_is_encrypted() {
    assert!(received_from_the_disk(&encrypting(3)) == content());
}
