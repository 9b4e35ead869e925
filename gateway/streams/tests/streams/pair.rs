//! Two nodes and the payloads between them.

use std::time::Instant;

use bytes::Bytes;
use underpass_cla::Class;
use underpass_streams::{
    Config, Event, Open, Peer, ResetCode, Sealed, Side, StreamId, Target, Windows,
};

pub const CONTROL: Class = Class(0);
pub const CLASS: Class = Class(2);

pub fn open() -> Open {
    Open::new(
        CLASS,
        Target::Name {
            host: "origin.example".to_owned(),
            port: 443,
        },
    )
}

pub fn windows(bytes: u64) -> Config {
    Config {
        windows: Windows {
            stream_window_bytes: bytes,
            peer_window_bytes: bytes,
        },
        send_buffer_bytes: 64 << 20,
        send_buffer_total_bytes: 1 << 30,
        ..Config::default()
    }
}

pub struct Pair {
    pub now: Instant,
    pub terminal: Peer,
    pub hub: Peer,
}

impl Pair {
    pub fn new(config: Config) -> Self {
        Self {
            now: Instant::now(),
            terminal: Peer::new(config, Side::Lower, 100),
            hub: Peer::new(config, Side::Higher, 200),
        }
    }

    /// Both have received the other's HELLO, and all events are taken.
    pub fn acquainted(config: Config) -> Self {
        let mut pair = Self::new(config);
        pair.exchange();
        events(&mut pair.terminal);
        events(&mut pair.hub);
        pair
    }

    /// The same, and the terminal has opened a stream.
    pub fn opened(config: Config) -> (Self, StreamId) {
        let mut pair = Self::acquainted(config);
        let id = pair.terminal.open(pair.now, open()).unwrap().1;
        (pair, id)
    }

    /// As [`Pair::exchange`], but SETTLED is sealed later: custody has older bundles.
    pub fn exchange_without_settling(&mut self) {
        self.exchange_with(unsettled);
    }

    /// Delivers all sealed payloads to the hub, then back, until none is left. Returns
    /// their number.
    pub fn exchange(&mut self) -> usize {
        self.exchange_with(payloads)
    }

    fn exchange_with(&mut self, payloads: fn(&mut Peer, usize) -> Vec<(Class, Bytes)>) -> usize {
        let mut count = 0;
        loop {
            let up = payloads(&mut self.terminal, 1 << 20);
            deliver(&mut self.hub, self.now, &up);
            let down = payloads(&mut self.hub, 1 << 20);
            deliver(&mut self.terminal, self.now, &down);
            count += up.len() + down.len();
            if up.is_empty() && down.is_empty() {
                return count;
            }
        }
    }
}

pub fn deliver(peer: &mut Peer, now: Instant, sealed: &[(Class, Bytes)]) {
    for (class, payload) in sealed {
        peer.handle_payload(now, *class, payload.clone()).unwrap();
    }
}

pub fn write(peer: &mut Peer, id: StreamId, data: impl Into<Bytes>) {
    peer.current().write(id, data.into()).unwrap();
}

pub fn joined(chunks: Vec<Bytes>) -> Bytes {
    chunks.concat().into()
}

/// All payloads of all classes.
pub fn payloads(peer: &mut Peer, max_bytes: usize) -> Vec<(Class, Bytes)> {
    let settled = peer.poll_settled(CONTROL).map(joined);
    let mut payloads = unsettled(peer, max_bytes);
    payloads.extend(settled.map(|payload| (CONTROL, payload)));
    payloads
}

/// The next payload of a class, acknowledged at once, so the time of leaving does not
/// matter.
pub fn sealed(peer: &mut Peer, class: Class, max_bytes: usize) -> Option<Vec<Bytes>> {
    match peer.poll_payload(Instant::now(), class, max_bytes)? {
        Sealed::Payload { parts, streams } => {
            peer.current().acknowledged(&streams);
            Some(parts)
        }
        Sealed::Withheld(flow) => panic!("{flow:?} has nothing withheld"),
    }
}

/// All payloads except SETTLED.
fn unsettled(peer: &mut Peer, max_bytes: usize) -> Vec<(Class, Bytes)> {
    let mut payloads = Vec::new();
    for class in (0..4).map(Class) {
        while let Some(parts) = sealed(peer, class, max_bytes) {
            payloads.push((class, joined(parts)));
        }
    }
    payloads
}

pub fn events(peer: &mut Peer) -> Vec<Event> {
    std::iter::from_fn(|| peer.poll_event())
        .map(|(_, event)| event)
        .collect()
}

pub fn read_all(peer: &mut Peer, id: StreamId) -> Vec<u8> {
    std::iter::from_fn(|| peer.current().read(id, usize::MAX))
        .flatten()
        .collect()
}

/// The streams that were reset, and the reasons.
pub fn codes(events: &[Event]) -> Vec<(StreamId, ResetCode)> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Reset { id, code, .. } => Some((*id, *code)),
            _ => None,
        })
        .collect()
}
