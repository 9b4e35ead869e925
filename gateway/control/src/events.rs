//! Server-sent events (HTML Standard, § 9.2.6), of bounded size.

use std::collections::VecDeque;

use thiserror::Error;

/// The largest event, bytes: a plan has at most 8 MiB. A larger one is skipped.
pub const MAX_EVENT_BYTES: usize = 9 << 20;

/// The longest id, bytes.
pub const MAX_ID_BYTES: usize = 4096;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its type; "message" if it names none.
    pub kind: String,
    /// Its data; lines are parted by LF.
    pub data: Vec<u8>,
    /// The last id that the stream has given, including this event's.
    pub id: Option<String>,
    /// Its approximate length in bytes, if it was too large. It then has no data, and its type and
    /// id are those that came before the limit was reached.
    pub passed_over: Option<usize>,
}

/// Why a stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EventError {
    /// A type or id is no UTF-8 or too long.
    #[error("an event whose type or id is not of UTF-8, or too long")]
    Text,
}

/// Takes the bytes of a stream as they come, and returns its events.
#[derive(Debug, Default)]
pub struct EventParser {
    /// The line that is not over.
    line: Vec<u8>,
    /// The last byte was CR: an LF that follows belongs to it.
    after_cr: bool,
    /// Whether anything has come: a byte order mark may only be first.
    begun: bool,
    kind: String,
    data: Vec<u8>,
    has_data: bool,
    id: Option<String>,
    /// Bytes so far of an event that is too large. Only the first byte of its present line is kept,
    /// since an empty line ends it.
    too_large: Option<usize>,
    ready: VecDeque<Event>,
}

