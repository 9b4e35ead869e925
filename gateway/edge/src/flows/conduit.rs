//! A conduit whose flows are watched.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_cla::Class;

use super::watch::{FlowStart, Watch};
use crate::classify::{Classifier, Facts, FlowFacts};
use crate::stream::{Conduit, Connected, Failure, OpenRequest, StreamName};

/// Passes everything on, and tells the node where flows begin and which class
/// the rules give them.
pub(super) struct FlowConduit {
    inner: Box<dyn Conduit>,
    watch: Watch,
    rules: Arc<Classifier>,
    request: OpenRequest,
    dscp: Option<u8>,
    /// The class that it has at present.
    class: Class,
    /// Rules are asked anew once so many bytes were sent.
    ask_at_bytes: Option<u64>,
}

impl FlowConduit {
    pub fn new(
        inner: Box<dyn Conduit>,
        watch: Watch,
        rules: Arc<Classifier>,
        request: &OpenRequest,
        dscp: Option<u8>,
    ) -> FlowConduit {
        FlowConduit {
            inner,
            watch,
            ask_at_bytes: rules.next_promotion(0),
            rules,
            class: request.class,
            request: request.clone(),
            dscp,
        }
    }

    fn look_at(&mut self, data: &[u8]) {
        let start = self.watch.sends(Instant::now(), data);
        let total = self.watch.total_bytes();
        let asks = self.ask_at_bytes.is_some_and(|at| total >= at);
        if asks {
            self.ask_at_bytes = self.rules.next_promotion(total);
        }
        if start.is_some() || asks {
            let flow = start.clone().or_else(|| self.watch.present());
            self.classify(flow.as_ref(), total);
        }
        if let Some(start) = start
            && let Some(rtt) = self.inner.begin_flow(start.size_bytes)
        {
            self.watch.set_round_trip(rtt);
        }
    }

    fn classify(&mut self, flow: Option<&FlowStart>, sent_bytes: u64) {
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
        let class = self.rules.classify_flow(&facts);
        let class = class.unwrap_or(self.request.class);
        if std::mem::replace(&mut self.class, class) != class {
            self.inner.set_class(class);
        }
    }
}

impl Conduit for FlowConduit {
    fn poll_send_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        self.inner.poll_send_capacity(cx)
    }

    fn send(&mut self, data: Bytes) {
        self.look_at(&data);
        self.inner.send(data);
    }

    fn begin_flow(&mut self, size_bytes: u64) -> Option<Duration> {
        self.inner.begin_flow(size_bytes)
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

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, Failure>> {
        let received = self.inner.poll_receive(cx, max);
        if let Poll::Ready(Ok(Some(data))) = &received {
            self.watch.receives(Instant::now(), data);
        }
        received
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

    fn leave(&mut self) {
        self.inner.leave();
    }
}
