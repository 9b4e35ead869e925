//! Traces of exchanges (OpenTelemetry): what is traced, and how it gets to a collector.
//!
//! A terminal's edge begins a trace; its context travels in the request to open the stream
//! ([`underpass_streams::TraceContext`]), and the hub's spans are children of the terminal's. The
//! hub's next post of reports to the control service belongs to the trace, too: it reports the
//! exchange's demand, for which the service then plans.

mod export;
mod links;
mod sampling;
mod spans;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use opentelemetry::InstrumentationScope;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use underpass_cla::Class;
use underpass_control_client::PostTrace;
use underpass_edge::traces::{Beginning, Exchange, ExchangeSpan, TraceContext, Traces};

use crate::config::{Config, Role, TracesConfig};
use crate::shell::LinkEvent;
use export::Export;
pub use export::{Counts, ExportError};
use links::Recent;
use sampling::Sampler;
use spans::Clock;

/// Most exchanges that the next post to the control service refers to.
const MOST_TOLD: usize = 32;

/// Traces exchanges of this node.
#[derive(Debug)]
pub struct Tracer {
    config: TracesConfig,
    classes: Vec<String>,
    sampler: Mutex<Sampler>,
    recent: Mutex<Recent>,
    /// Exchanges of peers that no post has been linked with.
    untold: Mutex<VecDeque<TraceContext>>,
    export: Export,
    scope: InstrumentationScope,
}

impl Tracer {
    /// As configured; none if tracing is not configured.
    ///
    /// # Errors
    /// When the collector's address or certificates cannot be used.
    pub fn start(config: &Config) -> Result<Option<Arc<Tracer>>, ExportError> {
        let Some(traces) = &config.traces else {
            return Ok(None);
        };
        let role = match config.node.role {
            Role::Terminal => "terminal",
            Role::Hub => "hub",
            Role::Relay => "relay",
        };
        let tracer = Tracer {
            classes: config.classes.iter().map(|c| c.name.clone()).collect(),
            sampler: Mutex::new(Sampler::new(traces.most_per_s, Instant::now())),
            recent: Mutex::default(),
            untold: Mutex::default(),
            export: Export::start(traces, config.node.number, role)?,
            scope: InstrumentationScope::builder("underpass").build(),
            config: traces.clone(),
        };
        Ok(Some(Arc::new(tracer)))
    }

    /// Remembers what happens to the links.
    pub async fn follow(self: Arc<Self>, mut events: broadcast::Receiver<LinkEvent>) {
        loop {
            match events.recv().await {
                Ok(event) => lock(&self.recent).note(&event),
                // Missed events are absent from traces.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// What has become of spans.
    pub fn counts(&self) -> &Counts {
        self.export.counts()
    }

    /// Sends what waits.
    pub fn finish(&self) {
        self.export.finish();
    }

    /// The trace of a post that refers to exchanges, if any of them is traced.
    pub fn post(self: &Arc<Self>) -> Option<Box<dyn PostTrace>> {
        let exchanges: Vec<TraceContext> = lock(&self.untold).drain(..).collect();
        let context = spans::child_of(exchanges.first()?);
        Some(Box::new(Post {
            tracer: self.clone(),
            context,
            exchanges,
            began: Instant::now(),
        }))
    }

    fn class_name(&self, class: Class) -> String {
        let name = self.classes.get(usize::from(class.0));
        name.cloned().unwrap_or_else(|| class.0.to_string())
    }

    /// The span that a client's exchange is a child of, and whether its trace is sampled; `None` if
    /// this node decides.
    fn client_context(&self, traceparent: Option<&str>) -> Option<(TraceContext, bool)> {
        let header = traceparent.filter(|_| self.config.client_context)?;
        TraceContext::of_header(header)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl Traces for Tracer {
    fn begin(&self, beginning: Beginning<'_>) -> Option<ExchangeSpan> {
        match beginning {
            Beginning::Client { traceparent } => {
                let parent = self.client_context(traceparent);
                let wanted = match parent {
                    Some((_, sampled)) => sampled,
                    None => fastrand::f64() < self.config.ratio,
                };
                if !wanted || !lock(&self.sampler).client(Instant::now()) {
                    return None;
                }
                let parent = parent.map(|(context, _)| context);
                Some(ExchangeSpan {
                    context: parent.map_or_else(spans::fresh, |of| spans::child_of(&of)),
                    parent: parent.map(|context| context.span_id),
                    peer: None,
                })
            }
            Beginning::Peer { node, context } => {
                if !lock(&self.sampler).peer(Instant::now(), node) {
                    return None;
                }
                let own = spans::child_of(&context);
                let mut untold = lock(&self.untold);
                if untold.len() < MOST_TOLD {
                    untold.push_back(own);
                }
                Some(ExchangeSpan {
                    context: own,
                    parent: Some(context.span_id),
                    peer: Some(node),
                })
            }
        }
    }

    fn ended(&self, exchange: Exchange) {
        let neighbour = exchange.far.unwrap_or_default();
        let links = lock(&self.recent).between(neighbour, exchange.began, exchange.ended);
        let class = self.class_name(exchange.class);
        let clock = Clock::now();
        for span in spans::of_exchange(&exchange, class, links, clock, &self.scope) {
            self.export.take(span);
        }
    }
}

/// A post of reports that is under way.
struct Post {
    tracer: Arc<Tracer>,
    context: TraceContext,
    exchanges: Vec<TraceContext>,
    began: Instant,
}

impl PostTrace for Post {
    fn traceparent(&self) -> String {
        self.context.to_string()
    }

    fn ended(self: Box<Self>, outcome: Result<(), String>) {
        let took = self.began.elapsed();
        let span = spans::of_post(self.context, &self.exchanges, self.began, took, outcome);
        let tracer = &self.tracer;
        tracer.export.take(span.data(Clock::now(), &tracer.scope));
    }
}
