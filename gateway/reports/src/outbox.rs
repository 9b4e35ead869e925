//! Decides which of a node's reports leave when.
//!
//! After a blockage the newest report of each kind is worth most, since it gives the present state.
//! It goes first, alone, in the highest class. Older ones follow in batches in the lowest class,
//! where they delay nothing else. While nothing can leave, full batches are handed out all the
//! same, into custody; durable custody keeps them beyond the end of the process. If custody is
//! durable, an incomplete batch is handed out, too, once it is old enough, so that a loss of power
//! in a road tunnel costs little.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::message::MAX_REPORTS;
use crate::report::{Kind, Report};

/// In which class a message is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The highest: signalling.
    Newest,
    /// The lowest.
    Late,
}

/// Reports that leave in one message.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// In which class.
    pub urgency: Urgency,
    /// The reports, the oldest first.
    pub reports: Vec<Report>,
    /// When the oldest was pushed.
    since: Instant,
}

/// Reports that wait to be sent.
#[derive(Debug)]
pub struct Outbox {
    newest: BTreeMap<Kind, (Instant, Report)>,
    late: VecDeque<(Instant, Report)>,
    /// Late reports that are kept.
    capacity: usize,
    /// The most that a late report waits here; none waits for a full batch.
    patience: Option<Duration>,
    dropped: u64,
}

impl Outbox {
    /// An empty one that keeps at most `capacity` reports beside the newest. With `patience`, late
    /// reports are handed out when the oldest has waited that long; without, when a batch is full.
    pub fn new(capacity: usize, patience: Option<Duration>) -> Outbox {
        Outbox {
            newest: BTreeMap::new(),
            late: VecDeque::new(),
            capacity,
            patience,
            dropped: 0,
        }
    }

    /// Takes a report that is newer than all others of its kind.
    pub fn push(&mut self, now: Instant, report: Report) {
        if let Some(before) = self.newest.insert(report.kind(), (now, report)) {
            self.late.push_back(before);
            self.bound();
        }
    }

    /// The next message to hand to custody, if there is one. `open` says whether a handed-over
    /// message can leave now.
    pub fn poll(&mut self, now: Instant, open: bool) -> Option<Batch> {
        if open && let Some((_, (since, newest))) = self.newest.pop_first() {
            return Some(Batch {
                urgency: Urgency::Newest,
                reports: vec![newest],
                since,
            });
        }
        let full = self.late.len() >= MAX_REPORTS;
        let due = self.next_timeout().is_some_and(|at| at <= now);
        if open || full || due {
            self.late_batch()
        } else {
            None
        }
    }

    /// Everything that waits, a message at a time, whether it can leave or not: the node ends, and
    /// only durable custody remains.
    pub fn flush(&mut self) -> Option<Batch> {
        let newest = std::mem::take(&mut self.newest);
        self.late.extend(newest.into_values());
        self.late_batch()
    }

    /// When [`Outbox::poll`] has something without a push or an open link.
    pub fn next_timeout(&self) -> Option<Instant> {
        let (since, _) = self.late.front()?;
        since.checked_add(self.patience?)
    }

    /// Takes back what was given out last and custody had no room for.
    pub fn take_back(&mut self, batch: Batch) {
        let since = batch.since;
        match batch.urgency {
            Urgency::Newest => {
                for report in batch.reports {
                    self.newest.entry(report.kind()).or_insert((since, report));
                }
            }
            Urgency::Late => {
                for report in batch.reports.into_iter().rev() {
                    self.late.push_front((since, report));
                }
                self.bound();
            }
        }
    }

    /// Reports that wait.
    pub fn len(&self) -> usize {
        self.newest.len() + self.late.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reports given up for want of room, the oldest first, since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn late_batch(&mut self) -> Option<Batch> {
        let since = self.late.front()?.0;
        let count = self.late.len().min(MAX_REPORTS);
        let reports = self.late.drain(..count).map(|(_, report)| report);
        Some(Batch {
            urgency: Urgency::Late,
            reports: reports.collect(),
            since,
        })
    }

    fn bound(&mut self) {
        while self.late.len() > self.capacity {
            self.late.pop_front();
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests;
