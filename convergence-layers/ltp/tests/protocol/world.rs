//! Two spans and the link between them, in virtual time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_ltp::{Config, Event, Reason, SessionId, Span};

#[derive(Clone, Debug)]
pub struct Link {
    pub loss: f64,
    pub duplicates: f64,
    /// A datagram arrives up to this much later than the one-way delay.
    pub jitter: Duration,
    pub one_way: Duration,
    /// The time of a datagram on the line.
    pub line: Duration,
    /// Blockages: start, end, and whether the spans are told.
    pub blockages: Vec<(Duration, Duration, bool)>,
}

impl Link {
    pub fn clean() -> Link {
        Link {
            loss: 0.0,
            duplicates: 0.0,
            jitter: Duration::ZERO,
            one_way: Duration::from_millis(300),
            line: Duration::from_micros(100),
            blockages: Vec::new(),
        }
    }

    fn is_blocked(&self, at: Duration) -> bool {
        let mut blockages = self.blockages.iter();
        blockages.any(|(from, until, _)| (*from..*until).contains(&at))
    }

    fn is_told_blocked(&self, at: Duration) -> bool {
        let mut blockages = self.blockages.iter();
        blockages.any(|(from, until, told)| *told && (*from..*until).contains(&at))
    }
}

/// One end, and what its client was told.
pub struct End {
    pub span: Span,
    pub received: Vec<(Bytes, u64)>,
    pub sent: Vec<u64>,
    pub cancelled: Vec<(u64, Reason, bool)>,
    pub lost: Vec<(SessionId, Reason)>,
    /// The client's answer to blocks that it is offered.
    pub verdict: Result<(), Reason>,
    /// The bytes that it keeps of blocks that are too long for memory.
    pub kept: BTreeMap<SessionId, Vec<u8>>,
    /// Whether it can keep them.
    pub keeps: Result<(), Reason>,
    /// Bytes that it was given to keep.
    pub kept_bytes: u64,
    /// Blocks by key; the client supplies their bytes on request.
    pub elsewhere: BTreeMap<u64, Bytes>,
    /// How many of these bytes it has supplied.
    pub supplied_bytes: u64,
    /// The most windows of these that the span has kept at once.
    pub most_windows: usize,
    next_send: Duration,
}

/// Two ends and a link.
pub struct World {
    pub start: Instant,
    pub now: Duration,
    pub ends: [End; 2],
    pub link: Link,
    random: fastrand::Rng,
    /// Datagrams in flight by arrival: the receiving end, and the bytes.
    on_the_way: BTreeMap<(Duration, u64), (usize, Vec<u8>)>,
    count: u64,
    /// The segments that left, each with its time, sender and type.
    pub log: Vec<(Duration, usize, u8)>,
}

pub const NUMBERS: [u64; 2] = [21, 22];

impl World {
    pub fn new(link: Link, seed: u64, adjust: impl Fn(&mut Config)) -> World {
        let start = Instant::now();
        let end = |index: usize| {
            let mut config = Config::new(NUMBERS[index], NUMBERS[1 - index], seed + index as u64);
            adjust(&mut config);
            End {
                span: Span::new(config, start),
                received: Vec::new(),
                sent: Vec::new(),
                cancelled: Vec::new(),
                lost: Vec::new(),
                verdict: Ok(()),
                kept: BTreeMap::new(),
                keeps: Ok(()),
                kept_bytes: 0,
                elsewhere: BTreeMap::new(),
                supplied_bytes: 0,
                most_windows: 0,
                next_send: Duration::ZERO,
            }
        };
        World {
            start,
            now: Duration::ZERO,
            ends: [end(0), end(1)],
            link,
            random: fastrand::Rng::with_seed(seed),
            on_the_way: BTreeMap::new(),
            count: 0,
            log: Vec::new(),
        }
    }

    pub fn instant(&self) -> Instant {
        self.start + self.now
    }

    pub fn send(&mut self, end: usize, key: u64, block: &Bytes, red: Option<u64>) -> SessionId {
        let half = block.len() / 2;
        let chunks = vec![block.slice(..half), block.slice(half..)];
        let sent = self.ends[end].span.send(key, 1, chunks, red);
        sent.expect("the block is taken")
    }

    /// Puts this datagram on the link.
    pub fn inject(&mut self, to: usize, datagram: Vec<u8>) {
        let now = self.instant();
        self.ends[to].span.handle_input(now, &datagram);
        self.drain(to);
    }

