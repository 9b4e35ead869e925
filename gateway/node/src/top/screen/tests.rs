use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use underpass_engine::Source;

use super::*;
use crate::api::{PlannedView, Status};
use crate::top::example::{status, with_traffic};

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

/// A model that has taken `answers`, one a second, and the time of the last.
fn model(answers: impl IntoIterator<Item = Status>) -> (Model, Instant) {
    let mut model = Model::new("/run/api.sock".to_owned());
    let now = Instant::now();
    for answer in answers {
        model.take(now, NOW, Ok(answer));
    }
    (model, now)
}

fn view(now: Instant) -> View {
    View {
        now,
        at: NOW,
        interval: Duration::from_secs(1),
        palette: Palette::new(true),
    }
}

fn buffer((width, height): (u16, u16), model: &Model, view: View) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model, view)).unwrap();
    terminal.backend().buffer().clone()
}

/// The lines of the screen, without trailing spaces.
fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let rows = buffer.content.chunks(width);
    rows.map(|row| {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    })
    .collect()
}

fn shown(size: (u16, u16), model: &Model, view: View) -> String {
    lines(&buffer(size, model, view)).join("\n")
}

#[test]
fn all_of_it_is_on_a_usual_screen() {
    let (model, now) = model([
        with_traffic(9.0, 0, 0),
        with_traffic(10.0, 25_000, 1_000_000),
    ]);
    let text = shown((160, 40), &model, view(now));
    let expected = "\
ipn:10.0, terminal, version 0.1.0, up 10 s";
    assert!(text.starts_with(expected), "{text}");
    for part in [
        "00:00:00 UTC",
        "Paths (1), as configured",
        "satellite  ipn:1.0  up    -           -         40.0 Mbit/s",
        "Sessions of satellite",
        "interactive  carries  tcpcl  hybla_dama  612 ms",
        "Classes",
        "3       1  200.0 kbit/s  8.0 Mbit/s   4.2 kB",
        "Received in streams 8.0 Mbit/s, at most 8.0 Mbit/s",
        "Events",
        "q end",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn a_blockage_is_told_with_its_expected_end() {
    let mut blocked = status();
    let hop = &mut blocked.paths[0].hop;
    hop.blocked = true;
    hop.link.blocked_by = Some(Source::Plan);
    hop.link.blocked_s = Some(12.0);
    hop.link.planned = vec![PlannedView {
        entry: NOW - Duration::from_secs(12),
        exit: NOW + Duration::from_secs(23),
    }];
    let (model, now) = model([status(), blocked]);
    let text = shown((160, 40), &model, view(now));
    assert!(text.contains("blocked  plan, 12 s  ends in 23 s"), "{text}");
    assert!(
        text.contains("00:00:00  satellite: blocked by plan"),
        "{text}"
    );
}

#[test]
fn every_size_of_a_terminal_is_drawn_and_the_link_stays() {
    let (mut model, now) = model([status(), status()]);
    for help in [false, true] {
        model.help = help;
        for width in [0, 1, 2, 10, 20, 40, 80, 200] {
            for height in [0, 1, 2, 3, 5, 8, 13, 24, 60] {
                buffer((width, height), &model, view(now));
            }
        }
    }
    model.help = false;
    let text = shown((40, 8), &model, view(now));
    assert!(text.contains("satellite  up"), "{text}");
}

#[test]
fn many_paths_leave_room_for_the_rest_and_the_selected_one_is_seen() {
    let mut hub = status();
    hub.paths = (0..500)
        .map(|n| {
            let mut path = status().paths.remove(0);
            path.hop.name = format!("terminal-{n}");
            path
        })
        .collect();
    let (mut model, now) = model([hub]);
    model.key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    let text = shown((120, 30), &model, view(now));
    assert!(text.contains("\nterminal-499 "), "{text}");
    assert!(text.contains("Sessions of terminal-499"), "{text}");
    assert!(text.contains("Classes"), "{text}");
}

#[test]
fn a_node_that_does_not_answer_is_told_above_old_figures() {
    let (mut model, now) = model([status()]);
    let later = now + Duration::from_secs(5);
    model.take(later, NOW, Err("no node answers at x".to_owned()));
    let text = shown((100, 30), &model, view(later));
    assert!(
        text.contains("figures are 5 s old: no node answers at x"),
        "{text}"
    );
    assert!(text.contains("satellite"), "{text}");
    model.take(later, NOW, Ok(status()));
    let text = shown((100, 30), &model, view(later));
    assert!(!text.contains("old"), "{text}");
}

#[test]
fn a_node_that_hangs_is_told() {
    let (model, now) = model([status()]);
    let text = shown((100, 30), &model, view(now + Duration::from_secs(4)));
    assert!(text.contains("the node is slow to answer"), "{text}");
    let text = shown((100, 30), &model, view(now + Duration::from_secs(2)));
    assert!(!text.contains("slow"), "{text}");
}

#[test]
fn before_the_first_answer_it_says_where_it_looks() {
    let mut model = Model::new("/run/api.sock".to_owned());
    let now = Instant::now();
    let text = shown((80, 24), &model, view(now));
    assert!(text.starts_with("underpass top: /run/api.sock"), "{text}");
    model.take(now, NOW, Err("no node answers".to_owned()));
    assert!(shown((80, 24), &model, view(now)).contains("no node answers"));
}

#[test]
fn without_colours_a_blocked_link_still_stands_out() {
    let mut blocked = status();
    blocked.paths[0].hop.blocked = true;
    let (model, now) = model([blocked]);
    let cells = |colours| {
        let view = View {
            palette: Palette::new(colours),
            ..view(now)
        };
        buffer((160, 40), &model, view).content
    };
    assert!(cells(true).iter().any(|cell| cell.fg == Color::Red));
    let plain = cells(false);
    assert!(
        plain
            .iter()
            .all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset))
    );
    assert!(
        plain
            .iter()
            .any(|cell| cell.modifier.contains(Modifier::BOLD) && cell.symbol() == "b")
    );
}

#[test]
fn a_hostile_name_does_not_reach_the_terminal() {
    let mut hostile = status();
    hostile.paths[0].hop.name = "sat\x1b]0;owned\x07".to_owned();
    let (model, now) = model([status(), hostile]);
    let buffer = buffer((160, 40), &model, view(now));
    let mut symbols = buffer.content.iter().map(|cell| cell.symbol());
    assert!(!symbols.any(|symbol| symbol.contains(char::is_control)));
}

#[test]
fn keys_are_explained_on_demand() {
    let (mut model, now) = model([status()]);
    assert!(!shown((80, 24), &model, view(now)).contains("close it"));
    model.key(KeyEvent::new(KeyCode::Char('?'), KeyModifiers::NONE));
    assert!(shown((80, 24), &model, view(now)).contains("close it"));
}

#[test]
fn sections_get_rows_by_what_matters() {
    assert_eq!(share(20, [4, 4, 4]), [4, 4, 12]);
    assert_eq!(share(9, [4, 4, 4]), [4, 4, 1]);
    assert_eq!(share(5, [4, 4, 4]), [4, 0, 1]);
    assert_eq!(share(0, [4, 4, 4]), [0, 0, 0]);
}
