//! Log lines that come with connections, limited in their rate: thousands of
//! connections in a second must not drown all other lines.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Lines of one kind in one window.
const LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// The limit of one kind of line. A window begins with the first line behind
/// the one before.
#[derive(Debug)]
pub struct LineLimit {
    what: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ends: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LineLimit {
    /// A limit for lines that tell of `what`.
    pub const fn new(what: &'static str) -> LineLimit {
        LineLimit {
            what,
            state: Mutex::new(State {
                ends: None,
                lines: 0,
                left_out: 0,
            }),
        }
    }

    /// Whether a line may be written now. How many were not is told at the end
    /// of the window.
    pub fn admits(&'static self) -> bool {
        let mut state = self.state.lock().unwrap();
        let now = Instant::now();
        let ends = state.ends.filter(|ends| now < *ends).unwrap_or_else(|| {
            state.lines = 0;
            now + WINDOW
        });
        state.ends = Some(ends);
        if state.lines < LINES {
            state.lines += 1;
            return true;
        }
        if state.left_out == 0 {
            tokio::spawn(self.tell(ends));
        }
        state.left_out += 1;
        false
    }

    async fn tell(&'static self, at: Instant) {
        sleep_until(at).await;
        let lines = self.take_left_out();
        tracing::info!(lines, of = self.what, "log lines left out");
    }

    fn take_left_out(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        std::mem::take(&mut state.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_a_hundred_lines_and_a_count() {
        static LIMIT: LineLimit = LineLimit::new("test");
        let admitted = |of: u32| (0..of).filter(|_| LIMIT.admits()).count();
        assert_eq!(admitted(5000), 100);
        assert_eq!(LIMIT.state.lock().unwrap().left_out, 4900);
        tokio::time::sleep(WINDOW - Duration::from_millis(1)).await;
        assert_eq!(admitted(100), 0);
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(LIMIT.state.lock().unwrap().left_out, 0);
        assert_eq!(admitted(30), 30);
        tokio::time::sleep(WINDOW).await;
        assert_eq!(admitted(101), 100);
    }
}
