//! A block on its way to the peer (RFC 5326, 8.1).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use rangemap::RangeSet;

use crate::block::{Block, WINDOW_BYTES};
use crate::cancelling::Cancelling;
use crate::sdnv;
use crate::segment::{Checkpoint, Data, Report, SessionId, put_data_head};

/// A checkpoint without a report yet.
#[derive(Debug)]
pub(crate) struct Asked {
    range: Range<u64>,
    report: u64,
    /// How often it was sent again.
    pub(crate) tries: u32,
    /// When it was sent for the first time.
    pub(crate) sent: Duration,
    /// When it is sent again; none while that waits in the queue.
    pub(crate) due: Option<Duration>,
}

/// What is to be sent again.
#[derive(Debug)]
enum Again {
    /// A checkpoint as it was.
    Checkpoint(u64),
    /// A range that a report has not claimed. The last gap ends in a checkpoint.
    Gap {
        range: Range<u64>,
        report: u64,
        last: bool,
    },
}

/// A block on its way to the peer.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) key: u64,
    service: u64,
    pub(crate) block: Block,
    /// Length of the red part, bytes.
    red: u64,
    /// The first byte that was never sent.
    fresh: u64,
    claimed: RangeSet<u64>,
    pub(crate) asked: BTreeMap<u64, Asked>,
    next_serial: u64,
    again: VecDeque<Again>,
    /// Whether it is in the span's list of blocks with something to retransmit.
    pub(crate) listed: bool,
    /// Serial numbers of the reports that have come.
    reports: BTreeSet<u64>,
    /// What was requested for retransmission, as [`Sending::cost`] counts it.
    resent_cost: u64,
    /// What the client was asked for, bytes.
    read_bytes: u64,
    pub(crate) cancelling: Option<Cancelling>,
    /// When it asks by itself, see [`Sending::is_stalled`].
    pub(crate) stalled: Option<Duration>,
    /// Data bytes of a segment at most.
    room: usize,
    /// The rest of such a segment, bytes.
    head: usize,
}

/// What a report means for the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It says what cannot be.
    Impossible,
    /// Nothing new.
    Known,
    /// Some of the red part is missing.
    Missing,
    /// Too much was retransmitted, or too many reports came.
    TooMuch,
    /// More is there.
    More,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) checkpoint: Option<u64>,
    /// Its data bytes, if they are sent again.
    pub(crate) again_bytes: u64,
    pub(crate) bytes: u64,
}

impl Sending {
    pub(crate) fn new(
        (key, service): (u64, u64),
        block: Block,
        red: u64,
        first_serial: u64,
        session: SessionId,
        segment_bytes: usize,
    ) -> Sending {
        let numbers = [
            session.originator,
            session.number,
            service,
            block.len(),
            segment_bytes as u64,
        ];
        let checkpoint = sdnv::len(first_serial.saturating_add(u32::MAX.into())) + sdnv::MOST_BYTES;
        let head = 2 + numbers.into_iter().map(sdnv::len).sum::<usize>() + checkpoint;
        Sending {
            key,
            service,
            block,
            red,
            fresh: 0,
            claimed: RangeSet::new(),
            asked: BTreeMap::new(),
            next_serial: first_serial,
            again: VecDeque::new(),
            listed: false,
            reports: BTreeSet::new(),
            resent_cost: 0,
            read_bytes: 0,
            cancelling: None,
            stalled: None,
            room: segment_bytes - head,
            head,
        }
    }

    /// Bytes that were never sent.
    pub(crate) fn fresh_bytes(&self) -> u64 {
        self.block.len() - self.fresh
    }

    /// Whether anything has left.
    pub(crate) fn has_begun(&self) -> bool {
        self.fresh > 0
    }

    /// Whether all of it was sent and the red part has arrived (RFC 5326, 6.12).
    pub(crate) fn is_through(&self) -> bool {
        self.fresh == self.block.len() && self.acknowledged() == self.red
    }

    /// The first bytes of the red part that the peer has, without a gap.
    pub(crate) fn acknowledged(&self) -> u64 {
        let first = self.claimed.first();
        first
            .filter(|first| first.start == 0)
            .map_or(0, |first| first.end)
    }

