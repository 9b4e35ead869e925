//! Proxies and interception: what is taken in, and what passes as plain IP.

use std::sync::Arc;

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use underpass_edge::Switch;
use underpass_edge::classify::RuleCount;
use underpass_edge::config::PortRange;

use super::ApiState;
use super::problem::{Json, Problem};
use crate::interception::Interceptor;

/// Most networks or ports in one list: each becomes part of a rule.
const MOST_ENTRIES: usize = 1_000;

/// What is taken in at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SwitchView {
    /// Whether anything is.
    pub enabled: bool,
    /// Clients that are not.
    pub off_clients: Vec<IpNet>,
    /// Destinations that are not.
    pub off_networks: Vec<IpNet>,
    /// Destination ports that are not.
    pub off_ports: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct EdgeSwitches {
    /// Of SOCKS and HTTP listeners.
    pub proxies: SwitchView,
    /// Of transparent interception; null where none is configured.
    pub interception: Option<SwitchView>,
    #[serde(default)]
    pub rules: Vec<RuleCount>,
}

#[derive(Debug, Serialize)]
pub struct EdgeView {
    /// Connections of clients that are open.
    connections: usize,
    listeners: Vec<ListenerView>,
    proxies: SwitchView,
    /// Null where none is configured.
    interception: Option<InterceptionView>,
    rules: Vec<RuleCount>,
}

#[derive(Debug, Serialize)]
struct ListenerView {
    name: String,
    address: String,
}

#[derive(Debug, Serialize)]
struct InterceptionView {
    #[serde(flatten)]
    switch: SwitchView,
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
        proxies: (&state.edge.switch()).into(),
        interception: interceptor.map(interception),
        rules: state.rules(),
    })
}

impl From<&Switch> for SwitchView {
    fn from(switch: &Switch) -> SwitchView {
        SwitchView {
            enabled: switch.enabled,
            off_clients: switch.off_clients.clone(),
            off_networks: switch.off_networks.clone(),
            off_ports: switch.off_ports.iter().map(PortRange::to_string).collect(),
        }
    }
}

impl ApiState {
    fn rules(&self) -> Vec<RuleCount> {
        self.edge.flows().rules().counts()
    }

    pub(super) fn switches(&self) -> EdgeSwitches {
        let interceptor = self.interceptor.as_deref();
        EdgeSwitches {
            proxies: (&self.edge.switch()).into(),
            interception: interceptor.map(|interceptor| (&interceptor.switch()).into()),
            rules: self.rules(),
        }
    }
}

fn interception(interceptor: &Interceptor) -> InterceptionView {
    let families = interceptor.families();
    let plain = interceptor.plain_ip_bytes();
    InterceptionView {
        switch: (&interceptor.switch()).into(),
        ipv4: families.ipv4,
        ipv6: families.ipv6,
        in_force: interceptor.is_in_force(),
        plain_up_bytes: plain.up,
        plain_down_bytes: plain.down,
    }
}

/// A change of the edge; fields that are left out do not change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeChange {
    #[serde(default)]
    proxies: Option<SwitchChange>,
    #[serde(default)]
    interception: Option<SwitchChange>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchChange {
    enabled: Option<bool>,
    off_clients: Option<Vec<IpNet>>,
    off_networks: Option<Vec<IpNet>>,
    off_ports: Option<Vec<PortRange>>,
}

impl SwitchChange {
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

/// PATCH /v1/edge: open connections continue; traffic that is no longer taken in passes as plain
/// IP.
pub async fn change(
    state: State<Arc<ApiState>>,
    Json(change): Json<EdgeChange>,
) -> Result<Reply<EdgeView>, Problem> {
    for part in [&change.proxies, &change.interception]
        .into_iter()
        .flatten()
    {
        part.check()?;
    }
    if change.interception.is_some() && state.interceptor.is_none() {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "no [edge.interception] is configured",
        ));
    }
    tracing::info!(?change, "what is taken in is changed by the local API");
    if let (Some(part), Some(interceptor)) = (change.interception, state.interceptor.clone()) {
        switch_interception(interceptor, part).await?;
    }
    if let Some(part) = change.proxies {
        let mut switch = state.edge.switch();
        part.apply(&mut switch);
        state.edge.set_switch(switch);
    }
    Ok(show(state).await)
}

async fn switch_interception(
    interceptor: Arc<Interceptor>,
    part: SwitchChange,
) -> Result<(), Problem> {
    let failed = |text: String| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text);
    tokio::task::spawn_blocking(move || interceptor.change(|switch| part.apply(switch)))
        .await
        .map_err(|_| failed("the change broke off".to_owned()))?
        .map_err(|error| failed(error.to_string()))
}
