//! Two nodes, their applications, and the channel between them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::Class;

use super::super::{Epoch, Peer};
use super::{CONFIG, Key, QUEUES, Step, queue};
use crate::mux::{self, Config, Event, Flow, Side, Windows, class_of};
use crate::wire::{Open, ResetCode, StreamId, Target};

/// The byte at `offset` of what `node` sends on the stream named `key`.
fn content(key: u64, node: usize, offset: u64, length: usize) -> Bytes {
    (offset..offset + length as u64)
        .map(|at| (at ^ (at >> 7) ^ (key * 41) ^ node as u64) as u8)
        .collect()
}

/// One end of a stream as its application knows it.
#[derive(Debug)]
pub(super) struct End {
    pub key: u64,
    incarnation: u64,
    /// The stream's peer has restarted with a durable store after it had sealed so many bytes, and
    /// had not ended the stream itself.
    promised: Option<u64>,
    pub written: u64,
    pub read: u64,
    finished: bool,
    peer_finished: bool,
    pub stopped: bool,
    pub reset: bool,
}

pub(super) struct World {
    now: Instant,
    pub nodes: [Peer; 2],
    /// Whether sessions tell each node the other's incarnation.
    neighbours: bool,
    pub ends: [HashMap<Key, End>; 2],
    /// Ends of streams that are over, by key.
    pub past: Vec<(usize, End)>,
    next_key: u64,
    channel: Vec<Sealed>,
    /// Payloads that are sealed ahead and withheld.
    withheld: [HashMap<Key, VecDeque<Sealed>>; 2],
    next_serial: u64,
    /// A payload was given up.
    lossy: bool,
    /// Streams of which nothing is sealed: they outlive a restart of the other.
    unheard: [HashSet<Key>; 2],
}

/// A payload in custody.
#[derive(Clone)]
struct Sealed {
    sender: usize,
    serial: u64,
    class: Class,
    bytes: Bytes,
    /// It stays behind what its sender had sealed before.
    settled: bool,
    /// The epoch and the streams that are told when it has arrived.
    carries: (Epoch, Vec<StreamId>),
}

impl World {
    pub fn new(neighbours: bool) -> Self {
        let mut world = Self {
            now: Instant::now(),
            nodes: [
                Peer::new(CONFIG, Side::Lower, 1),
                Peer::new(CONFIG, Side::Higher, 1),
            ],
            neighbours,
            ends: Default::default(),
            past: Vec::new(),
            next_key: 0,
            channel: Vec::new(),
            withheld: Default::default(),
            next_serial: 0,
            lossy: false,
            unheard: Default::default(),
        };
        world.greet(None);
        world
    }

    /// Neighbours learn from their sessions of each other's runs, and by when the run before was
    /// over.
    fn greet(&mut self, over_by: Option<Instant>) {
        if self.neighbours {
            let runs = [0, 1].map(|node| self.nodes[node].incarnation());
            for node in 0..2 {
                self.nodes[node].peer_announced(self.now, runs[1 - node], over_by);
            }
        }
    }

    fn acquainted(&self) -> bool {
        let [a, b] = &self.nodes;
        a.peer_incarnation() == Some(b.incarnation())
            && b.peer_incarnation() == Some(a.incarnation())
    }

    fn pick(&self, node: usize, number: usize) -> Option<Key> {
        let mut ids: Vec<_> = self.ends[node].keys().copied().collect();
        ids.sort_unstable();
        (!ids.is_empty()).then(|| ids[number % ids.len()])
    }

    fn add_end(&mut self, node: usize, id: Key, key: u64) {
        let end = End {
            key,
            incarnation: self.nodes[node].incarnation(),
            promised: None,
            written: 0,
            read: 0,
            finished: false,
            peer_finished: false,
            stopped: false,
            reset: false,
        };
        assert!(self.ends[node].insert(id, end).is_none(), "opened twice");
        let incarnation = self.nodes[node].incarnation();
        // Beyond a relay, each run may hear the first payloads.
        let past = |(n, end): &(usize, End)| {
            let run = self.neighbours || end.incarnation == incarnation;
            *n == node && end.key == key && run
        };
        assert!(!self.past.iter().any(past), "re-opened");
    }

    fn end_over(&mut self, node: usize, id: Key, reset: bool) {
        let mut end = self.ends[node].remove(&id).expect("one last event");
        end.reset = reset;
        if let Some(promised) = end.promised.filter(|_| !self.lossy && !end.stopped) {
            assert!(end.read >= promised, "custody is not kept: {end:?}");
        }
        self.past.push((node, end));
    }

