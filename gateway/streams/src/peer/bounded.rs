//! The cost of a payload does not depend on the number of streams.
//!
//! The same payload is given to a node with 100 streams and to one with 10,000; steps are counted,
//! see `underpass_work`.

use std::time::Instant;

use bytes::Bytes;
use underpass_cla::Class;
use underpass_work::{assert_bounded, of};

use super::Peer;
use crate::mux::{Config, Event, Sealed, Side, Windows};
use crate::wire::{
    Announcement, FLOOR_BYTES, Frame, Hello, Open, ResetCode, Sealer, StreamId, Target,
};

const SIZES: [usize; 2] = [100, 10_000];
const CLASS: Class = Class(2);
const CONTROL: Class = Class(0);
/// The incarnations of the node and of its peer.
const HERE: u64 = 5;
const THERE: u64 = 7;

fn config() -> Config {
    Config {
        windows: Windows {
            stream_window_bytes: 1 << 20,
            peer_window_bytes: 2 << 20,
        },
        max_streams: 30_000,
        ..Config::default()
    }
}

fn hello(sequence: u64) -> Hello {
    Hello {
        sequence,
        peer_window_bytes: 0,
        stream_window_bytes: FLOOR_BYTES,
        floor_bytes: FLOOR_BYTES,
        first_valid: StreamId(0),
        announcement: Announcement::default(),
    }
}

fn open() -> Open {
    Open::new(CLASS, Target::Address(([127, 0, 0, 1], 80).into()))
}

/// A node, and a peer that sends what it likes.
struct Node {
    now: Instant,
    peer: Peer,
}

impl Node {
    fn new() -> Node {
        let mut node = Node {
            now: Instant::now(),
            peer: Peer::new(config(), Side::Lower, HERE),
        };
        node.hears(&[Frame::Hello(hello(1))]);
        node
    }

    /// With so many streams opened from here.
    fn with_own(streams: usize, mut each: impl FnMut(&mut Node, StreamId)) -> Node {
        let mut node = Node::new();
        for _ in 0..streams {
            let (_, id) = node.peer.open(node.now, open()).unwrap();
            each(&mut node, id);
        }
        node
    }

    /// With so many streams opened by the peer, which has sent 100 bytes on
    /// each.
    fn with_peers(streams: usize) -> Node {
        let mut node = Node::new();
        for number in 0..streams as u64 {
            let id = StreamId(2 * number + 1);
            node.hears(&[Frame::Open { id, open: open() }, data(id, 0, 100)]);
        }
        node.events();
        node
    }

    fn hears(&mut self, frames: &[Frame]) {
        self.hears_of(THERE, frames);
    }

    fn hears_of(&mut self, sender: u64, frames: &[Frame]) {
        let payload = payload(sender, frames);
        self.peer.handle_payload(self.now, CLASS, payload).unwrap();
    }

    fn events(&mut self) -> Vec<Event> {
        let events = std::iter::from_fn(|| self.peer.poll_event());
        events.map(|(_, event)| event).collect()
    }

    /// Seals all that waits, and has it acknowledged.
    fn seal_all(&mut self) {
        for class in [CONTROL, CLASS] {
            while let Some(sealed) = self.peer.poll_payload(self.now, class, 1 << 20) {
                if let Sealed::Payload { streams, .. } = sealed {
                    self.peer.current().acknowledged(&streams);
                }
            }
        }
    }

    fn write(&mut self, id: StreamId, bytes: usize) {
        let data = Bytes::from(vec![b'x'; bytes]);
        self.peer.current().write(id, data).unwrap();
    }
}

fn payload(sender: u64, frames: &[Frame]) -> Bytes {
    let mut sealer = Sealer::new(1 << 24, sender, HERE);
    for frame in frames {
        match frame {
            Frame::Data {
                id,
                offset,
                fin,
                data,
            } => {
                let mut pieces = crate::stream::Pieces::default();
                let length = data.len();
                pieces.push(data.clone(), crate::stream::Origin::default());
                sealer.data(*id, *offset, *fin, &mut pieces, length);
            }
            frame => assert!(sealer.frame(frame)),
        }
    }
    sealer.finish().concat().into()
}

fn data(id: StreamId, offset: u64, bytes: usize) -> Frame {
    Frame::Data {
        id,
        offset,
        fin: false,
        data: Bytes::from(vec![b'x'; bytes]),
    }
}

fn writable(event: Event) -> Option<StreamId> {
    match event {
        Event::Writable(id) => Some(id),
        _ => None,
    }
}

/// Asserts that `call` costs about the same on nodes of both sizes.
fn bounded(what: &str, make: impl Fn(usize) -> Node, call: impl Fn(&mut Node)) {
    let [few, many] = SIZES.map(|size| {
        let mut node = make(size);
        of(|| call(&mut node))
    });
    assert_bounded(what, few, many);
}

