//! A terminal saves its plans, since after a restart in a blockage it gets none.
//!
//! Saved plans can be used only if control's time is known. If the machine has not booted since the
//! former process, its monotonic clock gives it. After a boot only the time of day is left, which
//! is used if it was right before.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Notify;
use underpass_plans::{MAX_MESSAGE_BYTES, Plan};

use super::Plans;
use crate::clock::{self, ControlClock};
use crate::state_files;

/// The version of the file's format.
const VERSION: u64 = 1;

/// A larger file was not written by this code: there is one plan for each path of a terminal.
const MAX_FILE_BYTES: u64 = 16 * MAX_MESSAGE_BYTES as u64;

/// Plans that come in quick succession share one write.
const PAUSE: Duration = Duration::from_secs(1);

/// A time of day that differs from control's by at most this counts as right,
/// ms.
const RIGHT_MS: u64 = 2_000;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

pub struct SavedPlans {
    file: PathBuf,
    plans: Mutex<BTreeMap<String, Arc<Plan>>>,
    changed: Notify,
}

#[derive(Serialize, Deserialize)]
struct PlanFile {
    version: u64,
    /// The machine's boot, and the time since then when control's was known.
    boot_id: String,
    since_boot_ms: u64,
    control_ms: u64,
    /// The time of day minus control's.
    offset_ms: Option<i64>,
    plans: Vec<PathPlan>,
}

#[derive(Serialize, Deserialize)]
struct PathPlan {
    path: String,
    plan: Value,
}

