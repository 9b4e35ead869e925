//! Reports of the outcome of a provider's settings.

use serde::{Deserialize, Serialize};

/// The longest reason, bytes.
pub const MAX_REASON_BYTES: usize = 1_000;

/// How far a node is with settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingsState {
    /// They are in force while the node checks whether it still hears the hub, or a hub its
    /// terminals.
    Trial,
    /// They are in force, and these are heard.
    Confirmed,
    /// The hub or terminals were not heard: the former settings are in force again.
    RolledBack,
    /// They have never been in force.
    Refused,
}

/// The outcome of settings that a node was sent; reported at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsOutcome {
    /// Their version.
    pub settings: u64,
    /// Whether they are in force; if not, nothing has changed.
    pub applied: bool,
    /// The node's state with them; nodes of earlier versions have no trial and do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<SettingsState>,
    /// Why they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl SettingsOutcome {
    /// Settings are in force, on trial.
    pub fn on_trial(version: u64) -> SettingsOutcome {
        SettingsOutcome::in_force(version, SettingsState::Trial)
    }

    /// Settings are in force for good.
    pub fn confirmed(version: u64) -> SettingsOutcome {
        SettingsOutcome::in_force(version, SettingsState::Confirmed)
    }

    /// They were refused; the reason is cut to the length that a report holds.
    pub fn refused(version: u64, reason: &str) -> SettingsOutcome {
        SettingsOutcome::not_in_force(version, SettingsState::Refused, reason)
    }

    /// They are no longer in force; the reason is cut in the same way.
    pub fn rolled_back(version: u64, reason: &str) -> SettingsOutcome {
        SettingsOutcome::not_in_force(version, SettingsState::RolledBack, reason)
    }

    fn in_force(version: u64, state: SettingsState) -> SettingsOutcome {
        SettingsOutcome {
            settings: version,
            applied: true,
            state: Some(state),
            reason: None,
        }
    }

    fn not_in_force(version: u64, state: SettingsState, reason: &str) -> SettingsOutcome {
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
            state: Some(state),
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
