//! Bundle agents with guards, connected directly.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use underpass_bpsec::integrity::Hash;
use underpass_bpsec::{Guard, Key, Operation, Outcome, Rule};
use underpass_bundle::wire::{Block, CodePoints, DecodeLimits, Eid, inspect, ipn};
use underpass_bundle::{
    Agent, Config, Delivery, Event, NeighbourId, OwnNames, Reject, ReportRequest, Route, Send,
    named_service,
};
use underpass_cla::Class;

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
        let guard = Arc::new(Guard::new(number, rules).unwrap());
        let mut config = Config::new(number, number << 40 | 0x1234);
        config.services.insert(service);
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

    pub fn count(&self, operation: Operation, outcome: Outcome) -> u64 {
        self.guard.counts().get(operation, outcome)
    }
}

/// A sender and a receiver that are neighbours, with the same rules.
pub fn neighbours(rule: Rule) -> (Node, Node) {
    let sender = Node::new(SENDER, RECEIVER, vec![rule.clone()]);
    let receiver = Node::new(RECEIVER, SENDER, vec![rule]);
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
