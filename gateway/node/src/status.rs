//! `underpass status`.

use std::path::Path;

use crate::api::Status;
use crate::client::{self, ClientError};

/// Prints the status of the node at `socket`.
///
/// # Errors
/// When no node answers there, or this version does not understand the answer.
pub fn print(socket: &Path, json: bool) -> Result<(), ClientError> {
    let body = client::ask(socket, "GET", "/v1/status", None)?;
    if json {
        let value: serde_json::Value = serde_json::from_slice(&body)?;
        return client::print(&format!("{value:#}\n"));
    }
    client::print(&serde_json::from_slice::<Status>(&body)?.to_string())
}
