//! Writes each event as one line, so that a peer's text in it cannot look like another event. JSON
//! events are single lines anyway.

use std::io;

use tracing_subscriber::fmt::MakeWriter;

/// Writes events, each in one write, without line breaks in them.
#[derive(Debug)]
pub struct OneLine<W>(pub W);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for OneLine<M> {
    type Writer = OneLine<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        OneLine(self.0.make_writer())
    }
}

impl<W: io::Write> io::Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.write_all(event)?;
        Ok(event.len())
    }

    fn write_all(&mut self, event: &[u8]) -> io::Result<()> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let is_break = |octet: &u8| matches!(octet, b'\n' | b'\r');
        if !text.iter().any(is_break) {
            return self.0.write_all(event);
        }
        let mut line = Vec::with_capacity(2 * event.len());
        for octet in text {
            match octet {
                b'\n' => line.extend_from_slice(b"\\n"),
                b'\r' => line.extend_from_slice(b"\\r"),
                other => line.push(*other),
            }
        }
        line.push(b'\n');
        self.0.write_all(&line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Excerpt;
    use super::*;

    #[test]
    fn what_a_peer_says_makes_no_lines_of_its_own() {
        let excerpt = Arc::new(Excerpt::default());
        let log = OneLine(excerpt.clone());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log);
        tracing::subscriber::with_default(subscriber.finish(), || {
            let said = "gone\r\n2026-01-01T00:00:00Z ERROR disk full\n";
            tracing::warn!(error = %said, "contact failed");
            tracing::info!("link up");
        });
        let lines = excerpt.from(0).lines;
        assert_eq!(lines.len(), 2, "{lines:?}");
        let told = r"contact failed error=gone\r\n2026-01-01T00:00:00Z ERROR disk full\n";
        assert!(lines[0].ends_with(told), "{lines:?}");
        assert!(lines[1].ends_with("link up"), "{lines:?}");
    }
}
