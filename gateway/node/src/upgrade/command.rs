//! `underpass upgrade`: lets the program that is installed now take over a running node.

use std::path::Path;

use serde::Deserialize;

use crate::client::{self, ClientError};

#[derive(Deserialize)]
struct Answer {
    process: u32,
}

/// Prints which process has the node now.
///
/// # Errors
/// When no node answers, or it keeps running as it is.
pub fn execute(socket: &Path) -> Result<(), ClientError> {
    let answer = client::ask(socket, "POST", "/v1/upgrade", None)?;
    let answer: Answer = serde_json::from_slice(&answer)?;
    client::print(&format!("process {} goes on\n", answer.process))
}
