//! Recent events of the links, for the exchanges that took place meanwhile.

use std::collections::VecDeque;
use std::time::Instant;

use underpass_engine::LinkChange;

use crate::shell::LinkEvent;

/// Changes that are remembered: minutes of a hub whose terminals drive in a
/// town, hours of a terminal.
const REMEMBERED: usize = 1024;
/// Most that one exchange names.
const MOST: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkNote {
    pub at: Instant,
    pub name: &'static str,
    /// The path's or terminal's name.
    pub path: String,
    /// Who says so.
    pub because: &'static str,
    neighbour: u64,
}

/// The changes of late.
#[derive(Debug, Default)]
pub struct Recent(VecDeque<LinkNote>);

impl Recent {
    /// Takes in what has changed.
    pub fn note(&mut self, event: &LinkEvent) {
        let (name, because) = match event.change {
            LinkChange::Blocked(source) => ("blocked", source.name()),
            LinkChange::Free(_) => ("free", ""),
            LinkChange::PlanContradicted(_) => ("plan contradicted", "heard"),
            LinkChange::Source(_) => return,
        };
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(LinkNote {
            at: event.at,
            name,
            path: event.path.clone(),
            because,
            neighbour: event.neighbour,
        });
    }

    /// The events of the links to a neighbour from `began` to `ended`, and which were already
    /// blocked.
    pub fn between(&self, neighbour: u64, began: Instant, ended: Instant) -> Vec<LinkNote> {
        let of = self.0.iter().filter(|note| note.neighbour == neighbour);
        let mut told: Vec<LinkNote> = Vec::new();
        for note in of {
            if note.at > ended {
                break;
            }
            if note.at < began {
                told.retain(|before| before.path != note.path);
                if note.name != "blocked" {
                    continue;
                }
            }
            if told.len() < MOST {
                told.push(note.clone());
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use underpass_engine::{HopId, Source};

    use super::*;

    #[test]
    fn an_exchange_has_the_changes_that_it_saw_and_the_blockage_that_it_began_in() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let mut recent = Recent::default();
        let mut note = |path: &str, neighbour, s, change| {
            recent.note(&LinkEvent {
                hop: HopId(1),
                path: path.to_owned(),
                neighbour,
                change,
                at: at(s),
                silent_since: None,
            });
        };
        let free = LinkChange::Free(Duration::from_secs(1));
        note("satellite", 1, 1, LinkChange::Blocked(Source::Plan));
        note("satellite", 1, 2, free);
        note("satellite", 1, 3, LinkChange::Blocked(Source::Probing));
        note("other", 2, 4, LinkChange::Blocked(Source::Modem));
        note("satellite", 1, 6, free);
        note("satellite", 1, 9, LinkChange::Blocked(Source::Plan));
        let named = |began, ended| {
            let notes = recent.between(1, at(began), at(ended)).into_iter();
            notes.map(|note| (note.name, note.at)).collect::<Vec<_>>()
        };
        assert_eq!(named(5, 8), [("blocked", at(3)), ("free", at(6))]);
        assert_eq!(named(7, 8), []);
        assert_eq!(named(0, 1), [("blocked", at(1))]);
    }
}
