//! Programs that bring a path up and release it, such as a modem's. The helper gets them at its
//! start, so a request can only name a path.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// How often a program is checked for its end.
const GLANCE: Duration = Duration::from_millis(20);

/// The programs of one path; an empty one is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCommands {
    /// Program and arguments that bring it up.
    pub raise: Vec<String>,
    /// Program and arguments that release it.
    pub release: Vec<String>,
    /// Each is ended when it takes longer, ms.
    pub within_ms: u64,
}

/// The outcome of a program: none while it runs, then success or the reason of its failure.
type Progress = Arc<Mutex<Option<Result<(), String>>>>;

/// The programs by their paths, and those that run.
#[derive(Debug, Default)]
pub struct Commands {
    known: BTreeMap<String, PathCommands>,
    running: BTreeMap<String, Progress>,
}

impl Commands {
    pub fn new(known: BTreeMap<String, PathCommands>) -> Commands {
        Commands {
            known,
            running: BTreeMap::new(),
        }
    }

    /// Begins to run a path's program; one at a time for each path.
    ///
    /// # Errors
    /// When there is none, it does not start, or the previous one still runs.
    pub fn begin(&mut self, path: &str, raise: bool) -> Result<(), String> {
        let commands = self.known.get(path);
        let commands = commands.ok_or_else(|| format!("path {path:?} has no programs"))?;
        let words = match raise {
            true => &commands.raise,
            false => &commands.release,
        };
        let (program, arguments) = words
            .split_first()
            .ok_or_else(|| format!("path {path:?} has no program for that"))?;
        if self.running.contains_key(path) {
            return Err(format!("a program of path {path:?} runs already"));
        }
        let child = Command::new(program)
            .args(arguments)
            .env("UNDERPASS_PATH", path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{program} does not start: {error}"))?;
        let until = Instant::now() + Duration::from_millis(commands.within_ms);
        let progress = Progress::default();
        self.running.insert(path.to_owned(), progress.clone());
        let program = program.clone();
        thread::spawn(move || {
            let ended = watch(child, until).map_err(|reason| format!("{program} {reason}"));
            *progress.lock().unwrap() = Some(ended);
        });
        Ok(())
    }

    /// The outcome of a path's program; none while it runs.
    pub fn ended(&mut self, path: &str) -> Option<Result<(), String>> {
        let Some(progress) = self.running.get(path) else {
            return Some(Err(format!("no program of path {path:?} runs")));
        };
        let ended = progress.lock().unwrap().take()?;
        self.running.remove(path);
        Some(ended)
    }
}

/// Waits for a program. When its time is over, ends it and all that it has started.
fn watch(mut child: Child, until: Instant) -> Result<(), String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("has failed: {status}")),
            Ok(None) => {}
            Err(error) => return Err(format!("cannot be waited for: {error}")),
        }
        if Instant::now() >= until {
            let group = i32::try_from(child.id()).map(Pid::from_raw);
            if let Ok(group) = group {
                let _ = killpg(group, Signal::SIGKILL);
            }
            let _ = child.wait();
            return Err("took too long, and was ended".to_owned());
        }
        thread::sleep(GLANCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(raise: &[&str], within_ms: u64) -> Commands {
        let of_path = PathCommands {
            raise: raise.iter().map(|word| (*word).to_owned()).collect(),
            release: Vec::new(),
            within_ms,
        };
        Commands::new(BTreeMap::from([("sat".to_owned(), of_path)]))
    }

    fn outcome(commands: &mut Commands) -> Result<(), String> {
        loop {
            match commands.ended("sat") {
                Some(ended) => return ended,
                None => thread::sleep(GLANCE),
            }
        }
    }

    #[test]
    fn a_program_ends_well_or_its_failure_is_told() {
        let mut good = commands(&["/bin/sh", "-c", "test \"$UNDERPASS_PATH\" = sat"], 60_000);
        assert_eq!(good.begin("sat", true), Ok(()));
        let twice = good.begin("sat", true);
        assert!(twice.is_err_and(|reason| reason.contains("runs already")));
        assert_eq!(outcome(&mut good), Ok(()));
        // The command may run again.
        assert_eq!(good.begin("sat", true), Ok(()));
        assert_eq!(outcome(&mut good), Ok(()));

        let mut bad = commands(&["/bin/sh", "-c", "exit 7"], 60_000);
        assert_eq!(bad.begin("sat", true), Ok(()));
        assert!(outcome(&mut bad).is_err_and(|reason| reason.contains("7")));
        let mut none = commands(&["/nonexistent"], 60_000);
        assert!(none.begin("sat", true).is_err());
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_children() {
        let mut slow = commands(&["/bin/sh", "-c", "sleep 600 & sleep 600"], 100);
        assert_eq!(slow.begin("sat", true), Ok(()));
        assert!(outcome(&mut slow).is_err_and(|reason| reason.contains("too long")));
    }

    #[test]
    fn only_what_is_configured_can_be_run() {
        let mut some = commands(&["/bin/true"], 1_000);
        assert!(some.begin("lte", true).is_err());
        assert!(some.begin("sat", false).is_err());
        assert!(some.ended("sat").is_some_and(|ended| ended.is_err()));
    }
}
