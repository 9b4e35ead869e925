//! Keeps the measurements of the links over restarts.
//!
//! A node without configured figures of a hop begins with those that its last run measured. If they
//! are too high by now, the estimator detects that within a round trip, and the excess is drained.
//! If the first round trip shows another path, they are not used. `docs/conformance.md` compares
//! this with RFC 9959.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::config::{Config, KnownLink, RATES_BPS, RTTS_MS};
use crate::shell::Shell;
use crate::state_files;

const FILE: &str = "links.json";
/// A file of more is not one of this node.
const MOST_BYTES: u64 = 4 << 20;
/// How often the file is written, if its content has changed.
const WRITTEN_EVERY: Duration = Duration::from_secs(30);
/// Changes smaller than this fraction are not written.
const NOTICED: f64 = 0.01;

/// Of one hop, as it is in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    capacity_bps: Option<u64>,
    base_rtt_ms: Option<f64>,
    /// The same for small amounts, which do not wait for access.
    path_rtt_ms: Option<f64>,
}

/// What is in the file: hops by their names.
type Links = BTreeMap<String, Kept>;

#[derive(Debug)]
pub struct KnownLinks {
    file: PathBuf,
}

impl KnownLinks {
    /// Of a node with this state folder.
    pub fn new(state_dir: &Path) -> KnownLinks {
        KnownLinks {
            file: state_dir.join(FILE),
        }
    }

    /// Adds to a configuration what earlier runs have measured.
    pub fn tell(&self, config: &mut Config) {
        let links = self.read();
        let of = |name: &str| links.get(name).copied().unwrap_or_default().usable();
        for path in &mut config.paths {
            path.known = of(&path.name);
        }
        for terminal in &mut config.terminals {
            terminal.known = of(&terminal.name());
            let names: Vec<String> = terminal.other_hops().map(|hop| hop.name).collect();
            for (path, name) in terminal.paths.iter_mut().zip(names) {
                path.known = of(&name);
            }
        }
    }

    /// Saves what is measured from now on. Runs until dropped.
    pub async fn save_regularly(self: Arc<Self>, shell: Arc<Shell>) {
        loop {
            tokio::time::sleep(WRITTEN_EVERY).await;
            let (known, shell) = (self.clone(), shell.clone());
            let _ = tokio::task::spawn_blocking(move || known.save(&shell)).await;
        }
    }

    /// Writes down what is known of the hops now.
    pub fn save(&self, shell: &Shell) {
        let measured = shell.of_each_hop(|_, hop| {
            let ms = |rtt: Duration| rtt.as_secs_f64() * 1e3;
            let kept = Kept {
                capacity_bps: hop.measured.capacity_bps,
                base_rtt_ms: hop.measured.base_rtt.map(ms),
                path_rtt_ms: hop.measured.path_rtt.map(ms),
            };
            (hop.name, kept)
        });
        if let Err(error) = self.keep(measured) {
            tracing::warn!(
                path = %self.file.display(), %error,
                "what the links carry is not kept for the next start"
            );
        }
    }

    /// A hop that was not measured in this run keeps its old figures.
    fn keep(&self, measured: impl IntoIterator<Item = (String, Kept)>) -> io::Result<()> {
        let before = self.read();
        let links: Links = measured
            .into_iter()
            .filter_map(|(name, now)| {
                let was = before.get(&name).copied();
                let kept = if now == Kept::default() { was? } else { now };
                Some((name, was.filter(|was| was.is_like(&kept)).unwrap_or(kept)))
            })
            .collect();
        if links == before {
            return Ok(());
        }
        state_files::replace(&self.file, &serde_json::to_vec_pretty(&links)?)
    }

    /// Without the file, or with one that is damaged, nothing is known.
    fn read(&self) -> Links {
        let size = fs::metadata(&self.file).map(|found| found.len());
        if size.is_ok_and(|bytes| bytes > MOST_BYTES) {
            tracing::warn!(path = %self.file.display(), "too large: what it says is not used");
            return Links::default();
        }
        let Ok(text) = fs::read(&self.file) else {
            return Links::default();
        };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(path = %self.file.display(), %error, "what it says is not used");
            Links::default()
        })
    }
}

