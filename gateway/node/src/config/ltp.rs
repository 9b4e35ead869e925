//! Bounds of LTP (RFC 5326).

use std::time::Duration;

use serde::Deserialize;
use underpass_bare::LtpLimits;

use super::Config;
use super::bounds::check_within;

/// How many neighbours may have the maximum beyond their own part at once.
const COMMON_PARTS: u64 = 2;

/// `[ltp]`: what each neighbour over LTP may take of this node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LtpConfig {
    /// Blocks under way to a neighbour, and as many from it. Default 1024.
    pub sessions: usize,
    /// Memory for blocks from a neighbour until they are taken, bytes. Up to twice the largest
    /// bundle there is more, from what all neighbours over LTP have in common.
    /// Default 67108864.
    pub receive_bytes: usize,
    /// How often a segment is sent again without an answer before its block is
    /// cancelled; time in blockages does not count. Default 20.
    pub tries: u32,
    /// How many times its length a block is sent again in all, and one on the disk read
    /// again. Default 20.
    pub cycles: u64,
    /// Gaps in one block from a neighbour. Default 4096.
    pub gaps: usize,
    /// Claims of one report, if a segment has room for them; further ones go in
    /// further reports. Default 64.
    pub report_claims: usize,
    /// Reports on one block. Default 1024.
    pub reports: usize,
    /// How long a block from a neighbour may stand still, s; time in blockages
    /// does not count. Default 600.
    pub idle_s: u64,
}

impl Default for LtpConfig {
    fn default() -> Self {
        let limits = LtpLimits::default();
        LtpConfig {
            sessions: limits.sessions,
            receive_bytes: limits.receive_bytes,
            tries: limits.tries,
            cycles: limits.cycles,
            gaps: limits.gaps,
            report_claims: limits.claims,
            reports: limits.reports,
            idle_s: limits.idle.as_secs(),
        }
    }
}

impl LtpConfig {
    /// The bounds for one neighbour.
    pub fn limits(&self) -> LtpLimits {
        LtpLimits {
            sessions: self.sessions,
            receive_bytes: self.receive_bytes,
            tries: self.tries,
            cycles: self.cycles,
            gaps: self.gaps,
            claims: self.report_claims,
            reports: self.reports,
            idle: Duration::from_secs(self.idle_s),
        }
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        for (key, value, least, most) in [
            ("sessions", self.sessions as u64, 1, 65_536),
            ("receive_bytes", self.receive_bytes as u64, 1 << 20, 1 << 34),
            ("tries", u64::from(self.tries), 1, 1_000),
            ("cycles", self.cycles, 1, 1_000),
            ("gaps", self.gaps as u64, 1, 1 << 20),
            ("report_claims", self.report_claims as u64, 1, 8_192),
            ("reports", self.reports as u64, 1, 1 << 20),
            ("idle_s", self.idle_s, 1, 2_000_000),
        ] {
            check_within(&format!("ltp.{key}"), value, least..=most, problems);
        }
    }
}

impl Config {
    /// Memory for incoming blocks that all neighbours over LTP share, beyond what each has for
    /// itself, bytes.
    pub fn ltp_common_bytes(&self) -> usize {
        let most = self.whole_mru_bytes().saturating_mul(2);
        let beyond = most.saturating_sub(self.ltp.receive_bytes as u64);
        usize::try_from(beyond.saturating_mul(COMMON_PARTS)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::relay_with;

    #[test]
    fn what_is_written_bounds_a_neighbour_and_the_rest_has_its_default() {
        let config: LtpConfig = toml::from_str("sessions = 7\nidle_s = 30").unwrap();
        let expected = LtpLimits {
            sessions: 7,
            idle: Duration::from_secs(30),
            ..LtpLimits::default()
        };
        assert_eq!(config.limits(), expected);
        let mut problems = Vec::new();
        config.check(&mut problems);
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn what_neighbours_have_in_common_is_beyond_their_own_parts() {
        let common_bytes = |receive_bytes: u64| {
            let ltp = format!("[ltp]\nreceive_bytes = {receive_bytes}");
            relay_with(&format!("[custody]\nquota_bytes = 1_073_741_824\n{ltp}")).ltp_common_bytes()
        };
        // Twice the largest bundle is 512 MiB.
        assert_eq!(common_bytes(64 << 20), 2 * (448 << 20));
        assert_eq!(common_bytes(512 << 20), 0);
        assert_eq!(common_bytes(1 << 30), 0);
    }

    #[test]
    fn bounds_that_let_nothing_through_or_everything_are_told() {
        let text = "sessions = 0\nreceive_bytes = 1\ntries = 0\ncycles = 0\ngaps = 0\n\
                    report_claims = 0\nreports = 2_000_000\nidle_s = 0";
        let config: LtpConfig = toml::from_str(text).unwrap();
        let mut problems = Vec::new();
        config.check(&mut problems);
        assert_eq!(problems.len(), 8, "{problems:?}");
        assert_eq!(problems[0], "ltp.sessions = 0: must be 1 to 65536");
    }
}
