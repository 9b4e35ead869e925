//! A conduit whose flows are watched.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::Class;

use super::RulesInForce;
use super::decisions::{Cause, Decisions, FlowDecision, SizeSource};
use super::watch::{FlowStart, Watch};
use crate::classify::{Classifier, Facts, FlowFacts};
use crate::stream::{
    Conduit, Connected, Failure, FlowPath, OpenRequest, PathChoice, Received, StreamName,
    StreamTimes,
};

/// A flow is late once `LATE_TIMES` times its estimated time to completion, plus `LATE_BY`, have
/// passed. Its path may have been unknown when it was chosen, or may carry less by now.
const LATE_TIMES: u32 = 2;
const LATE_BY: Duration = Duration::from_secs(1);

/// Passes everything on, and tells the node where flows begin and which class
/// the rules give them.
pub(super) struct FlowConduit {
    inner: Box<dyn Conduit>,
    watch: Watch,
    in_force: Arc<RulesInForce>,
    /// The rules that were applied last, and the number of rule sets before them.
    rules: Arc<Classifier>,
    replaced: u64,
    request: OpenRequest,
    dscp: Option<u8>,
    /// The class of the connection, and the present class of the stream; none while they are not
    /// known.
    of_connection: Option<Class>,
    class: Option<Class>,
    /// The rules that have given these classes, if any.
    rule_of_connection: Option<Arc<str>>,
    rule: Option<Arc<str>>,
    /// Tells operators who ask.
    decisions: Arc<Decisions>,
    /// The rules are applied again once this many bytes were sent.
    ask_at_bytes: Option<u64>,
    /// If the present flow is not complete by then, the path of its rest is chosen again.
    late_at: Option<Instant>,
    /// The stream takes nothing at present.
    held_up: bool,
}

impl FlowConduit {
    pub fn new(
        inner: Box<dyn Conduit>,
        watch: Watch,
        in_force: Arc<RulesInForce>,
        request: &OpenRequest,
        dscp: Option<u8>,
        decisions: Arc<Decisions>,
    ) -> FlowConduit {
        // If the rules are replaced between these two calls, they are read again later.
        let (replaced, rules) = (in_force.replaced(), in_force.rules());
        FlowConduit {
            inner,
            rule_of_connection: None,
            rule: None,
            decisions,
            watch,
            ask_at_bytes: rules.next_promotion(0),
            in_force,
            rules,
            replaced,
            of_connection: Some(request.class),
            class: Some(request.class),
            request: request.clone(),
            dscp,
            late_at: None,
            held_up: false,
        }
    }

    /// For a connection that got its class from this rule.
    pub fn by_rule(self, rule: Option<Arc<str>>) -> FlowConduit {
        FlowConduit {
            rule_of_connection: rule.clone(),
            rule,
            ..self
        }
    }

    /// For a stream whose class is not known: it keeps that class until a rule gives it another.
    pub fn of_unknown_class(self) -> FlowConduit {
        FlowConduit {
            of_connection: None,
            class: None,
            ..self
        }
    }

    fn look_at(&mut self, now: Instant, data: &[u8]) {
        let start = self.watch.sends(now, data);
        let total = self.watch.total_bytes();
        let replaced = self.takes_other_rules();
        let asks = replaced || self.ask_at_bytes.is_some_and(|at| total >= at);
        if asks {
            self.ask_at_bytes = self.rules.next_promotion(total);
        }
        let late = start.is_none() && self.late_at.is_some_and(|at| now >= at);
        let rest = late.then(|| self.watch.rest(data.len())).flatten();
        if start.is_none() && !asks && rest.is_none() {
            return;
        }
        let flow = start.clone().or_else(|| self.watch.present());
        let other_class = (start.is_some() || asks) && self.classify(flow.as_ref(), total);
        let explain = self.decisions.wants(self.request.client);
        let size = start.as_ref().map(|start| start.size_bytes).or(rest);
        let path = match size {
            Some(size_bytes) => self.begin(now, size_bytes, explain),
            None => FlowPath::default(),
        };
        if !explain {
            return;
        }
        let cause = match &start {
            Some(start) if start.size_from == SizeSource::Doubled => Cause::Larger,
            Some(_) => Cause::Begins,
            None if rest.is_some() => Cause::Late,
            None if other_class => Cause::Class,
            None => return,
        };
        self.tell(cause, size, flow.as_ref(), path.why);
    }

