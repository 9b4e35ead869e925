//! The side that sends bundles.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::blocks::{Blocks, Piece};
use crate::message::{Message, Missing};
use crate::parity::LossEstimate;
use crate::sent::{Due, SentBlock};
use crate::symbol::{Body, LEAST_BODY_BYTES, Part, REPAIR_HEADER_BYTES, Symbol};
use crate::{Losses, MOST_BUNDLE_BYTES, MOST_SYMBOLS, VERSION, Violation, WINDOW};

/// A block ends when there has been nothing to send for this long: bundles of one object come with
/// short pauses, and each apparent end of the object costs repair.
pub(crate) const LINGER: Duration = Duration::from_millis(8);
/// In the middle of a flow, a loss delays nothing for long; more repair than `RUNNING_PART` of a
/// block is not worthwhile.
const RUNNING_RISK: f64 = 0.01;
const RUNNING_PART: f64 = 0.015;
/// At the end of an object a loss costs a round trip.
const TAIL_RISK: f64 = 0.002;
const TAIL_PART: f64 = 0.14;
/// Repair symbols that even a block of a few symbols may have.
const LEAST_REPAIR: u16 = 2;
/// How often a block may be asked for.
const MOST_ASKED: u16 = 100;
/// A request for a judged block is answered by a message, unless this many are waiting already: an
/// honest peer asks only once for each message about the block.
const MOST_MESSAGES: usize = 8192;

/// Which blocks get repair ahead of any request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Blocks that are not acknowledged when there is nothing more to send: the last round trip of
    /// an object.
    Tail,
    /// All, and these more.
    Always,
}

/// A datagram to be sent.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Its bytes.
    pub bytes: Bytes,
    /// Bytes of a bundle that leave with it for the first time.
    pub new_bytes: u64,
}

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderFigures {
    /// Symbols of bundles sent, each counted once.
    pub symbols: u64,
    /// Repair symbols sent unasked.
    pub repair_symbols: u64,
    /// Symbols sent because the receiver asked.
    pub asked_symbols: u64,
    /// Bytes of all datagrams.
    pub bytes: u64,
    /// Of these, bytes of repair and of requested symbols.
    pub repair_bytes: u64,
}

#[derive(Debug)]
struct Bundle {
    length: u64,
    blocks: Vec<u64>,
}

/// Sends bundles as symbols. After each call, take all [`Sender::poll_message`]
/// has; [`Sender::poll_datagram`] whenever a datagram may leave.
#[derive(Debug)]
pub struct Sender {
    protection: Protection,
    /// The peer's room, once it has announced it.
    room_bytes: u64,
    outstanding_bytes: u64,
    /// Bytes of the bodies of new blocks; 0 while no datagram fits.
    body_bytes: usize,
    block_symbols: u16,
    next_bundle: u64,
    next_datagram: u64,
    bundles: BTreeMap<u64, Bundle>,
    blocks: Blocks,
    /// Symbols that leave before any new one, by their blocks.
    due: VecDeque<(u64, Due)>,
    messages: VecDeque<Message>,
    /// Since when there is nothing to send, while blocks still need their repair.
    dry: Option<Instant>,
    losses: LossEstimate,
    figures: SenderFigures,
}

impl Sender {
    /// A sender to a peer that has not announced yet that it accepts symbols. `losses` is what is
    /// known of the path.
    pub fn new(protection: Protection, losses: LossEstimate) -> Sender {
        Sender {
            protection,
            room_bytes: 0,
            outstanding_bytes: 0,
            body_bytes: 0,
            block_symbols: MOST_SYMBOLS,
            next_bundle: 0,
            next_datagram: 0,
            bundles: BTreeMap::new(),
            blocks: Blocks::default(),
            due: VecDeque::new(),
            messages: VecDeque::new(),
            dry: None,
            losses,
            figures: SenderFigures::default(),
        }
    }

    /// The largest datagram that fits at present, bytes; 0 for none. If it has become smaller,
    /// bytes that are not acknowledged are cut again.
    pub fn set_datagram_bytes(&mut self, most: usize) {
        let body_bytes = most.saturating_sub(REPAIR_HEADER_BYTES) & !1;
        let body_bytes = if body_bytes < LEAST_BODY_BYTES {
            0
        } else {
            body_bytes
        };
        if body_bytes < self.body_bytes {
            for block in self.blocks.recut(body_bytes) {
                self.due.retain(|(of, _)| *of != block);
                self.forget(block);
            }
            for bundle in self.bundles.values_mut() {
                bundle.blocks.retain(|block| self.blocks.contains(*block));
            }
        }
        self.body_bytes = body_bytes;
    }

    /// Sets the most symbols of new blocks: as many as leave in a part of the round trip, so that
    /// repair comes sooner than an answer to a request.
    pub fn set_block_symbols(&mut self, most: u16) {
        self.block_symbols = most.clamp(1, MOST_SYMBOLS);
    }

