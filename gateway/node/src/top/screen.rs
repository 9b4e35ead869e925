//! Draws the model. If there is too little room, the least important parts are left out first.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Sparkline, Table, TableState};
use time::OffsetDateTime;

use super::figures;
use super::model::Model;
use super::sheet::{Cell, Mood, Sheet};
use super::traffic::Throughput;
use crate::api::span;

/// Answers older than this many intervals are marked as old.
const LATE: u32 = 3;

const KEYS: [(&str, &str); 8] = [
    ("q, Ctrl-C", "end"),
    ("Up, Down, k, j", "look at another path"),
    ("Page Up, Page Down", "ten paths further"),
    ("Home, End, g, G", "the first path, the last"),
    ("s", "sort paths: as configured, blocked, busiest first"),
    ("p, space", "pause: what is shown stays"),
    ("?, h, F1", "this help"),
    ("Esc", "close it"),
];

/// How it looks.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    colours: bool,
}

impl Palette {
    /// Without colours, only weight and brightness distinguish figures.
    pub fn new(colours: bool) -> Palette {
        Palette { colours }
    }

    fn mood(self, mood: Mood) -> Style {
        let (colour, modifier) = match mood {
            Mood::Plain => return Style::new(),
            Mood::Good => (Color::Green, Modifier::empty()),
            Mood::Warning => (Color::Yellow, Modifier::BOLD),
            Mood::Bad => (Color::Red, Modifier::BOLD),
        };
        self.coloured(colour).add_modifier(modifier)
    }

    fn coloured(self, colour: Color) -> Style {
        match self.colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }
}

/// When it is drawn, and how.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// To judge how old figures are.
    pub now: Instant,
    /// To tell when planned blockages come.
    pub at: OffsetDateTime,
    /// How often the node is asked.
    pub interval: std::time::Duration,
    pub palette: Palette,
}

pub fn draw(frame: &mut Frame<'_>, model: &Model, view: View) {
    let whole = frame.area();
    let [head, trouble, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(warning(model, view).is_some())),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(whole);
    frame.render_widget(title(model), head);
    let clock = view.at.time();
    let clock = format!(
        "{:02}:{:02}:{:02} UTC",
        clock.hour(),
        clock.minute(),
        clock.second()
    );
    if usize::from(head.width) > title(model).width() + clock.len() + 1 {
        frame.render_widget(Line::from(clock).alignment(Alignment::Right), head);
    }
    if let Some(text) = warning(model, view) {
        let style = view
            .palette
            .mood(Mood::Bad)
            .add_modifier(Modifier::REVERSED);
        frame.render_widget(Line::styled(text, style), trouble);
    }
    sections(frame, body, model, view);
    let keys = "q end   ? help   up/down path   s sort   p pause";
    frame.render_widget(Line::from(keys).style(Modifier::DIM), foot);
    if model.help {
        help(frame, whole);
    }
}

fn title(model: &Model) -> Line<'static> {
    let Some(status) = &model.status else {
        return Line::from(format!("underpass top: {}", model.node_at));
    };
    let node = Span::styled(status.node.clone(), Modifier::BOLD);
    let rest = format!(
        ", {}, version {}, up {}",
        status.role,
        status.version,
        span(status.uptime_s)
    );
    Line::from(vec![node, Span::raw(rest)])
}

/// A warning about the figures, if they need one.
fn warning(model: &Model, view: View) -> Option<String> {
    let age = model.age(view.now);
    let old = age.map(|age| format!("figures are {} old", span(age.as_secs_f64())));
    match (&model.trouble, old) {
        _ if model.paused => Some("paused: p goes on".to_owned()),
        (Some(trouble), Some(old)) => Some(format!("{old}: {trouble}")),
        (Some(trouble), None) => Some(trouble.clone()),
        (None, Some(old)) if age > Some(view.interval * LATE) => {
            Some(format!("{old}: the node is slow to answer"))
        }
        (None, _) => None,
    }
}

/// The rows of the sections, in order of importance: each gets what it wants as long as there is
/// room. The last one gets what is left.
fn share<const N: usize>(mut room: u16, wanted: [u16; N]) -> [u16; N] {
    /// Title, head and one row.
    const LEAST: u16 = 3;
    let mut shares = wanted.map(|wanted| {
        let share = match wanted.min(room) {
            little if little < LEAST => 0,
            share => share,
        };
        room -= share;
        share
    });
    if let Some(last) = shares.last_mut() {
        *last += room;
    }
    shares
}

