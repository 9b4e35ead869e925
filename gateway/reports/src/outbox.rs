//! What of a node's reports leaves when.
//!
//! After a blockage the newest report of each kind is worth most: it says how
//! things are. It goes first, alone, in the highest class; those that have
//! waited behind it follow in batches in the lowest, where they hold up
//! nobody. While nothing can leave, full batches are handed out all the same:
//! into custody, which keeps them beyond the end of the process if it is
//! durable.

use std::collections::{BTreeMap, VecDeque};

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

/// Reports that wait to be sent.
#[derive(Debug)]
pub struct Outbox {
    newest: BTreeMap<Kind, Report>,
    late: VecDeque<Report>,
    /// Late reports that are kept.
    capacity: usize,
    dropped: u64,
}

impl Outbox {
    /// An empty one that keeps at most `capacity` reports beside the newest.
    pub fn new(capacity: usize) -> Outbox {
        Outbox {
            newest: BTreeMap::new(),
            late: VecDeque::new(),
            capacity,
            dropped: 0,
        }
    }

    /// Takes a report, made after all that it has.
    pub fn push(&mut self, report: Report) {
        if let Some(before) = self.newest.insert(report.kind(), report) {
            self.late.push_back(before);
            self.bound();
        }
    }

    /// The next message to hand to custody, if there is one: its reports, the
    /// oldest first. `open` tells whether what is handed over can leave now.
    pub fn poll(&mut self, open: bool) -> Option<(Urgency, Vec<Report>)> {
        if open && let Some((_, newest)) = self.newest.pop_first() {
            return Some((Urgency::Newest, vec![newest]));
        }
        let count = self.late.len().min(MAX_REPORTS);
        if count == MAX_REPORTS || open && count > 0 {
            return Some((Urgency::Late, self.late.drain(..count).collect()));
        }
        None
    }

    /// Takes back what [`Outbox::poll`] gave last and custody had no room for.
    pub fn take_back(&mut self, urgency: Urgency, reports: Vec<Report>) {
        match urgency {
            Urgency::Newest => {
                for report in reports {
                    self.newest.entry(report.kind()).or_insert(report);
                }
            }
            Urgency::Late => {
                for report in reports.into_iter().rev() {
                    self.late.push_front(report);
                }
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

    fn bound(&mut self) {
        while self.late.len() > self.capacity {
            self.late.pop_front();
            self.dropped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::Status;

    fn status(uptime_ms: u64) -> Report {
        Report::Status(Status {
            time_ms: None,
            uptime_ms,
            incarnation: 1,
            links: vec![],
        })
    }

    fn times(reports: &[Report]) -> Vec<u64> {
        let of = |report: &Report| match report {
            Report::Status(status) => status.uptime_ms,
        };
        reports.iter().map(of).collect()
    }

    #[test]
    fn newest_goes_first_and_the_older_ones_follow_in_batches() {
        let mut outbox = Outbox::new(1000);
        (0..100).for_each(|at| outbox.push(status(at)));
        let mut left = vec![];
        while let Some((urgency, reports)) = outbox.poll(true) {
            left.push((urgency, times(&reports)));
        }
        assert_eq!(
            left,
            [
                (Urgency::Newest, vec![99]),
                (Urgency::Late, (0..64).collect()),
                (Urgency::Late, (64..99).collect()),
            ]
        );
    }

    #[test]
    fn while_nothing_can_leave_only_full_batches_go_into_custody() {
        let mut outbox = Outbox::new(1000);
        (0..64).for_each(|at| outbox.push(status(at)));
        assert_eq!(outbox.poll(false), None);
        outbox.push(status(64));
        let (urgency, reports) = outbox.poll(false).unwrap();
        assert_eq!((urgency, reports.len()), (Urgency::Late, MAX_REPORTS));
        assert_eq!(outbox.poll(false), None);
        assert_eq!(times(&outbox.poll(true).unwrap().1), [64]);
    }

    #[test]
    fn full_outbox_gives_up_the_oldest_and_counts_them() {
        let mut outbox = Outbox::new(10);
        (0..20).for_each(|at| outbox.push(status(at)));
        assert_eq!((outbox.len(), outbox.dropped()), (11, 9));
        outbox.poll(true);
        assert_eq!(
            times(&outbox.poll(true).unwrap().1),
            (9..19).collect::<Vec<_>>()
        );
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Poll { open: bool, room: bool },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Push),
            1 => (any::<bool>(), any::<bool>()).prop_map(|(open, room)| Step::Poll { open, room }),
        ]
    }

    proptest! {
        #[test]
        fn every_report_leaves_once_and_late_ones_in_their_order(
            steps in prop::collection::vec(step(), 1..400),
        ) {
            let mut outbox = Outbox::new(1000);
            let (mut made, mut seen, mut last_late) = (0, Vec::new(), None);
            let mut take = |outbox: &mut Outbox, open: bool, room: bool| {
                let Some((urgency, reports)) = outbox.poll(open) else {
                    return Ok(false);
                };
                if !room {
                    outbox.take_back(urgency, reports);
                    return Ok(true);
                }
                for at in times(&reports) {
                    if urgency == Urgency::Late {
                        prop_assert!(last_late < Some(at), "late reports keep their order");
                        last_late = Some(at);
                    }
                    seen.push(at);
                }
                Ok(true)
            };
            for step in steps {
                match step {
                    Step::Push => {
                        outbox.push(status(made));
                        made += 1;
                    }
                    Step::Poll { open, room } => {
                        take(&mut outbox, open, room)?;
                    }
                }
            }
            while take(&mut outbox, true, true)? {}
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..made).collect::<Vec<_>>());
        }
    }
}
