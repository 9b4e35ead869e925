//! What one engine has under way with another.

mod elsewhere;
mod ending;
mod input;
mod keeping;
mod output;
mod timeouts;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use thiserror::Error;

use crate::block::{Block, Piece};
use crate::cancelling::Cancelling;
use crate::config::{Config, LEAST_SEGMENT_BYTES};
use crate::figures::{Figures, Refused};
use crate::link_clock::LinkClock;
use crate::memory::Memory;
use crate::receiving::Receiving;
use crate::sdnv::MOST_BYTES;
use crate::segment::{Body, Reason, SessionId};
use crate::sending::Sending;

/// Closed sessions from the peer that are remembered, so that their late segments are recognised.
const CLOSED: usize = 4_096;

/// Most short answers that wait to be sent. If one is dropped, the peer asks again.
const ANSWERS: usize = 4_096;

/// Most gaps that wait to be filled, over all blocks in transfer.
const GAPS_WAITING: usize = 65_536;

/// Most runs of received bytes, and claims of reports on them, over all blocks from the peer; the
/// bound of a single block is meant for a long one. The peer may claim as many runs of all blocks
/// to it.
const RUNS_KEPT: usize = 1 << 17;
const CLAIMS_KEPT: usize = 1 << 17;

/// The range of sessions' first serial numbers (CCSDS 734.1-B-1, 3.5.2).
const FIRST_SERIALS: u64 = (1 << 14) - 1;

/// Why a block is not taken to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// As many blocks as the configuration allows are in transfer.
    #[error("too many blocks are under way")]
    Full,
    /// There is no block without a byte.
    #[error("the block is empty")]
    Empty,
    /// The red part is longer than the block.
    #[error("the red part is longer than the block")]
    RedPart,
}

/// What the client has to know or do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer has the first bytes of the red part of the block of this key.
    Progress {
        /// The client's name for the block.
        key: u64,
        /// How many, without a gap.
        bytes: u64,
    },
    /// These bytes of a block of which pieces are elsewhere are to be sent:
    /// [`Span::supply`] brings them.
    Wanted {
        /// The block's session.
        session: SessionId,
        /// The client's name for the block.
        key: u64,
        /// Their places in the block.
        range: Range<u64>,
    },
    /// All was sent, and the peer has the red part.
    Sent {
        /// The client's name for the block.
        key: u64,
    },
    /// The block is not sent to its end.
    Cancelled {
        /// The client's name for the block.
        key: u64,
        /// Why.
        reason: Reason,
        /// By the peer.
        by_peer: bool,
    },
    /// A whole block has come: the client calls [`Span::answer`] to take or refuse it. Only then is
    /// the peer told that it is here, unless a part of it is green, and only then is its memory
    /// free.
    Received {
        /// Its session.
        session: SessionId,
        /// Whom it is for.
        service: u64,
        /// The block.
        block: Bytes,
        /// Length of its red part.
        red_bytes: u64,
    },
    /// These bytes of a block that is too long for memory have come, in any order, each once. The
    /// client calls [`Span::kept`] to say whether it has kept them; only then is their memory free.
    /// Pieces must be kept in the order of these events: early ones have zeros where later ones
    /// belong.
    Keep {
        /// The block's session.
        session: SessionId,
        /// Where in the block they begin.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// As [`Event::Received`], for a block that the client keeps.
    ReceivedElsewhere {
        /// Its session.
        session: SessionId,
        /// Whom it is for.
        service: u64,
        /// Its length.
        bytes: u64,
        /// Length of its red part.
        red_bytes: u64,
    },
    /// A block does not come to its end.
    ReceptionCancelled {
        /// Its session.
        session: SessionId,
        /// Why.
        reason: Reason,
    },
}

/// What is due at a time on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Checkpoint { number: u64, serial: u64 },
    Report { number: u64, serial: u64 },
    CancelSent { number: u64 },
    CancelReceived { number: u64 },
    Idle { number: u64 },
    Stalled { number: u64 },
}

