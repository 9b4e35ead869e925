//! Shards of one beam in virtual time, each on a thread that may be late.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use underpass_scheduler::{Beam, Decision, LinkScheduler, TerminalId};

use crate::line::{Sent, config, leaf};

/// The most by which a thread is late, and the longest pause between two bundles.
pub const LATENESS: Duration = Duration::from_millis(1);

/// A thread pauses before one of this many bundles.
const PAUSES_ONE_OF: u64 = 50;

/// The credit that the beam's bucket saves up, and the line time of the longest bundle.
const CREDIT: Duration = Duration::from_millis(60);
const QUANTUM: Duration = Duration::from_millis(2);
const LEAST_BUNDLE_BYTES: u64 = 4 << 10;

/// The beam is unused for at most this long while a shard wants to send: the grace for a
/// shard whose turn it is, the pause until the next one asks, and the lateness of both.
pub const MOST_IDLE: Duration = Duration::from_millis(10 + 2 + 2);

/// SplitMix64: the same run for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn time(&mut self, most: Duration) -> Duration {
        Duration::from_nanos(self.below(most.as_nanos() as u64 + 1))
    }
}

struct Thread {
    link: LinkScheduler,
    asks_at: Option<Instant>,
    stalled_until: Option<Instant>,
}

pub struct Node {
    pub beam: Arc<Beam>,
    pub log: Vec<Sent>,
    pub random: Random,
    /// Whether bundles have any size up to the largest.
    pub uneven: bool,
    /// The size of the largest bundle.
    pub most_bytes: u64,
    threads: Vec<Thread>,
    homes: BTreeMap<u64, usize>,
    start: Instant,
    now: Instant,
    rate_bps: u64,
    most_bps: u64,
    largest: u64,
    /// The rate subtracted for each terminal, bit/s.
    subtracted: BTreeMap<u64, u64>,
    /// Bits that the rate has allowed since the start and that have not left; of earlier
    /// rates no more than the bucket saves up.
    credit: f64,
    /// The credit when the rate changed.
    credit_before: f64,
    seen: Instant,
}

