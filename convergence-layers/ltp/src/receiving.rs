//! A block that is coming in (RFC 5326, 8.2).

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use rangemap::RangeSet;

use crate::cancelling::Cancelling;
use crate::config::Config;
use crate::segment::{Checkpoint, Data, Reason, Report};
use crate::store::{PIECE_COST_BYTES, Store};

/// A report that was made.
#[derive(Debug)]
pub(crate) struct Issued {
    pub(crate) report: Report,
    /// The peer knows it.
    acknowledged: bool,
    /// It waits to be sent.
    pub(crate) queued: bool,
    pub(crate) tries: u32,
    /// When it is sent again; none while that waits in the queue.
    pub(crate) due: Option<Duration>,
}

/// How far a block has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Bytes are missing.
    Incomplete,
    /// The client has to say whether it takes the block.
    Offered,
    /// The client has it.
    Taken,
}

/// A block that is coming in.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) store: Store,
    /// Whether the client keeps its bytes.
    pub(crate) elsewhere: bool,
    red: RangeSet<u64>,
    green: RangeSet<u64>,
    red_end: Option<u64>,
    block_end: Option<u64>,
    /// Claims of all reports so far.
    pub(crate) claims: usize,
    /// Reports by their serial numbers.
    pub(crate) issued: BTreeMap<u64, Issued>,
    /// The reports that answer each checkpoint.
    answered: BTreeMap<u64, Vec<u64>>,
    next_report: u64,
    /// Where the next report begins, if it does not answer a report.
    reported: u64,
    /// Red bytes that the peer knows to be here.
    known: RangeSet<u64>,
    /// Checkpoints that are answered once the client has taken the block.
    unanswered: Vec<(Checkpoint, u64)>,
    stage: Stage,
    /// When it was heard of last.
    pub(crate) heard: Duration,
    pub(crate) cancelling: Option<Cancelling>,
}

impl Receiving {
    pub(crate) fn new(first_report: u64, now: Duration) -> Receiving {
        Receiving {
            store: Store::default(),
            elsewhere: false,
            red: RangeSet::new(),
            green: RangeSet::new(),
            red_end: None,
            block_end: None,
            claims: 0,
            issued: BTreeMap::new(),
            answered: BTreeMap::new(),
            next_report: first_report,
            reported: 0,
            known: RangeSet::new(),
            unanswered: Vec::new(),
            stage: Stage::Incomplete,
            heard: now,
            cancelling: None,
        }
    }

    /// Whether the segment's bytes are to be kept.
    pub(crate) fn wants(&self) -> bool {
        self.stage == Stage::Incomplete
    }

    /// Why this segment makes the block impossible (RFC 5326, 6.21), if it does.
    pub(crate) fn contradiction(&self, data: &Data<'_>) -> Option<Reason> {
        let end = data.offset + data.bytes.len() as u64;
        let reds = self.red.last().map_or(0, |run| run.end);
        let greens = self.green.first().map_or(u64::MAX, |run| run.start);
        let miscolored = if data.red {
            end > greens || self.red_end.is_some_and(|red_end| end > red_end)
        } else {
            data.offset < reds || self.red_end.is_some_and(|red_end| data.offset < red_end)
        };
        if miscolored {
            return Some(Reason::Miscolored);
        }
        let beyond = self.block_end.is_some_and(|block_end| end > block_end);
        let last = reds.max(self.green.last().map_or(0, |run| run.end));
        let other_red =
            data.ends_red && (end < reds || self.red_end.is_some_and(|red_end| red_end != end));
        let other_end = data.ends_block
            && (end < last || self.block_end.is_some_and(|block_end| block_end != end));
        let other_bytes = self.overlaps_otherwise(data);
        (beyond || other_red || other_end || other_bytes).then_some(Reason::System)
    }

    /// Whether bytes that are in memory come again and are others: the peer has restarted and sends
    /// another block under the same number.
    fn overlaps_otherwise(&self, data: &Data<'_>) -> bool {
        if data.bytes.is_empty() {
            return false;
        }
        let runs = if data.red { &self.red } else { &self.green };
        let scope = data.offset..data.offset + data.bytes.len() as u64;
        runs.overlapping(&scope).any(|run| {
            let (start, end) = (run.start.max(scope.start), run.end.min(scope.end));
            let within = (start - scope.start) as usize..(end - scope.start) as usize;
            self.store.differs(start, &data.bytes[within])
        })
    }

