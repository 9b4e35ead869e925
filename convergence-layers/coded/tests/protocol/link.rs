//! A link that delays, loses in bursts, reorders and duplicates datagrams, and
//! carries messages reliably beside them.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use underpass_cla::Refusal;
use underpass_coded::parity::LossEstimate;
use underpass_coded::{Message, Protection, Receiver, Sender, SenderFigures};

/// The properties of the link.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub delay: Duration,
    /// The time that a datagram takes on the line.
    pub line_time: Duration,
    pub datagram_bytes: usize,
    /// Mean loss, and the mean length of its bursts, datagrams.
    pub loss: f64,
    pub burst: f64,
    /// Datagrams are late by up to this.
    pub jitter: Duration,
    pub duplicated: f64,
    pub room_bytes: u64,
    pub seed: u64,
}

/// A satellite hop of 140 Mbit/s.
pub const SATELLITE: Link = Link {
    delay: Duration::from_millis(300),
    line_time: Duration::from_micros(85),
    datagram_bytes: 1414,
    loss: 0.0,
    burst: 1.0,
    jitter: Duration::ZERO,
    duplicated: 0.0,
    room_bytes: 64 << 20,
    seed: 1,
};

enum Arrival {
    Datagram(Bytes),
    ToReceiver(Message),
    ToSender(Message),
}

/// The fate of a bundle.
#[derive(Clone, Debug)]
pub struct Fate {
    pub offered: Instant,
    pub length: usize,
    /// When the whole bundle arrived.
    pub arrived: Option<Instant>,
    /// The result that the sender was told.
    pub judged: Option<Result<(), Refusal>>,
}

impl Fate {
    /// The time from the offer to the arrival.
    pub fn took(&self) -> Duration {
        self.arrived.expect("it has arrived") - self.offered
    }
}

pub struct World {
    link: Link,
    pub now: Instant,
    pub sender: Sender,
    pub receiver: Receiver,
    random: Rng,
    in_burst: bool,
    line_free: Instant,
    /// Whether the last poll gave a datagram, so that there may be more.
    sending: bool,
    under_way: BTreeMap<(Instant, u64), Arrival>,
    events: u64,
    /// Whether, and why, the receiving node refuses a bundle of this length.
    pub refuses: fn(length: u64) -> Option<Refusal>,
    pub fates: BTreeMap<u64, Fate>,
    pub memory_bytes: u64,
}

/// What all bundles are made of: a prime number of bytes, so that no two places of a bundle look
/// alike because of their alignment.
static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Rng::with_seed(0);
    (0..65_521).map(|_| random.u8(..)).collect()
});

/// The bytes of a bundle. Thousands of megabytes are made of them, so they are copied.
pub fn content(number: u64, length: usize) -> Bytes {
    let begin = number.wrapping_mul(7919) % PATTERN.len() as u64;
    let mut bytes = PATTERN[begin as usize..].to_vec();
    while bytes.len() < length {
        bytes.extend_from_slice(&PATTERN);
    }
    bytes.truncate(length);
    bytes.into()
}

impl World {
    pub fn new(link: Link, protection: Protection) -> World {
        let now = Instant::now();
        let receiver = Receiver::new(link.room_bytes);
        let mut sender = Sender::new(protection, LossEstimate::default());
        sender.set_datagram_bytes(link.datagram_bytes);
        if let Message::Open {
            version,
            room_bytes,
        } = receiver.open()
        {
            sender.opened(version, room_bytes);
        }
        World {
            link,
            now,
            sender,
            receiver,
            random: Rng::with_seed(link.seed),
            in_burst: false,
            line_free: now,
            sending: false,
            under_way: BTreeMap::new(),
            events: 0,
            refuses: |_| None,
            fates: BTreeMap::new(),
            memory_bytes: 0,
        }
    }

    /// Offers a bundle, which the peer has room for.
    pub fn offer(&mut self, length: usize) -> u64 {
        assert!(self.sender.has_room(length as u64));
        let number = self.fates.len() as u64;
        let whole = content(number, length);
        let first = length / 3;
        let pieces = [whole.slice(..first), whole.slice(first..)];
        assert_eq!(self.sender.push(pieces), number);
        let fate = Fate {
            offered: self.now,
            length,
            arrived: None,
            judged: None,
        };
        self.fates.insert(number, fate);
        self.sending = true;
        number
    }

    /// Runs until all bundles are judged and nothing is in flight.
    pub fn run(&mut self) {
        while self.step(None) {}
        assert!(
            self.fates.values().all(|fate| fate.judged.is_some()),
            "something was neither delivered nor reported: {:?}",
            self.fates.iter().find(|(_, fate)| fate.judged.is_none())
        );
    }