impl Node {
    pub fn new(shards: usize, rate_bps: u64, seed: u64) -> Self {
        let start = Instant::now();
        let beam = Arc::new(Beam::new(&config()).unwrap());
        beam.set_rate(start, Some(rate_bps));
        let threads = (0..shards).map(|_| Thread {
            link: LinkScheduler::on(&config(), beam.clone()).unwrap(),
            asks_at: None,
            stalled_until: None,
        });
        Node {
            threads: threads.collect(),
            beam,
            log: Vec::new(),
            random: Random(seed),
            uneven: false,
            most_bytes: u64::MAX,
            homes: BTreeMap::new(),
            start,
            now: start,
            rate_bps,
            most_bps: rate_bps,
            largest: LEAST_BUNDLE_BYTES,
            subtracted: BTreeMap::new(),
            credit: 0.0,
            credit_before: 0.0,
            seen: start,
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    pub fn set_rate(&mut self, rate_bps: u64) {
        self.pass();
        self.rate_bps = rate_bps;
        self.most_bps = self.most_bps.max(rate_bps);
        for shard in 0..self.threads.len() {
            self.change(shard, |link, now| link.set_root_rate(now, Some(rate_bps)));
        }
        self.reprice();
    }

    pub fn subtract(&mut self, id: u64, bps: u64) {
        self.pass();
        self.subtracted.insert(id, bps);
        self.change(self.homes[&id], |link, now| {
            link.subtract(now, TerminalId(id), bps);
        });
        self.reprice();
    }

    /// Changes something at a shard, and then its thread asks.
    pub fn change(&mut self, shard: usize, change: impl FnOnce(&mut LinkScheduler, Instant)) {
        let thread = &mut self.threads[shard];
        change(&mut thread.link, self.now);
        // A thread that stands still does not ask.
        let stalled = thread.stalled_until.filter(|until| *until > self.now);
        thread.asks_at = Some(stalled.unwrap_or(self.now));
    }

    pub fn terminal(&mut self, shard: usize, id: u64, weight: u64, rate_bps: Option<u64>) {
        self.homes.insert(id, shard);
        self.change(shard, |link, now| {
            link.add_terminal(now, TerminalId(id), weight, rate_bps);
        });
    }

    /// The shard that has a terminal.
    pub fn home(&self, id: u64) -> Option<usize> {
        self.homes.get(&id).copied()
    }

    pub fn remove(&mut self, id: u64) {
        self.pass();
        if let Some(shard) = self.homes.remove(&id) {
            self.subtracted.remove(&id);
            self.change(shard, |link, now| link.remove_terminal(now, TerminalId(id)));
        }
        self.reprice();
    }

    pub fn ready(&mut self, id: u64, class: u8, ready: bool) {
        self.change(self.homes[&id], |link, _| {
            link.set_ready(leaf(id, class), ready).unwrap();
        });
    }

    /// Stops a shard's thread for this time.
    pub fn stall(&mut self, shard: usize, time: Duration) {
        let thread = &mut self.threads[shard];
        let until = self.now + time;
        thread.stalled_until = Some(until);
        thread.asks_at = thread.asks_at.map(|at| at.max(until));
    }

    /// Ends a shard with all its terminals.
    pub fn end_shard(&mut self, shard: usize) {
        self.pass();
        let link = LinkScheduler::on(&config(), self.beam.clone()).unwrap();
        self.threads[shard] = Thread {
            link,
            asks_at: None,
            stalled_until: None,
        };
        self.homes.retain(|_, home| *home != shard);
        self.subtracted.retain(|id, _| self.homes.contains_key(id));
        self.reprice();
    }

    pub fn link(&self, shard: usize) -> &LinkScheduler {
        &self.threads[shard].link
    }

    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(shard) = self.next_to_ask()
            && let Some(at) = self.threads[shard].asks_at
            && at <= end
        {
            self.now = self.now.max(at);
            self.ask(shard);
        }
        self.now = end;
        self.pass();
    }

    fn next_to_ask(&self) -> Option<usize> {
        let asking = 0..self.threads.len();
        asking
            .filter(|shard| self.threads[*shard].asks_at.is_some())
            .min_by_key(|shard| self.threads[*shard].asks_at)
    }

    fn ask(&mut self, shard: usize) {
        let thread = &mut self.threads[shard];
        match thread.link.next(self.now) {
            Decision::Idle => thread.asks_at = None,
            Decision::Wait(until) => {
                assert!(until > self.now, "a wait leads onwards");
                thread.asks_at = Some(until + self.random.time(LATENESS));
            }
            Decision::Send { leaf, max_bytes } => {
                let bytes = match self.uneven {
                    true => 100 + self.random.below(max_bytes),
                    false => max_bytes.min(self.most_bytes),
                };
                thread.link.sent(self.now, leaf, bytes);
                if self.random.below(PAUSES_ONE_OF) == 0 {
                    thread.asks_at = Some(self.now + self.random.time(LATENESS));
                }
                let at = self.now - self.start;
                self.log.push(Sent { at, leaf, bytes });
                self.account(bytes);
            }
        }
    }

    fn usable(&self) -> f64 {
        let subtracted: u64 = self.subtracted.values().sum();
        let left = self.rate_bps.saturating_sub(subtracted);
        left.max(self.rate_bps.div_ceil(10)) as f64
    }

    fn pass(&mut self) {
        self.credit += self.usable() * (self.now - self.seen).as_secs_f64();
        self.seen = self.now;
        self.clip();
    }

    /// Limits the credit to what the bucket saves up at the present rate.
    fn clip(&mut self) {
        let saved = self.usable() * CREDIT.as_secs_f64();
        self.credit = self.credit.min(saved.max((LEAST_BUNDLE_BYTES * 8) as f64));
    }

    fn reprice(&mut self) {
        self.clip();
        self.credit_before = self.credit;
    }

    /// Checks every bundle against the rate: it leaves on credit, except for what shards
    /// have not settled yet, a quantum and a bundle of each.
    fn account(&mut self, bytes: u64) {
        self.pass();
        self.largest = self.largest.max(bytes);
        let quantum = self.most_bps as f64 * QUANTUM.as_secs_f64();
        let unsettled = (quantum + self.largest as f64 * 8.0) * self.threads.len() as f64;
        let at = self.elapsed();
        assert!(self.credit >= -unsettled, "{} bits at {at:?}", self.credit);
        self.credit -= bytes as f64 * 8.0;
    }

    /// Asserts that the beam was full whenever a shard had something to send.
    pub fn assert_full(&mut self) {
        let most = self.usable() * MOST_IDLE.as_secs_f64();
        let most = most.max(self.credit_before) + 1.0;
        assert!(self.credit <= most, "{} bits, not {most}", self.credit);
        self.credit_before = self.credit_before.min(self.credit);
    }

    pub fn bytes(&self, of: impl Fn(&Sent) -> bool) -> u64 {
        let sent = self.log.iter().filter(|sent| of(sent));
        sent.map(|sent| sent.bytes).sum()
    }

    pub fn bytes_of(&self, id: u64) -> u64 {
        self.bytes(|sent| sent.leaf.terminal == TerminalId(id))
    }
}
