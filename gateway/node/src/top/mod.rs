//! `underpass top`: watches a running node in the terminal.
//!
//! `model` takes answers and keys, `figures` makes tables of it, `screen` draws them: all of them
//! without a terminal, a socket or a clock. Here are the threads that query the node, read keys and
//! receive signals, and the loop that draws the result.

mod events;
#[cfg(test)]
mod example;
mod figures;
mod model;
mod screen;
mod sheet;
mod terminal;
mod traffic;

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEvent};
use thiserror::Error;
use time::OffsetDateTime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::api::Status;
use crate::cli::TopCommand;
use crate::client::{self, ClientError};
use model::{Model, Next};
use screen::{Palette, View};
use terminal::Screen;
use traffic::Traffic;

/// Clock and countdowns go on at least this often.
const REDRAW: Duration = Duration::from_secs(1);
/// Inputs that wait to be drawn; further ones make their sources wait.
const WAITING: usize = 64;

/// Why a node cannot be watched.
#[derive(Debug, Error)]
pub enum TopError {
    #[error("top needs a terminal; `underpass top --once` prints one table")]
    NoTerminal,
    #[error("the terminal cannot be used: {0}")]
    Terminal(io::Error),
    /// Threads or signals cannot be had.
    #[error("cannot start: {0}")]
    Start(io::Error),
    /// The node cannot be reached; an error only with `--once`.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Watches the node until the user ends it, or prints one table.
///
/// # Errors
/// Without a terminal to draw on; with `once`, when no node answers. While watching, the node may
/// come and go.
pub fn execute(command: &TopCommand) -> Result<(), TopError> {
    let interval = Duration::from_secs_f64(command.interval_s);
    if command.once {
        return Ok(once(&command.socket, interval)?);
    }
    if !Screen::possible() {
        return Err(TopError::NoTerminal);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(TopError::Start)?;
    runtime.block_on(watch(&command.socket, interval))
}

/// Throughput needs two answers.
fn once(socket: &Path, interval: Duration) -> Result<(), ClientError> {
    let mut traffic = Traffic::default();
    traffic.take(&ask(socket)?);
    thread::sleep(interval);
    let status = ask(socket)?;
    traffic.take(&status);
    let paths = figures::paths(&status.paths, &status, &traffic, OffsetDateTime::now_utc());
    let mut text = format!("{paths}\n");
    for path in &status.paths {
        let mut sessions = figures::sessions(path, &traffic);
        sessions.columns.insert(0, sheet::words("PATH", 0));
        for row in &mut sessions.rows {
            row.insert(0, path.hop.name.as_str().into());
        }
        if !sessions.rows.is_empty() {
            text += &format!("{sessions}\n");
        }
    }
    text += &figures::classes(&status, &traffic).to_string();
    client::print(&text)
}

fn ask(socket: &Path) -> Result<Status, ClientError> {
    let body = client::ask(socket, "GET", "/v1/status", None)?;
    Ok(serde_json::from_slice(&body)?)
}

/// What the loop waits for.
enum Input {
    Answer(Result<Box<Status>, String>),
    Key(KeyEvent),
    /// The window has another size.
    Resized,
    /// A signal, or keys that cannot be read any more.
    End,
}

async fn watch(socket: &Path, interval: Duration) -> Result<(), TopError> {
    let (tell, mut inputs) = mpsc::channel(WAITING);
    let mut screen = Screen::open().map_err(TopError::Terminal)?;
    for kind in [
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::interrupt(),
    ] {
        let mut signal = signal(kind).map_err(TopError::Start)?;
        let tell = tell.clone();
        tokio::spawn(async move {
            if signal.recv().await.is_some() {
                let _ = tell.send(Input::End).await;
            }
        });
    }
    let keys = tell.clone();
    let spawned = thread::Builder::new().name("keys".to_owned());
    spawned
        .spawn(move || read_keys(&keys))
        .map_err(TopError::Start)?;
    let at = socket.to_owned();
    let spawned = thread::Builder::new().name("node".to_owned());
    spawned
        .spawn(move || ask_again_and_again(&at, interval, &tell))
        .map_err(TopError::Start)?;

    let mut model = Model::new(socket.display().to_string());
    // An empty value is none (no-color.org).
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let palette = Palette::new(colours);
    loop {
        let view = View {
            now: Instant::now(),
            at: OffsetDateTime::now_utc(),
            interval,
            palette,
        };
        screen
            .terminal()
            .draw(|frame| screen::draw(frame, &model, view))
            .map_err(TopError::Terminal)?;
        let mut next = match timeout(REDRAW, inputs.recv()).await {
            Ok(Some(input)) => Some(input),
            Ok(None) => return Ok(()),
            Err(_) => None,
        };
        // All waiting inputs are drawn at once: a key that is held down must not queue up.
        while let Some(input) = next {
            if take(&mut model, input) == Next::End {
                return Ok(());
            }
            next = inputs.try_recv().ok();
        }
    }
}

fn take(model: &mut Model, input: Input) -> Next {
    match input {
        Input::Key(key) => return model.key(key),
        Input::Answer(answer) => {
            let answer = answer.map(|status| *status);
            model.take(Instant::now(), OffsetDateTime::now_utc(), answer);
        }
        Input::Resized => {}
        Input::End => return Next::End,
    }
    Next::GoOn
}

/// Until nobody listens.
fn ask_again_and_again(socket: &Path, interval: Duration, tell: &mpsc::Sender<Input>) {
    loop {
        let answer = ask(socket).map(Box::new).map_err(|error| error.to_string());
        if tell.blocking_send(Input::Answer(answer)).is_err() {
            return;
        }
        thread::sleep(interval);
    }
}

/// Runs until nobody listens, or the terminal is gone.
fn read_keys(tell: &mpsc::Sender<Input>) {
    loop {
        let input = match event::read() {
            Ok(Event::Key(key)) => Input::Key(key),
            Ok(Event::Resize(..)) => Input::Resized,
            Ok(_) => continue,
            Err(_) => Input::End,
        };
        let ends = matches!(input, Input::End);
        if tell.blocking_send(input).is_err() || ends {
            return;
        }
    }
}