    /// Whether this block is complete and the segment is of another one, whose sender has
    /// restarted and counts its sessions from the same number again. The checkpoints of a session
    /// have consecutive serial numbers, the first of which is random (RFC 5326, 3.2.1), and there
    /// are at most as many as `reports`.
    pub(crate) fn is_followed_by(&self, data: &Data<'_>, reports: usize) -> bool {
        if self.wants() {
            return false;
        }
        let other_serial = data.checkpoint.is_some_and(|Checkpoint { serial, .. }| {
            let near =
                serial.saturating_sub(reports as u64)..=serial.saturating_add(reports as u64);
            let mut unanswered = self.unanswered.iter();
            let waits = unanswered.any(|(checkpoint, _)| near.contains(&checkpoint.serial));
            !waits && self.answered.range(near).next().is_none()
        });
        other_serial || self.contradiction(data).is_some()
    }

    /// Memory that a segment needs beyond what the block has, bytes.
    pub(crate) fn extra_bytes(&self, data: &Data<'_>) -> usize {
        if !self.elsewhere {
            return self.store.extra_bytes(data.offset, data.bytes.len());
        }
        let costs = self.missing(data).into_iter().map(|range| {
            let bytes = (range.end - range.start) as usize;
            bytes + PIECE_COST_BYTES
        });
        costs.sum()
    }

    /// What of a segment's bytes is not here yet.
    fn missing(&self, data: &Data<'_>) -> Vec<Range<u64>> {
        if data.bytes.is_empty() {
            return Vec::new();
        }
        let runs = if data.red { &self.red } else { &self.green };
        let end = data.offset + data.bytes.len() as u64;
        runs.gaps(&(data.offset..end)).collect()
    }

    /// Takes a data segment that contradicts nothing and has its memory. Returns its new pieces for
    /// the client, if the client keeps the block.
    pub(crate) fn take(&mut self, data: &Data<'_>) -> Vec<(u64, Bytes)> {
        let end = data.offset + data.bytes.len() as u64;
        if data.ends_red {
            self.red_end = Some(end);
        }
        if data.ends_block {
            self.block_end = Some(end);
        }
        if data.bytes.is_empty() {
            return Vec::new();
        }
        let mut pieces = Vec::new();
        if self.elsewhere {
            for range in self.missing(data) {
                let within =
                    (range.start - data.offset) as usize..(range.end - data.offset) as usize;
                let piece = Bytes::copy_from_slice(&data.bytes[within]);
                pieces.push((range.start, piece));
            }
        } else {
            self.store.put(data.offset, data.bytes);
        }
        let runs = if data.red {
            &mut self.red
        } else {
            &mut self.green
        };
        runs.insert(data.offset..end);
        pieces
    }

    /// Runs of bytes that are here.
    pub(crate) fn runs(&self) -> usize {
        self.red.len() + self.green.len()
    }

    /// Whether the block has so many gaps that this segment must not add another.
    pub(crate) fn is_full_of_gaps(&self, data: &Data<'_>, gaps: usize) -> bool {
        let runs = if data.red { &self.red } else { &self.green };
        let end = data.offset + data.bytes.len() as u64;
        // It forms one run with those that it touches.
        let around = data.offset.saturating_sub(1)..end.saturating_add(1);
        runs.len() >= gaps && runs.overlapping(&around).next().is_none()
    }

    /// The length of the block, if it is complete and the client does not know yet.
    pub(crate) fn offers(&mut self) -> Option<u64> {
        if self.stage != Stage::Incomplete {
            return None;
        }
        let block_end = self.block_end?;
        let covered = |runs: &RangeSet<u64>, start, end| {
            start >= end || runs.gaps(&(start..end)).next().is_none()
        };
        // Without a red segment a block counts as all green: a red part that was lost completely
        // looks the same (RFC 5326, 8.2).
        let red_end = match self.red_end {
            None if self.red.is_empty() => 0,
            red_end => red_end?,
        };
        if !covered(&self.red, 0, red_end) || !covered(&self.green, red_end, block_end) {
            return None;
        }
        self.stage = Stage::Offered;
        Some(block_end)
    }

    /// Length of the red part, bytes, once it is known.
    pub(crate) fn red_bytes(&self) -> u64 {
        self.red_end.unwrap_or(0)
    }

    /// The client has the block.
    pub(crate) fn taken(&mut self) {
        self.stage = Stage::Taken;
    }

    /// Whether the exchange is finished: the peer knows that all of the red part is here.
    pub(crate) fn is_through(&self) -> bool {
        let red_end = self.red_bytes();
        self.stage == Stage::Taken
            && (red_end == 0 || self.known.gaps(&(0..red_end)).next().is_none())
    }