/// Short segments that wait, before all data.
#[derive(Debug)]
enum Waiting {
    Report { number: u64, serial: u64 },
    CancelSent { number: u64 },
    CancelReceived { number: u64 },
    Answer(SessionId, Body<'static>),
}

/// The blocks in transfer between one engine and another, in both directions. Whatever a peer does,
/// it uses no more than its own span's bounds.
///
/// Change something ([`Span::send`], [`Span::handle_input`],
/// [`Span::handle_timeout`], [`Span::block_link`], [`Span::answer`]), then take
/// segments by [`Span::poll_transmit`] as the rate allows, and events by
/// [`Span::poll_event`], until there are none; then wait until
/// [`Span::poll_timeout`]. Times never go back.
#[derive(Debug)]
pub struct Span {
    config: Config,
    clock: LinkClock,
    random: fastrand::Rng,
    next_number: u64,
    sending: HashMap<u64, Sending>,
    receiving: BTreeMap<u64, Receiving>,
    /// Numbers of the peer's sessions in the order of their arrival.
    arrivals: VecDeque<u64>,
    closed: HashSet<u64>,
    /// Closed sessions in the order in which they ended, each with the time on the link.
    closed_order: VecDeque<(Duration, u64)>,
    waiting: VecDeque<Waiting>,
    /// At this length `waiting` is cleared of sessions that are over.
    next_clearing: usize,
    answers: usize,
    /// Sessions with something to send again.
    again: VecDeque<u64>,
    /// Sessions with something that was never sent.
    fresh: VecDeque<u64>,
    fresh_bytes: u64,
    /// The ranges requested from the client: the number of the session, and where they begin.
    wanted: BTreeSet<(u64, u64)>,
    /// What it has supplied, the oldest first.
    supplied: VecDeque<(u64, u64)>,
    gaps_waiting: usize,
    claimed_runs: usize,
    runs: usize,
    claims: usize,
    memory: Memory,
    /// Memory, bytes, for complete blocks that the client has not answered, and for pieces that it
    /// has not kept yet, by the numbers of their sessions, which may be over.
    with_client: BTreeMap<u64, usize>,
    dues: BTreeSet<(Duration, Due)>,
    events: VecDeque<Event>,
    rtt: crate::figures::RoundTrip,
    /// Something was not answered in time.
    silent: bool,
    heard: Duration,
    figures: Figures,
    refused: Refused,
}

impl Span {
    /// A span with nothing under way.
    pub fn new(mut config: Config, now: Instant) -> Span {
        config.segment_bytes = config.segment_bytes.max(LEAST_SEGMENT_BYTES);
        // A report must fit into a segment; a claim has two numbers.
        let room = (config.segment_bytes - 6 * MOST_BYTES) / (2 * MOST_BYTES);
        config.claims = config.claims.clamp(1, room);
        let mut random = fastrand::Rng::with_seed(config.seed);
        // CCSDS 734.1-B-1, 3.5.1: session numbers have 32 bits.
        let next_number = random.u64(1..1 << 32);
        let memory = Memory::new(config.receive_bytes, config.common.clone());
        Span {
            clock: LinkClock::new(now),
            rtt: crate::figures::RoundTrip::new(config.rtt),
            config,
            random,
            next_number,
            sending: HashMap::new(),
            receiving: BTreeMap::new(),
            arrivals: VecDeque::new(),
            closed: HashSet::new(),
            closed_order: VecDeque::new(),
            waiting: VecDeque::new(),
            next_clearing: ANSWERS,
            answers: 0,
            again: VecDeque::new(),
            fresh: VecDeque::new(),
            fresh_bytes: 0,
            wanted: BTreeSet::new(),
            supplied: VecDeque::new(),
            gaps_waiting: 0,
            claimed_runs: 0,
            runs: 0,
            claims: 0,
            memory,
            with_client: BTreeMap::new(),
            dues: BTreeSet::new(),
            events: VecDeque::new(),
            silent: false,
            heard: Duration::ZERO,
            figures: Figures::default(),
            refused: Refused::default(),
        }
    }

    /// Begins to send a block, whose first `red_bytes` are retransmitted until they have arrived.
    /// `key` is the client's name for it.
    ///
    /// # Errors
    /// If the block is impossible, or too many are in transfer.
    pub fn send(
        &mut self,
        key: u64,
        service: u64,
        chunks: Vec<Bytes>,
        red_bytes: Option<u64>,
    ) -> Result<SessionId, SendError> {
        let pieces = chunks.into_iter().map(Piece::Here).collect();
        self.send_pieces(key, service, pieces, red_bytes)
    }

    /// The same for a block with pieces that may be elsewhere: see [`Event::Wanted`].
    ///
    /// # Errors
    /// As [`Span::send`].
    pub fn send_pieces(
        &mut self,
        key: u64,
        service: u64,
        pieces: Vec<Piece>,
        red_bytes: Option<u64>,
    ) -> Result<SessionId, SendError> {
        let block = Block::new(pieces);
        let red = red_bytes.unwrap_or(block.len());
        if block.len() == 0 {
            return Err(SendError::Empty);
        }
        if red > block.len() {
            return Err(SendError::RedPart);
        }
        if self.sending.len() >= self.config.sent_sessions {
            return Err(SendError::Full);
        }
        let number = self.take_number();
        let session = self.own(number);
        let serial = self.random.u64(1..=FIRST_SERIALS);
        let segment_bytes = self.config.segment_bytes;
        let sending = Sending::new((key, service), block, red, serial, session, segment_bytes);
        self.fresh_bytes += sending.fresh_bytes();
        self.sending.insert(number, sending);
        self.fresh.push_back(number);
        Ok(session)
    }

