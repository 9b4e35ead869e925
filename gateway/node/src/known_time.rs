//! The time that certificates are judged by.
//!
//! A terminal may boot in 1970. The time is therefore the latest of three: the system's clock, GNSS
//! fixes of the last minutes, and the time that was saved in the state folder. If the kernel says
//! that the clock is synchronised, only that clock counts. The saved time runs on with the process.
//!
//! A clock or receiver that jumps far into the future counts only while it shows that time. The
//! saved time follows it by at most a day for each hour, and goes back when the clock is
//! synchronised. So a wrong hour moves the saved time by a day, which is less than the validity of
//! any certificate, and nobody is locked out.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use crate::clock;
use crate::state_files;

/// The file in the state folder: ms since the Unix epoch, as decimal digits.
const FILE: &str = "known-time";
/// How long a GNSS fix counts after it came.
const FIX_COUNTS: Duration = Duration::from_secs(600);
/// How many times faster than real time the saved time follows a source that may be wrong: a day
/// for each hour.
const CATCHES_UP: u64 = 24;
/// How often the saved time is written.
const WRITTEN_EVERY: Duration = Duration::from_secs(600);

/// What is known of the time, without a clock or file.
#[derive(Debug)]
struct Known {
    /// When the saved time was looked at last, and what it was, ms.
    saved: (Instant, u64),
    /// When the last GNSS fix came, and its time, ms.
    fix: Option<(Instant, u64)>,
}

impl Known {
    fn new(now: Instant, saved_ms: u64) -> Known {
        Known {
            saved: (now, saved_ms),
            fix: None,
        }
    }

    /// The time to judge by, ms, where the system's clock shows `system_ms`.
    fn judge(&mut self, now: Instant, system_ms: Option<u64>, synchronised: bool) -> u64 {
        let since = millis(now.saturating_duration_since(self.saved.0));
        let saved_ms = self.saved.1.saturating_add(since);
        let fix_ms = self.fix.and_then(|(at, ms)| {
            let age = now.saturating_duration_since(at);
            (age < FIX_COUNTS).then(|| ms.saturating_add(millis(age)))
        });
        let told = system_ms.into_iter().chain(fix_ms).max().unwrap_or(0);
        match system_ms.filter(|_| synchronised) {
            Some(system_ms) => {
                self.saved = (now, system_ms);
                system_ms
            }
            None => {
                let most = saved_ms.saturating_add(since.saturating_mul(CATCHES_UP));
                self.saved = (now, told.min(most).max(saved_ms));
                told.max(saved_ms)
            }
        }
    }