    /// Whether the client has to say whether it takes it.
    pub(crate) fn is_offered(&self) -> bool {
        self.stage == Stage::Offered
    }

    /// Whether the client has it.
    pub(crate) fn is_taken(&self) -> bool {
        self.stage == Stage::Taken
    }

    /// A checkpoint has come, which ends at `end`. Returns the reports to send, or none if this
    /// block has too many (RFC 5326, 6.11) or all blocks together have (`full`). A block that the
    /// client has not taken yet is not reported as complete.
    pub(crate) fn answer(
        &mut self,
        checkpoint: Checkpoint,
        end: u64,
        full: bool,
        config: &Config,
    ) -> Option<Vec<u64>> {
        if let Some(serials) = self.answered.get(&checkpoint.serial) {
            // A repeated checkpoint gets the same answer, if the peer has not confirmed it.
            let again = serials.iter().filter(|serial| {
                let issued = self.issued.get(serial);
                issued.is_some_and(|issued| !issued.acknowledged && !issued.queued)
            });
            return Some(again.copied().collect());
        }
        if self.stage == Stage::Offered {
            if self.unanswered.len() < config.reports {
                self.unanswered.push((checkpoint, end));
            }
            return Some(Vec::new());
        }
        let many = self.answered.len() >= config.reports || self.issued.len() >= config.reports;
        if many || full {
            return None;
        }
        // A secondary report begins where the report that it follows began.
        let echoed = self.issued.get(&checkpoint.report);
        let lower = echoed.map_or(self.reported, |issued| issued.report.lower);
        // A primary report that covers nothing new covers everything.
        let lower = if lower < end { lower } else { 0 };
        if echoed.is_none() {
            self.reported = self.reported.max(end);
        }
        let serials = self.report(checkpoint.serial, lower, end, config.claims.max(1));
        self.answered.insert(checkpoint.serial, serials.clone());
        Some(serials)
    }

    /// Reports on the red part between these bounds, in as many as its claims
    /// need.
    fn report(&mut self, checkpoint: u64, lower: u64, upper: u64, claims: usize) -> Vec<u64> {
        let scope = lower..upper;
        let runs = self.red.overlapping(&scope);
        let runs: Vec<(u64, u64)> = runs
            .map(|run| (run.start.max(lower), run.end.min(upper)))
            .collect();
        let mut parts = runs.chunks(claims).collect::<Vec<_>>();
        // A checkpoint whose own bytes found no room is answered, too.
        if parts.is_empty() && lower < upper {
            parts.push(&[]);
        }
        let (mut from, mut serials) = (lower, Vec::new());
        for (index, part) in parts.iter().enumerate() {
            let end = part.last().map_or(upper, |claim| claim.1);
            let until = if index + 1 == parts.len() { upper } else { end };
            let serial = self.next_report;
            self.next_report += 1;
            let report = Report {
                serial,
                checkpoint,
                lower: from,
                upper: until,
                claims: part.to_vec(),
            };
            let issued = Issued {
                report,
                acknowledged: false,
                queued: false,
                tries: 0,
                due: None,
            };
            self.claims += part.len();
            self.issued.insert(serial, issued);
            serials.push(serial);
            from = until;
        }
        serials
    }

    /// Checkpoints that wait for the client's word.
    pub(crate) fn take_unanswered(&mut self) -> Vec<(Checkpoint, u64)> {
        std::mem::take(&mut self.unanswered)
    }

    /// The peer has a report. Returns when it was due to be repeated.
    pub(crate) fn acknowledge(&mut self, serial: u64) -> Option<Duration> {
        let issued = self.issued.get_mut(&serial)?;
        issued.acknowledged = true;
        // Its bounds may be needed again, its claims are not.
        for (start, end) in std::mem::take(&mut issued.report.claims) {
            self.known.insert(start..end);
        }
        issued.due.take()
    }

    /// Whether a report is still to be confirmed by the peer.
    pub(crate) fn awaits(&self, serial: u64) -> bool {
        let issued = self.issued.get(&serial);
        issued.is_some_and(|issued| !issued.acknowledged)
    }

    /// The due times that must be removed with the session.
    pub(crate) fn dues(&self) -> impl Iterator<Item = (u64, Duration)> + '_ {
        self.issued
            .iter()
            .filter_map(|(serial, issued)| Some((*serial, issued.due?)))
    }
}
