//! Bundle agents with guards, connected directly.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use underpass_bpsec::integrity::Hash;
use underpass_bpsec::{Guard, Key, Operation, Outcome, Rule};
use underpass_bundle::wire::{
    Block, CodePoints, DecodeLimits, Eid, Record, decode_record, inspect, ipn,
};
use underpass_bundle::{
    Agent, Amount, Applications, Config, Decoded, Delivery, Event, Insecure, NeighbourId, OwnNames,
    Reject, ReportRequest, Route, Send, named_service,
};
use underpass_cla::Class;
use underpass_payloads::{Limits, PayloadFile, Payloads};

pub const SENDER: u64 = 20;
pub const RELAY: u64 = 5;
pub const RECEIVER: u64 = 1;
pub const SERVICE: u64 = 64;
pub const CLASS: Class = Class(3);

pub fn key(seed: u8) -> Key {
    Key::new(vec![seed; 32])
}

/// All bundles of the sender are authenticated.
pub fn authenticated() -> Rule {
    Rule {
        source: "ipn:20.*".parse().unwrap(),
        destination: "*".parse().unwrap(),
        integrity_keys: vec![key(1)],
        hash: Hash::Sha256,
        confidentiality_keys: Vec::new(),
        verify_in_transit: false,
    }
}

/// The same, and payloads are encrypted.
pub fn encrypted() -> Rule {
    Rule {
        confidentiality_keys: vec![key(2)],
        ..authenticated()
    }
}

/// As [`encrypted`], with a key that no node with that rule has.
pub fn encrypted_with_other_key() -> Rule {
    Rule {
        confidentiality_keys: vec![key(3)],
        ..encrypted()
    }
}

/// By which rules a sender's bundles are refused where [`encrypted`] is required, and why.
pub fn refused_rules() -> [(Rule, Insecure); 2] {
    [
        (encrypted_with_other_key(), Insecure::Failed),
        (authenticated(), Insecure::Missing),
    ]
}

/// Payloads are encrypted, and nothing is signed.
pub fn only_encrypted() -> Rule {
    Rule {
        integrity_keys: Vec::new(),
        ..encrypted()
    }
}

pub struct Node {
    pub agent: Agent,
    pub guard: Arc<Guard>,
    pub now: Instant,
}

impl Node {
    /// A node that sends all bundles through `via`.
    pub fn new(number: u64, via: u64, rules: Vec<Rule>) -> Node {
        Node::with_routes(number, &[via], rules)
    }

    /// A node with one neighbour, node 2, and one service.
    pub fn of_service(number: u64, service: u64, rules: Vec<Rule>) -> Node {
        let mut config = Config::new(number, number << 40 | 0x1234);
        config.services.insert(service);
        Node::of_config(config, rules)
    }

    /// The same, with an application, which takes payloads on disk.
    pub fn of_application(number: u64, service: u64, rules: Vec<Rule>) -> Node {
        Node::of_config(with_application(number, service), rules)
    }

    /// The same; what comes in fragments is put together in a folder if it is longer than `above`.
    pub fn with_folder(folder: &Folder, above: u64, rules: Vec<Rule>) -> Node {
        let mut config = with_application(RECEIVER, SERVICE);
        config.payloads = Some(folder.payloads.clone());
        config.long_above_bytes = above;
        Node::of_config(config, rules)
    }

    fn of_config(mut config: Config, rules: Vec<Rule>) -> Node {
        let guard = Arc::new(Guard::new(config.node, rules).unwrap());
        config.security = Some(guard.clone());
        Node {
            agent: Agent::new(config),
            guard,
            now: Instant::now(),
        }
    }

    /// A node with these neighbours; routes to all other nodes lead through the last one.
    /// In the dtn scheme it is named after its number, with a service "in".
    fn with_routes(number: u64, neighbours: &[u64], rules: Vec<Rule>) -> Node {
        let guard = Arc::new(Guard::new(number, rules).unwrap());
        let mut config = Config::new(number, number << 40 | 0x1234);
        config.services.extend([SERVICE, named_service("in")]);
        let name = format!("node-{number}");
        config.names = Arc::new(OwnNames::new(&name, ["in".to_owned()]));
        config.security = Some(guard.clone());
        let route = |nodes, neighbour| Route {
            nodes,
            neighbour: NeighbourId(neighbour),
            take_custody: true,
        };
        let direct = neighbours.iter().map(|node| route(*node..=*node, *node));
        let last = neighbours.last().map(|node| route(1..=100, *node));
        config.routes = direct.chain(last).collect();
        Node {
            agent: Agent::new(config),
            guard,
            now: Instant::now(),
        }
    }

