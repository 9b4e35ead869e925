//! Agents connected directly, in virtual time.

use std::time::{Duration, Instant};

use bp7::canonical::new_payload_block;
use bp7::dtntime::CreationTimestamp;
use bp7::flags::{BlockControlFlags, BundleControlFlags};
use bp7::primary::{PrimaryBlock, PrimaryBlockBuilder};
use bytes::Bytes;
use underpass_bundle::wire::{
    Bundle, CodePoints, CrcKind, DecodeLimits, Eid, Extension, block_type, decode, encode_primary,
    ipn,
};
use underpass_bundle::{
    Agent, BundleId, Config, Delivery, Event, NeighbourId, Offer, Reject, Route, Send, SendError,
};
use underpass_cla::{Class, Outcome};

pub const BULK: Class = Class(3);
pub const SERVICE: u64 = 64;
/// The lifetime of bundles with a `primary` block.
pub const LIFETIME: Duration = Duration::from_secs(60);

pub fn node(number: u64) -> Config {
    let mut config = Config::new(number, number << 40 | 0x1234);
    config.services.insert(SERVICE);
    config
}

/// A route to a node by a neighbour, with custody.
pub fn route(node: u64, via: u64) -> Route {
    Route {
        nodes: node..=node,
        neighbour: NeighbourId(via),
        take_custody: true,
    }
}