impl EventParser {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// When they make an event that this client does not accept; nothing more can be taken then.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), EventError> {
        // After an empty piece a line feed may still follow.
        if let Some((first, rest)) = bytes.split_first()
            && std::mem::take(&mut self.after_cr)
            && *first == b'\n'
        {
            bytes = rest;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&bytes[..end]);
            let crlf = bytes[end..].starts_with(b"\r\n");
            self.after_cr = bytes[end..] == *b"\r";
            bytes = &bytes[end + 1 + usize::from(crlf)..];
            self.end_line()?;
        }
        if !bytes.is_empty() {
            self.after_cr = false;
        }
        self.extend(bytes);
        Ok(())
    }

    /// The next event that is whole.
    pub fn next(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    fn extend(&mut self, bytes: &[u8]) {
        let kept = self.line.len() + self.data.len();
        if self.too_large.is_none() && kept + bytes.len() > MAX_EVENT_BYTES {
            self.too_large = Some(kept);
            self.data = Vec::new();
            self.line.truncate(1);
            self.line.shrink_to_fit();
        }
        match &mut self.too_large {
            None => self.line.extend_from_slice(bytes),
            Some(passed) => {
                *passed = passed.saturating_add(bytes.len());
                if self.line.is_empty() {
                    self.line.extend(bytes.first());
                }
            }
        }
    }

    fn end_line(&mut self) -> Result<(), EventError> {
        let whole = std::mem::take(&mut self.line);
        let mut line = &whole[..];
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch();
            return Ok(());
        }
        if self.too_large.is_some() {
            return Ok(());
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = match colon {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.kind = text(value)?,
            b"id" if !value.contains(&0) => self.id = Some(text(value)?),
            // Comments, and fields that this client does not use.
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self) {
        let kind = std::mem::take(&mut self.kind);
        let data = std::mem::take(&mut self.data);
        let passed_over = self.too_large.take();
        if std::mem::take(&mut self.has_data) || passed_over.is_some() {
            self.ready.push_back(Event {
                kind: match kind.is_empty() {
                    true => "message".to_owned(),
                    false => kind,
                },
                data,
                id: self.id.clone(),
                passed_over,
            });
        }
    }
}

fn text(value: &[u8]) -> Result<String, EventError> {
    let value = value.get(..value.len().min(MAX_ID_BYTES + 1));
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    let text = text.filter(|text| text.len() <= MAX_ID_BYTES);
    text.map(str::to_owned).ok_or(EventError::Text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(parser: &mut EventParser) -> Vec<Event> {
        std::iter::from_fn(|| parser.next()).collect()
    }

    fn read(stream: &[u8]) -> Vec<Event> {
        let mut parser = EventParser::default();
        parser.feed(stream).unwrap();
        events(&mut parser)
    }

    fn event(kind: &str, data: &str, id: Option<&str>) -> Event {
        Event {
            kind: kind.into(),
            data: data.into(),
            id: id.map(str::to_owned),
            passed_over: None,
        }
    }

    #[test]
    fn plans_come_with_their_ids_and_comments_pass() {
        let stream =
            ": hello\n\nid: east.forward.42\nevent: plan\ndata: {}\n\n: \n\ndata:a\ndata\n\n";
        let id = Some("east.forward.42");
        assert_eq!(
            read(stream.as_bytes()),
            [event("plan", "{}", id), event("message", "a\n", id)]
        );
    }

    #[test]
    fn an_event_that_is_cut_off_is_none() {
        assert_eq!(read(b"id: 1\nevent: plan\ndata: {\"version\""), []);
        assert_eq!(read(b"id: 1\nevent: plan\ndata: {}\n"), []);
    }

    #[test]
    fn lines_end_in_each_of_the_three_ways() {
        let expected = [event("plan", "a", None), event("plan", "b", None)];
        for end in ["\n", "\r", "\r\n"] {
            let stream = [
                "event: plan",
                "data: a",
                "",
                "event: plan",
                "data: b",
                "",
                "",
            ];
            assert_eq!(read(stream.join(end).as_bytes()), expected, "{end:?}");
        }
    }

    #[test]
    fn no_event_grows_without_bound() {
        let piece = vec![b'x'; 1 << 20];
        let line = [b"data: ", &piece[..], b"\n"].concat();
        for piece in [&piece, &line] {
            let mut parser = EventParser::default();
            parser.feed(b"id: 1\nevent: plan\ndata: ").unwrap();
            for _ in 0..20 {
                parser.feed(piece).unwrap();
                assert!(parser.line.capacity() + parser.data.capacity() <= 3 * MAX_EVENT_BYTES);
            }
            // No part of the event is kept, even before its end has come.
            assert!(parser.line.capacity() + parser.data.capacity() < 100);
            assert_eq!(parser.next(), None);
            parser.feed(b"\nid: 2\n\n").unwrap();
            let passed = parser.next().unwrap();
            assert!(passed.passed_over.unwrap() >= 20 << 20);
            assert_eq!((passed.kind.as_str(), passed.data.len()), ("plan", 0));
            assert_eq!(passed.id.as_deref(), Some("1"));
            // Later events are accepted.
            parser.feed(b"id: 3\ndata: a\n\n").unwrap();
            assert_eq!(events(&mut parser), [event("message", "a", Some("3"))]);
        }
        let mut parser = EventParser::default();
        let id = [b"id: ", &piece[..5000], b"\n"].concat();
        assert_eq!(parser.feed(&id), Err(EventError::Text));
        assert_eq!(
            EventParser::default().feed(b"id: \xff\n"),
            Err(EventError::Text)
        );
    }

    #[test]
    fn a_piece_without_bytes_ends_no_line() {
        let mut parser = EventParser::default();
        for piece in ["data: a\r", "", "\ndata: b\r\n\r", "", "\n"] {
            parser.feed(piece.as_bytes()).expect("it is short");
        }
        assert_eq!(parser.next().expect("it is whole").data, b"a\nb");
        assert_eq!(parser.next(), None);
    }

    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            "(data|event|id|retry|x)(: ?[a-z:]{0,5})?",
            Just("\n".to_owned()),
            Just("\r".to_owned()),
            Just("\r\n".to_owned()),
            Just(":".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn stream_means_the_same_however_it_is_cut(
            pieces in prop::collection::vec(piece(), 0..60),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let stream = pieces.concat().into_bytes();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.sort_unstable();
            let mut parser = EventParser::default();
            let mut from = 0;
            for cut in cuts.into_iter().chain([stream.len()]) {
                parser.feed(&stream[from..cut]).unwrap();
                from = cut;
            }
            prop_assert_eq!(events(&mut parser), read(&stream));
        }

        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = EventParser::default().feed(&bytes);
        }
    }
}
