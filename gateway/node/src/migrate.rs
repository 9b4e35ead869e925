//! `underpass migrate`: moves a class of a running node to another path.

use serde_json::json;

use crate::api::MigrationView;
use crate::cli::MigrateCommand;
use crate::client::{self, ClientError};

/// Moves the class, and prints its path.
///
/// # Errors
/// When no node answers, or it refuses.
pub fn execute(command: &MigrateCommand) -> Result<(), ClientError> {
    let order = json!({
        "class": command.class,
        "path": command.path,
        "hold": !command.by_rule,
    });
    let answer = client::ask(&command.socket, "POST", "/v1/migrations", Some(&order))?;
    let views: Vec<MigrationView> = serde_json::from_slice(&answer)?;
    let moved = views.iter().filter(|view| view.class == command.class);
    let lines = moved.map(|view| {
        let held = if view.held { ", kept there" } else { "" };
        let MigrationView {
            class,
            neighbour,
            path,
            ..
        } = view;
        format!("{class} to ipn:{neighbour}.0 by {path}{held}\n")
    });
    client::print(&lines.collect::<String>())
}
