//! Laws of two nodes over a channel that repeats, reorders, delays and gives
//! up payloads, while applications do whatever they like.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use proptest::prelude::*;
use underpass_cla::Class;

use super::{Config, Event, Mux, Side, Windows};
use crate::stream::{Life, Receiving, Sending};
use crate::wire::{Open, ResetCode, StreamId, Target};

const CONFIG: Config = Config {
    windows: Windows {
        stream_window_bytes: 200_000,
        peer_window_bytes: 300_000,
    },
    floor_bytes: 65_536,
    send_buffer_bytes: 100_000,
    send_buffer_total_bytes: 150_000,
    max_streams: 10,
    quantum_bytes: 10_000,
    control_class: Class(0),
};

/// What happens next; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Open(usize, u8),
    Write(usize, usize, usize),
    Read(usize, usize, usize),
    Finish(usize, usize),
    Reset(usize, usize),
    Stop(usize, usize),
    SetClass(usize, usize, u8),
    SetWindows(usize, u64),
    Seal(usize, u8, usize),
    Deliver(usize, bool),
    Expire(usize, bool),
    Restart(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0usize..2;
    let which = 0usize..1000;
    let class = 0u8..3;
    prop_oneof![
        6 => (node.clone(), class.clone()).prop_map(|(n, c)| Step::Open(n, c)),
        20 => (node.clone(), which.clone(), 1usize..60_000).prop_map(|(n, s, l)| Step::Write(n, s, l)),
        20 => (node.clone(), which.clone(), 1usize..100_000).prop_map(|(n, s, l)| Step::Read(n, s, l)),
        5 => (node.clone(), which.clone()).prop_map(|(n, s)| Step::Finish(n, s)),
        1 => (node.clone(), which.clone()).prop_map(|(n, s)| Step::Reset(n, s)),
        1 => (node.clone(), which.clone()).prop_map(|(n, s)| Step::Stop(n, s)),
        2 => (node.clone(), which.clone(), class.clone()).prop_map(|(n, s, c)| Step::SetClass(n, s, c)),
        1 => (node.clone(), 0u64..400_000).prop_map(|(n, w)| Step::SetWindows(n, w)),
        30 => (node.clone(), class, 500usize..70_000).prop_map(|(n, c, m)| Step::Seal(n, c, m)),
        30 => (which.clone(), any::<bool>()).prop_map(|(p, twice)| Step::Deliver(p, twice)),
        1 => (which, any::<bool>()).prop_map(|(p, too)| Step::Expire(p, too)),
        1 => node.prop_map(Step::Restart),
    ]
}

/// The byte at `offset` of what `node` sends on the stream named `key`.
fn content(key: u64, node: usize, offset: u64, length: usize) -> Bytes {
    (offset..offset + length as u64)
        .map(|at| (at ^ (at >> 7) ^ (key * 41) ^ node as u64) as u8)
        .collect()
}

/// One end of a stream as its application knows it.
#[derive(Debug)]
struct End {
    key: u64,
    incarnation: u64,
    written: u64,
    read: u64,
    finished: bool,
    peer_finished: bool,
    stopped: bool,
    reset: bool,
}

struct World {
    now: Instant,
    nodes: [Mux; 2],
    ends: [HashMap<StreamId, End>; 2],
    /// Ends of streams that are over, by key.
    past: Vec<(usize, End)>,
    next_key: u64,
    /// Sender and payload.
    channel: Vec<(usize, Class, Bytes)>,
}

impl World {
    fn new() -> Self {
        Self {
            now: Instant::now(),
            nodes: [
                Mux::new(CONFIG, Side::Lower, 1),
                Mux::new(CONFIG, Side::Higher, 1),
            ],
            ends: Default::default(),
            past: Vec::new(),
            next_key: 0,
            channel: Vec::new(),
        }
    }

    fn acquainted(&self) -> bool {
        let [a, b] = &self.nodes;
        a.peer_incarnation == Some(b.incarnation) && b.peer_incarnation == Some(a.incarnation)
    }

    fn pick(&self, node: usize, number: usize) -> Option<StreamId> {
        let mut ids: Vec<_> = self.ends[node].keys().copied().collect();
        ids.sort_unstable();
        (!ids.is_empty()).then(|| ids[number % ids.len()])
    }