    /// A node with routes to both ends.
    pub fn relay(rules: Vec<Rule>) -> Node {
        Node::with_routes(RELAY, &[RECEIVER, SENDER], rules)
    }

    /// The bytes of a bundle that this node sends.
    pub fn sends(&mut self, to: u64, via: u64, payload: &[u8], report_to: Option<Eid>) -> Bytes {
        let half = payload.len() / 2;
        let pieces = [&payload[..half], &payload[half..]].map(Bytes::copy_from_slice);
        let send = Send {
            reports: report_to.map(|to| ReportRequest {
                to,
                reception: true,
                forwarding: false,
                delivery: false,
                deletion: true,
            }),
            ..Send::new(ipn(to, SERVICE), SERVICE, CLASS, pieces.to_vec())
        };
        self.agent.send(self.now, send).unwrap();
        self.offers(via, CLASS).expect("it is offered")
    }

    /// A bundle that this node sends to a neighbour with a payload on the disk. It is offered
    /// twice, with the same payload.
    pub fn sends_long(&mut self, folder: &Folder, to: u64, payload: &[u8]) -> Bytes {
        let send = Send::new(ipn(to, SERVICE), SERVICE, CLASS, Vec::new());
        let file = folder.file(payload);
        let unsigned = self.agent.draft_file(self.now, &send).unwrap();
        let signed = unsigned.unwrap().sign(&file).unwrap().unwrap();
        let sent = self.agent.send_signed(self.now, send, file, signed);
        sent.unwrap();
        assert_eq!(folder.payloads.used(), (1, payload.len() as u64));
        let to = NeighbourId(to);
        self.agent.set_takes_files(to, CLASS, true);
        let mut payloads = Vec::new();
        let mut raw = Bytes::new();
        for _ in 0..2 {
            let offer = self.agent.next_for(self.now, to, CLASS, u64::MAX).unwrap();
            let content = read(offer.file.as_ref().expect("it is on the disk"));
            let (head, tail) = offer.chunks.split_first().unwrap();
            raw = [&head[..], &content, &tail.concat()].concat().into();
            payloads.push(content);
            let broken = underpass_cla::Outcome::Broken { acknowledged: 0 };
            self.agent.transfer_finished(self.now, offer.key, broken);
        }
        assert!(payloads[0] == payloads[1]);
        raw
    }

    /// The next bundle that this node offers to a neighbour.
    pub fn offers(&mut self, via: u64, class: Class) -> Option<Bytes> {
        let offer = self
            .agent
            .next_for(self.now, NeighbourId(via), class, u64::MAX)?;
        Some(offer.chunks.concat().into())
    }

    pub fn takes(&mut self, from: u64, raw: &Bytes) -> Result<(), Reject> {
        let from = NeighbourId(from);
        self.agent.receive(self.now, from, CLASS, raw.clone())
    }

    /// The payload of a bundle that comes piece by piece and goes to the disk, where nothing else
    /// of it stays.
    pub fn takes_long(&mut self, from: u64, raw: &Bytes) -> Result<Vec<u8>, Reject> {
        let folder = Folder::new();
        let taken = self.takes_to(&folder, from, raw);
        let received = taken.map(|()| {
            let file = self.delivered().remove(0).file.expect("it is on the disk");
            let content = read(&file);
            assert_eq!(folder.payloads.used(), (1, content.len() as u64));
            content
        });
        assert_eq!(folder.payloads.used(), (0, 0));
        received
    }

    /// A bundle comes piece by piece, and its payload goes to a folder.
    pub fn takes_to(&mut self, folder: &Folder, from: u64, raw: &Bytes) -> Result<(), Reject> {
        let (from, mut decoder) = (NeighbourId(from), self.agent.decoder().long());
        let mut payload = Vec::new();
        for piece in raw.chunks(raw.len() / 9 + 1) {
            payload.extend(decoder.take(raw.slice_ref(piece)).unwrap());
        }
        let (bundle, _) = decoder.opened().unwrap();
        decoder.secured()?;
        self.agent.judge_long(self.now, from, CLASS, bundle)?;
        let decoded = decoder.finish(folder.file(&payload)).unwrap();
        let decoded = Decoded::long(raw.len() as u64, decoded);
        self.agent.receive_decoded(self.now, from, CLASS, decoded)
    }

