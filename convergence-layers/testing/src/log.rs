//! The log lines of a test.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Level, Metadata, Subscriber};

/// The lines that the current thread logs while this value lives.
pub struct Log {
    lines: Arc<Lines>,
    _recording: DefaultGuard,
}

#[derive(Default)]
struct Lines(Mutex<Vec<(Level, String)>>);

struct Recorder(Arc<Lines>);

impl Log {
    pub fn record() -> Log {
        let lines = Arc::<Lines>::default();
        Log {
            _recording: set_default(Recorder(lines.clone())),
            lines,
        }
    }

    pub fn levels_of(&self, message: &str) -> Vec<Level> {
        let lines = self.lines.0.lock().unwrap();
        let lines = lines.iter().filter(|(_, said)| said == message);
        lines.map(|(level, _)| *level).collect()
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let line = (*event.metadata().level(), message.0);
        self.0.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
