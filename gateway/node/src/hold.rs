//! `underpass holds`: shows and releases what operators have set on a running node.

use crate::api::{HoldView, holds_table};
use crate::cli::HoldsCommand;
use crate::client::{self, ClientError};

/// Releases the named holds, and prints those that remain.
///
/// # Errors
/// When no node answers, or it refuses.
pub fn execute(command: &HoldsCommand) -> Result<(), ClientError> {
    for id in &command.release {
        client::ask(&command.socket, "DELETE", &format!("/v1/holds/{id}"), None)?;
    }
    let answer = client::ask(&command.socket, "GET", "/v1/holds", None)?;
    let views: Vec<HoldView> = serde_json::from_slice(&answer)?;
    match views.is_empty() {
        true => client::print("nothing is held\n"),
        false => client::print(&holds_table(&views).to_string()),
    }
}
