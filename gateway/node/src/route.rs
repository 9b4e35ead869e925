//! `underpass route`: explains the route to a node.

use crate::api::RouteView;
use crate::cli::RouteCommand;
use crate::client::{self, ClientError};
use crate::config::is_node_name;

/// Prints where bundles to a node go, and why.
///
/// # Errors
/// When no node answers, or it refuses.
pub fn execute(command: &RouteCommand) -> Result<(), ClientError> {
    let node = &command.node;
    let Some(asked) = in_path(node) else {
        return Err(ClientError::Usage(format!(
            "{node:?} is neither a node's number nor its name in the dtn scheme"
        )));
    };
    let path = format!("/v1/routes/{asked}");
    let answer = client::ask(&command.socket, "GET", &path, None)?;
    if command.json {
        let value: serde_json::Value = serde_json::from_slice(&answer)?;
        return client::print(&format!("{value:#}\n"));
    }
    client::print(&serde_json::from_slice::<RouteView>(&answer)?.to_string())
}

/// A node's name in a path of the API; none if the text names no node.
fn in_path(node: &str) -> Option<String> {
    let Some(named) = node.strip_prefix("dtn:") else {
        return is_node_name(node).then(|| node.to_owned());
    };
    let whole = named.strip_prefix("//");
    let name = whole.and_then(|name| name.strip_suffix('/'));
    let name = name.unwrap_or(named);
    is_node_name(name).then(|| format!("dtn:{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_digits_is_told_from_a_number() {
        for (node, asked) in [
            ("7", Some("7")),
            ("rover", Some("rover")),
            ("dtn://7/", Some("dtn:7")),
            ("dtn:rover", Some("dtn:rover")),
            ("dtn://7", None),
            ("dtn://7/x", None),
            ("dtn:none", None),
            ("dtn:", None),
            ("a/b", None),
        ] {
            assert_eq!(in_path(node).as_deref(), asked, "{node}");
        }
    }
}
