//! The root of the tree, which schedulers on several threads share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use slab::Slab;

use crate::bucket::{Bucket, shape};
use crate::fair::{Pace, Ranked, virtual_time};
use crate::link::{BUNDLE_TIME, Config, ConfigError, bytes_in};
use crate::utilisation::Utilisation;

/// The line time of what a shard may send before it asks again, if others want
/// to send too; and the longest pause after which it asks again.
pub(crate) const QUANTUM: Duration = Duration::from_millis(2);

/// How long the beam is kept free for the shard whose turn it is: a few times
/// as long as a thread is late. It costs no rate, since the bucket saves up
/// more than this.
const GRACE: Duration = Duration::from_millis(10);

/// How far a shard may fall behind, in line time of the beam, and still make
/// up for it: by as much as a terminal saves up.
const MOST_LAG: Duration = BUNDLE_TIME;

/// The value of an atomic that means no rate.
const NO_RATE: u64 = u64::MAX;

/// The beam's rate, and which shard may use it next: all [`crate::LinkScheduler`]s of a node share
/// it. At a terminal it stands for all paths together.
///
/// A scheduler that joins it ([`crate::LinkScheduler::on`]) is a shard. It asks for a quantum of
/// bytes, sends it, and reports what it has sent. Only these calls take the lock, and nothing else
/// is called while the lock is held.
#[derive(Debug)]
pub struct Beam {
    utilisation: Utilisation,
    /// What bundles may use of the rate, bit/s.
    usable_bps: AtomicU64,
    /// Sums of the weights of terminals, of all shards: see [`Weights`].
    active_weight: AtomicU64,
    loading_weight: AtomicU64,
    state: Mutex<State>,
}

/// Sums of weights of terminals that share the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    /// Of those that compete at present.
    pub active: u64,
    /// Of those among them that have more to send than signalling and what is sparse.
    pub loading: u64,
}

#[derive(Debug, Default)]
struct State {
    rate_bps: Option<u64>,
    /// Sum of what is subtracted from the terminals' rates, bit/s.
    subtracted_bps: u128,
    bucket: Option<Bucket>,
    members: Slab<Member>,
    /// The shards that wait, those with something urgent before all others.
    order: BTreeSet<Ranked<Rank>>,
    /// The shards that send, by when the first terminal started when they asked.
    sending: BTreeSet<Ranked<u128>>,
    /// Members that compete.
    competing: u64,
    /// Sum of their weights.
    weight: u128,
    /// The virtual time of all shards, see [`crate::fair::FairQueue`].
    now: u128,
    /// Sum of the quanta that are being sent, bytes.
    reserved: u64,
}

/// False with something urgent, and when the shard's first terminal starts.
type Rank = (bool, u128);

/// A shard, as the beam knows it.
#[derive(Debug, Default)]
struct Member {
    /// It has something to send.
    competes: bool,
    /// Sum of the weights of its terminals that may send.
    weight: u128,
    /// Its place in the order.
    rank: Option<Rank>,
    /// Its place among those that send.
    started: Option<u128>,
    /// What it has of a quantum, bytes.
    reserved: u64,
}

/// What a shard says when it wants to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// What it has sent since its last report, bytes.
    pub sent: u64,
    /// It would send something out of turn: signalling, or a sparse bundle.
    pub urgent: bool,
    /// When its first terminal starts, in virtual time.
    pub start: u128,
    pub virtual_now: u128,
    /// Sum of the weights of its terminals that may send.
    pub weight: u128,
}

/// The answer to a shard that has asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Send(Quantum),
    /// Ask again at that time; `None`: when the rate has changed.
    Wait(Option<Instant>),
}

/// What a shard may send before it asks again: bundles as long as less than
/// `bytes` have been sent, and the terminal in turn starts no later than at
/// `limit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantum {
    pub bytes: u64,
    pub limit: u128,
    /// For what is urgent only.
    pub urgent: bool,
    /// For the next bundle, as long as the beam is ready.
    pub single: bool,
}

/// The beam's rate and bucket, as a shard last saw them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub usable_bps: Option<u64>,
    /// From when the bucket's level is not negative; `None` if never.
    pub ready_at: Option<Instant>,
}

impl Beam {
    /// A beam without a rate and without shards. Only the utilisation of the configuration is used.
    ///
    /// # Errors
    /// When the utilisation is not above 0 and at most 1.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        Ok(Beam {
            utilisation: Utilisation::new(config.utilisation)?,
            usable_bps: AtomicU64::new(NO_RATE),
            active_weight: AtomicU64::new(0),
            loading_weight: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// Sets the rate, bit/s of IP, `None` for no limit. In force at once. But a shard that waits
    /// asks again only at the time that it was given, or when it learns of the change itself
    /// ([`crate::LinkScheduler::set_root_rate`]).
    pub fn set_rate(&self, now: Instant, rate_bps: Option<u64>) {
        let mut state = self.lock();
        state.rate_bps = rate_bps;
        self.reshape(&mut state, now);
    }

