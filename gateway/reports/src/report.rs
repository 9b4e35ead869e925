//! A report: its content, and its place among the reports of its node.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::kinds::{
    Announcement, Blockage, LinkFigures, MAX_CLASS_NAME_BYTES, MAX_CLASSES, MAX_REASON_BYTES,
    NodeReport, PlanAcknowledgement, Position, SettingsOutcome, Status,
};

/// The longest name in a report (of a path, a beam, an obstruction), bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// The longest version of a node's software, visible ASCII characters.
pub const MAX_VERSION_CHARS: usize = 64;

/// The end of a certificate that never ends (RFC 5280, § 4.1.2.5), ms since
/// the Unix epoch: none is later.
const LAST_END_MS: u64 = 253_402_300_799_999;

/// Most links in one status; a node with more sends several.
pub const MAX_LINKS: usize = 100;

/// One report. Node, incarnation, kind and uptime are its identity: no two
/// reports of a kind have the same, and the later one has the higher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What it says.
    #[serde(flatten)]
    pub body: Body,
    /// For how long the node had run when it was made, ms: orders the reports
    /// of one run, whatever the clock does.
    pub uptime_ms: u64,
    /// The run.
    pub incarnation: u64,
}

impl Report {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.body.kind()
    }
}

/// What a report says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    /// What the node's links do.
    Status(Status),
    /// Where the terminal is.
    Position(Position),
    /// A blockage that the terminal expects.
    Announcement(Announcement),
    /// A blockage that the node has seen.
    Blockage(Blockage),
    /// A plan that the node follows.
    Plan(PlanAcknowledgement),
    /// What has become of settings.
    Settings(SettingsOutcome),
}

/// The kinds of reports, the most urgent first: of each the newest matters
/// most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// [`Body::Plan`].
    Plan,
    /// [`Body::Settings`].
    Settings,
    /// [`Body::Announcement`].
    Announcement,
    /// [`Body::Blockage`].
    Blockage,
    /// [`Body::Position`].
    Position,
    /// [`Body::Status`].
    Status,
}

/// Why something is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ReportError {
    #[error("{member} = {value}: must be {} to {}", range.0, range.1)]
    Range {
        member: &'static str,
        value: f64,
        range: (f64, f64),
    },
    #[error("{0}: must have 1 to {1} bytes, without control characters")]
    Text(&'static str, usize),
    #[error("version: must have 1 to {MAX_VERSION_CHARS} visible ASCII characters")]
    Version,
    #[error("{0} classes in a link's figures, more than {MAX_CLASSES}")]
    Classes(usize),
    #[error("{0} links in a status, more than {MAX_LINKS}")]
    Links(usize),
}

impl Body {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Body::Status(_) => Kind::Status,
            Body::Position(_) => Kind::Position,
            Body::Announcement(_) => Kind::Announcement,
            Body::Blockage(_) => Kind::Blockage,
            Body::Plan(_) => Kind::Plan,
            Body::Settings(_) => Kind::Settings,
        }
    }

    /// Checks what is about to be reported: JSON has no numbers that are not
    /// finite, and one member out of range would have the report refused.
    ///
    /// # Errors
    /// Names the first member that does not fit.
    pub fn check(&self) -> Result<(), ReportError> {
        match self {
            Body::Status(status) => {
                if status.links.len() > MAX_LINKS {
                    return Err(ReportError::Links(status.links.len()));
                }
                if let Some(node) = &status.node {
                    check_node(node)?;
                }
                for link in &status.links {
                    name("path", &link.path)?;
                    within("efficiency", link.efficiency, EFFICIENCIES)?;
                    if let Some(figures) = &link.figures {
                        check_figures(figures)?;
                    }
                }
                Ok(())
            }
            Body::Position(position) => {
                within("longitude", Some(position.longitude), -180.0..=180.0)?;
                within("latitude", Some(position.latitude), -90.0..=90.0)?;
                within("altitude_m", position.altitude_m, -1e3..=3e4)?;
                within("speed_mps", position.speed_mps, 0.0..=400.0)?;
                within("heading_deg", position.heading_deg, 0.0..=360.0)?;
                within("accuracy_m", position.accuracy_m, 0.0..=1e5)
            }
            Body::Announcement(announcement) => {
                within("confidence", Some(announcement.confidence), 0.0..=1.0)?;
                let obstruction = announcement.obstruction.as_deref();
                obstruction.map_or(Ok(()), |text| name("obstruction", text))
            }
            Body::Blockage(blockage) => name("path", &blockage.path),
            Body::Plan(plan) => name("beam", &plan.beam),
            Body::Settings(outcome) => {
                let reason = outcome.reason.as_deref();
                reason.map_or(Ok(()), |text| printable("reason", text, MAX_REASON_BYTES))
            }
        }
    }
}

