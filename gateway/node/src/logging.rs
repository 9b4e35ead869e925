//! Structured logs on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::config::{LogConfig, LogFormat};

/// Starts logging for the whole process.
///
/// # Errors
/// Fails if the level or filter directives cannot be read.
pub fn start(config: &LogConfig) -> Result<(), ParseError> {
    let filter = EnvFilter::builder().parse(&config.level)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match config.format {
        LogFormat::Text => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
