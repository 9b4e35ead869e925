//! `underpass bring-up`: brings a running node's path on demand up, or releases it.

use serde_json::json;

use crate::api::PathView;
use crate::cli::BringUpCommand;
use crate::client::{self, ClientError};

/// Changes it, and prints the resulting state.
///
/// # Errors
/// When no node answers, or it refuses.
pub fn execute(command: &BringUpCommand) -> Result<(), ClientError> {
    let held = match (command.release, command.as_needed) {
        (true, _) => Some(false),
        (_, true) => None,
        _ => Some(true),
    };
    let change = json!({ "brought_up": held });
    let path = format!("/v1/paths/{}", command.path);
    let answer = client::ask(&command.socket, "PATCH", &path, Some(&change))?;
    let view: PathView = serde_json::from_slice(&answer)?;
    let state = match view.hop.on_demand {
        Some(of) if of.up => "up",
        _ => "released",
    };
    let kept = if held.is_some() {
        "until you say otherwise"
    } else {
        "as needed"
    };
    client::print(&format!("{}: {state}, {kept}\n", command.path))
}