/// Bits per unit of capacity that a MODCOD may have.
pub const EFFICIENCIES: RangeInclusive<f64> = 0.001..=1000.0;

fn check_figures(figures: &LinkFigures) -> Result<(), ReportError> {
    within("loss", Some(figures.loss), 0.0..=1.0)?;
    if figures.classes.len() > MAX_CLASSES {
        return Err(ReportError::Classes(figures.classes.len()));
    }
    let mut classes = figures.classes.iter();
    classes.try_for_each(|of| printable("class", &of.name, MAX_CLASS_NAME_BYTES))
}

fn check_node(node: &NodeReport) -> Result<(), ReportError> {
    let length = (1..=MAX_VERSION_CHARS).contains(&node.version.len());
    if !length || !node.version.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ReportError::Version);
    }
    // Both are below 2^53: a double holds them exactly.
    let end = node.certificate_end_ms.map(|end| end as f64);
    within("certificate_end_ms", end, 0.0..=LAST_END_MS as f64)
}

fn within(
    member: &'static str,
    value: Option<f64>,
    range: RangeInclusive<f64>,
) -> Result<(), ReportError> {
    match value {
        Some(value) if !range.contains(&value) => Err(ReportError::Range {
            member,
            value,
            range: range.into_inner(),
        }),
        _ => Ok(()),
    }
}

fn name(member: &'static str, text: &str) -> Result<(), ReportError> {
    printable(member, text, MAX_NAME_BYTES)
}

fn printable(member: &'static str, text: &str, most: usize) -> Result<(), ReportError> {
    let fits = (1..=most).contains(&text.len());
    match fits && !text.contains(char::is_control) {
        true => Ok(()),
        false => Err(ReportError::Text(member, most)),
    }
}

/// Gives reports their identities.
#[derive(Debug)]
pub struct Stamps {
    incarnation: u64,
    last: BTreeMap<Kind, u64>,
}

impl Stamps {
    /// For a run of a node.
    pub fn new(incarnation: u64) -> Stamps {
        Stamps {
            incarnation,
            last: BTreeMap::new(),
        }
    }

    /// The report that says `body` when the node has run for `uptime_ms`; a
    /// second report of one kind within a millisecond is dated to the next.
    pub fn stamp(&mut self, body: Body, uptime_ms: u64) -> Report {
        let kind = body.kind();
        let next = self.last.get(&kind).map_or(0, |last| last + 1);
        let uptime_ms = uptime_ms.max(next);
        self.last.insert(kind, uptime_ms);
        Report {
            body,
            uptime_ms,
            incarnation: self.incarnation,
        }
    }
}

#[cfg(test)]
mod tests {
    use underpass_plans::Direction;

    use super::*;
    use crate::kinds::{
        CapacityReason, ClassFigures, LinkReport, LinkState, MeasuredCapacity, Proof,
    };
    use crate::message::Message;

    fn position(longitude: f64) -> Body {
        Body::Position(Position::at(longitude, 50.0))
    }

