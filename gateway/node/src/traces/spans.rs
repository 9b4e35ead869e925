//! Makes spans from the recorded times of an exchange.
//!
//! | at the edge that took it in | |
//! |---|---|
//! | `exchange` | from the request to its end |
//! | `queue` | until the request to open the stream was sealed into a bundle |
//! | `hop` | until the next custodian has acknowledged that bundle |
//! | `first byte` | from the request to the first byte that came back |
//!
//! | at the edge that dials | |
//! |---|---|
//! | `stream` | from its arrival to its end; a child of `exchange` |
//! | `resolve`, `connect` | the origin's name, and the connection to it |
//! | `answer` | from then to the origin's first byte |

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use underpass_edge::traces::{Exchange, TraceContext};

use super::links::LinkNote;

/// Converts instants to times of day, by the present clock: if the clock is set during an exchange,
/// all its times move equally.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    at: Instant,
    shows: SystemTime,
}

impl Clock {
    pub fn now() -> Clock {
        Clock {
            at: Instant::now(),
            shows: SystemTime::now(),
        }
    }

    fn time(&self, at: Instant) -> SystemTime {
        let before = self.at.saturating_duration_since(at);
        let after = at.saturating_duration_since(self.at);
        let time = self.shows.checked_sub(before).unwrap_or(self.shows);
        time + after
    }
}

/// A span that is over.
pub struct Ended {
    pub context: TraceContext,
    pub parent: Option<[u8; 8]>,
    pub parent_is_remote: bool,
    pub kind: SpanKind,
    pub name: Cow<'static, str>,
    pub began: Instant,
    pub ended: Instant,
    pub attributes: Vec<KeyValue>,
    pub status: Status,
    pub links: Vec<TraceContext>,
}

impl Ended {
    /// One of this node, without more.
    fn within(of: &TraceContext, name: &'static str, began: Instant, ended: Instant) -> Ended {
        Ended {
            context: child_of(of),
            parent: Some(of.span_id),
            parent_is_remote: false,
            kind: SpanKind::Internal,
            name: name.into(),
            began,
            ended: ended.max(began),
            attributes: Vec::new(),
            status: Status::Unset,
            links: Vec::new(),
        }
    }

    /// As the SDK exports it.
    pub fn data(self, clock: Clock, scope: &InstrumentationScope) -> SpanData {
        let mut links = SpanLinks::default();
        let linked = self.links.iter();
        links.links = linked
            .map(|context| Link::new(span_context(context, true), Vec::new(), 0))
            .collect();
        SpanData {
            span_context: span_context(&self.context, false),
            parent_span_id: self.parent.map_or(SpanId::INVALID, SpanId::from_bytes),
            parent_span_is_remote: self.parent_is_remote,
            span_kind: self.kind,
            name: self.name,
            start_time: clock.time(self.began),
            end_time: clock.time(self.ended),
            attributes: self.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: self.status,
            instrumentation_scope: scope.clone(),
        }
    }
}

fn span_context(context: &TraceContext, remote: bool) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(context.trace_id),
        SpanId::from_bytes(context.span_id),
        TraceFlags::SAMPLED,
        remote,
        TraceState::default(),
    )
}

/// A new span of the same trace.
pub fn child_of(context: &TraceContext) -> TraceContext {
    TraceContext {
        trace_id: context.trace_id,
        span_id: fastrand::u64(1..).to_be_bytes(),
    }
}

/// A new trace with its first span.
pub fn fresh() -> TraceContext {
    TraceContext {
        trace_id: fastrand::u128(1..).to_be_bytes(),
        span_id: fastrand::u64(1..).to_be_bytes(),
    }
}