    /// Whether the peer takes a bundle of this many bytes now.
    pub fn has_room(&self, bytes: u64) -> bool {
        let oldest = self.bundles.keys().next().copied();
        let oldest = oldest.unwrap_or(self.next_bundle);
        self.body_bytes > 0
            && (1..=MOST_BUNDLE_BYTES).contains(&bytes)
            && self.outstanding_bytes.saturating_add(bytes) <= self.room_bytes
            && self.next_bundle - oldest < WINDOW / 2
            && self.blocks.span() < WINDOW / 2
    }

    /// Takes a bundle for which the peer has room, in pieces. Returns its number.
    pub fn push(&mut self, chunks: impl IntoIterator<Item = Bytes>) -> u64 {
        let number = self.next_bundle;
        self.next_bundle += 1;
        let mut length = 0;
        for bytes in chunks {
            let offset = length;
            length += bytes.len() as u64;
            self.blocks.wait(Piece {
                bundle: number,
                offset,
                bytes,
            });
        }
        let blocks = Vec::new();
        self.bundles.insert(number, Bundle { length, blocks });
        self.outstanding_bytes += length;
        self.dry = None;
        number
    }

    /// The next datagram that may leave.
    pub fn poll_datagram(&mut self, now: Instant) -> Option<Datagram> {
        loop {
            if let Some((block, due)) = self.due.pop_front() {
                match self.leave(block, due) {
                    Some(datagram) => return Some(datagram),
                    None => continue,
                }
            }
            if let Some(datagram) = self.cut() {
                self.dry = None;
                return Some(datagram);
            }
            if !self.blocks.want_end() || self.blocks.waits() {
                self.dry = None;
                return None;
            }
            let since = *self.dry.get_or_insert(now);
            if now < since + LINGER {
                return None;
            }
            self.end_blocks();
        }
    }

