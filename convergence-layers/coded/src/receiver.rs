//! The side that receives bundles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::Refusal;

use crate::arrivals::Arrivals;
use crate::assembly::{Assembly, State};
use crate::message::{Message, Missing};
use crate::received::Block;
use crate::sequence::{Done, expand};
use crate::symbol::{Body, NUMBER_BITS, Part, Symbol};
use crate::{Losses, VERSION, Violation, WINDOW};

/// How much later symbols may come than the message that they have left.
pub(crate) const GRACE: Duration = Duration::from_millis(10);
/// How often the sender hears of losses.
const TOLD_EACH: Duration = Duration::from_millis(100);
/// A block or bundle is given up when nothing has come for it in this many checks.
const MOST_AGE: u8 = 6;
/// Decoding costs some time however small a block is, so at most this many blocks are decoded at
/// once, and one more in each such time.
const DECODES: u32 = 64;
const DECODE_EACH: Duration = Duration::from_millis(4);

/// Whether the node takes a bundle of this many bytes; called before memory is taken.
pub type Admit<'a> = &'a mut dyn FnMut(u64) -> Result<(), Refusal>;

/// A whole bundle, to be judged by [`Receiver::judge`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub bundle: u64,
    /// Its bytes.
    pub bytes: Bytes,
}

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverFigures {
    /// Symbols that repair has recovered before any request: each request would have cost a round
    /// trip.
    pub recovered_symbols: u64,
    /// Blocks that symbols were asked for.
    pub asked_blocks: u64,
}

/// Receives bundles as symbols. After each call, take all that
/// [`Receiver::poll_arrived`] and [`Receiver::poll_message`] have, and call
/// [`Receiver::handle_timeout`] at the time that [`Receiver::poll_timeout`]
/// names.
#[derive(Debug)]
pub struct Receiver {
    /// Bundles of together this many bytes may be in transfer.
    room_bytes: u64,
    used_bytes: u64,
    /// Most bytes that are kept of incomplete blocks.
    store_bytes: usize,
    kept_bytes: usize,
    arrivals: Arrivals,
    told: (Losses, Option<Instant>),
    blocks: BTreeMap<u64, Block>,
    blocks_done: Done,
    bundles: BTreeMap<u64, Assembly>,
    bundles_done: Done,
    /// Lengths of the bundles that are complete and not judged.
    unjudged: BTreeMap<u64, u64>,
    answers: BTreeSet<(Instant, u64)>,
    decodes: Budget,
    arrived: VecDeque<Arrived>,
    messages: VecDeque<Message>,
    figures: ReceiverFigures,
}

/// Decodes that are allowed.
#[derive(Debug)]
struct Budget {
    left: u32,
    since: Option<Instant>,
}

impl Budget {
    fn take(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let more = now.saturating_duration_since(since).as_micros() / DECODE_EACH.as_micros();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(DECODES);
            self.since = Some(now);
        }
        let has = self.left > 0;
        self.left -= u32::from(has);
        has
    }
}

impl Receiver {
    /// A receiver with room for bundles of together `room_bytes`, and half as
    /// much for the symbols of blocks.
    pub fn new(room_bytes: u64) -> Receiver {
        Receiver {
            room_bytes,
            used_bytes: 0,
            store_bytes: usize::try_from(room_bytes / 2).unwrap_or(usize::MAX),
            kept_bytes: 0,
            arrivals: Arrivals::default(),
            told: (Losses::default(), None),
            blocks: BTreeMap::new(),
            blocks_done: Done::default(),
            bundles: BTreeMap::new(),
            bundles_done: Done::default(),
            unjudged: BTreeMap::new(),
            answers: BTreeSet::new(),
            decodes: Budget {
                left: DECODES,
                since: None,
            },
            arrived: VecDeque::new(),
            messages: VecDeque::new(),
            figures: ReceiverFigures::default(),
        }
    }

    /// The message that tells the peer that symbols are accepted here.
    pub fn open(&self) -> Message {
        Message::Open {
            version: VERSION,
            room_bytes: self.room_bytes,
        }
    }