    pub fn run(&mut self, step: Step) {
        match step {
            Step::Open(node, class) => {
                let key = self.next_key;
                let open = Open::new(
                    Class(class),
                    Target::Name {
                        host: key.to_string(),
                        port: 1,
                    },
                );
                if let Ok(id) = self.nodes[node].open(self.now, open) {
                    self.next_key += 1;
                    self.add_end(node, id, key);
                }
            }
            Step::Write(node, stream, length) => {
                let Some(id) = self.pick(node, stream) else {
                    return;
                };
                let length = length.min(self.at(node, id).send_capacity(id.1));
                let end = self.ends[node].get_mut(&id).unwrap();
                if length > 0 {
                    let data = content(end.key, node, end.written, length);
                    end.written += length as u64;
                    self.at(node, id).write(id.1, data).unwrap();
                }
            }
            Step::Read(node, stream, limit) => {
                if let Some(id) = self.pick(node, stream) {
                    self.read(node, id, limit);
                }
            }
            Step::Finish(node, stream) => {
                if let Some(id) = self.pick(node, stream) {
                    self.at(node, id).finish(id.1).unwrap();
                    self.ends[node].get_mut(&id).unwrap().finished = true;
                }
            }
            Step::Reset(node, stream) => {
                if let Some(id) = self.pick(node, stream) {
                    let at = self.at(node, id);
                    // On the other streams all that was written arrives.
                    match stream % 2 {
                        0 => at.reset(id.1, ResetCode::Aborted, "").unwrap(),
                        _ => at.reset_behind(id.1, ResetCode::Aborted, "").unwrap(),
                    }
                    self.ends[node].get_mut(&id).unwrap().promised = None;
                    self.end_over(node, id, true);
                }
            }
            Step::Stop(node, stream) => {
                if let Some(id) = self.pick(node, stream) {
                    self.ends[node].get_mut(&id).unwrap().stopped = true;
                    self.at(node, id).stop(id.1, ResetCode::Cancelled).unwrap();
                }
            }
            Step::SetClass(node, stream, class) => {
                if let Some(id) = self.pick(node, stream) {
                    self.at(node, id).set_class(id.1, Class(class)).unwrap();
                }
            }
            Step::BeginFlow(node, stream, number, size) => {
                if let Some(id) = self.pick(node, stream) {
                    let begun = self.at(node, id).begin_flow(id.1, queue(number), size);
                    begun.unwrap();
                }
            }
            Step::SetWindows(node, bytes) => self.nodes[node].set_windows(Windows {
                stream_window_bytes: bytes,
                peer_window_bytes: bytes,
            }),
            Step::Seal(node, class, max_bytes) => {
                self.seal(node, queue(class), max_bytes);
            }
            Step::SealAhead(node, stream, max_bytes) => self.seal_ahead(node, stream, max_bytes),
            Step::Deliver(payload, twice) => self.deliver(payload, twice),
            Step::Expire(payload, delivered_too) => {
                if self.channel.is_empty() {
                    return;
                }
                let at = payload % self.channel.len();
                let sealed = self.channel[at].clone();
                self.lossy = true;
                if delivered_too {
                    self.deliver(payload, false);
                } else {
                    self.channel.swap_remove(at);
                    self.acknowledge(&sealed);
                }
                let sender = &mut self.nodes[sealed.sender];
                sender.handle_expired(sealed.bytes).unwrap();
            }
            // What a node took in before the peer had heard of that run cannot
            // be told from what is still on its way: "Limits" in the
            // specification.
            Step::Restart(..) if !self.acquainted() => {}
            Step::Restart(node, durable) => self.restart(node, durable),
            Step::Upgrade(node) => self.upgrade(node),
        }
        self.listen();
    }

