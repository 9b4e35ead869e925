//! Proxies and interception: what is taken in, and what passes as plain IP.

use std::sync::Arc;

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use underpass_edge::config::PortRange;
use underpass_edge::transparent::Switch;

use super::ApiState;
use super::problem::{Json, Problem};
use crate::interception::Interceptor;

/// Most networks or ports in one list: each becomes part of a rule.
const MOST_ENTRIES: usize = 1_000;

/// The edge at one moment.
#[derive(Debug, Serialize)]
pub struct EdgeView {
    /// Connections of clients that are open.
    connections: usize,
    listeners: Vec<ListenerView>,
    /// Null where none is configured.
    interception: Option<InterceptionView>,
}

#[derive(Debug, Serialize)]
struct ListenerView {
    name: String,
    address: String,
}

/// Interception at one moment.
#[derive(Debug, Serialize)]
struct InterceptionView {
    enabled: bool,
    off_clients: Vec<IpNet>,
    off_networks: Vec<IpNet>,
    off_ports: Vec<String>,
    /// Address families that the far node reaches.
    ipv4: bool,
    ipv6: bool,
    /// Whether the kernel has the rules still.
    in_force: bool,
    /// Clients' bytes routed as plain IP.
    plain_up_bytes: u64,
    plain_down_bytes: u64,
}

/// GET /v1/edge
pub async fn show(State(state): State<Arc<ApiState>>) -> Reply<EdgeView> {
    let listeners = state.edge.addresses().iter();
    let interceptor = state.interceptor.as_deref();
    Reply(EdgeView {
        connections: state.edge.open_connections(),
        listeners: listeners
            .map(|(name, address)| ListenerView {
                name: name.clone(),
                address: address.to_string(),
            })
            .collect(),
        interception: interceptor.map(interception),
    })
}

fn interception(interceptor: &Interceptor) -> InterceptionView {
    let switch = interceptor.switch();
    let plain = interceptor.plain_ip_bytes();
    InterceptionView {
        enabled: switch.enabled,
        off_clients: switch.off_clients,
        off_networks: switch.off_networks,
        off_ports: switch.off_ports.iter().map(PortRange::to_string).collect(),
        ipv4: switch.families.ipv4,
        ipv6: switch.families.ipv6,
        in_force: interceptor.is_in_force(),
        plain_up_bytes: plain.up,
        plain_down_bytes: plain.down,
    }
}

/// A change of the edge; what is left out stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeChange {
    interception: InterceptionChange,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterceptionChange {
    enabled: Option<bool>,
    off_clients: Option<Vec<IpNet>>,
    off_networks: Option<Vec<IpNet>>,
    off_ports: Option<Vec<PortRange>>,
}

impl InterceptionChange {
    fn check(&self) -> Result<(), Problem> {
        let lengths = [
            self.off_clients.as_ref().map(Vec::len),
            self.off_networks.as_ref().map(Vec::len),
            self.off_ports.as_ref().map(Vec::len),
        ];
        if lengths.into_iter().flatten().any(|n| n > MOST_ENTRIES) {
            return Err(Problem::invalid(format!(
                "a list may have {MOST_ENTRIES} entries at most"
            )));
        }
        Ok(())
    }

    fn apply(self, switch: &mut Switch) {
        fn replace<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        replace(&mut switch.enabled, self.enabled);
        replace(&mut switch.off_clients, self.off_clients);
        replace(&mut switch.off_networks, self.off_networks);
        replace(&mut switch.off_ports, self.off_ports);
    }
}

/// PATCH /v1/edge: open connections live on; what is not taken in any more
/// passes as plain IP.
pub async fn change(
    state: State<Arc<ApiState>>,
    Json(change): Json<EdgeChange>,
) -> Result<Reply<EdgeView>, Problem> {
    let change = change.interception;
    change.check()?;
    let Some(interceptor) = state.interceptor.clone() else {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "no [edge.interception] is configured",
        ));
    };
    tracing::info!(?change, "interception changed by the local API");
    let changed = tokio::task::spawn_blocking(move || interceptor.change(|s| change.apply(s)));
    let failed = |text: String| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text);
    match changed.await {
        Ok(Ok(())) => Ok(show(state).await),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("the change broke off".to_owned())),
    }
}
