//! The last lines of the log, for users who can reach it only by the local API.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard};

use serde::Serialize;

/// Lines that are kept.
pub const MOST_LINES: usize = 400;
/// Most bytes of a line that are kept: a line that quotes a peer may be long.
pub const MOST_LINE_BYTES: usize = 1_000;

/// The last lines of the log; older ones are forgotten. The log contains no secrets, so these lines
/// contain none either.
#[derive(Debug, Default)]
pub struct Excerpt {
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    /// The number of the line that comes next.
    next: u64,
    kept: VecDeque<String>,
}

/// Lines of the log in their order.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The number of the first of them, or of the one that comes next.
    pub first: u64,
    /// The number of the line that comes next.
    pub next: u64,
    pub lines: Vec<String>,
}

impl Excerpt {
    /// The lines that are kept, from number `from` on. If that number is too high, because
    /// numbering began again with this process, all lines.
    pub fn from(&self, from: u64) -> Part {
        let lines = self.lock();
        let oldest = lines.next - lines.kept.len() as u64;
        let first = match from > lines.next {
            true => oldest,
            false => from.max(oldest),
        };
        let skipped = usize::try_from(first - oldest).unwrap_or(usize::MAX);
        Part {
            first,
            next: lines.next,
            lines: lines.kept.iter().skip(skipped).cloned().collect(),
        }
    }

    fn take(&self, line: &[u8]) {
        let cut = line.get(..MOST_LINE_BYTES).unwrap_or(line);
        let mut text = String::from_utf8_lossy(cut).trim_end().to_owned();
        if cut.len() < line.len() {
            text.push('…');
        }
        let mut lines = self.lock();
        if lines.kept.len() == MOST_LINES {
            lines.kept.pop_front();
        }
        lines.kept.push_back(text);
        lines.next += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap()
    }
}

/// Each write is one line, as the log writes them.
impl io::Write for &Excerpt {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.take(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use tracing_subscriber::fmt::writer::MakeWriterExt;

    use super::*;

    fn excerpt(lines: usize) -> Excerpt {
        let excerpt = Excerpt::default();
        for line in 0..lines {
            writeln_one(&excerpt, &format!("line {line}\n"));
        }
        excerpt
    }

    fn writeln_one(mut excerpt: &Excerpt, line: &str) {
        excerpt.write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn who_asks_again_gets_what_has_come_since() {
        let excerpt = excerpt(3);
        let part = excerpt.from(0);
        assert_eq!(part.lines, ["line 0", "line 1", "line 2"]);
        assert_eq!((part.first, part.next), (0, 3));
        assert_eq!(excerpt.from(part.next).lines, Vec::<String>::new());
        writeln_one(&excerpt, "line 3\n");
        assert_eq!(excerpt.from(part.next).lines, ["line 3"]);
    }

    #[test]
    fn memory_is_bounded_in_lines_and_in_bytes() {
        let excerpt = excerpt(MOST_LINES + 5);
        let part = excerpt.from(0);
        assert_eq!(part.lines.len(), MOST_LINES);
        assert_eq!(part.first, 5);
        // Cut within a character.
        writeln_one(
            &excerpt,
            &format!("{}ä{}", "x".repeat(MOST_LINE_BYTES - 1), "y".repeat(10)),
        );
        let last = excerpt.from(part.next).lines.remove(0);
        assert!(last.chars().count() <= MOST_LINE_BYTES + 1, "{last}");
        assert!(last.ends_with('…') && !last.contains('y'), "{last}");
    }

    #[test]
    fn who_has_seen_another_run_gets_all() {
        assert_eq!(excerpt(2).from(1_000).lines, ["line 0", "line 1"]);
    }

    #[test]
    fn each_line_of_the_log_is_one() {
        let excerpt = Arc::new(Excerpt::default());
        let log = io::sink.and(excerpt.clone());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log);
        tracing::subscriber::with_default(subscriber.finish(), || {
            tracing::info!(path = "sat", "link up");
            tracing::warn!("of a peer: {}", "two\nlines \x1b[31m");
        });
        let part = excerpt.from(0);
        assert_eq!(part.lines.len(), 2, "{part:?}");
        assert!(part.lines[0].ends_with("link up path=\"sat\""), "{part:?}");
        assert!(!part.lines[1].contains('\x1b'), "{part:?}");
    }
}
