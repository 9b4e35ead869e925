//! What is watched and how: answers and keys come in, nothing goes out.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use time::OffsetDateTime;

use super::events::Events;
use super::sheet::Mood;
use super::traffic::Traffic;
use crate::api::{PathView, Status};

/// Rows that a page key moves by.
const PAGE: isize = 10;

/// The order in which paths are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The node's own.
    #[default]
    Node,
    /// Those that are blocked or down first.
    State,
    /// Those that carry most first.
    Throughput,
}

impl Order {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Order::Node => "as configured",
            Order::State => "blocked first",
            Order::Throughput => "busiest first",
        }
    }

    fn next(self) -> Order {
        match self {
            Order::Node => Order::State,
            Order::State => Order::Throughput,
            Order::Throughput => Order::Node,
        }
    }
}

/// Whether to go on watching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Until the next input.
    GoOn,
    /// The user has seen enough.
    End,
}

/// What is known of the node, and what the user wants to see.
#[derive(Debug)]
pub struct Model {
    /// How the node is reached, for people.
    pub node_at: String,
    /// The latest answer.
    pub status: Option<Status>,
    /// Throughput from the answers.
    pub traffic: Traffic,
    pub events: Events,
    /// Why the node does not answer; none if it does.
    pub trouble: Option<String>,
    /// When the latest answer came.
    answered: Option<Instant>,
    /// In which order paths are listed.
    pub order: Order,
    /// Whether what is shown stays as it is.
    pub paused: bool,
    /// Whether the keys are explained.
    pub help: bool,
    selected: Option<String>,
}

impl Model {
    /// Before the first answer.
    pub fn new(node_at: String) -> Model {
        Model {
            node_at,
            status: None,
            traffic: Traffic::default(),
            events: Events::default(),
            trouble: None,
            answered: None,
            order: Order::default(),
            paused: false,
            help: false,
            selected: None,
        }
    }

    /// Takes what the node answers, or why it does not.
    pub fn take(&mut self, now: Instant, at: OffsetDateTime, answer: Result<Status, String>) {
        if self.paused {
            return;
        }
        match answer {
            Ok(status) => {
                if self.trouble.take().is_some() {
                    self.events
                        .note(at, Mood::Good, "the node answers".to_owned());
                }
                if let Some(before) = &self.status {
                    self.events.compare(at, before, &status);
                }
                self.traffic.take(&status);
                self.status = Some(status);
                self.answered = Some(now);
            }
            Err(trouble) => {
                if self.trouble.is_none() {
                    self.events
                        .note(at, Mood::Bad, "the node does not answer".to_owned());
                }
                self.trouble = Some(trouble);
            }
        }
    }