    /// Makes `bytes` the least debt that has to be paid before anything more is granted. Shards
    /// that have a quantum use it up.
    pub fn make_up_for(&self, now: Instant, bytes: u64) {
        if let Some(bucket) = &mut self.lock().bucket {
            bucket.owe(now, bytes);
        }
    }

    /// Tells how many entries each set has, see
    /// [`crate::LinkScheduler::footprint`].
    pub(crate) fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let state = self.lock();
        tell("shards of the beam", state.members.len());
        tell("shards that wait for the beam", state.order.len());
        tell("shards that use the beam", state.sending.len());
    }

    pub(crate) fn join(&self) -> (usize, View) {
        let mut state = self.lock();
        let member = state.members.insert(Member::default());
        (member, self.view(&state))
    }

    /// Forgets a shard that has `sent` bytes of its quantum, and what is
    /// subtracted for its terminals.
    pub(crate) fn remove(&self, member: usize, sent: u64, subtracted_bps: u128) {
        let mut state = self.lock();
        // The time at which a shard is dropped is not known here.
        let now = state.bucket.as_ref().map(Bucket::at);
        if let Some(now) = now {
            state.settle(member, now, sent);
        }
        state.set_competing(member, None);
        state.members.remove(member);
        state.subtracted_bps -= subtracted_bps;
        if let Some(now) = now {
            self.reshape(&mut state, now);
        }
    }

    /// What bundles may use of the rate, bit/s; `None` without a limit.
    pub(crate) fn usable_bps(&self) -> Option<u64> {
        let usable = self.usable_bps.load(Ordering::Relaxed);
        (usable != NO_RATE).then_some(usable)
    }

    /// The sums of the weights at present.
    pub(crate) fn weights(&self) -> Weights {
        Weights {
            active: self.active_weight.load(Ordering::Relaxed),
            loading: self.loading_weight.load(Ordering::Relaxed),
        }
    }

    /// Changes what is in the sums from `before` to `after`.
    pub(crate) fn weigh(&self, before: Weights, after: Weights) {
        let sums = [
            (&self.active_weight, before.active, after.active),
            (&self.loading_weight, before.loading, after.loading),
        ];
        for (sum, before, after) in sums {
            if before != after {
                sum.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn subtract(&self, now: Instant, before: u64, after: u64) -> View {
        let mut state = self.lock();
        state.subtracted_bps = state.subtracted_bps - u128::from(before) + u128::from(after);
        self.reshape(&mut state, now);
        self.view(&state)
    }

    /// Charges what a shard has `sent`, bytes, and ends its quantum.
    pub(crate) fn settle(&self, member: usize, now: Instant, sent: u64) -> View {
        let mut state = self.lock();
        state.settle(member, now, sent);
        self.view(&state)
    }

    /// The same for a shard that has nothing to send any more. Also returns how far its virtual
    /// time may go until it asks again.
    pub(crate) fn leave(
        &self,
        member: usize,
        now: Instant,
        sent: u64,
        virtual_now: u128,
    ) -> (View, u128) {
        let mut state = self.lock();
        state.settle(member, now, sent);
        state.set_competing(member, None);
        state.now = state.now.max(virtual_now);
        let horizon = match state.competing {
            0 => u128::MAX,
            _ => state.now,
        };
        (self.view(&state), horizon)
    }

    /// Whether a shard may send now; costs O(log n) in the number of shards,
    /// over many calls.
    pub(crate) fn ask(&self, member: usize, now: Instant, request: Request) -> (Answer, Pace) {
        let mut state = self.lock();
        state.settle(member, now, request.sent);
        // A shard may make up its lag only for bundles that have waited.
        let was_there = state.members[member].competes;
        state.set_competing(member, Some(request.weight));
        state.now = state.now.max(request.virtual_now);
        let lag = match was_there {
            true => virtual_time(self.bytes_in(MOST_LAG), state.weight),
            false => 0,
        };
        let floor = state.now.saturating_sub(lag);
        let start = request.start.max(floor);
        let answer = self.decide(&mut state, member, now, request.urgent, start);
        let alone = state.competing <= 1;
        let pace = Pace {
            now: state.now,
            floor,
            horizon: match state.first_start() {
                _ if alone => u128::MAX,
                Some(first) => first,
                None => start,
            },
        };
        match answer {
            Answer::Wait(_) => state.put(member, (!request.urgent, start)),
            Answer::Send(_) => state.start(member, start),
        }
        (answer, pace)
    }

    /// Answers a shard that is not in the order, whose first terminal starts at
    /// `start`.
    fn decide(
        &self,
        state: &mut State,
        member: usize,
        now: Instant,
        urgent: bool,
        start: u128,
    ) -> Answer {
        let rank = Ranked {
            rank: (!urgent, start),
            flow: member,
        };
        let quantum = self.bytes_in(QUANTUM).max(1);
        // The virtual time in which each has had a quantum.
        let round = virtual_time(quantum.saturating_mul(state.competing), state.weight);
        let in_turn = urgent || state.is_first(rank, round);
        let reserved = state.reserved;
        if let Some(bucket) = &mut state.bucket {
            let Some(ready_at) = bucket.next_at(now, reserved) else {
                return Answer::Wait(None);
            };
            if in_turn && ready_at > now {
                return Answer::Wait(Some(ready_at));
            }
            let unused = reserved.saturating_add(self.bytes_in(GRACE));
            if !in_turn && !bucket.has(now, unused) {
                let soon = ready_at + QUANTUM;
                let late = bucket.has_at(unused).map_or(soon, |late| late.min(soon));
                return Answer::Wait(Some(late));
            }
        }
        if !in_turn {
            state.pass_over(rank, round);
        }
        let alone = state.competing <= 1;
        let bytes = if alone { 1 } else { quantum };
        state.members[member].reserved = bytes;
        state.reserved += bytes;
        let next = state.first_start().unwrap_or(start).max(start);
        Answer::Send(Quantum {
            bytes,
            limit: next.saturating_add(round),
            urgent,
            single: alone,
        })
    }

    /// Bytes of this time at the usable rate.
    fn bytes_in(&self, time: Duration) -> u64 {
        bytes_in(self.usable_bps().unwrap_or_default(), time)
    }

    fn reshape(&self, state: &mut State, now: Instant) {
        let rate = state.rate_bps;
        let usable = rate.map(|rate| self.utilisation.of(rate, state.subtracted_bps));
        let usable = usable.map(|bps| bps.min(NO_RATE - 1));
        self.usable_bps
            .store(usable.unwrap_or(NO_RATE), Ordering::Relaxed);
        shape(&mut state.bucket, now, usable);
        if usable.is_none() {
            // Nobody asks as long as there is no rate.
            state.clear();
        }
    }

    fn view(&self, state: &State) -> View {
        View {
            usable_bps: self.usable_bps(),
            ready_at: state.bucket.as_ref().and_then(Bucket::ready_at),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn settle(&mut self, member: usize, now: Instant, sent: u64) {
        self.reserved -= std::mem::take(&mut self.members[member].reserved);
        if let Some(bucket) = self.bucket.as_mut().filter(|_| sent > 0) {
            bucket.charge(now, sent);
        }
    }

    /// Takes a shard out of the order, and counts it as competing with this weight, or as not
    /// competing.
    fn set_competing(&mut self, member: usize, weight: Option<u128>) {
        let entry = &mut self.members[member];
        if let Some(rank) = entry.rank.take() {
            self.order.remove(&Ranked { rank, flow: member });
        }
        if let Some(rank) = entry.started.take() {
            self.sending.remove(&Ranked { rank, flow: member });
        }
        self.competing -= u64::from(entry.competes);
        self.weight -= entry.weight;
        entry.competes = weight.is_some();
        entry.weight = weight.unwrap_or_default();
        self.competing += u64::from(entry.competes);
        self.weight += entry.weight;
    }

    fn put(&mut self, member: usize, rank: Rank) {
        self.members[member].rank = Some(rank);
        self.order.insert(Ranked { rank, flow: member });
    }

    fn start(&mut self, member: usize, start: u128) {
        self.members[member].started = Some(start);
        self.sending.insert(Ranked {
            rank: start,
            flow: member,
        });
    }

    /// Whether it is a shard's turn: no shard that waits comes before it, and none that sends at
    /// present will, when its quantum is over.
    fn is_first(&self, own: Ranked<Rank>, round: u128) -> bool {
        let before_waiting = self.order.first().is_none_or(|first| own < *first);
        let sending = self.sending.first();
        let before_sending =
            sending.is_none_or(|first| own.rank.1 <= first.rank.saturating_add(round));
        before_waiting && before_sending
    }

    /// Takes out the shards that `own` goes before because they are late. The others do not wait
    /// for them until they ask again.
    fn pass_over(&mut self, own: Ranked<Rank>, round: u128) {
        while let Some(first) = self.order.first().filter(|first| **first < own) {
            self.members[first.flow].rank = None;
            self.order.pop_first();
        }
        let start = own.rank.1.saturating_sub(round);
        while let Some(first) = self.sending.first().filter(|first| first.rank < start) {
            self.members[first.flow].started = None;
            self.sending.pop_first();
        }
    }

    /// When the first terminal of all these shards starts. Shards that wait with something urgent
    /// do not count, since that is sent out of turn.
    fn first_start(&self) -> Option<u128> {
        let least = Ranked {
            rank: (true, 0),
            flow: 0,
        };
        let waiting = self.order.range(least..).next();
        let waiting = waiting.map(|first| first.rank.1);
        let sending = self.sending.first().map(|first| first.rank);
        waiting.into_iter().chain(sending).min()
    }

    fn clear(&mut self) {
        self.order.clear();
        self.sending.clear();
        (self.competing, self.weight, self.reserved) = (0, 0, 0);
        for (_, member) in &mut self.members {
            *member = Member::default();
        }
    }
}

#[cfg(test)]
mod tests;
