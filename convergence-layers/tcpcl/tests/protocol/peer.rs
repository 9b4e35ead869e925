//! A session against a peer whose bytes the test writes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::{Down, Outcome, Refusal, Transfer};
use underpass_tcpcl::session::{Event, Role, SessionConfig, SessionCore};
use underpass_tcpcl::wire::{ExtensionItem, ExtensionList, SessInit};

use crate::describe::describe;

/// The contact header of a peer without TLS.
pub const CONTACT: &[u8] = b"dtn!\x04\0";

pub struct AgainstPeer {
    pub core: SessionCore,
    pub now: Instant,
    pub verdict: Result<(), Refusal>,
    pub events: Vec<Event>,
    unread: Vec<u8>,
}

/// Our end with small limits, so that tests reach them.
pub fn config(role: Role) -> SessionConfig {
    SessionConfig {
        keepalive_s: 10,
        segment_mru_bytes: 1000,
        transfer_mru_bytes: 4000,
        segment_bytes: 500,
        ..SessionConfig::new(role, "ipn:1.0")
    }
}

/// SESS_INIT of the peer, node 9.
pub fn peer_init(extensions: Vec<ExtensionItem>) -> SessInit {
    SessInit {
        keepalive_s: 30,
        segment_mru_bytes: 400,
        transfer_mru_bytes: 3000,
        node_id: "ipn:9.0".into(),
        extensions: Ok(ExtensionList(extensions)),
    }
}

pub fn bytes_of(init: &SessInit) -> Vec<u8> {
    let mut bytes = Vec::new();
    init.emit(&mut bytes);
    bytes
}

/// An extension item of any kind.
pub fn item(flags: u8, kind: u16, value: &[u8]) -> ExtensionItem {
    ExtensionItem {
        flags,
        kind,
        value: Bytes::copy_from_slice(value),
    }
}

/// XFER_SEGMENT with `extensions` where START is set and `length` bytes of
/// data, whose value is the transfer's id.
pub fn segment(flags: u8, id: u8, extensions: &[ExtensionItem], length: usize) -> Vec<u8> {
    let mut bytes = vec![1, flags];
    bytes.extend_from_slice(&u64::from(id).to_be_bytes());
    if flags & 2 != 0 {
        ExtensionList(extensions.to_vec()).emit(&mut bytes);
    }
    bytes.extend_from_slice(&(length as u64).to_be_bytes());
    bytes.resize(bytes.len() + length, id);
    bytes
}

pub fn ack(flags: u8, id: u64, length: u64) -> Vec<u8> {
    [&[2, flags][..], &id.to_be_bytes(), &length.to_be_bytes()].concat()
}

pub fn refuse(reason: u8, id: u64) -> Vec<u8> {
    [&[3, reason][..], &id.to_be_bytes()].concat()
}

impl AgainstPeer {
    /// A connection on which nothing was sent yet.
    pub fn connected(config: SessionConfig) -> Self {
        let now = Instant::now();
        Self {
            core: SessionCore::new(config, now),
            now,
            verdict: Ok(()),
            events: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// A passive session that is up.
    pub fn up() -> Self {
        let mut session = Self::connected(config(Role::Passive));
        session.hear(CONTACT);
        session.hear(&bytes_of(&peer_init(Vec::new())));
        assert!(matches!(session.events[..], [Event::Established(_)]));
        session.events.clear();
        session.sent_from_contact();
        session
    }

    /// The peer's bytes arrive; `verdict` answers the session's questions.
    pub fn hear(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        loop {
            let taken = self.core.handle_input(self.now, &self.unread);
            self.unread.drain(..taken);
            if !self.settle() && taken == 0 {
                break;
            }
        }
    }

    fn settle(&mut self) -> bool {
        let mut answered = false;
        while let Some(event) = self.core.poll_event() {
            if matches!(event, Event::Admit { .. } | Event::Received(_)) {
                self.core.answer(match event {
                    Event::Admit { .. } => self.verdict,
                    _ => Ok(()),
                });
                answered = true;
            }
            self.events.push(event);
        }
        answered
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.core.handle_timeout(self.now);
        self.settle();
    }

    pub fn output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while let Some(piece) = self.core.poll_output(self.now) {
            output.extend_from_slice(&piece);
        }
        self.settle();
        output
    }

    /// The messages that left since the last call.
    pub fn sent(&mut self) -> Vec<String> {
        let (words, left) = describe(&self.output(), false);
        assert_eq!(left, 0, "output ends with a whole message");
        words
    }

    /// Checks what left since the last call.
    #[track_caller]
    pub fn says(&mut self, expected: &[&str]) {
        assert_eq!(self.sent(), expected);
    }

    pub fn sent_from_contact(&mut self) -> Vec<String> {
        let (words, left) = describe(&self.output(), true);
        assert_eq!(left, 0, "output ends with a whole message");
        words
    }

    pub fn offer(&mut self, key: u64, length: usize) {
        let chunks = vec![Bytes::from(vec![key as u8; length])];
        self.core.offer(Transfer::new(key, chunks));
        self.settle();
    }

    /// The bundles received, as (value of each byte, length).
    pub fn bundles(&self) -> Vec<(u8, usize)> {
        let bundle = |event: &Event| match event {
            Event::Received(bundle) => {
                assert!(bundle.iter().all(|byte| *byte == bundle[0]));
                Some((bundle[0], bundle.len()))
            }
            _ => None,
        };
        self.events.iter().filter_map(bundle).collect()
    }

    pub fn outcomes(&self) -> Vec<(u64, Outcome)> {
        let outcome = |event: &Event| match event {
            Event::Finished { key, outcome } => Some((*key, *outcome)),
            _ => None,
        };
        self.events.iter().filter_map(outcome).collect()
    }

    pub fn closed(&self) -> Option<&Down> {
        self.events.iter().find_map(|event| match event {
            Event::Closed(down) => Some(down),
            _ => None,
        })
    }
}