impl SavedPlans {
    /// Saves plans in the node's state folder.
    pub fn new(state_dir: &Path) -> SavedPlans {
        SavedPlans {
            file: state_dir.join("plans.json"),
            plans: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Sets a path's newest plan.
    pub fn insert(&self, path: &str, plan: Arc<Plan>) {
        self.plans().insert(path.to_owned(), plan);
        self.changed.notify_one();
    }

    fn plans(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Plan>>> {
        self.plans.lock().unwrap()
    }

    /// What is to be written at present; nothing while the time is not known.
    fn contents(&self, clock: &ControlClock) -> Option<Vec<u8>> {
        let plans = self.plans();
        let of_paths = plans.iter().filter_map(|(path, plan)| {
            let plan = serde_json::from_slice(&plan.encode()).ok()?;
            let path = path.clone();
            Some(PathPlan { path, plan })
        });
        let content = PlanFile {
            version: VERSION,
            boot_id: boot_id()?,
            since_boot_ms: clock::since_boot_ms()?,
            control_ms: clock.now_ms()?,
            offset_ms: clock.offset_ms(),
            plans: of_paths.collect(),
        };
        serde_json::to_vec(&content).ok()
    }
}

/// Writes plans to the disk as they change until dropped.
pub async fn run(plans: Arc<Plans>) {
    let Some(saved) = &plans.saved else { return };
    loop {
        saved.changed.notified().await;
        if let Some(contents) = saved.contents(&plans.clock) {
            let file = saved.file.clone();
            let written = tokio::task::spawn_blocking(move || write(&file, &contents)).await;
            if let Ok(Err(error)) = written {
                let file = saved.file.display();
                tracing::warn!(%file, %error, "a plan would not survive a restart");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The plan must survive a kill of the process, for the next one. If a loss of power destroys it,
/// it is sent again.
fn write(file: &Path, contents: &[u8]) -> io::Result<()> {
    let fresh = file.with_extension("new");
    std::fs::File::create(&fresh)?.write_all(contents)?;
    std::fs::rename(&fresh, file)
}

impl Plans {
    /// Follows the plans that were saved.
    pub(in crate::run) fn restore(&self) {
        let Some(saved) = &self.saved else { return };
        match read(&saved.file) {
            Ok(Some(content)) => self.take_up(&content),
            Ok(None) => {}
            Err(error) => {
                let file = saved.file.display();
                tracing::warn!(%file, %error, "the plans saved there are not followed");
            }
        }
    }

    fn take_up(&self, content: &PlanFile) {
        let since_boot_ms = clock::since_boot_ms();
        let Some(control_ms) = content.control_now(boot_id(), since_boot_ms, clock::utc_ms())
        else {
            tracing::info!("plans of before the boot are not followed: the time is not known");
            return;
        };
        self.clock.heard(Instant::now(), control_ms);
        self.shell.tell_time(&self.clock);
        for PathPlan { path, plan } in &content.plans {
            let hop = self.shell.hop_named(path);
            let plan = Plan::decode(plan.to_string().as_bytes());
            let (Some(hop), Ok(plan), Some(saved)) = (hop, plan, &self.saved) else {
                continue;
            };
            let plan = Arc::new(plan);
            let taken = self.shell.with_hop(hop, |engine, now| {
                engine.follow_return(now, hop, plan.clone())
            });
            let version = plan.version();
            match taken {
                Ok(()) => {
                    saved.insert(path, plan);
                    tracing::info!(path, version, "plan of the former run taken up");
                }
                Err(error) => tracing::info!(path, version, %error, "plan not followed"),
            }
        }
    }
}

impl PlanFile {
    /// Control's time now, if that can be known.
    fn control_now(
        &self,
        boot_id: Option<String>,
        since_boot_ms: Option<u64>,
        utc_ms: Option<u64>,
    ) -> Option<u64> {
        if boot_id.as_deref() == Some(&self.boot_id) {
            let passed = since_boot_ms?.checked_sub(self.since_boot_ms)?;
            return self.control_ms.checked_add(passed);
        }
        let offset_ms = self.offset_ms.filter(|ms| ms.unsigned_abs() <= RIGHT_MS)?;
        utc_ms?.checked_add_signed(-offset_ms)
    }
}

fn read(file: &Path) -> io::Result<Option<PlanFile>> {
    match state_files::read(file, MAX_FILE_BYTES)? {
        Some(PlanFile { version, .. }) if version != VERSION => {
            Err(io::Error::other(format!("it is of version {version}")))
        }
        content => Ok(content),
    }
}

fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string(BOOT_ID).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with(offset_ms: Option<i64>) -> PlanFile {
        PlanFile {
            version: VERSION,
            boot_id: "this".to_owned(),
            since_boot_ms: 5_000,
            control_ms: 1_800_000_000_000,
            offset_ms,
            plans: vec![],
        }
    }

    #[test]
    fn within_a_boot_control_time_runs_on_whatever_the_time_of_day() {
        let content = file_with(None);
        let now = content.control_now(Some("this".into()), Some(7_500), Some(42));
        assert_eq!(now, Some(1_800_000_002_500));
        assert_eq!(
            content.control_now(Some("this".into()), Some(1), None),
            None
        );
    }

    #[test]
    fn after_a_boot_the_time_of_day_counts_if_it_was_right() {
        let at = |file: PlanFile, utc_ms| file.control_now(Some("that".into()), Some(9), utc_ms);
        assert_eq!(at(file_with(Some(-300)), Some(1_000)), Some(1_300));
        assert_eq!(at(file_with(Some(-300)), None), None);
        assert_eq!(at(file_with(Some(3_000)), Some(1_000)), None);
        assert_eq!(at(file_with(None), Some(1_000)), None);
    }

    #[test]
    fn what_was_written_is_read_and_anything_else_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plans.json");
        assert!(read(&file).unwrap().is_none());
        let mut content = file_with(Some(7));
        write(&file, &serde_json::to_vec(&content).unwrap()).unwrap();
        assert_eq!(read(&file).unwrap().unwrap().offset_ms, Some(7));
        content.version = 2;
        write(&file, &serde_json::to_vec(&content).unwrap()).unwrap();
        assert!(read(&file).is_err());
        write(&file, b"{").unwrap();
        assert!(read(&file).is_err());
    }
}