    fn restart(&mut self, node: usize, durable: bool) {
        let streams: Vec<_> = self.nodes[node].streams().collect();
        for (epoch, info) in streams {
            // The next run would ask for withheld payloads; this is not modelled here.
            let withheld = self.withheld[node].get(&(epoch, info.id));
            let durable = durable && withheld.is_none_or(VecDeque::is_empty);
            self.promise(node, (epoch, info.id), info.sent_bytes, durable);
        }
        self.withheld[node].clear();
        let ids: Vec<_> = self.ends[node].keys().copied().collect();
        for id in ids {
            self.ends[node].get_mut(&id).unwrap().promised = None;
            self.end_over(node, id, true);
        }
        let side = [Side::Lower, Side::Higher][node];
        let incarnation = self.nodes[node].incarnation() + 1;
        self.nodes[node] = Peer::new(CONFIG, side, incarnation);
        if !durable {
            self.channel.retain(|sealed| sealed.sender != node);
            for end in self.ends[1 - node].values_mut() {
                end.promised = None;
            }
        }
        // The other node does not know yet, and goes on sending.
        let over_by = self.now;
        self.now += Duration::from_millis(1);
        for number in 0..QUEUES {
            self.seal(1 - node, queue(number), 20_000);
        }
        self.listen();
        self.greet(Some(over_by));
    }

    /// Another process of the same run goes on, from the bytes that this one
    /// hands over.
    fn upgrade(&mut self, node: usize) {
        let side = [Side::Lower, Side::Higher][node];
        let next = Peer::new(CONFIG, side, 1);
        let before = std::mem::replace(&mut self.nodes[node], next);
        let windows = before.config.windows;
        let counters = before.counters();
        let mut bytes = Vec::new();
        underpass_handover::write(&before.hand_over(self.now), &mut bytes).unwrap();
        let state = underpass_handover::read(&*bytes, 1 << 30).unwrap();
        let config = Config { windows, ..CONFIG };
        let after = Peer::take_over(config, side, self.now, state).unwrap();
        assert_eq!(after.counters(), counters);
        self.nodes[node] = after;
    }

    /// Notes that the other end of a stream will get what is sealed, if that is in a durable store.
    fn promise(&mut self, node: usize, id: Key, sealed: u64, durable: bool) {
        let Some(key) = self.ends[node].get(&id).map(|end| end.key) else {
            return;
        };
        // Streams of a former run have been promised before.
        let run = &self.nodes[node];
        if run.current.has(id.1)
            && id.0 == run.epoch_of(id.1)
            && let Some(there) = self.ends[1 - node].values_mut().find(|end| end.key == key)
        {
            there.promised = durable.then_some(sealed);
        }
    }

    /// The streams of the epoch.
    fn at(&mut self, node: usize, id: Key) -> &mut crate::Mux {
        self.nodes[node]
            .streams_of(id.0, id.1)
            .expect("an open stream")
    }

    fn read(&mut self, node: usize, id: Key, limit: usize) -> bool {
        let Some(data) = self.at(node, id).read(id.1, limit) else {
            return false;
        };
        let end = self.ends[node].get_mut(&id).unwrap();
        assert!(!end.stopped && data.len() <= limit);
        let expected = content(end.key, 1 - node, end.read, data.len());
        assert!(data == expected, "not a prefix of what was sent");
        end.read += data.len() as u64;
        true
    }

    fn seal(&mut self, node: usize, class: Class, max_bytes: usize) -> bool {
        let epoch = self.nodes[node].epoch();
        if let Some(parts) = self.nodes[node].poll_settled(class) {
            let sealed = self.sealed(node, class, &parts, (epoch, Vec::new()));
            self.channel.push(Sealed {
                settled: true,
                ..sealed
            });
            return true;
        }
        match self.nodes[node].poll_payload(self.now, class, max_bytes) {
            Some(mux::Sealed::Payload { parts, streams }) => {
                let sealed = self.sealed(node, class, &parts, (epoch, streams));
                assert!(sealed.bytes.len() <= max_bytes.max(512));
                self.channel.push(sealed);
            }
            Some(mux::Sealed::Withheld(Flow::Stream(id))) => {
                let key = (self.nodes[node].epoch_of(id), id);
                let withheld = self.withheld[node].get_mut(&key).unwrap();
                self.channel.push(withheld.pop_front().unwrap());
            }
            Some(mux::Sealed::Withheld(flow)) => panic!("{flow:?} is not restored here"),
            None => return false,
        }
        true
    }

    fn sealed(
        &mut self,
        sender: usize,
        class: Class,
        parts: &[Bytes],
        carries: (Epoch, Vec<StreamId>),
    ) -> Sealed {
        self.next_serial += 1;
        Sealed {
            sender,
            serial: self.next_serial,
            class: class_of(class),
            bytes: parts.concat().into(),
            settled: false,
            carries,
        }
    }