    fn drain(&mut self, index: usize) {
        let now = self.instant();
        let end = &mut self.ends[index];
        while let Some(event) = end.span.poll_event() {
            match event {
                Event::Received {
                    session,
                    block,
                    red_bytes,
                    ..
                } => {
                    if end.verdict.is_ok() {
                        end.received.push((block, red_bytes));
                    }
                    end.span.answer(now, session, end.verdict);
                }
                Event::Wanted {
                    session,
                    key,
                    range,
                } => {
                    if let Some(whole) = end.elsewhere.get(&key) {
                        let bytes = whole.slice(range.start as usize..range.end as usize);
                        end.supplied_bytes += range.end - range.start;
                        end.span.supply(session, range.start, bytes);
                        end.most_windows = end.most_windows.max(end.span.supplied_windows());
                    }
                }
                Event::Sent { key } => end.sent.push(key),
                Event::Cancelled {
                    key,
                    reason,
                    by_peer,
                } => end.cancelled.push((key, reason, by_peer)),
                Event::Keep {
                    session,
                    offset,
                    bytes,
                } => {
                    let kept = end.kept.entry(session).or_default();
                    let from = offset as usize;
                    let until = from + bytes.len();
                    kept.resize(kept.len().max(until), 0);
                    kept[from..until].copy_from_slice(&bytes);
                    end.kept_bytes += bytes.len() as u64;
                    end.span.kept(session, (1, bytes.len()), end.keeps);
                }
                Event::ReceivedElsewhere {
                    session,
                    bytes,
                    red_bytes,
                    ..
                } => {
                    let mut whole = end.kept.remove(&session).unwrap_or_default();
                    whole.truncate(bytes as usize);
                    if end.verdict.is_ok() {
                        end.received.push((whole.into(), red_bytes));
                    }
                    end.span.answer(now, session, end.verdict);
                }
                Event::ReceptionCancelled { session, reason } => {
                    end.kept.remove(&session);
                    end.lost.push((session, reason));
                }
                Event::Progress { .. } => {}
            }
        }
    }

    fn transmit(&mut self, index: usize) {
        let now = self.instant();
        while self.ends[index].next_send <= self.now {
            let mut segment = Vec::new();
            if !self.ends[index].span.poll_transmit(now, &mut segment) {
                break;
            }
            self.log.push((self.now, index, segment[0]));
            let from = self.ends[index].next_send.max(self.now);
            self.ends[index].next_send = from + self.link.line;
            let copies = 1 + usize::from(self.random.f64() < self.link.duplicates);
            for _ in 0..copies {
                if self.random.f64() < self.link.loss {
                    continue;
                }
                let jitter = self.link.jitter.mul_f64(self.random.f64());
                let at = self.now + self.link.one_way + jitter;
                if self.link.is_blocked(self.now) || self.link.is_blocked(at) {
                    continue;
                }
                self.count += 1;
                self.on_the_way
                    .insert((at, self.count), (1 - index, segment.clone()));
            }
        }
        self.drain(index);
    }

    /// Runs until nothing is left to do, or until this time.
    pub fn run(&mut self, until: Duration) {
        loop {
            let blocked = self.link.is_told_blocked(self.now);
            let now = self.instant();
            for index in 0..2 {
                self.ends[index].span.block_link(now, blocked);
                self.ends[index].span.handle_timeout(now);
                self.drain(index);
                self.transmit(index);
            }
            let mut next: Vec<Duration> = Vec::new();
            next.extend(self.on_the_way.keys().next().map(|(at, _)| *at));
            for end in &self.ends {
                let timeout = end.span.poll_timeout();
                next.extend(timeout.map(|at| at.saturating_duration_since(self.start)));
                if end.span.has_output() && !blocked {
                    next.push(end.next_send);
                }
            }
            for (from, to, told) in &self.link.blockages {
                if *told {
                    next.extend([*from, *to].into_iter().filter(|at| *at > self.now));
                }
            }
            let Some(next) = next.into_iter().min().filter(|next| *next <= until) else {
                return;
            };
            self.now = self.now.max(next);
            while let Some(first) = self.on_the_way.first_entry()
                && first.key().0 <= self.now
            {
                let (to, datagram) = first.remove();
                let now = self.instant();
                self.ends[to].span.handle_input(now, &datagram);
                self.drain(to);
            }
        }
    }

    /// Checks that nothing is in progress at either end, and that no memory is used.
    pub fn assert_idle(&self) {
        for end in &self.ends {
            assert_eq!(end.span.sessions(), (0, 0));
            assert_eq!(end.span.receive_bytes(), 0);
            assert!(!end.span.has_output());
        }
    }
}

/// Bytes that depend on their place in the block.
pub fn block(seed: u64, length: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes.into()
}
