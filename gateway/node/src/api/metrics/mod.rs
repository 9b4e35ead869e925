//! GET /metrics: the node in figures for Prometheus, read when it asks.
//!
//! Units are base units, bytes and seconds. Sums only grow while the process runs: the bytes of a
//! transport stay in the sum after its session ends.

mod bpsec;
mod cdni;
mod contact_plan;
mod control;
mod deferred;
mod disk;
mod families;
mod links;
mod ltp;
mod plans;
mod positions;
mod reports;
mod traffic;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Registry, Unit};

use underpass_deferred::Figures;

use super::ApiState;
use super::problem::Problem;
use families::Families;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// GET /metrics
pub async fn scrape(State(state): State<Arc<ApiState>>) -> Response {
    let deferred = match &state.deferred {
        // A failure of the store is in the log; the other figures stay valid.
        Some(handle) => handle.figures().await.ok(),
        None => None,
    };
    let mut registry = Registry::with_prefix("underpass");
    registry.register_collector(Box::new(NodeCollector { state, deferred }));
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
        }
    }
}

/// Reads the whole node at each scrape.
struct NodeCollector {
    state: Arc<ApiState>,
    deferred: Option<Figures>,
}

impl fmt::Debug for NodeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeCollector")
    }
}

impl Collector for NodeCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families::new(encoder);
        process(&self.state, &mut families)?;
        links::encode(&self.state, &mut families)?;
        traffic::encode(&self.state, &mut families)?;
        disk::encode(&self.state, &mut families)?;
        disk::encode_payloads(&self.state, &mut families)?;
        bpsec::encode(&self.state, &mut families)?;
        reports::encode(&self.state, &mut families)?;
        control::encode(&self.state, &mut families)?;
        cdni::encode(&self.state, &mut families)?;
        plans::encode(&self.state, &mut families)?;
        contact_plan::encode(&self.state, &mut families)?;
        if let Some(positions) = &self.state.positions {
            positions::encode(positions, &mut families)?;
        }
        match &self.deferred {
            Some(figures) => deferred::encode(figures, &mut families),
            None => Ok(()),
        }
    }
}

fn process(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let config = state.config.get();
    let node = config.node.number.to_string();
    let role = config.node.role.name().to_owned();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    families.info(
        "build",
        "The program and the node it runs",
        [vec![("version", version), ("node", node), ("role", role)]],
    )?;
    let end = state.security.not_after();
    let end = end.and_then(|end| end.duration_since(UNIX_EPOCH).ok());
    families.gauge(
        ("certificate_expiry_timestamp", Unit::Seconds),
        "When this node's certificate ends, since the Unix epoch",
        end.map(|end| (vec![], end.as_secs())),
    )?;
    families.gauge(
        "incarnation",
        "Count of the node's starts",
        [(vec![], state.incarnation)],
    )?;
    families.gauge(
        ("uptime", Unit::Seconds),
        "Since the start of the process",
        [(vec![], state.started.elapsed().as_secs_f64())],
    )?;
    families.gauge(
        "edge_connections",
        "Connections of clients that are open",
        [(vec![], state.edge.open_connections())],
    )?;
    families.histogram(
        ("edge_answered", Unit::Seconds),
        "From a forwarded request to the head of its response",
        state.accounts.answered(),
    )?;
    families.histogram(
        ("edge_took", Unit::Seconds),
        "From the beginning of a client's connection or exchange to its end",
        state.accounts.took(),
    )?;
    let lost = state.accounts.lines_lost();
    families.counter(
        "access_log_lost_lines",
        "Lines of the access log that could not be written",
        lost.map(|lost| (vec![], lost)),
    )?;
    let spans = state.tracer.as_ref().map(|tracer| {
        let counts = tracer.counts();
        [
            ("made", &counts.made),
            ("exported", &counts.exported),
            ("failed", &counts.failed),
        ]
    });
    families.counter(
        "trace_spans",
        "Spans of traced exchanges: those made, those that the collector has taken and those that it has not",
        spans.into_iter().flatten().map(|(outcome, count)| {
            let labels = vec![("outcome", outcome.to_owned())];
            (labels, count.load(Ordering::Relaxed))
        }),
    )?;
    let rules = state.edge.flows().rules().counts().into_iter();
    families.counter(
        "edge_rule_matches",
        "Connections and flows that a rule has given their class",
        rules.map(|rule| {
            let labels = vec![("rule", rule.name), ("class", rule.class)];
            (labels, rule.matched)
        }),
    )?;
    let Some(interceptor) = &state.interceptor else {
        return Ok(());
    };
    let plain = interceptor.plain_ip_bytes();
    families.counter(
        ("plain_ip", Unit::Bytes),
        "Clients' bytes routed as plain IP, beside the streams",
        [("up", plain.up), ("down", plain.down)]
            .map(|(direction, bytes)| (vec![("direction", direction.to_owned())], bytes)),
    )?;
    families.gauge(
        "interception_enabled",
        "Whether connections are taken in transparently",
        [(vec![], u64::from(interceptor.switch().enabled))],
    )
}