    /// The bytes that [`Sending::write_again`] would send.
    pub(crate) fn next_again(&self) -> Option<Range<u64>> {
        self.again.iter().find_map(|again| match again {
            Again::Checkpoint(serial) => Some(self.asked.get(serial)?.range.clone()),
            Again::Gap { range, .. } => {
                Some(range.start..range.end.min(range.start + self.room as u64))
            }
        })
    }

    /// The bytes that [`Sending::write_fresh`] would send.
    pub(crate) fn next_fresh(&self) -> Range<u64> {
        let part_end = if self.fresh < self.red {
            self.red
        } else {
            self.block.len()
        };
        self.fresh..part_end.min(self.fresh + self.room as u64)
    }

    /// A byte that comes a little later.
    pub(crate) fn soon_fresh(&self) -> Range<u64> {
        let end = self.block.len();
        let at = end.min(self.next_fresh().end.saturating_add(WINDOW_BYTES));
        at..end.min(at.saturating_add(1))
    }

    /// Writes the next segment to retransmit.
    pub(crate) fn write_again(&mut self, session: SessionId, out: &mut Vec<u8>) -> Option<Written> {
        loop {
            match self.again.pop_front()? {
                Again::Checkpoint(serial) => {
                    // A report may have come meanwhile.
                    let Some(asked) = self.asked.get(&serial) else {
                        continue;
                    };
                    let (range, report) = (asked.range.clone(), asked.report);
                    let checkpoint = Checkpoint { serial, report };
                    self.write(session, range.clone(), Some(checkpoint), out);
                    return Some(written(&range, Some(serial), true));
                }
                Again::Gap {
                    range,
                    report,
                    last,
                } => {
                    let end = range.end.min(range.start + self.room as u64);
                    if end < range.end {
                        let rest = Again::Gap {
                            range: end..range.end,
                            report,
                            last,
                        };
                        self.again.push_front(rest);
                    }
                    let asks = end == self.red || (last && end == range.end);
                    return Some(self.write_data(session, range.start..end, asks, report, out));
                }
            }
        }
    }

    /// Writes the next segment that was never sent.
    pub(crate) fn write_fresh(&mut self, session: SessionId, out: &mut Vec<u8>) -> Option<Written> {
        let range = self.next_fresh();
        if range.is_empty() {
            return None;
        }
        self.fresh = range.end;
        let asks = range.end == self.red;
        let mut written = self.write_data(session, range, asks, 0, out);
        written.again_bytes = 0;
        Some(written)
    }

    fn write_data(
        &mut self,
        session: SessionId,
        range: Range<u64>,
        asks: bool,
        report: u64,
        out: &mut Vec<u8>,
    ) -> Written {
        let serial = asks.then(|| {
            let serial = self.next_serial;
            self.next_serial += 1;
            let asked = Asked {
                range: range.clone(),
                report,
                tries: 0,
                sent: Duration::ZERO,
                due: None,
            };
            self.asked.insert(serial, asked);
            serial
        });
        let checkpoint = serial.map(|serial| Checkpoint { serial, report });
        self.write(session, range.clone(), checkpoint, out);
        written(&range, serial, true)
    }

    fn write(
        &self,
        session: SessionId,
        range: Range<u64>,
        checkpoint: Option<Checkpoint>,
        out: &mut Vec<u8>,
    ) {
        let red = range.start < self.red;
        let data = Data {
            service: self.service,
            offset: range.start,
            bytes: &[],
            red,
            checkpoint,
            ends_red: red && range.end == self.red,
            ends_block: range.end == self.block.len(),
        };
        let length = (range.end - range.start) as usize;
        put_data_head(session, &data, length, out);
        self.block.copy(range.start, range.end, out);
    }

    /// The checkpoint's timer has expired: it is sent again.
    pub(crate) fn ask_again(&mut self, serial: u64) {
        if let Some(asked) = self.asked.get_mut(&serial) {
            asked.due = None;
            asked.tries += 1;
            self.again.push_back(Again::Checkpoint(serial));
        }
    }

