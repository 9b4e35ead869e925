//! Short streams, and the applications at their ends.

use std::time::Duration;

use bytes::Bytes;
use underpass_cla::Class;
use underpass_engine::StreamKey;
use underpass_streams::{Epoch, Event, Open, ResetCode, Target};

use crate::nodes::{HUB, number, place};
use crate::world::{Happening, World};

/// The course of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request, and then an answer.
    Answered,
    /// The opener soon resets it.
    ResetByOpener,
    /// The acceptor resets it at once.
    Refused,
    /// The answer comes long after the request has ended.
    AnsweredLate,
    /// The request continues long after the answer has ended.
    FinishedLate,
}

const KINDS: [Kind; 5] = [
    Kind::Answered,
    Kind::ResetByOpener,
    Kind::Refused,
    Kind::AnsweredLate,
    Kind::FinishedLate,
];

/// One end of a stream.
#[derive(Clone, Copy, Debug)]
pub struct App {
    kind: Kind,
    opener: bool,
}

/// An action that an application takes by itself.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    Answer,
    Finish,
    Reset,
}

/// An application gives up a stream after this time.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);

impl World {
    /// Opens a stream of any kind between the hub and a terminal, in either direction.
    pub fn exchange(&mut self) {
        let terminal = self.random.between(1, self.links.len() as u64 - 1) as usize;
        let (from, to) = match self.random.chance(50) {
            true => (HUB, terminal),
            false => (terminal, HUB),
        };
        let kind = match self.random.chance(60) {
            true => Kind::Answered,
            false => self.random.pick(&KINDS),
        };
        let class = Class(self.random.between(1, 2) as u8);
        self.open(from, to, class, kind);
    }

    /// Opens answered streams in both classes, one in each direction with each terminal.
    pub fn exchange_with_all(&mut self) {
        for terminal in 1..self.links.len() {
            for class in [Class(1), Class(2)] {
                self.open(HUB, terminal, class, Kind::Answered);
                self.open(terminal, HUB, class, Kind::Answered);
            }
        }
    }

    fn open(&mut self, from: usize, to: usize, class: Class, kind: Kind) {
        let bytes = self.random.between(1, 6_000) as usize;
        let open = Open {
            report_connected: self.random.chance(30),
            ..Open::new(
                class,
                Target::Name {
                    host: "origin.example".to_owned(),
                    port: kind as u16,
                },
            )
        };
        // A node that is no longer in the configuration has no streams.
        let opened = self.call(from, |engine, now| engine.open(now, number(to), open));
        let Some(Ok(key)) = opened else { return };
        let app = App { kind, opener: true };
        self.nodes[from].apps.insert(key, app);
        self.say(from, key, bytes);
        self.later(from, key, PATIENCE, Deed::Reset);
        match kind {
            Kind::ResetByOpener => {
                let after = self.random.ms(0, 3_000);
                self.later(from, key, after, Deed::Reset);
            }
            Kind::FinishedLate => {
                let after = self.random.ms(60_000, 7_200_000);
                self.later(from, key, after, Deed::Finish);
            }
            _ => self.deed(from, key, Deed::Finish),
        }
    }

    fn say(&mut self, node: usize, key: StreamKey, bytes: usize) {
        let data = Bytes::from(vec![b'x'; bytes]);
        // The stream may have ended; an event reports that.
        let _ = self.call(node, |engine, now| engine.write(now, key, data));
    }

    fn later(&mut self, node: usize, key: StreamKey, after: Duration, deed: Deed) {
        let run = self.nodes[node].incarnation;
        let happening = Happening::Deed {
            node,
            run,
            key,
            deed,
        };
        self.at(self.now + after, happening);
    }

    pub fn deed(&mut self, node: usize, key: StreamKey, deed: Deed) {
        if !self.nodes[node].apps.contains_key(&key) {
            return;
        }
        match deed {
            Deed::Answer => {
                let bytes = self.random.between(1, 6_000) as usize;
                self.say(node, key, bytes);
                self.deed(node, key, Deed::Finish);
            }
            Deed::Finish => {
                let _ = self.call(node, |engine, now| engine.finish(now, key));
            }
            Deed::Reset => {
                self.nodes[node].apps.remove(&key);
                let code = ResetCode::Cancelled;
                let _ = self.call(node, |engine, now| engine.reset(now, key, code, "enough"));
            }
        }
    }

    pub fn stream_event(&mut self, node: usize, peer: u64, epoch: Epoch, event: Event) {
        let key = |id| StreamKey { peer, epoch, id };
        match event {
            Event::Opened { id, open } => self.accept(node, key(id), &open),
            Event::Readable(id) => {
                let key = key(id);
                while let Some(Some(_)) = self.call(node, |engine, now| engine.read(now, key, 4096))
                {
                }
            }
            Event::PeerFinished(id) => self.peer_finished(node, key(id)),
            Event::Stopped { id, .. } => self.deed(node, key(id), Deed::Finish),
            Event::Closed(id) => {
                self.meet("closed");
                self.nodes[node].apps.remove(&key(id));
            }
            Event::Reset { id, .. } => {
                self.meet("reset");
                self.nodes[node].apps.remove(&key(id));
            }
            _ => {}
        }
    }

    fn accept(&mut self, node: usize, key: StreamKey, open: &Open) {
        let Target::Name { port, .. } = open.target else {
            panic!("{open:?} to {} was not sent", place(key.peer));
        };
        let kind = KINDS[usize::from(port)];
        let app = App {
            kind,
            opener: false,
        };
        self.nodes[node].apps.insert(key, app);
        self.later(node, key, PATIENCE, Deed::Reset);
        if open.report_connected {
            let _ = self.call(node, |engine, now| engine.connected(now, key));
        }
        match kind {
            Kind::Refused => self.deed(node, key, Deed::Reset),
            Kind::FinishedLate => self.deed(node, key, Deed::Answer),
            _ => {}
        }
    }

    fn peer_finished(&mut self, node: usize, key: StreamKey) {
        let Some(app) = self.nodes[node].apps.get(&key).copied() else {
            return;
        };
        match (app.opener, app.kind) {
            (false, Kind::AnsweredLate) => {
                let after = self.random.ms(60_000, 7_200_000);
                self.later(node, key, after, Deed::Answer);
            }
            (false, kind) if kind != Kind::FinishedLate => self.deed(node, key, Deed::Answer),
            _ => {}
        }
    }
}
