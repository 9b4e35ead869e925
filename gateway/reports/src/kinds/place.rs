//! Reports of the vehicle: its position, and the blockages that it expects.

use serde::{Deserialize, Serialize};

/// Where the terminal was, WGS 84.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Degrees, east positive.
    pub longitude: f64,
    /// Degrees, north positive.
    pub latitude: f64,
    /// Metres above mean sea level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub altitude_m: Option<f64>,
    /// Speed over ground, m/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_mps: Option<f64>,
    /// Degrees from true north, clockwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heading_deg: Option<f64>,
    /// Radius within which it lies, as the receiver says, m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_m: Option<f64>,
    /// The satellites' time of the fix, ms since the Unix epoch; absent if
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gnss_time_ms: Option<u64>,
    /// The node's clock at the fix, ms since the Unix epoch; absent if it is
    /// not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_time_ms: Option<u64>,
    /// Whether the kernel says that the node's clock is synchronised.
    pub synchronised: bool,
}

impl Position {
    /// A place of which nothing else is known.
    pub fn at(longitude: f64, latitude: f64) -> Position {
        Position {
            longitude,
            latitude,
            altitude_m: None,
            speed_mps: None,
            heading_deg: None,
            accuracy_m: None,
            gnss_time_ms: None,
            node_time_ms: None,
            synchronised: false,
        }
    }
}

/// A blockage that the terminal itself expects. Times are the control service's, as far as the node
/// knows its own clock's offset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// When it was announced, ms since the Unix epoch.
    pub announced_ms: u64,
    /// When it begins, at the terminal's antenna, ms since the Unix epoch.
    pub entry_ms: u64,
    /// How long it lasts, ms.
    pub duration_ms: u64,
    /// How likely it is, 0 to 1.
    pub confidence: f64,
    /// What causes it, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstruction: Option<String>,
}
