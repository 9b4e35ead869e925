//! The attacks of a hostile terminal. Each states beforehand how the hub must react; what other
//! terminals notice is judged from outside.

mod beacons;
mod names;
mod streams;
mod transport;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::task::JoinSet;
use underpass_cla::Class;

use crate::forge::{Endpoint, Forged};
use crate::identity::IdentityError;
use crate::line::{Answer, Line};

/// The hub's service of streams.
const STREAMS: u64 = 80;
/// The class of what is sent.
const NORMAL: Class = Class(2);

/// Who plays in the attacks.
#[derive(Clone, Debug)]
pub struct Cast {
    /// Where the hub listens.
    pub hub: SocketAddr,
    /// Folder of the authority.
    pub pki: PathBuf,
    /// Node number of the hostile terminal.
    pub node: u64,
    /// Node number of an honest terminal.
    pub victim: u64,
    /// Node number of a terminal that is switched off.
    pub absent: u64,
    pub hub_node: u64,
    /// An origin whose `/bytes/N` gives N bytes.
    pub origin: SocketAddr,
    /// An address that nobody answers at.
    pub black_hole: SocketAddr,
    /// A client of the honest terminal.
    pub foreign_client: SocketAddr,
    /// This process' incarnation.
    pub run: u64,
}

/// How the hub must treat an attack's bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// Each is refused and counted as forged.
    Forged,
    /// Each is refused, but not as forged.
    Refused,
    /// Each is taken, and nothing comes of it.
    Harmless,
    /// The hub may answer anything, but it and the others must continue.
    Endured,
}

pub struct Attack {
    /// Its name on the command line.
    pub name: &'static str,
    /// What the hub has to make of it.
    pub expected: Expected,
    kind: Kind,
}

enum Kind {
    Names(Build),
    Streams(Build),
    Transport(transport::Kind),
    Beacons(beacons::Kind),
}

/// The bundles of an attack.
type Build = fn(&Attacker) -> Vec<Forged>;

/// How an attack went.
#[derive(Debug, Serialize)]
pub struct Report {
    pub attack: &'static str,
    pub expected: Expected,
    /// Whether the hub's answers are as expected.
    pub as_expected: bool,
    /// The hub's answers, by kind.
    pub answers: BTreeMap<&'static str, u64>,
}

pub fn all() -> impl Iterator<Item = Attack> {
    let named = names::ALL.iter().map(|(name, expected, build)| Attack {
        name,
        expected: *expected,
        kind: Kind::Names(*build),
    });
    let endured = |name, kind| Attack {
        name,
        expected: Expected::Endured,
        kind,
    };
    let streams = streams::ALL.iter();
    let streams = streams.map(move |(name, build)| endured(name, Kind::Streams(*build)));
    let transport = transport::ALL.iter();
    let transport = transport.map(move |(name, kind)| endured(name, Kind::Transport(*kind)));
    let beacons = beacons::ALL.iter();
    let beacons = beacons.map(move |(name, kind)| endured(name, Kind::Beacons(*kind)));
    named.chain(streams).chain(transport).chain(beacons)
}

/// The hostile terminal, with what its attacks share.
pub struct Attacker {
    cast: Cast,
    line: Arc<Line>,
    sequence: AtomicU64,
}

impl Attacker {
    /// Connects as an ordinary terminal would.
    ///
    /// # Errors
    /// When there is no certificate for it.
    pub async fn connect(cast: Cast) -> Result<Attacker, IdentityError> {
        let line = Arc::new(Line::dial(cast.hub, &cast.pki, cast.node, cast.run, 4)?);
        let attacker = Attacker {
            line,
            sequence: AtomicU64::new(1),
            cast,
        };
        // An attack on an unreachable hub would prove nothing.
        attacker.line.up(4, Duration::from_secs(20)).await;
        Ok(attacker)
    }

    /// Whether it has all its sessions, with some patience.
    pub async fn is_connected(&self) -> bool {
        self.line.up(4, Duration::from_secs(20)).await
    }

    pub async fn run(&self, attack: &Attack) -> Report {
        let mut answers = Answers::default();
        match attack.kind {
            Kind::Names(build) | Kind::Streams(build) => {
                self.send_all(build(self), &mut answers).await;
            }
            Kind::Transport(kind) => transport::run(self, kind, &mut answers).await,
            Kind::Beacons(kind) => beacons::run(self, kind, &mut answers).await,
        }
        Report {
            attack: attack.name,
            expected: attack.expected,
            as_expected: answers.fit(attack.expected),
            answers: answers.0,
        }
    }

    /// Sends bundles one behind the other, without waiting for each answer.
    async fn send_all(&self, bundles: Vec<Forged>, answers: &mut Answers) {
        const AT_ONCE: usize = 256;
        let mut sending: JoinSet<Answer> = JoinSet::new();
        for bundle in bundles {
            if sending.len() == AT_ONCE
                && let Some(Ok(answer)) = sending.join_next().await
            {
                answers.add(answer);
            }
            let (line, raw) = (self.line.clone(), bundle.encode());
            sending.spawn(async move { line.send(NORMAL, raw).await });
        }
        for answer in sending.join_all().await {
            answers.add(answer);
        }
    }

    fn next(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// A bundle of this terminal's streams to the hub's.
    fn to_streams(&self, payload: impl Into<Vec<u8>>) -> Forged {
        self.to_hub(STREAMS, payload)
    }

    fn to_hub(&self, service: u64, payload: impl Into<Vec<u8>>) -> Forged {
        let source = Endpoint::Ipn(self.cast.node, service);
        let destination = Endpoint::Ipn(self.cast.hub_node, service);
        Forged::new(source, destination, self.next()).payload(payload)
    }

    fn streams_bundle(&self, payload: impl Into<Vec<u8>>) -> Bytes {
        self.to_streams(payload).encode()
    }
}

/// The hub's answers, counted.
#[derive(Debug, Default)]
struct Answers(BTreeMap<&'static str, u64>);

impl Answers {
    fn add(&mut self, answer: Answer) {
        self.note(match answer {
            Answer::Taken => "taken",
            Answer::Refused => "refused",
            Answer::NoRoom => "no-room",
            Answer::Broken => "broken",
            Answer::Silent => "silent",
        });
    }

    fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    fn fit(&self, expected: Expected) -> bool {
        let only = |what: &str| self.0.len() == 1 && self.0.contains_key(what);
        match expected {
            Expected::Forged | Expected::Refused => only("refused"),
            Expected::Harmless => only("taken"),
            Expected::Endured => true,
        }
    }
}
