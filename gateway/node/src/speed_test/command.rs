//! `underpass speed-test`: lets a running node test its hop, and prints the result.

use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::sleep;

use super::{Loaded, Report, RoundTrips, State};
use crate::cli::SpeedTestCommand;
use crate::client::{self, ClientError};

const PATH: &str = "/v1/speed-test";
const LOOKED_AT: Duration = Duration::from_millis(300);

/// Why there is no whole report.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The node does not answer, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The report says why.
    #[error("the speed test was not finished")]
    NotFinished,
}

/// Begins a test, follows it, and prints its report. Ctrl-C aborts it.
///
/// # Errors
/// When no node answers, or it refuses, or the test breaks off.
pub fn execute(command: &SpeedTestCommand) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ClientError::Runtime)?;
    let report = runtime.block_on(async {
        tokio::select! {
            report = follow(command) => report,
            _ = tokio::signal::ctrl_c() => {
                ask(&command.socket, "DELETE", None).await?;
                latest(&command.socket).await
            }
        }
    })?;
    if command.json {
        let value = serde_json::to_value(&report).map_err(ClientError::Answer)?;
        client::print(&format!("{value:#}\n"))?;
    } else {
        client::print(&report.to_string())?;
    }
    match report.state {
        State::Done => Ok(()),
        _ => Err(CommandError::NotFinished),
    }
}

async fn follow(command: &SpeedTestCommand) -> Result<Report, ClientError> {
    let mut wanted = json!({ "seconds": command.seconds });
    if let Some(class) = &command.class {
        wanted["class"] = json!(class);
    }
    ask(&command.socket, "POST", Some(wanted)).await?;
    let shows = stderr().is_terminal() && !command.json;
    let mut shown = None;
    loop {
        let report = latest(&command.socket).await?;
        if shows && shown != Some(report.state) {
            let mut line = stderr().lock();
            let _ = match report.state {
                State::Idle => write!(line, "round trip of the idle hop …"),
                State::Down => write!(line, "\rdownload, {} s …\x1b[K", report.seconds),
                State::Up => write!(line, "\rupload, {} s …\x1b[K", report.seconds),
                State::Done | State::Failed => write!(line, "\r\x1b[K"),
            };
            shown = Some(report.state);
        }
        if matches!(report.state, State::Done | State::Failed) {
            return Ok(report);
        }
        sleep(LOOKED_AT).await;
    }
}

async fn latest(socket: &Path) -> Result<Report, ClientError> {
    Ok(serde_json::from_slice(&ask(socket, "GET", None).await?)?)
}

/// Asks on a thread that may wait.
async fn ask(
    socket: &Path,
    method: &'static str,
    body: Option<Value>,
) -> Result<Vec<u8>, ClientError> {
    let socket: PathBuf = socket.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        client::ask(&socket, method, PATH, body.as_ref()).map(|answer| answer.to_vec())
    });
    match asked.await {
        Ok(answer) => answer,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

impl fmt::Display for RoundTrips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} ms ({:.0} to {:.0} ms, {} echoes)",
            self.median_ms, self.least_ms, self.most_ms, self.count
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "through the hop to ipn:{}.0, class {}",
            self.peer, self.class
        )?;
        if let Some(idle) = &self.idle {
            writeln!(f, "idle      round trip {idle}")?;
        }
        let loaded = |f: &mut fmt::Formatter<'_>, name: &str, loaded: &Option<Loaded>| {
            let Some(Loaded {
                bps, round_trips, ..
            }) = loaded
            else {
                return Ok(());
            };
            let mbit = bps.map_or(0.0, |bps| bps as f64 / 1e6);
            write!(f, "{name:<9} {mbit:.2} Mbit/s")?;
            match round_trips {
                Some(taken) => writeln!(f, ", round trip {taken}"),
                None => writeln!(f),
            }
        };
        loaded(f, "download", &self.down)?;
        loaded(f, "upload", &self.up)?;
        match &self.failure {
            Some(failure) => writeln!(f, "not finished: {failure}"),
            None => Ok(()),
        }
    }
}
