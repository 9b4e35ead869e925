//! Writes each event as one line, so that a peer's text in it cannot look like another event, and
//! cuts long ones, so that such a text cannot fill the disk. JSON events are single lines anyway.

use std::io;

use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

/// Of a longer line only this much is written.
const MOST_LINE_BYTES: usize = 8 << 10;
/// Of a longer line of JSON, this much of each text, so that the line remains an object.
const MOST_TEXT_BYTES: usize = 1 << 10;

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
        let shortened = (text.len() > MOST_LINE_BYTES).then(|| shortened(text));
        let is_break = |octet: &u8| matches!(octet, b'\n' | b'\r');
        if shortened.is_none() && !text.iter().any(is_break) {
            return self.0.write_all(event);
        }
        let text = shortened.as_deref().unwrap_or(text);
        let mut line = Vec::with_capacity(2 * text.len());
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

fn shortened(event: &[u8]) -> Vec<u8> {
    // Lines of text begin with the time.
    if event.starts_with(b"{")
        && let Ok(mut object) = serde_json::from_slice(event)
    {
        shorten(&mut object);
        return object.to_string().into_bytes();
    }
    cut(&String::from_utf8_lossy(event), MOST_LINE_BYTES).into_bytes()
}

/// Cuts the texts of an event in JSON.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > MOST_TEXT_BYTES => *text = cut(text, MOST_TEXT_BYTES),
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

/// The first `most` bytes of a longer text, or somewhat fewer.
fn cut(text: &str, most: usize) -> String {
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at));
    let kept = &text[..end.unwrap_or(0)];
    format!("{kept}… ({} bytes more)", text.len() - kept.len())
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

    fn written(event: &str) -> String {
        let mut line = Vec::new();
        io::Write::write_all(&mut OneLine(&mut line), event.as_bytes()).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn what_a_peer_says_fills_no_disk() {
        let said = "ä".repeat(1 << 20);
        let line = written(&format!("2026-01-01T00:00:00Z WARN refused error={said}\n"));
        assert!(line.len() < MOST_LINE_BYTES + 50);
        assert!(line.ends_with(" bytes more)\n"), "{line}");
        let event = serde_json::json!({
            "level": "WARN",
            "error": said,
            "spans": [{ "name": said }],
            "bytes": 7,
        });
        let line = written(&format!("{event}\n"));
        assert!(line.len() < 4 * MOST_TEXT_BYTES && line.ends_with('\n'));
        let told: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&told["level"], &told["bytes"]),
            (&event["level"], &event["bytes"])
        );
        assert!(told["error"].as_str().unwrap().ends_with(" bytes more)"));
        let short = "2026-01-01T00:00:00Z INFO link up\n";
        assert_eq!(written(short), short);
    }
}