    /// A datagram has come.
    ///
    /// # Errors
    /// When the datagram is impossible.
    pub fn on_datagram(
        &mut self,
        now: Instant,
        datagram: &[u8],
        admit: Admit<'_>,
    ) -> Result<(), Violation> {
        let symbol = Symbol::parse(datagram)?;
        let first = self.arrivals.arrived(symbol.datagram);
        self.tell_losses(now);
        let number = expand_in(symbol.block, &self.blocks_done);
        if !first || self.blocks_done.contains(number)? {
            return Ok(());
        }
        let block = self.blocks.entry(number).or_default();
        let before = block.kept_bytes;
        let mut fresh = None;
        match symbol.part {
            Part::Source(body) => {
                if block.add_own(symbol.number, body)? {
                    fresh = Some(Body::parse(body)?);
                }
            }
            Part::Repair { symbols, code } => block.add_repair(symbol.number, symbols, code)?,
        }
        self.kept_bytes += block.kept_bytes - before;
        if let Some(body) = fresh {
            self.add(&body, admit)?;
        }
        self.settle(now, number, admit)?;
        self.let_go_beyond_the_store()
    }

    /// The sender has reported that a block's symbols have left.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn on_sent(
        &mut self,
        now: Instant,
        block: u64,
        symbols: u16,
        datagrams: u64,
    ) -> Result<(), Violation> {
        if self.blocks_done.contains(block)? {
            return Ok(());
        }
        if symbols == 0 {
            self.finish(block);
            return Ok(());
        }
        let of = self.blocks.entry(block).or_default();
        of.set_symbols(symbols)?;
        if of.is_complete() {
            self.finish(block);
            return Ok(());
        }
        let at = now + GRACE;
        if let Some((before, _)) = of.answer.replace((at, datagrams)) {
            // The earlier message has not been answered and will not be: this one replaces it.
            self.answers.remove(&(before, block));
        }
        self.answers.insert((at, block));
        Ok(())
    }

    /// Does what is due by now.
    ///
    /// # Errors
    /// When symbols contradict each other.
    pub fn handle_timeout(&mut self, now: Instant, admit: Admit<'_>) -> Result<(), Violation> {
        while let Some(&(at, number)) = self.answers.first()
            && at <= now
        {
            self.answers.pop_first();
            self.settle(now, number, admit)?;
            let Some(block) = self.blocks.get_mut(&number) else {
                continue;
            };
            let Some((_, datagrams)) = block.answer.take() else {
                continue;
            };
            if let Some((symbols, count, missing)) = block.wants() {
                self.figures.asked_blocks += u64::from(!block.asked);
                block.asked = true;
                self.messages.push_back(Message::Wanted {
                    block: number,
                    datagrams,
                    count,
                    missing: Missing::new(symbols, missing.into_iter()),
                });
            }
        }
        Ok(())
    }

    /// When [`Receiver::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.answers.first().map(|(at, _)| *at)
    }

    /// To be called at long intervals while the link works: gives up blocks and bundles for which
    /// nothing has come in several of them.
    pub fn look_for_stale(&mut self) {
        for assembly in self.bundles.values_mut() {
            assembly.age += 1;
        }
        let stale = self.bundles.iter().filter(|(_, of)| of.age >= MOST_AGE);
        let stale: Vec<u64> = stale.map(|(number, _)| *number).collect();
        for bundle in stale {
            self.refuse(bundle, Refusal::NoResources);
        }
        for block in self.blocks.values_mut() {
            // It stays until the sender's message about it, if one ever comes.
            block.age = block.age.saturating_add(1);
            if block.age >= MOST_AGE && !block.has_let_go() {
                let before = block.kept_bytes;
                block.let_go();
                self.kept_bytes -= before - block.kept_bytes;
            }
        }
    }

    /// A whole bundle.
    pub fn poll_arrived(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }

    /// What is to be said to the peer.
    pub fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    /// The node has judged a bundle that has arrived.
    pub fn judge(&mut self, bundle: u64, verdict: Result<(), Refusal>) {
        let Some(length) = self.unjudged.remove(&bundle) else {
            return;
        };
        self.used_bytes -= length;
        self.messages.push_back(match verdict {
            Ok(()) => Message::Taken { bundle },
            Err(refusal) => Message::Refused { bundle, refusal },
        });
    }

    /// Counts.
    pub fn figures(&self) -> ReceiverFigures {
        self.figures
    }

    /// Announced lengths of the bundles that are in transfer or not judged, bytes.
    pub fn bundle_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Whether the rest of a bundle is on its way. It is not once the sender has said that all of
    /// the newest block has left: if symbols of that are missing, they are asked for first.
    pub fn is_owed(&self) -> bool {
        let newest = self.blocks.last_key_value();
        !self.bundles.is_empty() && newest.is_none_or(|(_, block)| !block.has_left())
    }

    /// Memory that is taken for the peer, bytes: the announced lengths of its
    /// bundles, and the symbols of blocks.
    pub fn memory_bytes(&self) -> u64 {
        self.used_bytes + self.kept_bytes as u64
    }

    /// Recovers the missing symbols of a block by repair, if possible. A complete block is done.
    fn settle(&mut self, now: Instant, number: u64, admit: Admit<'_>) -> Result<(), Violation> {
        let Some(block) = self.blocks.get(&number) else {
            return Ok(());
        };
        if block.is_decodable() && self.decodes.take(now) {
            let (recovered, asked) = (block.decode()?, block.asked);
            self.finish(number);
            if !asked {
                self.figures.recovered_symbols += recovered.len() as u64;
            }
            for (_, body) in &recovered {
                let body = Body::parse_padded(body)?;
                self.add(&body, admit)?;
            }
        } else if block.is_complete() {
            self.finish(number);
        }
        Ok(())
    }

    /// Adds what a symbol has to its bundle.
    fn add(&mut self, body: &Body<'_>, admit: Admit<'_>) -> Result<(), Violation> {
        let bundle = expand_in(body.bundle, &self.bundles_done);
        if self.bundles_done.contains(bundle)? || self.unjudged.contains_key(&bundle) {
            return Ok(());
        }
        if !self.bundles.contains_key(&bundle) {
            let length = u64::from(body.length);
            let has_room = self.used_bytes.saturating_add(length) <= self.room_bytes;
            let admitted = if has_room {
                admit(length)
            } else {
                Err(Refusal::NoResources)
            };
            if let Err(refusal) = admitted {
                self.refuse(bundle, refusal);
                return Ok(());
            }
            self.used_bytes += length;
            self.bundles.insert(bundle, Assembly::new(body.length));
        }
        let Some(assembly) = self.bundles.get_mut(&bundle) else {
            return Ok(());
        };
        match assembly.add(body)? {
            State::Incomplete => {}
            State::Shredded => self.refuse(bundle, Refusal::NoResources),
            State::Whole => {
                if let Some(assembly) = self.bundles.remove(&bundle) {
                    self.bundles_done.insert(bundle);
                    self.unjudged.insert(bundle, assembly.length());
                    self.arrived.push_back(Arrived {
                        bundle,
                        bytes: assembly.into_bytes().into(),
                    });
                }
            }
        }
        Ok(())
    }

    fn refuse(&mut self, bundle: u64, refusal: Refusal) {
        if let Some(assembly) = self.bundles.remove(&bundle) {
            self.used_bytes -= assembly.length();
        }
        self.bundles_done.insert(bundle);
        self.messages
            .push_back(Message::Refused { bundle, refusal });
    }

    /// A block is done, or is to be forgotten.
    fn finish(&mut self, number: u64) {
        self.blocks_done.insert(number);
        if let Some(block) = self.blocks.remove(&number) {
            self.kept_bytes -= block.kept_bytes;
            if let Some((at, _)) = block.answer {
                self.answers.remove(&(at, number));
            }
        }
    }

    /// Frees the oldest symbols first. Few of them are still needed, unless there are more than any
    /// sender has in transfer.
    fn let_go_beyond_the_store(&mut self) -> Result<(), Violation> {
        while self.kept_bytes > self.store_bytes {
            let mut kept = self.blocks.values_mut();
            let Some(block) = kept.find(|block| !block.has_let_go()) else {
                return Err(Violation::Room);
            };
            let before = block.kept_bytes;
            block.let_go();
            self.kept_bytes -= before - block.kept_bytes;
        }
        Ok(())
    }

    fn tell_losses(&mut self, now: Instant) {
        let counts = self.arrivals.counts();
        let (told, at) = self.told;
        let due = at.is_none_or(|at| now >= at + TOLD_EACH);
        if due && counts != told {
            self.told = (counts, Some(now));
            self.messages.push_back(Message::Losses(counts));
        }
    }
}

/// The number with these low bits within the window of those that are not done, or just after it.
fn expand_in(low: u16, done: &Done) -> u64 {
    expand(low.into(), NUMBER_BITS, done.floor() + WINDOW / 2)
}
