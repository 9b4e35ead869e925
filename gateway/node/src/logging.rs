//! Structured logs on standard error.

mod excerpt;
mod limits;
mod one_line;

use std::sync::Arc;

use tracing::Metadata;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::writer::MakeWriterExt;
use tracing_subscriber::reload::Error;

use crate::config::{LogConfig, LogFormat};

pub use excerpt::Excerpt;
pub use limits::Limits;
use one_line::OneLine;

/// The log of the process.
pub struct Log {
    /// What is logged.
    pub level: Level,
    /// What was logged last.
    pub excerpt: Arc<Excerpt>,
    /// How often each line may be.
    pub limits: Arc<Limits>,
}

/// Changes what is logged while the process runs.
pub struct Level(Box<dyn Fn(EnvFilter) -> Result<(), Error> + Send + Sync>);

impl Level {
    /// Logs by other filter directives.
    ///
    /// # Errors
    /// If they cannot be read; what was logged before still is then.
    pub fn set(&self, level: &str) -> Result<(), ParseError> {
        let filter = filter(level)?;
        if let Err(error) = (self.0)(filter) {
            tracing::error!(%error, "the log level stays as it was");
        }
        Ok(())
    }
}

fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(level)
}

/// Starts logging for the whole process.
///
/// # Errors
/// Fails if the level or filter directives cannot be read.
pub fn start(config: &LogConfig) -> Result<Log, ParseError> {
    let excerpt = Arc::new(Excerpt::default());
    let limits = Arc::new(Limits::default());
    let limited = limits.clone();
    let lines = OneLine(std::io::stderr.and(excerpt.clone()));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(&config.level)?)
        .with_writer(lines.with_filter(move |line: &Metadata<'_>| limited.admits(line)))
        // By a print on standard error, which panics if nobody reads it.
        .log_internal_errors(false);
    let level = Level(match config.format {
        LogFormat::Text => {
            let builder = builder.with_ansi(false).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| handle.reload(filter))
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let handle = builder.reload_handle();
            builder.init();
            Box::new(move |filter| handle.reload(filter))
        }
    });
    Ok(Log {
        level,
        excerpt,
        limits,
    })
}