    /// A report has come (RFC 5326, 6.13); its checkpoint is answered already. At most `gaps` gaps
    /// are retransmitted one by one; if there are more, the bytes between them are sent as well. At
    /// most `runs` runs of claimed bytes are kept; claims beyond them count as missing.
    pub(crate) fn hear(
        &mut self,
        report: &Report,
        (gaps, runs): (usize, usize),
        (reports, cycles): (usize, u64),
    ) -> Heard {
        if report.upper > self.red || report.upper > self.fresh {
            return Heard::Impossible;
        }
        if self.reports.contains(&report.serial) {
            return Heard::Known;
        }
        if self.reports.len() >= reports {
            return Heard::TooMuch;
        }
        self.reports.insert(report.serial);
        for (start, end) in &report.claims {
            // It forms one run with those that it touches.
            let around = start.saturating_sub(1)..end.saturating_add(1);
            let touches = || self.claimed.overlapping(&around).next().is_some();
            if self.claimed.len() < runs || touches() {
                self.claimed.insert(*start..*end);
            }
        }
        let scope = report.lower..report.upper;
        let mut missing: Vec<Range<u64>> = self.claimed.gaps(&scope).take(gaps.max(1)).collect();
        if missing.is_empty() {
            return Heard::More;
        }
        let end = self
            .claimed
            .gaps(&scope)
            .last()
            .map_or(scope.end, |gap| gap.end);
        let last = missing.len() - 1;
        missing[last].end = end;
        let costs = missing.iter().map(|gap| self.cost(gap.end - gap.start));
        let cost: u64 = costs.sum();
        self.resent_cost += cost;
        if self.resent_cost > self.cost(self.block.len()).saturating_mul(cycles) {
            return Heard::TooMuch;
        }
        for (index, range) in missing.into_iter().enumerate() {
            self.again.push_back(Again::Gap {
                range,
                report: report.serial,
                last: index == last,
            });
        }
        Heard::Missing
    }

    /// The cost of sending `bytes`: they and the heads of their segments, which make up most of it
    /// if the peer lacks single bytes here and there.
    fn cost(&self, bytes: u64) -> u64 {
        let segments = bytes.div_ceil(self.room as u64);
        bytes.saturating_add(segments.saturating_mul(self.head as u64))
    }

    /// Whether the client may be asked for `bytes` more: for the whole block once, and `cycles`
    /// times again. For a single lost byte a whole window is read, and the peer can claim to lack
    /// one in each.
    pub(crate) fn may_read(&mut self, bytes: u64, cycles: u64) -> bool {
        let most = self.block.len().saturating_mul(cycles.saturating_add(1));
        let sum = self.read_bytes.saturating_add(bytes);
        if sum > most {
            return false;
        }
        self.read_bytes = sum;
        true
    }

    /// Whether red bytes are unacknowledged although nothing of them is in flight and no checkpoint
    /// is waiting: the peer has answered for a part, and its other reports have not come. If it has
    /// forgotten the session, they never will.
    pub(crate) fn is_stalled(&self) -> bool {
        // If no checkpoint waits for its report, those in the queue are answered.
        let queued = || {
            self.again
                .iter()
                .any(|again| matches!(again, Again::Gap { .. }))
        };
        self.cancelling.is_none()
            && self.asked.is_empty()
            && !queued()
            && self.fresh >= self.red
            && self.acknowledged() < self.red
    }

    /// Sends the end of the missing bytes again, as a checkpoint.
    pub(crate) fn ask_for_missing(&mut self) {
        let Some(gap) = self.claimed.gaps(&(0..self.red)).last() else {
            return;
        };
        let start = gap.end.saturating_sub(self.room as u64).max(gap.start);
        self.resent_cost += self.cost(gap.end - start);
        self.again.push_back(Again::Gap {
            range: start..gap.end,
            report: 0,
            last: true,
        });
    }

    /// Runs of bytes that the peer has claimed.
    pub(crate) fn runs(&self) -> usize {
        self.claimed.len()
    }

    /// Gaps and checkpoints that wait to be sent again.
    pub(crate) fn again_count(&self) -> usize {
        self.again.len()
    }

    /// Nothing of it is sent any more, so none of its bytes are kept.
    pub(crate) fn forget_queue(&mut self) {
        self.block.clear();
        self.again.clear();
        self.claimed.clear();
        self.fresh = self.block.len();
    }
}

fn written(range: &Range<u64>, checkpoint: Option<u64>, again: bool) -> Written {
    let bytes = range.end - range.start;
    Written {
        checkpoint,
        again_bytes: if again { bytes } else { 0 },
        bytes,
    }
}
