//! Blockages that an integrator expects, announced to the control service.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use underpass_reports::{Announcement, Body};

use super::ApiState;
use super::problem::{Json, Problem};

/// Announcements that are shown.
const SHOWN: usize = 64;

/// The furthest a blockage may lie ahead, and the longest it may last, s, as the control service
/// accepts it.
const MOST_S: f64 = 3_600.0;

/// The latest announcements of this run, the newest first.
#[derive(Debug, Default)]
pub struct Announced(Mutex<VecDeque<Announcement>>);

impl Announced {
    /// Records an announcement. Its creation time identifies it at the control service, so no two
    /// get the same time.
    fn note(&self, mut announcement: Announcement) -> Announcement {
        let mut latest = self.0.lock().unwrap();
        if let Some(before) = latest.front() {
            let next = before.announced_ms + 1;
            announcement.announced_ms = announcement.announced_ms.max(next);
        }
        latest.truncate(SHOWN - 1);
        latest.push_front(announcement.clone());
        announcement
    }

    fn views(&self) -> Vec<AnnouncementView> {
        let latest = self.0.lock().unwrap();
        latest.iter().filter_map(AnnouncementView::of).collect()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// When the blockage begins at the antenna, RFC 3339; this or `in_s`.
    #[serde(default, with = "time::serde::rfc3339::option")]
    entry: Option<OffsetDateTime>,
    /// In how many seconds it begins.
    in_s: Option<f64>,
    /// How long it lasts, s.
    duration_s: f64,
    /// How likely it is, 0 to 1.
    confidence: f64,
    /// What causes it, by name.
    obstruction: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct AnnouncementView {
    #[serde(with = "time::serde::rfc3339")]
    announced: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    entry: OffsetDateTime,
    duration_s: f64,
    confidence: f64,
    obstruction: Option<String>,
}

impl AnnouncementView {
    fn of(announcement: &Announcement) -> Option<AnnouncementView> {
        let time = |ms: u64| {
            let nanoseconds = i128::from(ms) * 1_000_000;
            OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok()
        };
        Some(AnnouncementView {
            announced: time(announcement.announced_ms)?,
            entry: time(announcement.entry_ms)?,
            duration_s: announcement.duration_ms as f64 / 1e3,
            confidence: announcement.confidence,
            obstruction: announcement.obstruction.clone(),
        })
    }
}

impl Expected {
    fn announcement(self, now_ms: u64) -> Result<Announcement, Problem> {
        let invalid = |text: &str| Err(Problem::invalid(text));
        let entry_ms = match (self.entry, self.in_s) {
            (Some(entry), None) => {
                let entry_ms = entry.unix_timestamp_nanos() / 1_000_000;
                u64::try_from(entry_ms).unwrap_or(0)
            }
            (None, Some(in_s)) if (0.0..=MOST_S).contains(&in_s) => {
                now_ms.saturating_add((in_s * 1e3) as u64)
            }
            (None, Some(_)) => return invalid("in_s must be 0 to 3600"),
            _ => return invalid("either entry or in_s is needed"),
        };
        if !(0.001..=MOST_S).contains(&self.duration_s) {
            return invalid("duration_s must be 0.001 to 3600");
        }
        let duration_ms = (self.duration_s * 1e3) as u64;
        if entry_ms.saturating_add(duration_ms) <= now_ms {
            return invalid("the blockage is over by now");
        }
        if entry_ms > now_ms.saturating_add((MOST_S * 1e3) as u64) {
            return invalid("entry must be within 3600 s");
        }
        if !(0.0..=1.0).contains(&self.confidence) {
            return invalid("confidence must be 0 to 1");
        }
        Ok(Announcement {
            announced_ms: now_ms,
            entry_ms,
            duration_ms,
            confidence: self.confidence,
            obstruction: self.obstruction,
        })
    }
}

/// GET /v1/announcements
pub async fn list(State(state): State<Arc<ApiState>>) -> Reply<Vec<AnnouncementView>> {
    Reply(state.announced.views())
}

/// POST /v1/announcements
pub async fn announce(
    State(state): State<Arc<ApiState>>,
    Json(expected): Json<Expected>,
) -> Result<(StatusCode, Reply<Option<AnnouncementView>>), Problem> {
    let conflict = |text| Problem::new(StatusCode::CONFLICT, text);
    let reports = state.report_sender.as_ref();
    let reports = reports.filter(|_| state.config.get().reports.is_some());
    let reports = reports
        .ok_or_else(|| conflict("this node announces nothing: it is no terminal with [reports]"))?;
    let now_ms = state.control_clock.now_ms();
    let now_ms = now_ms.ok_or_else(|| {
        conflict("the time of day is not known: neither this clock is set nor was the hub heard")
    })?;
    let announcement = expected.announcement(now_ms)?;
    Body::Announcement(announcement.clone())
        .check()
        .map_err(|error| Problem::invalid(error.to_string()))?;
    let announcement = state.announced.note(announcement);
    tracing::info!(?announcement, "blockage announced by the local API");
    let view = AnnouncementView::of(&announcement);
    reports.send(Body::Announcement(announcement));
    Ok((StatusCode::ACCEPTED, Reply(view)))
}
