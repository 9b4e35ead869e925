//! What has happened between two answers.

use std::collections::{BTreeMap, VecDeque};

use time::OffsetDateTime;

use super::sheet::Mood;
use crate::api::{PathView, Status, span};

/// The oldest above are forgotten.
pub const MOST: usize = 200;

/// What has happened, and when it was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Of the machine that watches.
    pub at: OffsetDateTime,
    /// How bad it is.
    pub mood: Mood,
    /// For people.
    pub text: String,
}

/// The latest events, the newest first.
#[derive(Debug, Default)]
pub struct Events {
    latest: VecDeque<Event>,
}

impl Events {
    pub fn note(&mut self, at: OffsetDateTime, mood: Mood, text: String) {
        self.latest.truncate(MOST - 1);
        self.latest.push_front(Event { at, mood, text });
    }

    /// Notes how `now` differs from `before`.
    pub fn compare(&mut self, at: OffsetDateTime, before: &Status, now: &Status) {
        if now.incarnation != before.incarnation {
            let text = format!("the node has started again, start {}", now.incarnation);
            self.note(at, Mood::Warning, text);
        } else if now.version != before.version {
            let text = format!("the node goes on with version {}", now.version);
            self.note(at, Mood::Good, text);
        }
        let known = by_name(before);
        for path in &now.paths {
            let name = &path.hop.name;
            match known.get(name.as_str()) {
                None => self.note(at, Mood::Good, format!("{name}: new")),
                Some(earlier) => self.compare_paths(at, earlier, path),
            }
        }
        let still = by_name(now);
        for gone in known.keys().filter(|name| !still.contains_key(*name)) {
            self.note(at, Mood::Bad, format!("{gone}: gone"));
        }
        self.compare_stores(at, before, now);
    }

    fn compare_paths(&mut self, at: OffsetDateTime, before: &PathView, now: &PathView) {
        let name = &now.hop.name;
        match (before.hop.up, now.hop.up) {
            (true, false) => self.note(at, Mood::Bad, format!("{name}: down")),
            (false, true) => self.note(at, Mood::Good, format!("{name}: up")),
            _ => {}
        }
        let by = |path: &PathView| path.hop.link.blocked_by.map(|source| source.name());
        match (by(before), by(now)) {
            (None, Some(source)) => {
                self.note(at, Mood::Bad, format!("{name}: blocked by {source}"));
            }
            (Some(_), None) => {
                let lasted = before.hop.link.blocked_s.unwrap_or_default();
                let text = format!("{name}: free, was blocked for {}", span(lasted));
                self.note(at, Mood::Good, text);
            }
            (Some(one), Some(other)) if one != other => {
                self.note(at, Mood::Warning, format!("{name}: blocked by {other}"));
            }
            _ => {}
        }
        if now.hop.link.plan_contradicted && !before.hop.link.plan_contradicted {
            let text = format!("{name}: the peer is heard in the planned blockage");
            self.note(at, Mood::Warning, text);
        }
        let exhausted = |path: &PathView| path.hop.meter.as_ref().is_some_and(|m| m.exhausted);
        if exhausted(now) && !exhausted(before) {
            self.note(at, Mood::Bad, format!("{name}: its budget is spent"));
        }
    }

    fn compare_stores(&mut self, at: OffsetDateTime, before: &Status, now: &Status) {
        fn stalled(status: &Status) -> Option<&String> {
            status.custody.disk.as_ref()?.stalled.as_ref()
        }
        match (stalled(before), stalled(now)) {
            (None, Some(why)) => {
                self.note(at, Mood::Bad, format!("the disk cannot be written: {why}"));
            }
            (Some(_), None) => {
                self.note(at, Mood::Good, "the disk is written again".to_owned());
            }
            _ => {}
        }
    }

    /// The newest first.
    pub fn latest(&self) -> impl Iterator<Item = &Event> {
        self.latest.iter()
    }
}

fn by_name(status: &Status) -> BTreeMap<&str, &PathView> {
    let paths = status.paths.iter();
    paths.map(|path| (path.hop.name.as_str(), path)).collect()
}

#[cfg(test)]
mod tests {
    use underpass_engine::Source;

    use super::*;
    use crate::top::example::status;

    fn compared(change: impl FnOnce(&mut Status)) -> Vec<String> {
        let (before, mut now) = (status(), status());
        change(&mut now);
        let mut events = Events::default();
        events.compare(OffsetDateTime::UNIX_EPOCH, &before, &now);
        events.latest().map(|event| event.text.clone()).collect()
    }

    #[test]
    fn nothing_has_happened_between_equal_answers() {
        assert_eq!(compared(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn blockage_and_its_end_are_events() {
        let texts = compared(|now| now.paths[0].hop.link.blocked_by = Some(Source::Probing));
        assert_eq!(texts, ["satellite: blocked by probing"]);

        let (mut before, now) = (status(), status());
        before.paths[0].hop.link.blocked_by = Some(Source::Modem);
        before.paths[0].hop.link.blocked_s = Some(34.0);
        let mut events = Events::default();
        events.compare(OffsetDateTime::UNIX_EPOCH, &before, &now);
        let event = events.latest().next().unwrap();
        assert_eq!(event.text, "satellite: free, was blocked for 34 s");
        assert_eq!(event.mood, Mood::Good);
    }

    #[test]
    fn paths_come_and_go() {
        assert_eq!(
            compared(|now| now.paths[0].hop.name = "other".to_owned()),
            ["satellite: gone", "other: new"]
        );
        assert_eq!(
            compared(|now| now.paths[0].hop.up = false),
            ["satellite: down"]
        );
    }

    #[test]
    fn events_are_bounded() {
        let mut events = Events::default();
        for n in 0..MOST + 50 {
            events.note(OffsetDateTime::UNIX_EPOCH, Mood::Good, n.to_string());
        }
        assert_eq!(events.latest().count(), MOST);
        assert_eq!(
            events.latest().next().unwrap().text,
            (MOST + 49).to_string()
        );
    }
}
