//! HTTP store-and-forward.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use underpass_deferred::{Limits, Settings};
use underpass_edge::http::deferred::Patience;

use super::bounds::{MOST_BYTES, TEN_YEARS_S, check_within};

/// `[deferred]`: requests that wait on a disk for the link and the origin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeferredConfig {
    /// Take requests with `Prefer: respond-async`, and send those of peers to
    /// their origins. Without it the preference is ignored. Default true.
    pub enabled: bool,
    /// The database file. Default: `deferred.sqlite` in `node.state_dir`.
    pub file: Option<PathBuf>,
    /// Largest request, head included, bytes. Default 64 MiB.
    pub max_request_bytes: u64,
    /// Largest response, head included, bytes. Default 64 MiB.
    pub max_response_bytes: u64,
    /// Bytes kept in all; requests are taken up to half of it. Default 1 GiB.
    pub quota_bytes: u64,
    /// Requests known at once, of clients here and of peers each.
    /// Default 10,000.
    pub max_requests: usize,
    /// Bytes of a bundle's payload, 1,024 to 262,144. Default 16 KiB.
    pub part_bytes: u32,
    /// For how long a request may wait for its answer, s. Default one day.
    pub lifetime_s: u64,
    /// For how long an ended request and its response are kept, s. Default
    /// one week.
    pub keep_s: u64,
    /// For how long they are kept once the response has been fetched, s.
    /// Default one hour.
    pub keep_fetched_s: u64,
    /// For how long an origin may be silent, s. Default 300.
    pub response_timeout_s: u64,
    /// For how long an exchange with an origin may last in all, s. Default one
    /// hour.
    pub exchange_timeout_s: u64,
    /// Requests of one peer that are sent to origins at once. Default 16.
    pub max_exchanges: usize,
}

impl Default for DeferredConfig {
    fn default() -> Self {
        DeferredConfig {
            enabled: true,
            file: None,
            max_request_bytes: 64 << 20,
            max_response_bytes: 64 << 20,
            quota_bytes: 1 << 30,
            max_requests: 10_000,
            part_bytes: 16 << 10,
            lifetime_s: 24 * 3600,
            keep_s: 7 * 24 * 3600,
            keep_fetched_s: 3600,
            response_timeout_s: 300,
            exchange_timeout_s: 3600,
            max_exchanges: 16,
        }
    }
}

impl DeferredConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        let largest = self.max_request_bytes.max(self.max_response_bytes);
        // Half of the quota has to hold the largest request.
        if self.quota_bytes / 2 < largest {
            problems.push(
                "deferred.quota_bytes: must be twice the largest request and response".to_owned(),
            );
        }
        for (key, value, bounds) in [
            ("quota_bytes", self.quota_bytes, 1..=MOST_BYTES),
            ("max_request_bytes", self.max_request_bytes, 1..=MOST_BYTES),
            (
                "max_response_bytes",
                self.max_response_bytes,
                1..=MOST_BYTES,
            ),
            ("max_requests", self.max_requests as u64, 1..=100_000_000),
            ("part_bytes", self.part_bytes.into(), 1 << 10..=256 << 10),
            ("lifetime_s", self.lifetime_s, 1..=TEN_YEARS_S),
            ("keep_s", self.keep_s, 0..=TEN_YEARS_S),
            ("keep_fetched_s", self.keep_fetched_s, 0..=TEN_YEARS_S),
            ("response_timeout_s", self.response_timeout_s, 1..=86_400),
            ("exchange_timeout_s", self.exchange_timeout_s, 1..=86_400),
            ("max_exchanges", self.max_exchanges as u64, 1..=65_536),
        ] {
            check_within(&format!("deferred.{key}"), value, bounds, problems);
        }
    }

    /// How long an origin is waited for.
    pub fn patience(&self) -> Patience {
        Patience {
            silence: Duration::from_secs(self.response_timeout_s),
            whole: Duration::from_secs(self.exchange_timeout_s),
        }
    }

    /// What the store is opened with.
    pub fn settings(&self, state_dir: &Path) -> Settings {
        let file = self.file.clone();
        let ms = |seconds: u64| 1_000 * seconds;
        Settings {
            path: file.unwrap_or_else(|| state_dir.join("deferred.sqlite")),
            limits: Limits {
                request_bytes: self.max_request_bytes,
                response_bytes: self.max_response_bytes,
                quota_bytes: self.quota_bytes,
                requests: self.max_requests,
                part_bytes: self.part_bytes,
                lifetime_ms: ms(self.lifetime_s),
                keep_ms: ms(self.keep_s),
                keep_fetched_ms: ms(self.keep_fetched_s),
                exchanges: self.max_exchanges,
            },
        }
    }
}
