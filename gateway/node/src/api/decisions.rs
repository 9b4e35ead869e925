//! Decisions about flows as they are made: a line of JSON for each, for as long as somebody reads.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use underpass_edge::config::HostPattern;
use underpass_edge::flows::{Asked, Destination, FlowDecision, FlowFilter, News, PathNews};
use underpass_edge::stream::{ComparedPath, PathChoice};

use super::ApiState;
use super::problem::{Problem, Query};

/// For how long decisions are streamed, s.
const DEFAULT_S: u64 = 600;
const MOST_S: u64 = 3_600;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meant {
    /// Only flows of clients with this address or in this network.
    client: Option<String>,
    /// Only flows to this address, network or host; `*.name` means all names below one.
    destination: Option<String>,
    /// Only flows whose class this rule of `[[edge.rule]]` has given.
    rule: Option<String>,
    for_s: Option<u64>,
}

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum DecisionView {
    /// Something was decided about a flow.
    Flow(Box<FlowView>),
    /// A path that such a flow could use has changed.
    Path(PathNewsView),
}

/// What was decided about a flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowView {
    /// When; null where the time is not known.
    #[serde(with = "time::serde::rfc3339::option")]
    pub at: Option<OffsetDateTime>,
    /// Lines before this one that were left out because the reader was too slow.
    pub missed: usize,
    /// begins, larger-than-expected, later-than-expected or class-changed.
    pub cause: String,
    /// The stream: the other edge node and its number there; null if it has none.
    pub stream: Option<StreamView>,
    /// The client's address and port.
    pub client: String,
    /// Host and port that it goes to.
    pub target: String,
    /// The host's name as the flow gives it; null if it gives none.
    pub host: Option<String>,
    /// Type and subtype; empty if not known.
    pub content_type: String,
    /// What remains of the flow, bytes; null if only the class has changed.
    pub size_bytes: Option<u64>,
    /// told, metadata, learned, assumed or doubled.
    pub size_from: Option<String>,
    /// The rule of this node that has given the class; null if none has.
    pub rule: Option<String>,
    /// The class; null if it is still the one from before an upgrade.
    pub class: Option<String>,
    /// The policy of the class; null if no path was chosen.
    pub policy: Option<String>,
    /// open-session or new-connection; null if nothing is estimated.
    pub estimate: Option<String>,
    /// The path; null if each bundle gets its own, or if no path can carry.
    pub chosen: Option<String>,
    /// The paths that could carry it.
    pub compared: Vec<ComparedView>,
}

/// A stream's name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamView {
    /// The other edge node.
    pub peer: u64,
    /// Its run.
    pub epoch: u64,
    /// The stream's number.
    pub id: u64,
}

/// A path that a flow could go by.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComparedView {
    /// The path's or terminal's name.
    pub path: String,
    /// One way, queues included, ms (d).
    pub delay_ms: f64,
    /// bit/s of IP bytes (c); null is not limited.
    pub capacity_bps: Option<u64>,
    /// Part of the packets that is lost, 0 to 1.
    pub loss: f64,
    /// Until all that it was given has left, ms.
    pub busy_ms: f64,
    /// Flows that compete (n).
    pub flows: u64,
    /// What these send meanwhile, bytes.
    pub competing_bytes: u64,
    /// What goes before all of them, bytes.
    pub before_bytes: u64,
    /// The estimated time until the flow is complete on it, ms; null if nothing is estimated.
    pub completes_ms: Option<f64>,
    /// By how much it delays other flows, all together, ms: those that compete, and those that
    /// begin while it is sent.
    #[serde(default)]
    pub others_wait_ms: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PathNewsView {
    /// When; null where the time is not known.
    #[serde(with = "time::serde::rfc3339::option")]
    pub at: Option<OffsetDateTime>,
    /// Lines before this one that were left out because the reader was too slow.
    pub missed: usize,
    /// The path's or terminal's name.
    pub path: String,
    /// blocked, free or moved.
    pub change: String,
    /// Who says so, or why.
    pub reason: String,
    /// The class that has moved away; null if none has.
    pub class: Option<String>,
    /// The path that it goes by now.
    pub to: Option<String>,
}