    fn seal_ahead(&mut self, node: usize, stream: usize, max_bytes: usize) {
        let peer = &mut self.nodes[node];
        let (epoch, ids) = (peer.epoch(), peer.current().streams_with_output(self.now));
        if ids.is_empty() {
            return;
        }
        let id = ids[stream % ids.len()];
        while let Some(ahead) = self.nodes[node].current().seal_ahead(id, max_bytes) {
            let carries = (epoch, vec![id]);
            let sealed = self.sealed(node, ahead.class, &ahead.payload, carries);
            assert!(sealed.bytes.len() <= max_bytes);
            let key = (self.nodes[node].epoch_of(id), id);
            let withheld = self.withheld[node].entry(key).or_default();
            withheld.push_back(sealed);
        }
    }

    /// Notes that the next custodian has a payload, or that it is gone.
    fn acknowledge(&mut self, sealed: &Sealed) {
        let (epoch, streams) = &sealed.carries;
        self.nodes[sealed.sender].acknowledged(*epoch, streams);
    }

    fn deliver(&mut self, payload: usize, twice: bool) {
        if self.channel.is_empty() {
            return;
        }
        let at = payload % self.channel.len();
        let (from, number) = (self.channel[at].sender, self.channel[at].serial);
        let earlier = |other: &Sealed| other.sender == from && other.serial < number;
        if self.channel[at].settled && self.channel.iter().any(earlier) {
            return;
        }
        let sealed = self.channel[at].clone();
        if !twice {
            self.channel.swap_remove(at);
            self.acknowledge(&sealed);
        }
        let receiver = &mut self.nodes[1 - sealed.sender];
        let (class, bytes) = (sealed.class, sealed.bytes);
        receiver.handle_payload(self.now, class, bytes).unwrap();
    }

    /// Takes the events of both and checks their books.
    fn listen(&mut self) {
        for node in 0..2 {
            while let Some((epoch, event)) = self.nodes[node].poll_event() {
                match event {
                    Event::Opened { id, open } => {
                        let Target::Name { host, .. } = open.target else {
                            unreachable!()
                        };
                        self.add_end(node, (epoch, id), host.parse().unwrap());
                    }
                    Event::Reset { id, code, .. } => {
                        assert_ne!(code, ResetCode::FlowControl, "credit is kept");
                        assert_ne!(code, ResetCode::Protocol);
                        let unheard = self.unheard[node].contains(&(epoch, id));
                        assert!(!unheard || code != ResetCode::Restarted, "not carried on");
                        self.end_over(node, (epoch, id), true);
                    }
                    Event::Closed(id) => {
                        let end = &self.ends[node][&(epoch, id)];
                        assert!(end.peer_finished || end.stopped);
                        self.end_over(node, (epoch, id), false);
                    }
                    Event::PeerFinished(id) => {
                        let end = self.ends[node].get_mut(&(epoch, id)).unwrap();
                        end.peer_finished = true;
                    }
                    Event::Stopped { id, .. } => {
                        let end = self.ends[node].get_mut(&(epoch, id)).unwrap();
                        end.finished = true;
                    }
                    _ => {}
                }
            }
            while let Some(key) = self.nodes[node].poll_unwanted() {
                let discarded = self.withheld[node].remove(&key).unwrap_or_default();
                for sealed in discarded {
                    self.acknowledge(&sealed);
                }
            }
            while self.nodes[node].poll_ended().is_some() {}
            self.nodes[node].check();
            self.unheard[node] = self.nodes[node].unheard();
        }
    }

    /// Brings everything to its end: all is delivered in an arbitrary order, all is read, and all
    /// directions are finished.
    pub fn drain(&mut self, mut seed: usize) {
        let mut idle = 0;
        for _ in 0..10_000 {
            let mut busy = false;
            for node in 0..2 {
                let ids: Vec<_> = self.ends[node].keys().copied().collect();
                for id in ids {
                    while self.ends[node].contains_key(&id) && self.read(node, id, 50_000) {
                        busy = true;
                        self.listen();
                    }
                    if let Some(end) = self.ends[node].get_mut(&id) {
                        end.finished = true;
                        self.at(node, id).finish(id.1).unwrap();
                        self.listen();
                    }
                }
                for number in 0..QUEUES {
                    while self.seal(node, queue(number), 20_000) {
                        busy = true;
                        self.listen();
                    }
                }
            }
            for _ in 0..self.channel.len() {
                busy = true;
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(99);
                self.deliver(seed >> 33, false);
                self.listen();
            }
            idle = if busy { 0 } else { idle + 1 };
            if idle == 2 {
                return;
            }
        }
        panic!("never at rest");
    }
}