    /// When to poll again although nothing has happened.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.dry.map(|since| since + LINGER)
    }

    /// What is to be said to the peer.
    pub fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    /// The peer accepts symbols, if it speaks the same version.
    pub fn opened(&mut self, version: u8, room_bytes: u64) {
        if version == VERSION {
            self.room_bytes = room_bytes;
        }
    }

    /// The receiver has judged a bundle. Returns how many of its bytes were not cut yet and are not
    /// sent.
    ///
    /// # Errors
    /// When it is not in transfer.
    pub fn ended(&mut self, bundle: u64) -> Result<u64, Violation> {
        let ended = self.bundles.remove(&bundle).ok_or(Violation::Unknown)?;
        self.outstanding_bytes -= ended.length;
        self.blocks.end_bundle(bundle, &ended.blocks);
        Ok(self.blocks.drop_waiting(bundle))
    }

    /// The receiver lacks symbols of a block.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn wanted(
        &mut self,
        block: u64,
        datagrams: u64,
        count: u16,
        missing: &Missing,
    ) -> Result<(), Violation> {
        if !self.blocks.has_begun(block) {
            return Err(Violation::Unknown);
        }
        let Some(sent) = self.blocks.get_mut(block) else {
            // All of its bundles are judged.
            if self.messages.len() >= MOST_MESSAGES {
                return Err(Violation::Excess);
            }
            self.forget(block);
            return Ok(());
        };
        let since = sent.answer(datagrams).ok_or(Violation::Excess)?;
        let missing: Vec<u16> = missing.numbers().collect();
        let beyond = missing.last().is_some_and(|last| *last >= sent.symbols());
        if beyond || count == 0 || usize::from(count) > missing.len() {
            return Err(Violation::Excess);
        }
        sent.asked += 1;
        if sent.asked > MOST_ASKED {
            return Err(Violation::Excess);
        }
        let need = u64::from(count).saturating_sub(since);
        let need = u16::try_from(need).unwrap_or(u16::MAX);
        if need > 0 {
            let more = self.losses.repair(need, TAIL_RISK, need);
            let due = answer(sent, need, more, since > 0, &missing);
            self.due.extend(due.into_iter().map(|due| (block, due)));
        }
        Ok(())
    }

    /// Takes the receiver's counts.
    ///
    /// # Errors
    /// When it has counted more than was sent.
    pub fn observe(&mut self, losses: Losses) -> Result<(), Violation> {
        let counted = losses.received.saturating_add(losses.lost);
        if counted > self.next_datagram || losses.bursts > losses.lost {
            return Err(Violation::Excess);
        }
        self.losses.observe(losses);
        Ok(())
    }

    /// What is known of the path's losses.
    pub fn losses(&self) -> LossEstimate {
        self.losses
    }

    /// Counts.
    pub fn figures(&self) -> SenderFigures {
        self.figures
    }

    /// The next symbol of the bundles that wait.
    fn cut(&mut self) -> Option<Datagram> {
        if self.body_bytes == 0 {
            return None;
        }
        let bundle = self.blocks.waiting_bundle()?;
        let of = self.bundles.get_mut(&bundle)?;
        let filling = self.blocks.filling(self.body_bytes);
        let (offset, bytes) = self.blocks.take(filling);
        let mut body = BytesMut::with_capacity(crate::symbol::BODY_HEADER_BYTES + bytes.len());
        Body::put_head(&mut body, bundle, of.length, offset);
        body.extend_from_slice(&bytes);
        if of.blocks.last() != Some(&filling) {
            of.blocks.push(filling);
        }
        let body = body.freeze();
        let number = self.blocks.push(filling, body.clone(), bundle);
        self.figures.symbols += 1;
        let datagram = self.emit(filling, number, Part::Source(&body));
        if number + 1 >= self.block_symbols {
            self.end_block(filling, false);
        }
        Some(Datagram {
            bytes: datagram,
            new_bytes: bytes.len() as u64,
        })
    }

    fn leave(&mut self, block: u64, due: Due) -> Option<Datagram> {
        let bytes = match due {
            Due::Sent { symbols, due } => {
                let datagrams = self.next_datagram;
                if let Some(sent) = self.blocks.get_mut(block) {
                    sent.said(datagrams, due);
                }
                self.messages.push_back(Message::Sent {
                    block,
                    symbols,
                    datagrams,
                });
                return None;
            }
            // Bundles that the receiver has completed meanwhile need no more symbols.
            _ if !self.blocks.contains(block) => return None,
            Due::Again(number) => {
                let body = self.blocks.body(block, number)?;
                self.figures.asked_symbols += 1;
                self.emit(block, number, Part::Source(&body))
            }
            Due::Repair {
                number,
                symbols,
                code,
                asked,
            } => {
                if asked {
                    self.figures.asked_symbols += 1;
                } else {
                    self.figures.repair_symbols += 1;
                }
                let code = &code;
                self.emit(block, number, Part::Repair { symbols, code })
            }
        };
        self.figures.repair_bytes += bytes.len() as u64;
        Some(Datagram {
            bytes,
            new_bytes: 0,
        })
    }

    fn emit(&mut self, block: u64, number: u16, part: Part<'_>) -> Bytes {
        let symbol = Symbol {
            datagram: (self.next_datagram & 0xff_ffff) as u32,
            block: (block & 0xffff) as u16,
            number,
            part,
        };
        self.next_datagram += 1;
        let bytes = symbol.emit();
        self.figures.bytes += bytes.len() as u64;
        bytes
    }

    /// There is nothing more to send: every block that is not acknowledged gets
    /// the repair of a tail.
    fn end_blocks(&mut self) {
        self.dry = None;
        for block in self.blocks.ending() {
            self.end_block(block, true);
        }
    }

    /// A block gets no more symbols of its own, or is the tail of an object.
    fn end_block(&mut self, block: u64, is_tail: bool) {
        let losses = self.losses;
        let Some(sent) = self.blocks.close(block, is_tail) else {
            return;
        };
        let symbols = sent.symbols();
        let (risk, part) = match (is_tail, self.protection) {
            (true, _) => (TAIL_RISK, TAIL_PART),
            (false, Protection::Always) => (RUNNING_RISK, RUNNING_PART),
            (false, Protection::Tail) => (1.0, 0.0),
        };
        let least = if part > 0.0 { LEAST_REPAIR } else { 0 };
        let most = ((f64::from(symbols) * part) as u16).max(least);
        let repair = losses.repair(symbols, risk, most);
        let more = repair.saturating_sub(sent.repair());
        let mut due = if sent.bundles.is_empty() {
            Vec::new()
        } else {
            sent.make_repair(more, false)
        };
        // If this was said of the block before, it is said again only if more has left.
        let first = sent.says_first();
        if first || !due.is_empty() {
            due.push(sent.make_sent());
        }
        self.due.extend(due.into_iter().map(|due| (block, due)));
        self.blocks.drop_judged(block);
    }

    /// The receiver is to forget a block.
    fn forget(&mut self, block: u64) {
        self.messages.push_back(Message::Sent {
            block,
            symbols: 0,
            datagrams: self.next_datagram,
        });
    }
}

/// The answer to a request for `need` of the `missing` symbols: these themselves, if all of them
/// are needed, otherwise fresh repair, and `more` in addition.
fn answer(sent: &mut SentBlock, need: u16, more: u16, anew: bool, missing: &[u16]) -> Vec<Due> {
    let all = usize::from(need) == missing.len();
    let fresh = sent.more_repair() >= need + more;
    let mut due = if fresh && (anew || !all) {
        sent.make_repair(need + more, true)
    } else {
        let again = missing.iter().take((need + more).into());
        let mut due: Vec<Due> = again.map(|number| sent.make_again(*number)).collect();
        let left = (need + more).saturating_sub(u16::try_from(due.len()).unwrap_or(u16::MAX));
        due.extend(sent.make_repair(left, true));
        due
    };
    due.push(sent.make_sent());
    due
}
