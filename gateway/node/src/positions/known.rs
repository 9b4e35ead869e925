//! What is known of the position, and of the receiver that supplies it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use underpass_positions::{Counts, Event, Fix, Pace, Replay};
use underpass_reports::{Body, Position};

use crate::clock;
use crate::config::{PositionsConfig, Source};
use crate::known_time::KnownTime;
use crate::run::reports::ReportSender;

/// An older fix no longer counts: receivers give one each second.
const CURRENT: Duration = Duration::from_secs(5);

/// The position: supplied by the receiver, shown by the local API, and reported.
#[derive(Debug)]
pub struct Positions {
    config: PositionsConfig,
    reports: ReportSender,
    /// Heeds the time of fixes.
    time: Arc<KnownTime>,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    connected: bool,
    /// The latest fix, and when it came.
    last: Option<(Position, Instant)>,
    /// The receiver has since said that it has no fix.
    lost_fix: bool,
    error: Option<String>,
    /// The log says that there are no fixes, and not yet that there are some again.
    told_none: bool,
    replay: Option<Replay>,
    pace: Pace,
    figures: Figures,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// What became of the source's sentences.
    pub counts: Counts,
    /// Datagrams of senders who may not.
    pub foreign: u64,
    /// Positions reported.
    pub reported: u64,
    /// How often the source was lost, or could not be reached.
    pub lost: u64,
}

/// Whether the receiver is connected and has a fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// It is not reached.
    Connecting,
    /// It has no fix.
    Searching,
    /// It has one.
    Fix,
}

/// What tells the position.
#[derive(Debug, Serialize, Deserialize)]
pub struct SourceView {
    /// gpsd, nmea or fixed.
    pub kind: String,
    pub from: String,
    /// Whether it is there and has a fix.
    pub state: SourceState,
    /// Its last error since it last had a fix; null if none.
    pub error: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct FixView {
    /// As it is reported.
    #[serde(flatten)]
    pub position: Position,
    /// Since it came, s.
    pub age_s: f64,
}

/// The position, as the local API shows it.
#[derive(Debug, Serialize, Deserialize)]
pub struct PositionView {
    pub source: SourceView,
    /// The latest fix, however old; null before the first.
    pub fix: Option<FixView>,
}

impl Positions {
    /// A node without a position yet, which reports by `reports`.
    pub fn new(config: PositionsConfig, reports: ReportSender, time: Arc<KnownTime>) -> Positions {
        let known = Known {
            connected: false,
            last: None,
            lost_fix: false,
            error: None,
            told_none: true,
            replay: config.replay.then(Replay::default),
            pace: Pace::new(config.interval),
            figures: Figures::default(),
        };
        Positions {
            config,
            reports,
            time,
            known: Mutex::new(known),
        }
    }

    pub fn config(&self) -> &PositionsConfig {
        &self.config
    }

    /// What is known now.
    pub fn view(&self) -> PositionView {
        let known = self.lock();
        let fix = known.last.as_ref().map(|(position, at)| FixView {
            position: position.clone(),
            age_s: at.elapsed().as_secs_f64(),
        });
        PositionView {
            source: SourceView {
                kind: self.config.source.kind().to_owned(),
                from: self.config.source.to_string(),
                state: known.state(matches!(self.config.source, Source::Fixed(_))),
                error: known.error.clone(),
            },
            fix,
        }
    }

    /// Counts since the start.
    pub fn figures(&self) -> Figures {
        self.lock().figures
    }

    /// The source is reached.
    pub(super) fn connected(&self) {
        let mut known = self.lock();
        if !std::mem::replace(&mut known.connected, true) {
            known.error = None;
        }
    }

    /// The source is lost, or not reached.
    pub(super) fn lost(&self, error: String) {
        let from = &self.config.source;
        let mut known = self.lock();
        known.connected = false;
        known.figures.lost += 1;
        // Attempts that fail in the same way are logged once.
        if known.error.as_ref() != Some(&error) {
            tracing::warn!(kind = from.kind(), %from, error, "no positions");
        }
        known.error = Some(error);
        known.told_none = true;
    }

    /// A datagram of somebody who may not send any.
    pub(super) fn foreign(&self) {
        self.lock().figures.foreign += 1;
    }

    /// What the source has said.
    pub(super) fn note(&self, events: Vec<Event>, counts: Counts) {
        let mut known = self.lock();
        known.figures.counts = counts;
        for event in events {
            match event {
                Event::Fix(fix) => self.fix(&mut known, fix),
                Event::NoFix => known.lost_fix = true,
                Event::Trouble(error) => {
                    tracing::warn!(from = %self.config.source, error, "receiver");
                    known.lost_fix = true;
                    known.error = Some(error);
                    known.told_none = true;
                }
            }
        }
    }

    fn fix(&self, known: &mut Known, fix: Fix) {
        let now = Instant::now();
        let node_time_ms = clock::utc_ms();
        // A recorded drive gives the time of its recording.
        if let (Some(ms), None) = (fix.time_ms, &known.replay) {
            self.time.heard_gnss(ms);
        }
        let fix = match &mut known.replay {
            Some(replay) => replay.shift(fix, node_time_ms),
            None => fix,
        };
        let position = Position {
            longitude: fix.longitude,
            latitude: fix.latitude,
            altitude_m: fix.altitude_m,
            speed_mps: fix.speed_mps,
            heading_deg: fix.heading_deg,
            accuracy_m: fix.accuracy_m,
            gnss_time_ms: fix.time_ms,
            node_time_ms,
            synchronised: clock::synchronised(),
        };
        known.error = None;
        if std::mem::take(&mut known.told_none) {
            tracing::info!(from = %self.config.source, "positions come in");
        }
        known.lost_fix = false;
        known.last = Some((position.clone(), now));
        if known.pace.passes(now) {
            known.figures.reported += 1;
            self.reports.send(Body::Position(position));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }
}

impl Known {
    fn state(&self, is_fixed: bool) -> SourceState {
        let recent = |(_, at): &(Position, Instant)| is_fixed || at.elapsed() < CURRENT;
        match self.connected {
            false => SourceState::Connecting,
            true if !self.lost_fix && self.last.as_ref().is_some_and(recent) => SourceState::Fix,
            true => SourceState::Searching,
        }
    }
}
