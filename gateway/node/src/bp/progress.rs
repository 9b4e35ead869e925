//! How far a long payload has come, on a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often it is shown.
const EVERY: Duration = Duration::from_millis(500);

/// A line on standard error, where that is a terminal.
pub struct Progress {
    what: &'static str,
    bytes: u64,
    begun: Instant,
    shown: Option<Instant>,
    on_terminal: bool,
}

impl Progress {
    pub fn new(what: &'static str, bytes: u64) -> Progress {
        Progress {
            what,
            bytes,
            begun: Instant::now(),
            shown: None,
            on_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Shows how many bytes are done, if it is time to.
    pub fn reached(&mut self, done: u64) {
        let now = Instant::now();
        let due = self.shown.is_none_or(|shown| now - shown >= EVERY);
        if self.on_terminal && due {
            self.shown = Some(now);
            let line = line(self.what, done, self.bytes, now - self.begun);
            let mut out = std::io::stderr().lock();
            // The transfer goes on even if the terminal is gone.
            let _ = write!(out, "\r\x1b[K{line}").and_then(|()| out.flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, bytes: u64, passed: Duration) -> String {
    let percent = (u128::from(done) * 100).checked_div(bytes.into());
    let percent = percent.unwrap_or(100);
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let (done_mb, all_mb) = (megabytes(done), megabytes(bytes));
    let left = match done {
        0 => String::new(),
        _ => {
            let left = passed.as_secs_f64() * bytes.saturating_sub(done) as f64 / done as f64;
            format!(", {left:.0} s left")
        }
    };
    format!("{what}: {done_mb} of {all_mb} MB ({percent} %){left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_by_the_rate_so_far() {
        let quarter = line("sent", 25_000_000, 100_000_000, Duration::from_secs(10));
        assert_eq!(quarter, "sent: 25 of 100 MB (25 %), 30 s left");
        let nothing = line("sent", 0, 100_000_000, Duration::from_secs(10));
        assert_eq!(nothing, "sent: 0 of 100 MB (0 %)");
    }
}