    #[test]
    fn reports_of_one_millisecond_keep_their_order_in_each_kind() {
        let mut stamps = Stamps::new(7);
        let status = || Body::Status(Status::default());
        let made = [
            stamps.stamp(position(1.0), 100),
            stamps.stamp(position(2.0), 100),
            stamps.stamp(status(), 100),
            stamps.stamp(position(3.0), 90),
            stamps.stamp(position(4.0), 200),
        ];
        let identities = made.iter().map(|report| (report.kind(), report.uptime_ms));
        let expected = [
            (Kind::Position, 100),
            (Kind::Position, 101),
            (Kind::Status, 100),
            (Kind::Position, 102),
            (Kind::Position, 200),
        ];
        assert!(identities.eq(expected), "{made:?}");
        assert!(made.iter().all(|report| report.incarnation == 7));
    }

    #[test]
    fn a_version_is_short_and_visible_and_a_certificate_ends_by_the_year_9999() {
        let of = |version: &str, certificate_end_ms| {
            let node = NodeReport {
                version: version.to_owned(),
                certificate_end_ms,
            };
            Body::Status(Status {
                node: Some(node),
                ..Status::default()
            })
            .check()
        };
        assert_eq!(of(&"1".repeat(64), None), Ok(()));
        assert_eq!(of("1.2.3-rc.1+a", Some(LAST_END_MS)), Ok(()));
        for version in ["", &"1".repeat(65), "1 2", "1\n2", "1.ä"] {
            assert_eq!(of(version, None), Err(ReportError::Version), "{version:?}");
        }
        assert!(of("1", Some(LAST_END_MS + 1)).is_err());
    }

    #[test]
    fn a_status_with_the_most_of_everything_fits_a_message() {
        let class = |number| ClassFigures {
            // Each of these characters takes two bytes in JSON.
            name: "\"".repeat(MAX_CLASS_NAME_BYTES),
            streams: Some(number),
            backlogged_bytes: number,
        };
        let most = u64::MAX;
        let link = |classes| LinkReport {
            terminal: most,
            path: "\"".repeat(MAX_NAME_BYTES),
            direction: Direction::Forward,
            state: LinkState::Blocked,
            offered_bytes: most,
            backlogged_bytes: most,
            sent_bytes: most,
            streams: most,
            rate_bps: Some(most),
            plan_version: Some(most),
            efficiency: Some(0.123_456_789_012_345),
            measured: Some(MeasuredCapacity {
                capacity_bps: most,
                reason: CapacityReason::Limit,
            }),
            figures: Some(LinkFigures {
                rtt_ms: Some(most),
                queue_ms: most,
                loss: 0.123_456,
                stored_bundles: most,
                stored_bytes: most,
                classes: vec![class(most); classes],
            }),
        };
        let status = |links, classes| {
            Body::Status(Status {
                time_ms: Some(most),
                clock_offset_ms: Some(i64::MIN),
                synchronised: true,
                node: None,
                proof: Some(Proof {
                    gateway: most,
                    time_ms: most,
                    mac: "f".repeat(64),
                }),
                links: vec![link(classes); links],
            })
        };
        let full = status(MAX_LINKS, MAX_CLASSES);
        assert_eq!(full.check(), Ok(()));
        let report = Stamps::new(most).stamp(full, most);
        assert!(Message::new(vec![report]).encode().is_ok());
        let more = status(1, MAX_CLASSES + 1).check();
        assert_eq!(more, Err(ReportError::Classes(MAX_CLASSES + 1)));
    }

    #[test]
    fn what_is_no_place_on_earth_is_not_reported() {
        assert_eq!(position(-180.0).check(), Ok(()));
        for longitude in [f64::NAN, f64::INFINITY, 180.1] {
            let error = position(longitude).check().unwrap_err();
            assert!(error.to_string().starts_with("longitude = "), "{error}");
        }
    }
}
