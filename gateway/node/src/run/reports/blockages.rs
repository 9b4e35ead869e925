//! Blockages of the links on which this node sends, as reports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

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
    loop {
        match events.recv().await {
            Ok(event) => {
                let of_link = |seen: Seen| Blockage {
                    terminal: reporter.terminal_of(event.neighbour),
                    path: event.path.clone(),
                    direction: reporter.direction(),
                    entry_ms: seen.entry_ms,
                    source: seen.source,
                    exit_ms: seen.exit_ms,
                };
                let seen = blockages.note(&event, |at| clock.ms_at(at));
                if let Some(seen) = seen {
                    reports.send(Body::Blockage(of_link(seen)));
                }
            }
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "changes of links not reported");
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// The links that are blocked.
#[derive(Debug, Default)]
struct Blockages {
    lasting: HashMap<HopId, Lasting>,
}

/// A blockage that is not over.
#[derive(Clone, Copy, Debug)]
struct Lasting {
    entry: Instant,
    /// As it was reported; none if the time of day was not known.
    entry_ms: Option<u64>,
    source: BlockageSource,
}

/// What is to be reported of a blockage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    entry_ms: u64,
    source: BlockageSource,
    exit_ms: Option<u64>,
}

impl Blockages {
    /// Notes a change of a link; `ms_at` tells the time of day.
    fn note(&mut self, event: &LinkEvent, ms_at: impl Fn(Instant) -> Option<u64>) -> Option<Seen> {
        match event.change {
            LinkChange::Blocked(source) => {
                // Silence begins where the peer was last heard.
                let silent = event.heard.filter(|_| source == Source::Probing);
                let entry = silent.unwrap_or(event.at);
                let lasting = Lasting {
                    entry,
                    entry_ms: ms_at(entry),
                    source: reported(source),
                };
                self.lasting.insert(event.hop, lasting);
                Some(Seen {
                    entry_ms: lasting.entry_ms?,
                    source: lasting.source,
                    exit_ms: None,
                })
            }
            LinkChange::Free(_) => {
                let lasted = self.lasting.remove(&event.hop)?;
                let exit_ms = ms_at(event.at)?;
                let entry_ms = lasted.entry_ms.or_else(|| ms_at(lasted.entry))?;
                Some(Seen {
                    entry_ms,
                    source: lasted.source,
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
    use std::time::Duration;

    use super::*;

    fn event(start: Instant, after_s: u64, change: LinkChange) -> LinkEvent {
        let at = start + Duration::from_secs(after_s);
        LinkEvent {
            hop: HopId(0),
            path: "sat".to_owned(),
            neighbour: 1,
            change,
            at,
            heard: Some(at - Duration::from_secs(1)),
        }
    }

    fn seconds(start: Instant) -> impl Fn(Instant) -> Option<u64> {
        move |at| u64::try_from((at - start).as_millis()).ok()
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