fn sections(frame: &mut Frame<'_>, body: Rect, model: &Model, view: View) {
    let Some(status) = &model.status else {
        return;
    };
    let paths = model.paths();
    let selected = paths.get(model.selected());
    let rows = |rows: usize| u16::try_from(rows + 2).unwrap_or(u16::MAX);
    // Other sections stay visible even if there are many paths.
    let many = (body.height / 2).max(5);
    let sessions = selected.map_or(0, |path| path.sessions.len().max(1));
    let wanted = [
        rows(paths.len().max(1)).min(many),
        rows(status.classes.len()),
        rows(sessions),
        5,
        3,
    ];
    let [
        paths_rows,
        classes_rows,
        sessions_rows,
        curve_rows,
        events_rows,
    ] = share(body.height, wanted);
    let [
        paths_area,
        sessions_area,
        classes_area,
        curve_area,
        events_area,
    ] = Layout::vertical([
        Constraint::Length(paths_rows),
        Constraint::Length(sessions_rows),
        Constraint::Length(classes_rows),
        Constraint::Length(curve_rows),
        Constraint::Length(events_rows),
    ])
    .areas(body);
    let sheet = figures::paths(paths.iter().copied(), status, &model.traffic, view.at);
    let text = format!("Paths ({}), {}", paths.len(), model.order.name());
    let place = (!paths.is_empty()).then(|| model.selected());
    table(frame, paths_area, &text, sheet, place, view.palette);
    if let Some(path) = selected {
        let text = Cell::from(format!("Sessions of {}", path.hop.name)).text;
        let sheet = figures::sessions(path, &model.traffic);
        table(frame, sessions_area, &text, sheet, None, view.palette);
    }
    let sheet = figures::classes(status, &model.traffic);
    table(frame, classes_area, "Classes", sheet, None, view.palette);
    curves(frame, curve_area, model, view.palette);
    events(frame, events_area, model, view.palette);
}

fn block(title: &str) -> Block<'static> {
    let title = Line::styled(format!(" {title} "), Modifier::BOLD);
    Block::new().borders(Borders::TOP).title(title)
}

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    sheet: Sheet,
    selected: Option<usize>,
    palette: Palette,
) {
    if area.is_empty() {
        return;
    }
    let sheet = sheet.fit(usize::from(area.width));
    let widths: Vec<Constraint> = (0..sheet.columns.len())
        .map(|column| Constraint::Length(u16::try_from(sheet.width(column)).unwrap_or(u16::MAX)))
        .collect();
    let aligned = |text: String, right: bool| {
        let line = Line::from(text);
        Text::from(if right { line.right_aligned() } else { line })
    };
    let heads = sheet.columns.iter();
    let heads = heads.map(|column| aligned(column.head.to_owned(), column.right));
    let rows = sheet.rows.iter().map(|row| {
        let cells = row.iter().zip(&sheet.columns).map(|(cell, column)| {
            aligned(cell.text.clone(), column.right).style(palette.mood(cell.mood))
        });
        Row::new(cells.collect::<Vec<_>>())
    });
    let table = Table::new(rows.collect::<Vec<_>>(), widths)
        .header(Row::new(heads.collect::<Vec<_>>()).style(Modifier::DIM))
        .column_spacing(2)
        .row_highlight_style(Modifier::REVERSED)
        .block(block(title));
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
}

/// One of two directions.
type Direction = fn(Throughput) -> f64;

/// What this node sends and receives in streams, side by side, the newest on the right.
fn curves(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    if area.is_empty() {
        return;
    }
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(2);
    let [left, right] = halves.areas(area);
    let directions: [(&str, Rect, Direction); 2] = [
        ("Sent in streams", left, |one| one.sent_bps),
        ("Received in streams", right, |one| one.received_bps),
    ];
    for (name, area, direction) in directions {
        let curve: Vec<f64> = model.traffic.curve().map(direction).collect();
        let shown = curve.len().saturating_sub(usize::from(area.width));
        let shown = curve.get(shown..).unwrap_or_default();
        let most = shown.iter().copied().fold(0.0, f64::max);
        let latest = shown.last().copied().unwrap_or_default();
        let title = format!(
            "{name} {}, at most {}",
            figures::bps(latest),
            figures::bps(most)
        );
        let bars: Vec<u64> = shown.iter().map(|bps| bps.round() as u64).collect();
        let bars = Sparkline::default()
            .data(&bars)
            .style(palette.coloured(Color::Cyan))
            .block(block(&title));
        frame.render_widget(bars, area);
    }
}

fn events(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    if area.is_empty() {
        return;
    }
    let rows = usize::from(area.height).saturating_sub(1);
    let lines = model.events.latest().take(rows).map(|event| {
        let at = event.at.time();
        let (hour, minute, second) = (at.hour(), at.minute(), at.second());
        let cell = Cell::new(event.text.as_str(), event.mood);
        Line::from(vec![
            Span::styled(
                format!("{hour:02}:{minute:02}:{second:02}  "),
                Modifier::DIM,
            ),
            Span::styled(cell.text, palette.mood(cell.mood)),
        ])
    });
    let lines: Vec<Line<'_>> = lines.collect();
    frame.render_widget(Paragraph::new(lines).block(block("Events")), area);
}

fn help(frame: &mut Frame<'_>, whole: Rect) {
    let keys = KEYS.iter().map(|(key, does)| {
        Line::from(vec![
            Span::styled(format!(" {key:<20}"), Modifier::BOLD),
            Span::raw(*does),
        ])
    });
    let rows = u16::try_from(KEYS.len() + 2).unwrap_or(u16::MAX);
    let area = whole.centered(Constraint::Max(74), Constraint::Max(rows));
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" Keys ");
    frame.render_widget(Paragraph::new(keys.collect::<Vec<_>>()).block(block), area);
}

#[cfg(test)]
mod tests;