    /// The client's verdict on a block that was offered by [`Event::Received`] or
    /// [`Event::ReceivedElsewhere`]: it has the block, or the session is cancelled for this reason.
    pub fn answer(&mut self, now: Instant, session: SessionId, verdict: Result<(), Reason>) {
        let at = self.clock.at(now);
        let number = session.number;
        if session.originator != self.config.remote {
            return;
        }
        self.take_back(number, usize::MAX);
        let offered = self.receiving.get_mut(&number);
        let Some(receiving) = offered.filter(|receiving| receiving.is_offered()) else {
            return;
        };
        match verdict {
            Ok(()) => {
                receiving.taken();
                for (checkpoint, end) in receiving.take_unanswered() {
                    self.report(at, number, checkpoint, end);
                }
                self.close_if_through(number);
            }
            Err(reason) => self.cancel_reception(number, reason),
        }
    }

    /// Cancels a block that is being sent.
    pub fn cancel(&mut self, session: SessionId) {
        if session.originator == self.config.local {
            self.cancel_sending(session.number, Reason::Client);
        }
    }

    /// The link is blocked, or free again. While it is blocked, nothing is sent and timers stop.
    pub fn block_link(&mut self, now: Instant, blocked: bool) {
        self.clock.block(now, blocked);
    }

