//! How a Rust test says that it cannot run here.
//!
//! `cargo test` shows nothing of a test that passes, and has no outcome
//! between passed and failed that is known only when the test runs. So what is
//! skipped is written to the file that `UNDERPASS_SKIPPED` names, which
//! `make test` shows at its end.
//!
//! What tests of several crates skip for want of is here, too.

pub mod recorded;

use std::env;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;

/// Names the file, one line for each skip.
pub const FILE: &str = "UNDERPASS_SKIPPED";

/// The calling test, or part of one, is skipped for this reason.
///
/// # Panics
/// If it cannot be told: nothing is skipped in silence.
#[track_caller]
pub fn because(reason: impl Display) {
    let place = Location::caller();
    let line = format!("SKIPPED {}:{}: {reason}\n", place.file(), place.line());
    print!("{line}");
    if let Some(file) = env::var_os(FILE) {
        let file = OpenOptions::new().create(true).append(true).open(file);
        // One write: other tests write at the same time.
        let told = file.and_then(|mut file| file.write_all(line.as_bytes()));
        told.expect("a file for what is skipped");
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_skipped_is_told_with_its_place() {
        // The environment is a process' own: this test again, as a child.
        if env::var_os("SKIPPED_CHILD").is_some() {
            return because("there is nothing to do");
        }
        let folder = env::temp_dir().join(format!("skipped-{}", std::process::id()));
        for _ in 0..2 {
            let own = env::current_exe().expect("this program");
            let status = Command::new(own)
                .arg("what_is_skipped_is_told_with_its_place")
                .env("SKIPPED_CHILD", "1")
                .env(FILE, &folder)
                .output()
                .expect("it runs")
                .status;
            assert!(status.success());
        }
        let told = std::fs::read_to_string(&folder).expect("the file");
        std::fs::remove_file(&folder).expect("it was there");
        assert_eq!(told.lines().count(), 2);
        let line = told.lines().next().expect("a line");
        assert!(
            line.starts_with("SKIPPED tests/skipped/src/lib.rs:"),
            "{line}"
        );
        assert!(line.ends_with(": there is nothing to do"), "{line}");
    }
}