    /// Runs for a time.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(Some(until)) {}
        self.now = until;
    }

    /// Runs until little waits at the sender, like a node that offers bundles when the
    /// session is ready, or until all room is taken.
    pub fn run_until_room(&mut self, bytes: u64) {
        while !self.sender.has_room(bytes) && self.step(None) {}
    }

    pub fn figures(&self) -> SenderFigures {
        self.sender.figures()
    }

    fn step(&mut self, until: Option<Instant>) -> bool {
        self.exchange();
        let line = self.sending.then_some(self.line_free);
        let first = self.under_way.keys().next().map(|(at, _)| *at);
        let times = [
            line,
            first,
            self.sender.poll_timeout().map(|at| at.max(self.line_free)),
            self.receiver.poll_timeout(),
        ];
        let Some(next) = times.into_iter().flatten().min() else {
            return false;
        };
        if until.is_some_and(|until| next > until) {
            return false;
        }
        self.now = self.now.max(next);
        let refuses = self.refuses;
        let admit = &mut |length| refuses(length).map_or(Ok(()), Err);
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            match entry.remove() {
                Arrival::Datagram(bytes) => self
                    .receiver
                    .on_datagram(self.now, &bytes, admit)
                    .expect("an honest sender"),
                Arrival::ToReceiver(Message::Sent {
                    block,
                    symbols,
                    datagrams,
                }) => self
                    .receiver
                    .on_sent(self.now, block, symbols, datagrams)
                    .expect("an honest sender"),
                Arrival::ToReceiver(other) => panic!("no sender says {other:?}"),
                Arrival::ToSender(message) => self.hear(message),
            }
        }
        self.receiver
            .handle_timeout(self.now, admit)
            .expect("an honest sender");
        self.deliver();
        if self.now >= self.line_free {
            let datagram = self.sender.poll_datagram(self.now);
            self.sending = datagram.is_some();
            if let Some(datagram) = datagram {
                assert!(datagram.bytes.len() <= self.link.datagram_bytes);
                self.line_free = self.now + self.link.line_time;
                self.send(&datagram.bytes);
            }
        }
        self.memory_bytes = self.memory_bytes.max(self.receiver.memory_bytes());
        true
    }

    fn deliver(&mut self) {
        while let Some(arrived) = self.receiver.poll_arrived() {
            let fate = self.fates.get_mut(&arrived.bundle).expect("it was offered");
            assert!(
                fate.arrived.is_none(),
                "bundle {} came twice",
                arrived.bundle
            );
            assert_eq!(arrived.bytes, content(arrived.bundle, fate.length));
            fate.arrived = Some(self.now);
            self.receiver.judge(arrived.bundle, Ok(()));
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Taken { bundle } => self.judged(bundle, Ok(())),
            Message::Refused { bundle, refusal } => self.judged(bundle, Err(refusal)),
            Message::Wanted {
                block,
                datagrams,
                count,
                missing,
            } => self
                .sender
                .wanted(block, datagrams, count, &missing)
                .expect("an honest receiver"),
            Message::Losses(losses) => self.sender.observe(losses).expect("an honest receiver"),
            other => panic!("no receiver says {other:?}"),
        }
        self.sending = true;
    }

    fn judged(&mut self, bundle: u64, verdict: Result<(), Refusal>) {
        self.sender.ended(bundle).expect("an honest receiver");
        let fate = self.fates.get_mut(&bundle).expect("it was offered");
        assert!(fate.judged.replace(verdict).is_none());
    }

    /// Sends the messages of both sides on their way.
    fn exchange(&mut self) {
        let at = self.now + self.link.delay;
        while let Some(message) = self.sender.poll_message() {
            self.put(at, Arrival::ToReceiver(message));
        }
        while let Some(message) = self.receiver.poll_message() {
            self.put(at, Arrival::ToSender(message));
        }
    }

    fn send(&mut self, bytes: &Bytes) {
        let goes_bad = self.link.loss / self.link.burst / (1.0 - self.link.loss);
        let change = if self.in_burst {
            1.0 / self.link.burst
        } else {
            goes_bad
        };
        if self.random.f64() < change {
            self.in_burst = !self.in_burst;
        }
        if self.in_burst {
            return;
        }
        let copies = 1 + usize::from(self.random.f64() < self.link.duplicated);
        for _ in 0..copies {
            let late = self.link.jitter.mul_f64(self.random.f64());
            let at = self.now + self.link.delay + late;
            self.put(at, Arrival::Datagram(bytes.clone()));
        }
    }

    fn put(&mut self, at: Instant, arrival: Arrival) {
        self.events += 1;
        self.under_way.insert((at, self.events), arrival);
    }

    /// From now on datagrams have at most this size.
    pub fn shrink(&mut self, datagram_bytes: usize) {
        self.link.datagram_bytes = datagram_bytes;
        self.sender.set_datagram_bytes(datagram_bytes);
        self.sending = true;
    }
}
