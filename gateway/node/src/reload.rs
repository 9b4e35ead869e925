//! `underpass reload`: makes a running node read its configuration again.

use std::path::Path;

use serde::Deserialize;

use crate::client::{self, ClientError};

#[derive(Deserialize)]
struct Answer {
    changes: Vec<String>,
}

/// Prints what has changed.
///
/// # Errors
/// When no node answers, or it refuses the configuration.
pub fn execute(socket: &Path) -> Result<(), ClientError> {
    let answer = client::ask(socket, "POST", "/v1/reload", None)?;
    let answer: Answer = serde_json::from_slice(&answer)?;
    let text = match answer.changes.is_empty() {
        true => "nothing has changed".to_owned(),
        false => answer.changes.join("\n"),
    };
    client::print(&format!("{text}\n"))
}
