//! `underpass route`: explains the way to a node.

use crate::api::RouteView;
use crate::cli::RouteCommand;
use crate::client::{self, ClientError};
use crate::config::is_node_name;

/// Prints where bundles to a node go, and why.
///
/// # Errors
/// When no node answers, or it refuses.
pub fn execute(command: &RouteCommand) -> Result<(), ClientError> {
    if !is_node_name(&command.node) {
        let node = &command.node;
        return Err(ClientError::Usage(format!(
            "{node:?} is neither a node's number nor its name in the dtn scheme"
        )));
    }
    let path = format!("/v1/routes/{}", command.node);
    let answer = client::ask(&command.socket, "GET", &path, None)?;
    if command.json {
        let value: serde_json::Value = serde_json::from_slice(&answer)?;
        return client::print(&format!("{value:#}\n"));
    }
    client::print(&serde_json::from_slice::<RouteView>(&answer)?.to_string())
}
