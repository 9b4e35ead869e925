//! Structured logs on standard error.

mod excerpt;
mod limits;
mod one_line;

use std::sync::Arc;

use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::writer::MakeWriterExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Error};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use crate::config::{LogConfig, LogFormat};

pub use excerpt::{Excerpt, Part};
use limits::Limiter;
pub use limits::Limits;
use one_line::OneLine;

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
    /// Applies other filter directives.
    ///
    /// # Errors
    /// If they cannot be parsed; the former directives then stay.
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
    let (level, handle) = reload::Layer::new(filter(&config.level)?);
    let lines = fmt::layer()
        .with_writer(OneLine(std::io::stderr.and(excerpt.clone())))
        // They are printed to standard error, and that panics if nobody reads it.
        .log_internal_errors(false);
    let limiter = Limiter(limits.clone());
    let lines = match config.format {
        LogFormat::Text => lines.with_ansi(false).with_filter(limiter).boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_filter(limiter)
            .boxed(),
    };
    registry().with(level).with(lines).init();
    let level = Level(Box::new(move |filter| handle.reload(filter)));
    Ok(Log {
        level,
        excerpt,
        limits,
    })
}