    /// A flow begins, or the path of its rest is chosen again.
    fn begin(&mut self, now: Instant, size_bytes: u64, explain: bool) -> FlowPath {
        let path = self.inner.begin_flow(size_bytes, explain);
        if let Some(round_trip) = path.round_trip {
            self.watch.set_round_trip(round_trip);
        }
        self.late_at = path.completes.and_then(|completes| {
            let patience = completes.saturating_mul(LATE_TIMES);
            now.checked_add(patience.saturating_add(LATE_BY))
        });
        path
    }

    /// Takes the rules that are in force. Returns whether they have changed.
    fn takes_other_rules(&mut self) -> bool {
        let replaced = self.in_force.replaced();
        let others = std::mem::replace(&mut self.replaced, replaced) != replaced;
        if others {
            self.rules = self.in_force.rules();
        }
        others
    }

    /// Reports a decision: about the next `size_bytes`, or about the class alone.
    fn tell(
        &self,
        cause: Cause,
        size_bytes: Option<u64>,
        flow: Option<&FlowStart>,
        choice: Option<PathChoice>,
    ) {
        self.decisions.tell(FlowDecision {
            cause,
            stream: self.inner.stream(),
            client: self.request.client,
            target: self.request.target.clone(),
            host: flow.and_then(|flow| flow.host.clone()),
            content_type: flow
                .map(|flow| flow.content_type.clone())
                .unwrap_or_default(),
            size_bytes,
            size_from: size_bytes.and(flow.map(|flow| flow.size_from)),
            rule: self.rule.clone(),
            class: self.class,
            choice,
        });
    }

    /// Finds the class of the bytes that follow by the rules. Returns whether it has changed.
    fn classify(&mut self, flow: Option<&FlowStart>, sent_bytes: u64) -> bool {
        let facts = Facts {
            listener: &self.request.listener,
            protocol: self.request.protocol,
            target: &self.request.target,
            client: self.request.client,
            dscp: self.dscp,
            content_length: None,
            flow: FlowFacts {
                host: flow.and_then(|flow| flow.host.as_deref()),
                content_type: flow.map(|flow| &*flow.content_type),
                size_bytes: flow.filter(|flow| flow.told).map(|flow| flow.size_bytes),
                sent_bytes: Some(sent_bytes),
            },
        };
        let found = self.rules.classify_flow(&facts);
        self.rule = match found {
            Some((_, rule)) => Some(rule.clone()),
            None => self.rule_of_connection.clone(),
        };
        let class = found.map(|(class, _)| class).or(self.of_connection);
        let Some(class) = class.filter(|class| self.class != Some(*class)) else {
            return false;
        };
        self.class = Some(class);
        self.inner.set_class(class);
        true
    }
}

impl Conduit for FlowConduit {
    fn poll_send_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        let capacity = self.inner.poll_send_capacity(cx);
        if std::mem::replace(&mut self.held_up, capacity.is_pending()) && !self.held_up {
            self.watch.was_held_up(Instant::now());
        }
        capacity
    }

    fn send(&mut self, data: Bytes) {
        self.look_at(Instant::now(), &data);
        self.inner.send(data);
    }

    fn begin_flow(&mut self, size_bytes: u64, explain: bool) -> FlowPath {
        self.inner.begin_flow(size_bytes, explain)
    }

    fn set_class(&mut self, class: Class) {
        self.inner.set_class(class);
    }

    fn finish(&mut self) {
        self.inner.finish();
    }

    fn stop(&mut self) {
        self.inner.stop();
    }

    fn reset(&mut self, failure: Failure) {
        self.inner.reset(failure);
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Received> {
        let received = self.inner.poll_receive(cx, max);
        if let Poll::Ready(Ok(Some(data))) = &received {
            self.watch.receives(Instant::now(), data);
        }
        received
    }

    fn peer_has_closed(&self) -> bool {
        self.inner.peer_has_closed()
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        self.inner.poll_outcome(cx)
    }

    fn connected(&mut self, connected: Connected) {
        self.inner.connected(connected);
    }

    fn stream(&self) -> Option<StreamName> {
        self.inner.stream()
    }

    fn times(&self) -> StreamTimes {
        self.inner.times()
    }

    fn leave(&mut self) {
        self.inner.leave();
    }
}

#[cfg(test)]
mod tests;
