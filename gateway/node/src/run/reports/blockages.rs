//! Blockages of the links on which this node sends, as reports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use underpass_engine::{HopId, LinkChange, Source};
use underpass_reports::{Blockage, BlockageSource, Body};

use super::{ReportSender, Reporter};
use crate::clock::ControlClock;
use crate::shell::LinkEvent;

/// Reports the blockages among `events` until these end.
pub(in crate::run) async fn watch(
    mut events: Receiver<LinkEvent>,
    reporter: Arc<Reporter>,
    clock: Arc<ControlClock>,
    reports: ReportSender,
) {
    let mut blockages = Blockages::default();
    let report = |event: &LinkEvent, seen: Seen| {
        reports.send(Body::Blockage(Blockage {
            terminal: reporter.terminal_of(event.neighbour),
            path: event.path.clone(),
            direction: reporter.direction(),
            entry_ms: seen.entry_ms,
            source: seen.source,
            unheard: seen.unheard,
            exit_ms: seen.exit_ms,
        }));
    };
    loop {
        let due = blockages.next_timeout();
        tokio::select! {
            received = events.recv() => match received {
                Ok(event) => {
                    if let Some(seen) = blockages.note(&event, |at| clock.ms_at(at)) {
                        report(&event, seen);
                    }
                }
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "changes of links not reported");
                }
                Err(RecvError::Closed) => return,
            },
            () = sleep_until(due) => {
                for (event, seen) in blockages.handle_timeout(Instant::now()) {
                    report(&event, seen);
                }
            }
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// The links that are blocked.
#[derive(Debug, Default)]
struct Blockages {
    lasting: HashMap<HopId, Lasting>,
    /// Those that are reported only if they last until then.
    brief: HashMap<HopId, (Instant, LinkEvent, Seen)>,
}

/// A shorter silence is not reported: no capacity can be lent for it, and a flickering link would
/// fill the reports.
const LEAST: Duration = Duration::from_millis(500);

/// A blockage that is not over.
#[derive(Clone, Copy, Debug)]
struct Lasting {
    entry: Instant,
    /// Its reported entry; none if the time of day was not known.
    entry_ms: Option<u64>,
    source: BlockageSource,
    /// At its entry, this process had never heard the peer.
    unheard: bool,
}

/// What is to be reported of a blockage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    entry_ms: u64,
    source: BlockageSource,
    unheard: bool,
    exit_ms: Option<u64>,
}

impl Blockages {
    /// When [`Blockages::handle_timeout`] has something to report.
    fn next_timeout(&self) -> Option<Instant> {
        self.brief.values().map(|(due, ..)| *due).min()
    }

    /// What has lasted long enough to be reported.
    fn handle_timeout(&mut self, now: Instant) -> Vec<(LinkEvent, Seen)> {
        let due = self.brief.extract_if(|_, (due, ..)| *due <= now);
        due.map(|(_, (_, event, seen))| (event, seen)).collect()
    }

    /// Notes a change of a link; `ms_at` gives the time of day.
    fn note(&mut self, event: &LinkEvent, ms_at: impl Fn(Instant) -> Option<u64>) -> Option<Seen> {
        match event.change {
            LinkChange::Blocked(source) => {
                // Silence is detected some time after it has begun.
                let silent = event.silent_since.filter(|_| source == Source::Probing);
                let entry = silent.unwrap_or(event.at);
                let lasting = Lasting {
                    entry,
                    entry_ms: ms_at(entry),
                    source: reported(source),
                    unheard: event.silent_since.is_none(),
                };
                self.lasting.insert(event.hop, lasting);
                let seen = Seen {
                    entry_ms: lasting.entry_ms?,
                    source: lasting.source,
                    unheard: lasting.unheard,
                    exit_ms: None,
                };
                let due = silent.map(|since| since + LEAST);
                if let Some(due) = due.filter(|due| event.at < *due) {
                    self.brief.insert(event.hop, (due, event.clone(), seen));
                    return None;
                }
                Some(seen)
            }
            LinkChange::Free(_) => {
                let lasted = self.lasting.remove(&event.hop)?;
                if self.brief.remove(&event.hop).is_some() {
                    return None;
                }
                // That a plan is over says nothing of a link on which nobody was heard. The end is
                // then told by the first status that has it up.
                if lasted.source == BlockageSource::Plan && event.silent_since.is_none() {
                    return None;
                }
                let exit_ms = ms_at(event.at)?;
                let entry_ms = lasted.entry_ms.or_else(|| ms_at(lasted.entry))?;
                Some(Seen {
                    entry_ms,
                    source: lasted.source,
                    unheard: lasted.unheard,
                    // The clock may have been corrected meanwhile.
                    exit_ms: Some(exit_ms.max(entry_ms)),
                })
            }
            LinkChange::Source(_) | LinkChange::PlanContradicted(_) => None,
        }
    }
}