    /// The next thing to tell the client.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        match event {
            Some(Event::Cancelled { .. }) => self.figures.cancelled_sent += 1,
            Some(Event::ReceptionCancelled { .. }) => self.figures.cancelled_received += 1,
            _ => {}
        }
        event
    }

    /// When [`Span::handle_timeout`] is to be called, if at all.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let (at, _) = self.dues.first()?;
        self.clock.when(*at)
    }

    /// Whether segments wait to be sent whose bytes are here.
    pub fn has_output(&self) -> bool {
        !self.waiting.is_empty()
            || self.may_go_on(&self.again, Sending::next_again)
            || self.may_go_on(&self.fresh, |sending| Some(sending.next_fresh()))
    }

    /// Whether segments wait that may be sent: the link is not blocked.
    pub fn may_transmit(&self) -> bool {
        !self.clock.is_blocked() && self.has_output()
    }

    /// Whether another block is taken to be sent.
    pub fn takes_more(&self) -> bool {
        self.sending.len() < self.config.sent_sessions
    }

    /// Bytes of blocks that were never sent.
    pub fn unsent_bytes(&self) -> u64 {
        self.fresh_bytes
    }

    /// Blocks under way to the peer and from it.
    pub fn sessions(&self) -> (usize, usize) {
        (self.sending.len(), self.receiving.len())
    }

    /// Runs of bytes that the peer claims to have of blocks to it.
    pub fn claimed_runs(&self) -> usize {
        self.claimed_runs
    }

    /// Memory for blocks from the peer that the client has not taken, bytes.
    pub fn receive_bytes(&self) -> usize {
        self.memory.used()
    }

    /// What was measured and counted.
    pub fn figures(&self) -> Figures {
        Figures {
            rtt: self.rtt.smoothed(),
            min_rtt: self.rtt.least(),
            ..self.figures
        }
    }

    /// What was not taken from the peer.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    fn own(&self, number: u64) -> SessionId {
        SessionId {
            originator: self.config.local,
            number,
        }
    }

    fn theirs(&self, number: u64) -> SessionId {
        SessionId {
            originator: self.config.remote,
            number,
        }
    }

    fn take_number(&mut self) -> u64 {
        loop {
            let number = self.next_number;
            self.next_number = if number >= u32::MAX.into() {
                1
            } else {
                number + 1
            };
            if !self.sending.contains_key(&number) {
                return number;
            }
        }
    }

    /// How long to wait for an answer after this many tries.
    fn wait(&self, tries: u32) -> Duration {
        let first = self.rtt.wait(self.config.margin);
        let longest = self.config.longest_wait.max(first);
        first.saturating_mul(1 << tries.min(16)).min(longest)
    }

    /// Removes a block from transfer, with its timers.
    fn end_sending(&mut self, number: u64) -> Option<Sending> {
        let ended = self.sending.remove(&number)?;
        self.fresh_bytes -= ended.fresh_bytes();
        self.gaps_waiting -= ended.again_count();
        self.claimed_runs -= ended.runs();
        self.forget_supplied(number);
        for (serial, asked) in &ended.asked {
            if let Some(due) = asked.due {
                let serial = *serial;
                self.dues.remove(&(due, Due::Checkpoint { number, serial }));
            }
        }
        if let Some(due) = ended.cancelling.and_then(|cancelling| cancelling.due) {
            self.dues.remove(&(due, Due::CancelSent { number }));
        }
        if let Some(due) = ended.stalled {
            self.dues.remove(&(due, Due::Stalled { number }));
        }
        Some(ended)
    }

    fn end_receiving(&mut self, number: u64) -> Option<Receiving> {
        let ended = self.receiving.remove(&number)?;
        self.memory.shrink(ended.store.cost_bytes());
        self.runs -= ended.runs();
        self.claims -= ended.claims;
        for (serial, due) in ended.dues() {
            self.dues.remove(&(due, Due::Report { number, serial }));
        }
        if let Some(due) = ended.cancelling.and_then(|cancelling| cancelling.due) {
            self.dues.remove(&(due, Due::CancelReceived { number }));
        }
        let idle = ended.heard + self.config.idle;
        self.dues.remove(&(idle, Due::Idle { number }));
        if let Some(place) = self.arrivals.iter().position(|other| *other == number) {
            self.arrivals.remove(place);
        }
        if self.closed.insert(number) {
            self.closed_order.push_back((self.heard, number));
        }
        if self.closed_order.len() > CLOSED
            && let Some((_, oldest)) = self.closed_order.pop_front()
        {
            self.closed.remove(&oldest);
        }
        Some(ended)
    }

    /// Forgets sessions that have been over for a few waits: late duplicates of them have arrived,
    /// and a peer that has restarted may use their numbers again.
    fn forget_closed(&mut self, at: Duration) {
        let kept = self.wait(2).min(self.config.idle);
        while let Some((ended, number)) = self.closed_order.front().copied()
            && at.saturating_sub(ended) >= kept
        {
            self.closed_order.pop_front();
            self.closed.remove(&number);
        }
    }

    /// Whether the peer's session of this number is over and may not begin again yet. While the
    /// client has bytes of it, its answer would otherwise count for the next block.
    fn is_over(&self, number: u64) -> bool {
        self.closed.contains(&number) || self.with_client.contains_key(&number)
    }

    fn close_if_through(&mut self, number: u64) {
        let through = self
            .receiving
            .get(&number)
            .is_some_and(Receiving::is_through);
        if through {
            self.end_receiving(number);
        }
    }

    /// Tells the peer that the sending of a block is cancelled (RFC 5326, 6.19).
    fn cancel_sending(&mut self, number: u64, reason: Reason) {
        let Some(mut sending) = self.end_sending(number) else {
            return;
        };
        if sending.cancelling.is_some() {
            return;
        }
        let key = sending.key;
        if sending.has_begun() {
            sending.forget_queue();
            sending.asked.clear();
            sending.cancelling = Some(Cancelling::new(reason));
            self.sending.insert(number, sending);
            self.queue(Waiting::CancelSent { number });
        }
        self.events.push_back(Event::Cancelled {
            key,
            reason,
            by_peer: false,
        });
    }

    /// Tells the peer that the reception of a block is cancelled (RFC 5326, 6.20).
    fn cancel_reception(&mut self, number: u64, reason: Reason) {
        let Some(receiving) = self.end_receiving(number) else {
            return;
        };
        if receiving.cancelling.is_some() {
            return;
        }
        self.refuse_session(number, reason);
        let session = self.theirs(number);
        self.events
            .push_back(Event::ReceptionCancelled { session, reason });
    }

    /// Cancels a session of the peer of which nothing is here, until the peer knows.
    fn refuse_session(&mut self, number: u64, reason: Reason) {
        let mut cancelled = Receiving::new(1, self.heard);
        cancelled.cancelling = Some(Cancelling::new(reason));
        self.receiving.insert(number, cancelled);
        self.arrivals.push_back(number);
        self.queue(Waiting::CancelReceived { number });
    }

    /// A short answer that needs no memory of its session.
    fn answer_at_once(&mut self, session: SessionId, body: Body<'static>) {
        if self.answers < ANSWERS {
            self.answers += 1;
            self.queue(Waiting::Answer(session, body));
        }
    }
}