/// The spans of an exchange at this node; `class` is the name of its class, and `links` are the
/// events of the links meanwhile.
pub fn of_exchange(
    exchange: &Exchange,
    class: String,
    links: Vec<LinkNote>,
    clock: Clock,
    scope: &InstrumentationScope,
) -> Vec<SpanData> {
    let own = &exchange.span.context;
    let part = |name, from: Option<Instant>, to: Option<Instant>| {
        Some(Ended::within(own, name, from?, to?).data(clock, scope))
    };
    let began = Some(exchange.began);
    let stream = &exchange.stream;
    let parts = match exchange.span.peer {
        None => vec![
            part("queue", began, stream.sealed),
            part("hop", stream.sealed, stream.acknowledged),
            part("first byte", began, exchange.first_received),
        ],
        Some(_) => vec![
            part("resolve", began, exchange.resolved),
            part("connect", exchange.resolved, exchange.connected),
            part("answer", exchange.connected, exchange.first_sent),
        ],
    };
    let mut whole = whole(exchange, class).data(clock, scope);
    whole.events.events = links
        .into_iter()
        .map(|note| {
            let at = clock.time(note.at.max(exchange.began));
            let attributes = vec![
                KeyValue::new("underpass.path", note.path),
                KeyValue::new("underpass.link.because", note.because),
            ];
            Event::new(note.name, at, attributes, 0)
        })
        .collect();
    let parts = parts.into_iter().flatten();
    std::iter::once(whole).chain(parts).collect()
}

fn whole(exchange: &Exchange, class: String) -> Ended {
    let request = &exchange.request;
    let name = match exchange.span.peer {
        None => "exchange",
        Some(_) => "stream",
    };
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let protocol = format!("{:?}", request.protocol).to_lowercase();
    let host = match request.target.name() {
        Some(name) => Some(name.to_owned()),
        None => request.target.ip().map(|ip| ip.to_string()),
    };
    // Names of OpenTelemetry's semantic conventions, where these have one.
    let mut attributes = vec![
        KeyValue::new("server.address", host.unwrap_or_default()),
        KeyValue::new("server.port", i64::from(request.target.port())),
        KeyValue::new("underpass.class", class),
        KeyValue::new("underpass.bytes_sent", bytes(exchange.sent_bytes)),
        KeyValue::new("underpass.bytes_received", bytes(exchange.received_bytes)),
    ];
    if !request.client.ip().is_unspecified() {
        let client = request.client;
        attributes.push(KeyValue::new("client.address", client.ip().to_string()));
        attributes.push(KeyValue::new("client.port", i64::from(client.port())));
    }
    match exchange.span.peer {
        None => {
            attributes.push(KeyValue::new(
                "underpass.listener",
                request.listener.to_string(),
            ));
            attributes.push(KeyValue::new("underpass.protocol", protocol));
        }
        Some(peer) => attributes.push(KeyValue::new("underpass.peer", bytes(peer))),
    }
    let path = exchange.path.clone();
    attributes.extend(path.map(|path| KeyValue::new("underpass.path", path)));
    let origin = exchange.origin.map(|origin| origin.ip().to_string());
    attributes.extend(origin.map(|ip| KeyValue::new("network.peer.address", ip)));
    if exchange.left {
        attributes.push(KeyValue::new("underpass.handed_over", true));
    }
    let status = match &exchange.failure {
        Some(failure) => Status::error(failure.to_string()),
        None => Status::Unset,
    };
    Ended {
        context: exchange.span.context,
        parent: exchange.span.parent,
        parent_is_remote: exchange.span.parent.is_some(),
        kind: SpanKind::Server,
        name: name.into(),
        began: exchange.began,
        ended: exchange.ended,
        attributes,
        status,
        links: Vec::new(),
    }
}

/// The span of a post of reports to the control service that refers to traced exchanges.
pub fn of_post(
    context: TraceContext,
    exchanges: &[TraceContext],
    began: Instant,
    took: Duration,
    outcome: Result<(), String>,
) -> Ended {
    Ended {
        context,
        parent: exchanges.first().map(|first| first.span_id),
        parent_is_remote: false,
        kind: SpanKind::Client,
        name: "report".into(),
        began,
        ended: began + took,
        attributes: Vec::new(),
        status: match outcome {
            Ok(()) => Status::Unset,
            Err(error) => Status::error(error),
        },
        links: exchanges.iter().skip(1).copied().collect(),
    }
}