impl Kept {
    /// What of it can be.
    fn usable(self) -> KnownLink {
        let rtt = |ms: Option<f64>| {
            let ms = ms.filter(|ms| ms.is_finite() && *ms > 0.0)?.ceil() as u64;
            RTTS_MS.contains(&ms).then_some(Duration::from_millis(ms))
        };
        KnownLink {
            capacity_bps: self.capacity_bps.filter(|bps| RATES_BPS.contains(bps)),
            rtt: rtt(self.base_rtt_ms),
            path_rtt: rtt(self.path_rtt_ms),
        }
    }

    fn is_like(&self, other: &Kept) -> bool {
        let alike = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => (one - other).abs() <= NOTICED * other.abs(),
            (one, other) => one.is_none() && other.is_none(),
        };
        let rate = |kept: &Kept| kept.capacity_bps.map(|bps| bps as f64);
        alike(rate(self), rate(other))
            && alike(self.base_rtt_ms, other.base_rtt_ms)
            && alike(self.path_rtt_ms, other.path_rtt_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link on which data waits for as long again as small amounts take.
    fn kept(capacity_bps: Option<u64>, base_rtt_ms: Option<f64>) -> Kept {
        Kept {
            capacity_bps,
            base_rtt_ms,
            path_rtt_ms: base_rtt_ms.map(|ms| ms / 2.0),
        }
    }

    fn known() -> (tempfile::TempDir, KnownLinks) {
        let folder = tempfile::tempdir().expect("a folder");
        let known = KnownLinks::new(folder.path());
        (folder, known)
    }

    #[test]
    fn what_was_measured_outlives_the_run_in_which_nothing_is() {
        let (_folder, known) = known();
        let measured = [
            ("geo".to_owned(), kept(Some(20_000_000), Some(561.5))),
            ("leo".to_owned(), kept(None, Some(40.0))),
        ];
        known.keep(measured).expect("written");
        let idle = ["geo", "leo", "new"].map(|name| (name.to_owned(), Kept::default()));
        known.keep(idle).expect("written");
        let links = known.read();
        assert_eq!(links.len(), 2);
        assert_eq!(
            links["geo"].usable(),
            KnownLink {
                capacity_bps: Some(20_000_000),
                rtt: Some(Duration::from_millis(562)),
                path_rtt: Some(Duration::from_millis(281)),
            }
        );
        // A path that is no longer configured is forgotten.
        known
            .keep([("leo".to_owned(), Kept::default())])
            .expect("written");
        assert_eq!(known.read().len(), 1);
    }

    /// Builds of before kept no round trip of small amounts.
    #[test]
    fn a_file_that_lacks_a_figure_is_used() {
        let (_folder, known) = known();
        let text = r#"{"geo": {"capacity_bps": 20000000, "base_rtt_ms": 561.5}}"#;
        fs::write(&known.file, text).expect("written");
        let geo = known.read()["geo"].usable();
        assert_eq!(geo.capacity_bps, Some(20_000_000));
        assert_eq!(geo.path_rtt, None);
    }

    #[test]
    fn small_changes_are_not_written_again() {
        let (_folder, known) = known();
        for (bps, expected) in [
            (1_000_000, 1_000_000),
            (1_008_000, 1_000_000),
            (1_100_000, 1_100_000),
        ] {
            known
                .keep([("geo".to_owned(), kept(Some(bps), None))])
                .expect("written");
            assert_eq!(known.read()["geo"].capacity_bps, Some(expected));
        }
    }

    #[test]
    fn nonsense_in_the_file_is_not_used() {
        let (_folder, known) = known();
        for text in [
            "",
            "{",
            "[]",
            r#"{"geo": 3}"#,
            r#"{"geo": {"capacity_bps": -1}}"#,
        ] {
            fs::write(&known.file, text).expect("written");
            assert_eq!(known.read(), Links::default(), "{text}");
        }
        fs::write(&known.file, vec![b' '; MOST_BYTES as usize + 1]).expect("written");
        assert_eq!(known.read(), Links::default());
        for (bps, ms) in [(0, 0.0), (1, -5.0), (u64::MAX, 1e300), (7_999, f64::NAN)] {
            assert_eq!(kept(Some(bps), Some(ms)).usable(), KnownLink::default());
        }
    }
}