    pub fn key(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::GoOn;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Next::End,
            _ if control => {}
            KeyCode::Char('q') => return Next::End,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.help = !self.help,
            KeyCode::Esc => self.help = false,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Up | KeyCode::Char('k') => self.select_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.select_by(1),
            KeyCode::PageUp => self.select_by(-PAGE),
            KeyCode::PageDown => self.select_by(PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.select_by(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.select_by(isize::MAX),
            _ => {}
        }
        Next::GoOn
    }

    fn select_by(&mut self, rows: isize) {
        let last = self.paths().len().saturating_sub(1);
        let place = self.selected().saturating_add_signed(rows).min(last);
        let name = self.paths().get(place).map(|path| path.hop.name.clone());
        self.selected = name;
    }

    /// The paths in the order that is wanted.
    pub fn paths(&self) -> Vec<&PathView> {
        let Some(status) = &self.status else {
            return Vec::new();
        };
        let mut paths: Vec<&PathView> = status.paths.iter().collect();
        match self.order {
            Order::Node => {}
            Order::State => {
                paths.sort_by_key(|path| (!path.hop.blocked, path.hop.up));
            }
            Order::Throughput => {
                let carries = |path: &PathView| {
                    let throughput = self.traffic.path(path).unwrap_or_default();
                    throughput.sent_bps + throughput.received_bps
                };
                paths.sort_by(|one, other| carries(other).total_cmp(&carries(one)));
            }
        }
        paths
    }

    /// The place in [`Model::paths`] of the selected one: the first if none was selected, or if it
    /// no longer exists.
    pub fn selected(&self) -> usize {
        let paths = self.paths();
        let name = self.selected.as_deref();
        let place = paths
            .iter()
            .position(|path| Some(path.hop.name.as_str()) == name);
        place.unwrap_or_default()
    }

    /// How old the figures are; none before the first answer.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.answered?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::example::{status, with_traffic};

    fn model(names: &[&str]) -> Model {
        let mut shown = status();
        let paths = names.iter().map(|name| {
            let mut path = status().paths.remove(0);
            path.hop.name = (*name).to_owned();
            path
        });
        shown.paths = paths.collect();
        let mut model = Model::new("here".to_owned());
        take(&mut model, Ok(shown));
        model
    }

    fn take(model: &mut Model, answer: Result<Status, String>) {
        model.take(Instant::now(), OffsetDateTime::UNIX_EPOCH, answer);
    }

    fn press(model: &mut Model, code: KeyCode) -> Next {
        model.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn names(model: &Model) -> Vec<&str> {
        let paths = model.paths().into_iter();
        paths.map(|path| path.hop.name.as_str()).collect()
    }

    #[test]
    fn q_and_control_c_end_it() {
        let mut model = model(&["a"]);
        assert_eq!(press(&mut model, KeyCode::Char('q')), Next::End);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(model.key(interrupt), Next::End);
        assert_eq!(press(&mut model, KeyCode::Char('c')), Next::GoOn);
    }

    #[test]
    fn the_selection_stays_within_the_paths() {
        let mut model = model(&["a", "b", "c"]);
        press(&mut model, KeyCode::Up);
        assert_eq!(model.selected(), 0);
        press(&mut model, KeyCode::End);
        assert_eq!(model.selected(), 2);
        press(&mut model, KeyCode::PageDown);
        assert_eq!(model.selected(), 2);
        press(&mut model, KeyCode::Home);
        press(&mut model, KeyCode::Char('j'));
        assert_eq!(model.selected(), 1);
    }

    #[test]
    fn the_selection_follows_its_path() {
        let mut model = model(&["a", "b", "c"]);
        press(&mut model, KeyCode::End);
        let mut blocked = model.status.take().unwrap();
        blocked.paths[2].hop.blocked = true;
        take(&mut model, Ok(blocked));
        press(&mut model, KeyCode::Char('s'));
        assert_eq!(names(&model), ["c", "a", "b"]);
        assert_eq!(model.selected(), 0);
        let mut gone = model.status.take().unwrap();
        gone.paths.remove(2);
        take(&mut model, Ok(gone));
        assert_eq!(model.selected(), 0);
    }

    #[test]
    fn the_busiest_path_comes_first_if_that_is_wanted() {
        let mut model = Model::new("here".to_owned());
        for (uptime_s, sent) in [(1.0, 0), (2.0, 1_000)] {
            let mut shown = with_traffic(uptime_s, 0, 0);
            let mut busy = with_traffic(uptime_s, sent, 0).paths.remove(0);
            busy.hop.name = "busy".to_owned();
            busy.sessions[0].id = 2;
            shown.paths.push(busy);
            take(&mut model, Ok(shown));
        }
        model.order = Order::Throughput;
        assert_eq!(names(&model), ["busy", "satellite"]);
    }

    #[test]
    fn figures_stay_while_the_node_does_not_answer_and_go_on_when_it_does() {
        let mut model = model(&["a"]);
        take(&mut model, Err("no node answers".to_owned()));
        take(&mut model, Err("no node answers".to_owned()));
        assert!(model.status.is_some());
        assert_eq!(model.trouble.as_deref(), Some("no node answers"));
        take(&mut model, Ok(status()));
        assert_eq!(model.trouble, None);
        let told: Vec<&str> = model.events.latest().map(|e| e.text.as_str()).collect();
        let lost = told
            .iter()
            .filter(|text| **text == "the node does not answer");
        assert_eq!(lost.count(), 1);
        assert!(told.contains(&"the node answers"));
    }

    #[test]
    fn what_is_paused_stays() {
        let mut model = model(&["a"]);
        press(&mut model, KeyCode::Char('p'));
        take(&mut model, Ok(status()));
        assert_eq!(names(&model), ["a"]);
        press(&mut model, KeyCode::Char('p'));
        take(&mut model, Ok(status()));
        assert_eq!(names(&model), ["satellite"]);
    }
}
