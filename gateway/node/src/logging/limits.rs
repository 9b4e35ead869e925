//! Limits the rate of log lines. Others can cause some lines as often as they like, such as
//! strangers who connect; these must neither hide other lines nor fill the disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

/// Lines of one kind in one window.
const LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Counts the lines of each kind: a kind is a place in the program that writes lines.
#[derive(Debug, Default)]
pub struct Limits(Mutex<HashMap<Identifier, Lines>>);

#[derive(Debug)]
struct Lines {
    /// When the window began.
    since: Instant,
    written: u32,
    left_out: u64,
    of: &'static str,
}

/// Lets a layer write as many lines as the limits allow. Other lines are not even formatted.
pub(super) struct Limiter(pub Arc<Limits>);

impl<S> Filter<S> for Limiter {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.0.admits(event.metadata())
    }
}

impl Limits {
    /// Whether a line may be written. Lines below INFO are always written: whoever configures such
    /// a level wants all of them.
    fn admits(&self, line: &Metadata<'_>) -> bool {
        self.admits_at(line, Instant::now())
    }

    fn admits_at(&self, line: &Metadata<'_>, now: Instant) -> bool {
        if *line.level() > Level::INFO {
            return true;
        }
        let mut kinds = self.0.lock().unwrap();
        let lines = kinds.entry(line.callsite()).or_insert(Lines {
            since: now,
            written: 0,
            left_out: 0,
            of: line.name(),
        });
        if now.saturating_duration_since(lines.since) >= WINDOW {
            lines.since = now;
            lines.written = 0;
        }
        if lines.written < LINES {
            lines.written += 1;
            return true;
        }
        lines.left_out += 1;
        false
    }

    /// Tells for ever what was left out.
    pub async fn tell(self: Arc<Self>) {
        loop {
            tokio::time::sleep(WINDOW).await;
            for (lines, of) in self.take_left_out() {
                tracing::info!(lines, of, "log lines left out");
            }
        }
    }

    fn take_left_out(&self) -> Vec<(u64, &'static str)> {
        let mut kinds = self.0.lock().unwrap();
        let left_out = kinds.values_mut().filter(|lines| lines.left_out > 0);
        left_out
            .map(|lines| (std::mem::take(&mut lines.left_out), lines.of))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tracing_subscriber::fmt::writer::MakeWriterExt;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::{Layer, registry};

    use super::super::Excerpt;
    use super::*;

    /// The lines that are written while `work` runs.
    fn written(limits: &Arc<Limits>, now: Instant, work: impl FnOnce()) -> Vec<String> {
        let excerpt = Arc::new(Excerpt::default());
        let limits = limits.clone();
        let admits = move |line: &Metadata<'_>| limits.admits_at(line, now);
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .with_writer(excerpt.clone().with_filter(admits));
        tracing::subscriber::with_default(subscriber.finish(), work);
        excerpt.from(0).lines
    }

    fn contacts_fail(times: u32) {
        for number in 0..times {
            tracing::warn!(number, "contact failed");
        }
    }

    #[test]
    fn what_is_repeated_is_left_out_and_told_and_all_else_is_written() {
        let limits = Arc::new(Limits::default());
        let now = Instant::now();
        let lines = written(&limits, now, || {
            contacts_fail(250);
            tracing::info!("link up");
        });
        assert_eq!(lines.len(), 101);
        assert!(lines[100].ends_with("link up"), "{lines:?}");
        let left_out = limits.take_left_out();
        assert!(
            matches!(left_out[..], [(150, of)] if of.contains("limits.rs")),
            "{left_out:?}"
        );
        assert!(limits.take_left_out().is_empty(), "it is told once");
        let lines = written(&limits, now + WINDOW, || contacts_fail(100));
        assert_eq!(lines.len(), 100);
    }

    /// Counts how often it is formatted.
    struct Counted<'a>(&'a AtomicU32);

    impl fmt::Display for Counted<'_> {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn lines_that_are_left_out_are_not_made() {
        let made = AtomicU32::new(0);
        let lines = tracing_subscriber::fmt::layer().with_writer(Arc::new(Excerpt::default()));
        let lines = lines.with_filter(Limiter(Arc::default()));
        tracing::subscriber::with_default(registry().with(lines), || {
            for _ in 0..250 {
                tracing::warn!(error = %Counted(&made), "contact failed");
            }
        });
        assert_eq!(made.into_inner(), LINES);
    }

    #[test]
    fn what_only_a_debugger_sees_is_not_limited() {
        let limits = Arc::new(Limits::default());
        let lines = written(&limits, Instant::now(), || {
            for number in 0..250 {
                tracing::debug!(number, "bundle passed on");
            }
        });
        assert_eq!(lines.len(), 250);
    }
}
