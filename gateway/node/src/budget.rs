//! `underpass budget`: adds to the budget of a running node's metered path, or resets it.

use serde_json::json;

use crate::api::PathView;
use crate::cli::BudgetCommand;
use crate::client::{self, ClientError};

/// Changes the budget, and prints what is spent of it.
///
/// # Errors
/// When no node answers, or it refuses.
pub fn execute(command: &BudgetCommand) -> Result<(), ClientError> {
    let change = match command.add_bytes {
        Some(bytes) => json!({ "add_bytes": bytes }),
        None => json!({ "reset": true }),
    };
    let path = format!("/v1/paths/{}/budget", command.path);
    let answer = client::ask(&command.socket, "POST", &path, Some(&change))?;
    let view: PathView = serde_json::from_slice(&answer)?;
    let line = view.hop.meter.map(|meter| {
        let budget = meter.budget_bytes.unwrap_or_default();
        format!(
            "{}: {} of {budget} bytes\n",
            command.path, meter.spent_bytes
        )
    });
    client::print(&line.unwrap_or_default())
}