/// GET /v1/decisions?client=NETWORK&destination=WHERE&rule=NAME&for_s=SECONDS
pub async fn follow(
    State(state): State<Arc<ApiState>>,
    Query(meant): Query<Meant>,
) -> Result<Response, Problem> {
    let seconds = meant.for_s.unwrap_or(DEFAULT_S);
    if !(1..=MOST_S).contains(&seconds) {
        return Err(Problem::invalid("for_s must be 1 to 3600"));
    }
    let asked = state.edge.flows().decisions().ask(meant.filter()?);
    let asked =
        asked.map_err(|error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let (sender, body) = Channel::<Bytes, Infallible>::new(1);
    let told = tell(state, asked, sender);
    tokio::spawn(tokio::time::timeout(Duration::from_secs(seconds), told));
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::new(body)).into_response())
}

/// Writes lines until the reader has gone.
async fn tell(state: Arc<ApiState>, mut asked: Asked, mut lines: Sender<Bytes>) {
    loop {
        let (news, missed) = tokio::select! {
            next = asked.next() => match next {
                Some(next) => next,
                None => return,
            },
            // Writing an empty line shows whether anybody still reads.
            () = tokio::time::sleep(Duration::from_secs(5)) => {
                match lines.send_data(Bytes::from_static(b"\n")).await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
        };
        let Ok(mut line) = serde_json::to_vec(&state.decision_view(&news, missed)) else {
            return;
        };
        line.push(b'\n');
        if lines.send_data(line.into()).await.is_err() {
            return;
        }
    }
}

impl Meant {
    fn filter(self) -> Result<FlowFilter, Problem> {
        let client = self.client.map(|text| {
            network(&text).ok_or_else(|| {
                Problem::invalid(format!(
                    "client: {text:?} is neither an address nor a network"
                ))
            })
        });
        let destination = self.destination.map(|text| match network(&text) {
            Some(network) => Ok(Destination::Network(network)),
            None => HostPattern::try_from(text)
                .map(Destination::Host)
                .map_err(|error| Problem::invalid(format!("destination: {error}"))),
        });
        Ok(FlowFilter {
            client: client.transpose()?,
            destination: destination.transpose()?,
            rule: self.rule,
        })
    }
}

fn network(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address)
}

impl ApiState {
    fn decision_view(&self, news: &News, missed: usize) -> DecisionView {
        let now = OffsetDateTime::now_utc();
        let at = crate::clock::utc_ms().map(|_| now);
        match news {
            News::Flow(flow) => DecisionView::Flow(Box::new(self.flow_view(flow, at, missed))),
            News::Path(news) => DecisionView::Path(self.path_news_view(news, at, missed)),
        }
    }

    fn flow_view(
        &self,
        flow: &FlowDecision,
        at: Option<OffsetDateTime>,
        missed: usize,
    ) -> FlowView {
        let choice = flow.choice.as_ref();
        let text = |text: &'static str| text.to_owned();
        FlowView {
            at,
            missed,
            cause: text(flow.cause.name()),
            stream: flow.stream.map(|stream| StreamView {
                peer: stream.peer,
                epoch: stream.epoch,
                id: stream.id,
            }),
            client: flow.client.to_string(),
            target: flow.target.to_string(),
            host: flow.host.as_deref().map(str::to_owned),
            content_type: flow.content_type.to_string(),
            size_bytes: flow.size_bytes,
            size_from: flow.size_from.map(|from| text(from.name())),
            rule: flow.rule.as_deref().map(str::to_owned),
            class: flow.class.map(|class| self.class_name(class)),
            policy: choice.map(|choice| text(choice.policy)),
            estimate: choice.and_then(|choice| choice.estimate).map(text),
            chosen: choice.and_then(|choice| choice.chosen.clone()),
            compared: choice.map(compared).unwrap_or_default(),
        }
    }

    fn path_news_view(
        &self,
        news: &PathNews,
        at: Option<OffsetDateTime>,
        missed: usize,
    ) -> PathNewsView {
        let moved = news.moved.as_ref();
        PathNewsView {
            at,
            missed,
            path: news.path.clone(),
            change: news.change.to_owned(),
            reason: news.reason.to_owned(),
            class: moved.map(|(class, _)| self.class_name(*class)),
            to: moved.map(|(_, to)| to.clone()),
        }
    }
}

fn compared(choice: &PathChoice) -> Vec<ComparedView> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let view = |path: &ComparedPath| ComparedView {
        path: path.path.clone(),
        delay_ms: ms(path.delay),
        capacity_bps: path.capacity_bps,
        loss: path.loss,
        busy_ms: ms(path.busy),
        flows: path.flows,
        competing_bytes: path.competing_bytes,
        before_bytes: path.before_bytes,
        completes_ms: path.completes.map(ms),
        others_wait_ms: ms(path.others_wait),
    };
    choice.compared.iter().map(view).collect()
}