    /// A time that has certainly passed, ms: a signature proves it.
    fn not_before(&mut self, ms: u64) {
        self.saved.1 = self.saved.1.max(ms);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The time that certificates are judged by, over restarts.
#[derive(Debug)]
pub struct KnownTime {
    file: Option<PathBuf>,
    known: Mutex<Known>,
}

impl KnownTime {
    /// The time of a node with this state folder, if it is to be saved.
    pub fn load(state_dir: Option<&Path>) -> Arc<KnownTime> {
        let file = state_dir.map(|folder| folder.join(FILE));
        // Without the file, or with one that is damaged, nothing is known.
        let text = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let saved_ms = text.and_then(|text| text.trim().parse().ok());
        Arc::new(KnownTime {
            file,
            known: Mutex::new(Known::new(Instant::now(), saved_ms.unwrap_or(0))),
        })
    }

    /// The time to judge by.
    pub fn now(&self) -> SystemTime {
        let system_ms = clock::utc_ms();
        let ms = self
            .lock()
            .judge(Instant::now(), system_ms, clock::synchronised());
        UNIX_EPOCH + Duration::from_millis(ms)
    }

    /// A GNSS fix says that it is `ms` since the Unix epoch.
    pub fn heard_gnss(&self, ms: u64) {
        self.lock().fix = Some((Instant::now(), ms));
    }

    /// A certificate of the authority began then, so it is later by now.
    pub fn not_before(&self, time: SystemTime) {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.lock().not_before(millis(since));
    }

    /// Writes the time to its file from now on. Runs until dropped.
    pub async fn save_regularly(self: Arc<Self>) {
        loop {
            self.now();
            if let Err(error) = self.write() {
                tracing::warn!(%error, "the time is not saved for the next start");
            }
            tokio::time::sleep(WRITTEN_EVERY).await;
        }
    }

    fn write(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let saved_ms = self.lock().saved.1;
        state_files::replace(file, format!("{saved_ms}\n").as_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }
}

impl TimeProvider for KnownTime {
    fn current_time(&self) -> Option<UnixTime> {
        let since = self.now().duration_since(UNIX_EPOCH).ok()?;
        Some(UnixTime::since_unix_epoch(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const HOUR_MS: u64 = 3_600_000;
    const DAY_MS: u64 = 24 * HOUR_MS;
    /// Some time in 2026.
    const SAVED_MS: u64 = 1_795_000_000_000;

    #[test]
    fn a_node_without_a_clock_goes_on_from_the_kept_time() {
        let now = Instant::now();
        let mut known = Known::new(now, SAVED_MS);
        assert_eq!(known.judge(now, None, false), SAVED_MS);
        assert_eq!(known.judge(now + HOUR, None, false), SAVED_MS + HOUR_MS);
        // A clock that is behind does not change that either.
        assert_eq!(
            known.judge(now + HOUR, Some(SAVED_MS - DAY_MS), false),
            SAVED_MS + HOUR_MS
        );
    }

    #[test]
    fn the_latest_counts_and_fixes_only_while_they_are_new() {
        let now = Instant::now();
        let mut known = Known::new(now, SAVED_MS);
        known.fix = Some((now, SAVED_MS + 40 * DAY_MS));
        assert_eq!(
            known.judge(now, Some(SAVED_MS + DAY_MS), false),
            SAVED_MS + 40 * DAY_MS
        );
        let later = now + HOUR;
        assert_eq!(
            known.judge(later, Some(SAVED_MS + 50 * DAY_MS), false),
            SAVED_MS + 50 * DAY_MS
        );
        assert!(known.judge(later, None, false) < SAVED_MS + 2 * DAY_MS);
    }

    #[test]
    fn a_jump_to_the_far_future_costs_a_day_for_each_hour() {
        let now = Instant::now();
        let mut known = Known::new(now, SAVED_MS);
        let far = Some(SAVED_MS + 20_000 * DAY_MS);
        for minute in 1..=60 {
            known.judge(now + Duration::from_secs(60) * minute, far, false);
        }
        let after = known.judge(now + HOUR, Some(SAVED_MS + HOUR_MS), false);
        assert_eq!(after, SAVED_MS + HOUR_MS + DAY_MS);
        // A synchronised clock corrects it at once.
        let right = known.judge(now + HOUR, Some(SAVED_MS + HOUR_MS), true);
        assert_eq!(right, SAVED_MS + HOUR_MS);
        assert_eq!(known.judge(now + HOUR, None, false), SAVED_MS + HOUR_MS);
    }

    #[test]
    fn what_is_saved_outlives_the_process_and_a_damaged_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let time = KnownTime::load(Some(folder.path()));
        let ahead = SystemTime::now() + Duration::from_secs(3 * 86_400);
        time.not_before(ahead);
        time.write().unwrap();
        let again = KnownTime::load(Some(folder.path()));
        let saved = UNIX_EPOCH + Duration::from_millis(again.lock().saved.1);
        assert!(saved.duration_since(SystemTime::now()).unwrap() > Duration::from_secs(2 * 86_400));
        fs::write(folder.path().join(FILE), "x").unwrap();
        assert_eq!(KnownTime::load(Some(folder.path())).lock().saved.1, 0);
    }
}