    fn add_end(&mut self, node: usize, id: StreamId, key: u64) {
        let end = End {
            key,
            incarnation: self.nodes[node].incarnation,
            written: 0,
            read: 0,
            finished: false,
            peer_finished: false,
            stopped: false,
            reset: false,
        };
        assert!(self.ends[node].insert(id, end).is_none(), "opened twice");
        let incarnation = self.nodes[node].incarnation;
        let past = |(n, end): &(usize, End)| {
            *n == node && end.key == key && end.incarnation == incarnation
        };
        assert!(!self.past.iter().any(past), "re-opened");
    }

    fn end_over(&mut self, node: usize, id: StreamId, reset: bool) {
        let mut end = self.ends[node].remove(&id).expect("one last event");
        end.reset = reset;
        self.past.push((node, end));
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Open(node, class) => {
                let key = self.next_key;
                let open = Open {
                    class: Class(class),
                    target: Target::Name {
                        host: key.to_string(),
                        port: 1,
                    },
                    client: None,
                    report_connected: false,
                };
                if let Ok(id) = self.nodes[node].open(self.now, open) {
                    self.next_key += 1;
                    self.add_end(node, id, key);
                }
            }
            Step::Write(node, stream, length) => {
                let Some(id) = self.pick(node, stream) else {
                    return;
                };
                let length = length.min(self.nodes[node].send_capacity(id));
                let end = self.ends[node].get_mut(&id).unwrap();
                if length > 0 {
                    let data = content(end.key, node, end.written, length);
                    self.nodes[node].write(id, data).unwrap();
                    end.written += length as u64;
                }
            }
            Step::Read(node, stream, limit) => {
                if let Some(id) = self.pick(node, stream) {
                    self.read(node, id, limit);
                }
            }
            Step::Finish(node, stream) => {
                if let Some(id) = self.pick(node, stream) {
                    self.nodes[node].finish(id).unwrap();
                    self.ends[node].get_mut(&id).unwrap().finished = true;
                }
            }
            Step::Reset(node, stream) => {
                if let Some(id) = self.pick(node, stream) {
                    self.nodes[node].reset(id, ResetCode::Aborted, "").unwrap();
                    self.end_over(node, id, true);
                }
            }
            Step::Stop(node, stream) => {
                if let Some(id) = self.pick(node, stream) {
                    self.ends[node].get_mut(&id).unwrap().stopped = true;
                    self.nodes[node].stop(id, ResetCode::Cancelled).unwrap();
                }
            }
            Step::SetClass(node, stream, class) => {
                if let Some(id) = self.pick(node, stream) {
                    self.nodes[node].set_class(id, Class(class)).unwrap();
                }
            }
            Step::SetWindows(node, bytes) => self.nodes[node].set_windows(Windows {
                stream_window_bytes: bytes,
                peer_window_bytes: bytes,
            }),
            Step::Seal(node, class, max_bytes) => {
                self.seal(node, Class(class), max_bytes);
            }
            Step::Deliver(payload, twice) => self.deliver(payload, twice),
            Step::Expire(payload, delivered_too) => {
                if self.channel.is_empty() {
                    return;
                }
                let at = payload % self.channel.len();
                let (sender, _, bytes) = self.channel[at].clone();
                if delivered_too {
                    self.deliver(payload, false);
                } else {
                    self.channel.swap_remove(at);
                }
                self.nodes[sender].handle_expired(bytes).unwrap();
            }
            // What a node took in before the peer had heard of that run cannot
            // be told from what is still on its way: "Limits" in the
            // specification.
            Step::Restart(_) if !self.acquainted() => {}
            Step::Restart(node) => {
                let side = self.nodes[node].side;
                let incarnation = self.nodes[node].incarnation + 1;
                self.nodes[node] = Mux::new(CONFIG, side, incarnation);
                let ids: Vec<_> = self.ends[node].keys().copied().collect();
                for id in ids {
                    self.end_over(node, id, true);
                }
            }
        }
        self.listen();
    }

    fn read(&mut self, node: usize, id: StreamId, limit: usize) -> bool {
        let Some(data) = self.nodes[node].read(id, limit) else {
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
        let Some(chunks) = self.nodes[node].poll_payload(class, max_bytes) else {
            return false;
        };
        let payload: Bytes = chunks.concat().into();
        assert!(payload.len() <= max_bytes.max(512));
        self.channel.push((node, class, payload));
        true
    }

    fn deliver(&mut self, payload: usize, twice: bool) {
        if self.channel.is_empty() {
            return;
        }
        let at = payload % self.channel.len();
        let (sender, class, bytes) = if twice {
            self.channel[at].clone()
        } else {
            self.channel.swap_remove(at)
        };
        let receiver = &mut self.nodes[1 - sender];
        receiver.handle_payload(self.now, class, bytes).unwrap();
    }

    /// Takes the events of both and checks their books.
    fn listen(&mut self) {
        for node in 0..2 {
            while let Some(event) = self.nodes[node].poll_event() {
                match event {
                    Event::Opened { id, open } => {
                        let Target::Name { host, .. } = open.target else {
                            unreachable!()
                        };
                        self.add_end(node, id, host.parse().unwrap());
                    }
                    Event::Reset { id, code, .. } => {
                        assert_ne!(code, ResetCode::FlowControl, "credit is kept");
                        assert_ne!(code, ResetCode::Protocol);
                        self.end_over(node, id, true);
                    }
                    Event::Closed(id) => {
                        let end = &self.ends[node][&id];
                        assert!(end.peer_finished || end.stopped);
                        self.end_over(node, id, false);
                    }
                    Event::PeerFinished(id) => {
                        self.ends[node].get_mut(&id).unwrap().peer_finished = true;
                    }
                    Event::Stopped { id, .. } => {
                        self.ends[node].get_mut(&id).unwrap().finished = true;
                    }
                    _ => {}
                }
            }
            self.nodes[node].check();
        }
    }

    /// Lets everything come to its end: all is delivered in an arbitrary
    /// order, all is read, all directions are finished.
    fn drain(&mut self, mut seed: usize) {
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
                        self.nodes[node].finish(id).unwrap();
                        self.listen();
                    }
                }
                for class in 0..3 {
                    while self.seal(node, Class(class), 20_000) {
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

impl Mux {
    /// Every sum is what it sums.
    fn check(&self) {
        let floor = self.peer_credit.floor;
        let beyond = |bytes: u64, floor: u64| bytes.saturating_sub(floor);
        let streams = || self.streams.values();
        let charged: u64 = streams().map(|s| beyond(s.send.outstanding(), floor)).sum();
        assert_eq!(self.charged, charged);
        let excess: u64 = streams()
            .map(|s| beyond(s.recv.outstanding(), self.floor()))
            .sum();
        assert_eq!(self.excess, excess);
        assert!(excess <= self.granted.peer_window_bytes);
        let untold: u64 = streams()
            .filter(|s| !s.control.credit)
            .map(|s| s.recv.unreturned())
            .filter(|untold| *untold >= self.floor() / 2)
            .sum();
        assert_eq!(self.untold, untold);
        let buffered: usize = streams().map(|s| s.send.pieces.len()).sum();
        assert_eq!(self.buffered, buffered);
        let runs: usize = streams().map(|s| s.recv.assembler.runs()).sum();
        assert_eq!(self.runs, runs);
        assert!(self.streams.len() <= self.config.max_streams);
        for (class, queue) in self.classes.iter().enumerate() {
            let queued =
                || streams().filter(|s| s.queued.is_some_and(|q| q.class.0 as usize == class));
            assert_eq!(queue.streams, queued().count());
            assert_eq!(queue.opening, queued().filter(|s| s.open.is_some()).count());
            let bytes: usize = queued().map(|s| s.send.pieces.len()).sum();
            assert_eq!(queue.bytes, bytes as u64);
        }
        for (id, stream) in &self.streams {
            assert_eq!(stream.control.listed, self.control.contains(id));
            let waits = stream.queued.is_some() || stream.blocked;
            assert!(waits || !stream.has_output(), "{id} forgotten: {stream:?}");
            if stream.life == Life::Draining {
                assert_eq!(stream.send.state, Sending::Done);
                assert_eq!(stream.recv.state, Receiving::Done);
            }
        }
    }
}

proptest! {
    #[test]
    fn what_arrives_is_a_prefix_and_all_comes_to_rest(
        steps in prop::collection::vec(step(), 1..200),
        seed in any::<usize>(),
    ) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
        world.drain(seed);
        for node in 0..2 {
            prop_assert!(world.ends[node].is_empty(), "{:?}", world.ends);
            let mux = &world.nodes[node];
            prop_assert_eq!(mux.streams.len(), 0);
            prop_assert_eq!((mux.charged, mux.excess, mux.buffered), (0, 0, 0));
        }
        // Streams that ended in order at both ends are complete.
        for (node, end) in &world.past {
            for (other, there) in &world.past {
                if other != node && there.key == end.key && !end.reset && !there.reset {
                    prop_assert!(end.read == there.written || end.stopped || there.stopped);
                }
            }
        }
    }

    #[test]
    fn no_peer_can_unbalance_the_books(
        frames in prop::collection::vec(hostile_frame(), 1..60),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut world = World::new();
        let mut steps = steps.into_iter();
        for (body, old) in frames {
            let mut payload = vec![1];
            payload.extend((9 - u64::from(old)).to_be_bytes());
            payload.extend(world.nodes[0].incarnation.to_be_bytes());
            payload.extend(body);
            let mux = &mut world.nodes[0];
            let _ = mux.handle_payload(world.now, Class(1), payload.into());
            mux.check();
            let ids: Vec<StreamId> = mux.streams.keys().copied().collect();
            match steps.next() {
                Some(Step::Open(_, class)) => {
                    let open = Open {
                        class: Class(class),
                        target: Target::Address(([192, 0, 2, 1], 80).into()),
                        client: None,
                        report_connected: true,
                    };
                    let _ = mux.open(world.now, open);
                }
                Some(Step::Write(_, stream, length)) if !ids.is_empty() => {
                    let id = ids[stream % ids.len()];
                    let _ = mux.write(id, vec![0; length].into());
                }
                Some(Step::Read(_, stream, limit)) if !ids.is_empty() => {
                    mux.read(ids[stream % ids.len()], limit);
                }
                Some(Step::Finish(_, stream)) if !ids.is_empty() => {
                    let _ = mux.finish(ids[stream % ids.len()]);
                }
                Some(Step::Seal(_, class, max_bytes)) => {
                    if let Some(chunks) = mux.poll_payload(Class(class), max_bytes) {
                        let payload: Bytes = chunks.concat().into();
                        crate::wire::decode_frames(&payload).unwrap();
                        if max_bytes % 8 == 0 {
                            mux.handle_expired(payload).unwrap();
                        }
                    }
                }
                _ => {}
            }
            mux.check();
            while mux.poll_event().is_some() {}
        }
    }
}

/// A frame that decodes, with numbers as a hostile peer would choose them;
/// and whether it comes from the peer's earlier run.
fn hostile_frame() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let number = || {
        prop_oneof![
            0u64..6,
            0u64..300_000,
            Just(crate::wire::VARINT_MAX),
            Just(65_536),
        ]
    };
    let frame = (1u64..10, 0u64..6, number(), number(), number(), number());
    (frame, prop::bool::weighted(0.02)).prop_map(|((kind, id, a, b, c, d), old)| {
        let numbers: Vec<u64> = match kind {
            1 => vec![a, b, c, d.max(65_536), id, 3],
            4 => vec![id, a],
            5 => vec![id, a, b, c, 0],
            _ => vec![id, a],
        };
        let mut body = Vec::new();
        for number in numbers {
            body.extend((number | 0xc000_0000_0000_0000).to_be_bytes());
        }
        if kind == 2 {
            body.truncate(8);
            body.extend([1, 0, 4, 0, 80, 192, 0, 2, 1, 0]);
        } else if kind > 6 {
            body.extend(vec![0; (b % 20_000) as usize]);
        }
        let mut frame = vec![kind as u8];
        frame.extend((body.len() as u32 | 0x8000_0000).to_be_bytes());
        frame.extend(body);
        (frame, old)
    })
}
