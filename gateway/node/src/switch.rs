//! `underpass switch`: switches what a running node takes in on and off.

use serde_json::{Value, json};

use crate::api::{EdgeSwitches, SwitchView};
use crate::cli::{Part, SwitchCommand};
use crate::client::{self, ClientError};

/// Changes what the node takes in, and prints the resulting state.
///
/// # Errors
/// When no node answers, or it refuses.
pub fn execute(command: &SwitchCommand) -> Result<(), ClientError> {
    let ask = |method, body: Option<&Value>| -> Result<EdgeSwitches, ClientError> {
        let answer = client::ask(&command.socket, method, "/v1/edge", body)?;
        Ok(serde_json::from_slice(&answer)?)
    };
    let before = ask("GET", None)?;
    let mut change = serde_json::Map::new();
    if command.part != Some(Part::Interception) {
        change.insert("proxies".to_owned(), changed(command, before.proxies));
    }
    if command.part != Some(Part::Proxies) {
        // If it is requested by name and there is none, the node reports that.
        let interception = match command.part {
            Some(_) => Some(before.interception.unwrap_or_default()),
            None => before.interception,
        };
        if let Some(view) = interception {
            change.insert("interception".to_owned(), changed(command, view));
        }
    }
    let after = ask("PATCH", Some(&Value::Object(change)))?;
    client::print(&after.to_string())
}

/// The switch as `command` leaves it: with no client, network or port named,
/// all of it is meant.
fn changed(command: &SwitchCommand, before: SwitchView) -> Value {
    if command.clients.is_empty() && command.networks.is_empty() && command.ports.is_empty() {
        let mut all = json!({"enabled": command.on()});
        if command.on() {
            for list in ["off_clients", "off_networks", "off_ports"] {
                all[list] = json!([]);
            }
        }
        return all;
    }
    let ports = command.ports.iter().map(ToString::to_string).collect();
    json!({
        "off_clients": listed(command.on(), before.off_clients, command.clients.clone()),
        "off_networks": listed(command.on(), before.off_networks, command.networks.clone()),
        "off_ports": listed(command.on(), before.off_ports, ports),
    })
}

fn listed<T: PartialEq>(on: bool, mut list: Vec<T>, named: Vec<T>) -> Vec<T> {
    list.retain(|entry| !named.contains(entry));
    if !on {
        list.extend(named);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_joins_or_leaves_the_list_and_the_rest_stays() {
        assert_eq!(listed(false, vec![1, 2], vec![2, 3]), [1, 2, 3]);
        assert_eq!(listed(true, vec![1, 2], vec![2, 3]), [1]);
    }
}