    /// The relay receives a bundle of the sender.
    pub fn takes_from_sender(&mut self, raw: &Bytes) {
        self.takes(SENDER, raw).unwrap();
    }

    pub fn delivered(&mut self) -> Vec<Delivery> {
        let events = std::iter::from_fn(|| self.agent.poll_event());
        let delivery = |event| match event {
            Event::Deliver(delivery) => Some(delivery),
            _ => None,
        };
        events.filter_map(delivery).collect()
    }

    /// The status reports that this node offers to a neighbour: the place of what each asserts, and
    /// its reason code.
    pub fn reports(&mut self, to: u64) -> Vec<(usize, u32)> {
        let offers = std::iter::from_fn(|| self.offers(to, CLASS));
        let reports = offers.map(|report| {
            let payload = blocks(&report).pop().unwrap().data;
            let record = decode_record(&payload, &CodePoints::default()).unwrap();
            let Record::Status(report) = record else {
                panic!("{record:?}");
            };
            let mut items = report.status_information.iter();
            let asserted = items.position(|item| item.asserted);
            (asserted.expect("one is asserted"), report.report_reason)
        });
        reports.collect()
    }

    pub fn count(&self, operation: Operation, outcome: Outcome) -> u64 {
        self.guard.counts().get(operation, outcome)
    }
}

fn with_application(number: u64, service: u64) -> Config {
    let most = Amount {
        bytes: 1 << 20,
        bundles: 10,
    };
    let services = vec![service..=service];
    let applications = Applications::new(services, BTreeSet::new(), None, most);
    let mut config = Config::new(number, number << 40 | 0x1234);
    config.applications = Some(Arc::new(applications));
    config
}

pub fn read(file: &PayloadFile) -> Vec<u8> {
    let mut content = Vec::new();
    let all = file.each_piece(|piece| content.extend_from_slice(piece));
    all.unwrap();
    content
}

/// A folder of payloads.
pub struct Folder {
    pub payloads: Arc<Payloads>,
    _folder: tempfile::TempDir,
}

impl Folder {
    pub fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            quota_bytes: 4 << 20,
            payload_bytes: 1 << 20,
            leave_free_bytes: 0,
        };
        Folder {
            payloads: Payloads::open(folder.path(), limits).unwrap(),
            _folder: folder,
        }
    }

    pub fn file(&self, content: &[u8]) -> Arc<PayloadFile> {
        let bytes = content.len() as u64;
        let mut writer = self
            .payloads
            .reserve(1, bytes)
            .unwrap()
            .begin(bytes)
            .unwrap();
        writer.write(content).unwrap();
        writer.finish().unwrap()
    }
}

/// A sender and a receiver that are neighbours, with the same rules.
pub fn neighbours(rule: Rule) -> (Node, Node) {
    let sender = Node::new(SENDER, RECEIVER, vec![rule.clone()]);
    let receiver = Node::new(RECEIVER, SENDER, vec![rule]);
    (sender, receiver)
}

/// The same, but the receiver applies the rule to all other sources, too, so that a changed bundle
/// is judged whatever source it names.
pub fn neighbours_with_rule_for_all(rule: Rule) -> (Node, Node) {
    let sender = Node::new(SENDER, RECEIVER, vec![rule.clone()]);
    let all = Rule {
        source: "*".parse().unwrap(),
        ..rule.clone()
    };
    let receiver = Node::new(RECEIVER, SENDER, vec![rule, all]);
    (sender, receiver)
}

pub fn blocks(raw: &Bytes) -> Vec<Block> {
    let seen = inspect(raw, &DecodeLimits::default(), &CodePoints::default());
    assert_eq!(seen.problem, None);
    seen.blocks
}

/// The offset of `part` in `raw`.
pub fn find(raw: &[u8], part: &[u8]) -> usize {
    let mut windows = raw.windows(part.len());
    windows
        .position(|window| window == part)
        .expect("it is there")
}

/// The same bundle with `part` replaced.
pub fn replaced(raw: &Bytes, part: &[u8], by: &[u8]) -> Bytes {
    let at = find(raw, part);
    [&raw[..at], by, &raw[at + part.len()..]].concat().into()
}

/// A block without a CRC, in its encoding.
pub fn encoded(block: &Block) -> Bytes {
    underpass_bundle::wire::Extension::new(block.kind, block.number, block.flags, &block.data).raw
}