fn reported(source: Source) -> BlockageSource {
    match source {
        Source::Operator => BlockageSource::Operator,
        Source::Modem => BlockageSource::Modem,
        // Sending is held back by a plan, too.
        Source::Plan | Source::Contact => BlockageSource::Plan,
        Source::Probing => BlockageSource::Probing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(start: Instant, after_s: u64, change: LinkChange) -> LinkEvent {
        let at = start + Duration::from_secs(after_s);
        LinkEvent {
            hop: HopId(0),
            path: "sat".to_owned(),
            neighbour: 1,
            change,
            at,
            silent_since: Some(at - Duration::from_secs(1)),
        }
    }

    fn seconds(start: Instant) -> impl Fn(Instant) -> Option<u64> {
        move |at| u64::try_from((at - start).as_millis()).ok()
    }

    #[test]
    fn silence_that_is_over_within_half_a_second_is_not_reported() {
        let start = Instant::now();
        let mut blockages = Blockages::default();
        let begun = event(start, 10, LinkChange::Blocked(Source::Probing));
        let begun = |silent_ms| LinkEvent {
            silent_since: Some(begun.at - Duration::from_millis(silent_ms)),
            ..begun.clone()
        };
        let free = event(start, 11, LinkChange::Free(Duration::from_secs(1)));

        assert_eq!(blockages.note(&begun(80), seconds(start)), None);
        assert_eq!(blockages.note(&free, seconds(start)), None);
        assert_eq!(blockages.next_timeout(), None);

        assert_eq!(blockages.note(&begun(80), seconds(start)), None);
        let due = blockages.next_timeout().expect("it may last");
        assert_eq!(due, start + Duration::from_millis(10_420));
        let told = blockages.handle_timeout(due);
        assert!(matches!(
            told[..],
            [(
                _,
                Seen {
                    entry_ms: 9_920,
                    exit_ms: None,
                    ..
                }
            )]
        ));
        let told = blockages
            .note(&free, seconds(start))
            .map(|seen| seen.exit_ms);
        assert_eq!(told, Some(Some(11_000)));
    }

    #[test]
    fn blockage_is_told_at_both_ends_with_the_same_entry() {
        let start = Instant::now();
        let mut blockages = Blockages::default();
        let begun = LinkChange::Blocked(Source::Probing);
        let begun = blockages.note(&event(start, 10, begun), seconds(start));
        let told = Seen {
            entry_ms: 9_000,
            source: BlockageSource::Probing,
            unheard: false,
            exit_ms: None,
        };
        assert_eq!(begun, Some(told));
        let other = LinkChange::Source(Source::Plan);
        assert_eq!(
            blockages.note(&event(start, 20, other), seconds(start)),
            None
        );
        let free = LinkChange::Free(Duration::from_secs(60));
        let over = blockages.note(&event(start, 70, free), seconds(start));
        let exit_ms = Some(70_000);
        assert_eq!(over, Some(Seen { exit_ms, ..told }));
    }

    #[test]
    fn modem_and_plan_block_from_when_they_say_so() {
        let start = Instant::now();
        let mut blockages = Blockages::default();
        let begun = LinkChange::Blocked(Source::Modem);
        let begun = blockages.note(&event(start, 10, begun), seconds(start));
        assert_eq!(begun.map(|seen| seen.entry_ms), Some(10_000));
    }

    #[test]
    fn blockage_before_the_peer_was_heard_says_so_and_is_over_once_it_is_heard() {
        let start = Instant::now();
        let mut blockages = Blockages::default();
        let of_plan = |after_s| event(start, after_s, LinkChange::Blocked(Source::Plan));
        let free = |after_s| {
            let free = LinkChange::Free(Duration::from_secs(10));
            event(start, after_s, free)
        };
        let unheard = |event| LinkEvent {
            silent_since: None,
            ..event
        };
        let told = |entry_ms, exit_ms| {
            Some(Seen {
                entry_ms,
                source: BlockageSource::Plan,
                unheard: true,
                exit_ms,
            })
        };

        let begun = blockages.note(&unheard(of_plan(10)), seconds(start));
        assert_eq!(begun, told(10_000, None));
        let plan_over = blockages.note(&unheard(free(20)), seconds(start));
        assert_eq!(plan_over, None);
        let replanned = blockages.note(&unheard(of_plan(21)), seconds(start));
        assert_eq!(replanned, told(21_000, None));
        let heard = blockages.note(&free(31), seconds(start));
        assert_eq!(heard, told(21_000, Some(31_000)));

        let next = blockages.note(&of_plan(60), seconds(start));
        assert_eq!(next.map(|seen| seen.unheard), Some(false));
        // A modem knows when the link is free.
        let mut other = Blockages::default();
        let begun = unheard(event(start, 10, LinkChange::Blocked(Source::Modem)));
        assert!(other.note(&begun, seconds(start)).is_some());
        let over = other.note(&unheard(free(20)), seconds(start));
        assert_eq!(over.and_then(|seen| seen.exit_ms), Some(20_000));
    }

    #[test]
    fn entry_before_the_clock_was_set_is_told_at_the_end() {
        let start = Instant::now();
        let mut blockages = Blockages::default();
        let begun = LinkChange::Blocked(Source::Plan);
        assert_eq!(blockages.note(&event(start, 10, begun), |_| None), None);
        let free = LinkChange::Free(Duration::from_secs(60));
        let over = blockages.note(&event(start, 70, free), seconds(start));
        let over = over.map(|seen| (seen.entry_ms, seen.exit_ms));
        assert_eq!(over, Some((10_000, Some(70_000))));
    }
}