pub fn payload(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// The primary block of another implementation's bundle, from `SERVICE` of a node.
pub fn primary(flags: u64, source: u64, destination: Eid) -> PrimaryBlock {
    PrimaryBlockBuilder::new()
        .bundle_control_flags(flags)
        .destination(destination)
        .source(ipn(source, SERVICE))
        .report_to(ipn(source, 0))
        .creation_timestamp(CreationTimestamp::with_time_and_seq(1_000, 7))
        .lifetime(LIFETIME)
        .build()
        .unwrap()
}

/// A bundle of that block, extension blocks, and a payload without CRC.
pub fn bundle(primary: &PrimaryBlock, blocks: &[Extension], content: &[u8]) -> Bytes {
    let mut raw = vec![0x9F];
    raw.extend(encode_primary(primary, CrcKind::Crc32c));
    blocks.iter().for_each(|block| raw.extend(&block.raw));
    raw.extend(Extension::new(block_type::PAYLOAD, 1, 0, content).raw);
    raw.push(0xFF);
    raw.into()
}

/// An administrative record from one node to another, as a bundle.
pub fn record_bundle(from: u64, to: u64, record: Vec<u8>) -> Bytes {
    let primary = PrimaryBlockBuilder::new()
        .bundle_control_flags(BundleControlFlags::BUNDLE_ADMINISTRATIVE_RECORD_PAYLOAD.bits())
        .destination(ipn(to, 0))
        .source(ipn(from, 0))
        .lifetime(LIFETIME)
        .build()
        .unwrap();
    let payload = new_payload_block(BlockControlFlags::empty(), record);
    bp7::Bundle::new(primary, vec![payload]).to_cbor().into()
}

pub fn read(raw: &Bytes) -> Bundle {
    decode(raw, &DecodeLimits::default(), &CodePoints::default()).unwrap()
}

/// The next bundle that a node sends to a neighbour.
pub fn next(agent: &mut Agent, now: Instant, to: u64) -> Option<Bundle> {
    let offer = agent.next_for(now, NeighbourId(to), BULK, u64::MAX)?;
    Some(read(&offer.chunks.concat().into()))
}

pub struct Net {
    pub agents: Vec<Agent>,
    pub now: Instant,
    events: Vec<Vec<Event>>,
}

impl Net {
    pub fn new(mut agents: Vec<Agent>) -> Net {
        let now = Instant::now();
        let count = agents.len() as u64;
        for (index, agent) in agents.iter_mut().enumerate() {
            let others = (1..=count).filter(|number| *number != index as u64 + 1);
            others.for_each(|number| agent.neighbour_up(now, NeighbourId(number)));
        }
        let events = agents.iter().map(|_| Vec::new()).collect();
        Net {
            agents,
            now,
            events,
        }
    }

    /// Agents of these configurations, numbered from 1.
    pub fn of<const N: usize>(configs: [Config; N]) -> Net {
        Net::new(configs.map(Agent::new).into())
    }

    pub fn send(&mut self, from: usize, to: u64, bytes: &[u8]) -> Result<BundleId, SendError> {
        self.send_pieces(from, to, SERVICE, vec![payload(bytes)])
    }

    pub fn send_pieces(
        &mut self,
        from: usize,
        to: u64,
        service: u64,
        payload: Vec<Bytes>,
    ) -> Result<BundleId, SendError> {
        let send = Send::new(ipn(to, service), SERVICE, BULK, payload);
        self.agents[from].send(self.now, send)
    }

    pub fn offer(&mut self, from: usize, to: u64) -> Option<Offer> {
        self.agents[from].next_for(self.now, NeighbourId(to), BULK, u64::MAX)
    }

    pub fn try_arrive(&mut self, at: usize, from: u64, offer: &Offer) -> Result<(), Reject> {
        let raw = offer.chunks.concat().into();
        self.agents[at].receive(self.now, NeighbourId(from), BULK, raw)
    }

    pub fn arrive(&mut self, at: usize, from: u64, offer: &Offer) {
        self.try_arrive(at, from, offer).unwrap();
    }

    pub fn finish(&mut self, at: usize, offer: &Offer, outcome: Outcome) {
        self.agents[at].transfer_finished(self.now, offer.key, outcome);
    }

    /// Carries the next bundle from one agent to another, and acknowledges it.
    pub fn carry(&mut self, from: usize, to: usize) {
        let offer = self.offer(from, to as u64 + 1).unwrap();
        self.arrive(to, from as u64 + 1, &offer);
        self.finish(from, &offer, Outcome::Acknowledged);
    }

    /// Lets time pass, and serves each deadline when it is due.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let due = |agents: &[Agent]| agents.iter().filter_map(Agent::next_timeout).min();
        while let Some(at) = due(&self.agents).filter(|at| *at <= end) {
            self.now = self.now.max(at);
            for agent in &mut self.agents {
                agent.handle_timeout(self.now);
            }
        }
        self.now = end;
    }

    /// Carries all waiting signals from one agent to another.
    pub fn carry_signals(&mut self, from: usize, to: usize) {
        let via = NeighbourId(to as u64 + 1);
        while let Some(offer) =
            self.agents[from].next_for(self.now, via, Class::SIGNALLING, u64::MAX)
        {
            let raw = offer.chunks.concat().into();
            self.agents[to]
                .receive(
                    self.now,
                    NeighbourId(from as u64 + 1),
                    Class::SIGNALLING,
                    raw,
                )
                .unwrap();
            self.finish(from, &offer, Outcome::Acknowledged);
        }
    }

    /// Waits for as long as an agent may gather signals, then carries them.
    pub fn signal(&mut self, from: usize, to: usize) {
        self.pass(Duration::from_millis(100));
        self.carry_signals(from, to);
    }

    /// All events since the last call of a method that takes events.
    pub fn events(&mut self, at: usize) -> Vec<Event> {
        while let Some(event) = self.agents[at].poll_event() {
            self.events[at].push(event);
        }
        std::mem::take(&mut self.events[at])
    }

    pub fn released(&mut self, at: usize) -> Vec<BundleId> {
        let (released, rest) = self
            .events(at)
            .into_iter()
            .partition(|event| matches!(event, Event::Released { .. }));
        self.events[at] = rest;
        let id = |event| match event {
            Event::Released { id, .. } => Some(id),
            _ => None,
        };
        Vec::into_iter(released).filter_map(id).collect()
    }

    pub fn deliveries(&mut self, at: usize) -> Vec<Delivery> {
        let delivery = |event| match event {
            Event::Deliver(delivery) => Some(delivery),
            _ => None,
        };
        self.events(at).into_iter().filter_map(delivery).collect()
    }

    pub fn delivered(&mut self, at: usize) -> Vec<Bytes> {
        let deliveries = self.deliveries(at).into_iter();
        deliveries.map(|delivery| delivery.payload).collect()
    }
}