/// Streams that have sent what they may and have more.
fn blocked(streams: usize) -> Node {
    let mut node = Node::with_own(streams, |node, id| node.write(id, 65_536));
    node.seal_all();
    for number in 0..streams as u64 {
        node.write(StreamId(2 * number), 10_000);
    }
    node.events();
    node
}

/// Streams that have sent what they may, and whose applications wait to write
/// more.
fn wanting(streams: usize) -> Node {
    let mut node = Node::with_own(streams, |node, id| node.write(id, 65_536));
    node.seal_all();
    for number in 0..streams as u64 {
        assert_eq!(node.peer.current().send_capacity(StreamId(2 * number)), 0);
    }
    node.events();
    node
}

#[test]
fn many_hellos() {
    // Windows, floor and void ids change with each of them.
    let changing: Vec<Frame> = (0..100)
        .map(|number| {
            Frame::Hello(Hello {
                sequence: 2 + number,
                peer_window_bytes: number % 2 * 1_000_000,
                stream_window_bytes: FLOOR_BYTES + number % 3 * 1_000_000,
                floor_bytes: FLOOR_BYTES + number % 2 * 1000,
                first_valid: StreamId(number * 2 + 1),
                ..hello(0)
            })
        })
        .collect();
    for make in [blocked, wanting, Node::with_peers] {
        bounded("a payload of HELLOs", make, |node| {
            node.hears(&changing);
            node.events();
        });
        bounded("a payload for each HELLO", make, |node| {
            let mut told = Vec::new();
            for frame in &changing {
                node.hears(std::slice::from_ref(frame));
                // A stream that was told finds that the next frame has taken the credit back.
                for id in std::mem::take(&mut told) {
                    node.peer.current().send_capacity(id);
                }
                told.extend(node.events().into_iter().filter_map(writable));
            }
        });
    }
}

#[test]
fn credit_for_one_of_many_that_wait() {
    let credit = Frame::Credit {
        id: StreamId(2),
        consumed: 65_536,
    };
    let windows = Frame::Hello(Hello {
        peer_window_bytes: 40_000,
        stream_window_bytes: 1 << 20,
        ..hello(2)
    });
    for make in [blocked, wanting] {
        bounded("CREDIT", make, |node| {
            node.hears(std::slice::from_ref(&credit));
            node.events();
        });
        bounded("CREDIT beside a window for a few", make, |node| {
            node.hears(&[windows.clone(), credit.clone()]);
            node.events();
            node.seal_all();
            node.events();
        });
    }
}

#[test]
fn frames_about_one_of_many_streams() {
    let id = StreamId(1);
    let reset = Frame::Reset {
        id,
        code: ResetCode::Cancelled,
        final_offset: 200,
        at_once: false,
        reason: String::new(),
    };
    let stop = Frame::Stop {
        id,
        code: ResetCode::Cancelled,
    };
    let expired = Frame::Expired { id, below: 500 };
    let other = StreamId(99_999);
    let opened = Frame::Open {
        id: other,
        open: open(),
    };
    for frame in [
        data(id, 100, 50),
        reset,
        stop,
        expired,
        opened,
        data(other, 0, 5),
    ] {
        bounded(&format!("{frame:?}"), Node::with_peers, |node| {
            node.hears(std::slice::from_ref(&frame));
            node.events();
            node.peer.current().read(id, 10);
            node.events();
            node.seal_all();
        });
    }
}

#[test]
fn questions_about_a_former_run() {
    let restarted = |streams| {
        let mut node = Node::with_peers(streams);
        node.hears_of(THERE + 1, &[]);
        node.events();
        node.seal_all();
        node
    };
    let questions: Vec<Frame> = (0..50)
        .map(|number| Frame::Held {
            run: THERE,
            id: StreamId(2 * number + 1),
        })
        .collect();
    bounded("HELD", restarted, |node| {
        node.hears_of(THERE + 1, &questions);
        node.events();
        node.seal_all();
    });
    bounded("reading what was asked about", restarted, |node| {
        node.hears_of(THERE + 1, &questions);
        node.hears(&[data(StreamId(1), 100, 65_000)]);
        let epoch = super::Epoch(0);
        let former = node.peer.streams_of(epoch, StreamId(1)).unwrap();
        while former.read(StreamId(1), 4096).is_some() {}
        node.events();
    });
}

#[test]
fn a_peer_that_restarts_again_and_again() {
    // The streams of a run are looked at when it ends, when it is settled,
    // and when they end: not again with each further run.
    for streams in SIZES {
        let mut node = Node::with_peers(streams);
        let steps = of(|| {
            for run in 1..100 {
                node.hears_of(THERE + run, &[Frame::Hello(hello(1)), Frame::Settled]);
                node.events();
            }
        });
        let most = 8 * streams as u64 + 4_000;
        assert!(steps <= most, "{steps} steps with {streams} streams");
    }
}

