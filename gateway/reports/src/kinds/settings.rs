//! Of what a provider has set: what has become of it.

use serde::{Deserialize, Serialize};

/// The longest reason, bytes.
pub const MAX_REASON_BYTES: usize = 1_000;

/// What has become of settings that a node was sent; told at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsOutcome {
    /// Their version.
    pub settings: u64,
    /// Whether they are in force; else all is as it was before.
    pub applied: bool,
    /// Why they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl SettingsOutcome {
    /// Settings are in force.
    pub fn applied(version: u64) -> SettingsOutcome {
        SettingsOutcome {
            settings: version,
            applied: true,
            reason: None,
        }
    }

    /// They are not, for a reason of which as much is told as a report holds.
    pub fn refused(version: u64, reason: &str) -> SettingsOutcome {
        let printable = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut told = String::new();
        for c in printable {
            if told.len() + c.len_utf8() > MAX_REASON_BYTES {
                break;
            }
            told.push(c);
        }
        SettingsOutcome {
            settings: version,
            applied: false,
            reason: Some(told).filter(|told| !told.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_a_report_whatever_it_says() {
        let long = SettingsOutcome::refused(1, &"ä\n".repeat(2_000));
        let reason = long.reason.expect("it has one");
        assert!(reason.len() <= MAX_REASON_BYTES && reason.len() > 990);
        assert!(!reason.contains(char::is_control));
        assert_eq!(SettingsOutcome::refused(1, "").reason, None);
    }
}