#[test]
fn what_is_withheld_is_found_among_what_is_not() {
    let make = |streams| {
        let mut node = Node::with_own(streams, |node, id| node.write(id, 100));
        for number in 50..53 {
            let ahead = node.peer.current().seal_ahead(StreamId(2 * number), 10_000);
            assert!(ahead.is_some());
        }
        node
    };
    bounded("what leaves custody without room", make, |node| {
        let flows = std::iter::from_fn(|| node.peer.poll_withheld(node.now, CLASS));
        assert_eq!(flows.count(), 3);
    });
}

#[test]
fn what_can_be_sealed_ahead_is_found_among_idle_streams() {
    let make = |streams: usize| {
        let mut node = Node::with_own(streams, |_, _| {});
        node.seal_all();
        for number in 30..40 {
            node.write(StreamId(2 * number), 100);
        }
        node
    };
    bounded("streams with output", make, |node| {
        let ids = node.peer.current().streams_with_output(node.now);
        assert_eq!(ids, (30..40).map(|n| StreamId(2 * n)).collect::<Vec<_>>());
    });
}

#[test]
fn bytes_without_a_request_to_open_make_few_streams() {
    let mut node = Node::with_peers(100);
    let early = |number: u64| StreamId(2 * (1000 + number) + 1);
    let frames: Vec<Frame> = (0..20_000)
        .map(|number| data(early(number), 0, 1))
        .collect();
    node.hears(&frames);
    assert_eq!(node.peer.streams().count(), 100 + 4096);
    node.events();
    // Open and new streams are not concerned.
    node.hears(&[data(StreamId(1), 100, 10)]);
    let new = StreamId(2 * 50_000 + 1);
    let open_new = |id| Frame::Open { id, open: open() };
    node.hears(&[open_new(new), data(new, 0, 10), open_new(early(7))]);
    let opened = |event: &Event| matches!(event, Event::Opened { .. });
    assert_eq!(node.events().into_iter().filter(opened).count(), 2);
    // An OPEN makes room for another that comes early.
    node.hears(&[data(early(60_000), 0, 1), data(early(60_001), 0, 1)]);
    assert_eq!(node.peer.streams().count(), 101 + 4096 + 1);
    // The others are refused, and stay refused.
    let refused = node.peer.counters().refused;
    assert_eq!(refused, 20_000 - 4096 + 1);
    node.hears(&[open_new(early(10_000))]);
    assert!(!node.events().iter().any(opened));
}

#[test]
fn waiting_streams_go_on_as_soon_as_there_is_credit_for_them() {
    // One window is enough for a few of them at a time: each credit that comes
    // back lets others go on, until all have sent what they had.
    let mut node = blocked(300);
    let windows = Hello {
        peer_window_bytes: 200_000,
        stream_window_bytes: 1 << 20,
        ..hello(2)
    };
    node.hears(&[Frame::Hello(windows)]);
    let mut sent = vec![65_536; 300];
    for _ in 0..400 {
        node.events();
        let mut credit = None;
        while let Some(Sealed::Payload { parts, streams }) =
            node.peer.poll_payload(node.now, CLASS, 20_000)
        {
            node.peer.current().acknowledged(&streams);
            let (_, frames) = crate::wire::decode_frames(&parts.concat().into()).unwrap();
            for frame in frames {
                if let Frame::Data {
                    id, offset, data, ..
                } = frame
                {
                    sent[id.0 as usize / 2] = offset + data.len() as u64;
                    credit = Some(id);
                }
            }
        }
        let Some(id) = credit else {
            break;
        };
        let consumed = sent[id.0 as usize / 2];
        node.hears(&[Frame::Credit { id, consumed }]);
        assert_eq!(node.peer.current().stream(id).unwrap().sent_bytes, consumed);
    }
    assert!(sent.iter().all(|sent| *sent == 75_536), "{sent:?}");
}

#[test]
fn waiting_applications_are_told_as_soon_as_there_is_room_for_them() {
    let mut node = wanting(300);
    let windows = Hello {
        peer_window_bytes: 8 << 20,
        stream_window_bytes: 1 << 20,
        ..hello(2)
    };
    node.hears(&[Frame::Hello(windows)]);
    // An application that is told writes, and then the others are told in turn.
    let mut told = vec![false; 300];
    loop {
        let told_now: Vec<StreamId> = node.events().into_iter().filter_map(writable).collect();
        if told_now.is_empty() {
            break;
        }
        for id in told_now {
            told[id.0 as usize / 2] = true;
            node.write(id, 100);
        }
    }
    assert!(told.iter().all(|told| *told));
}
