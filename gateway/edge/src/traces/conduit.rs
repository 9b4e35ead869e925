//! A conduit that records the times of its events.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use underpass_cla::Class;

use super::{Exchange, ExchangeSpan, Traces};
use crate::stream::{
    Conduit, Connected, Failure, FlowPath, OpenRequest, Received, StreamName, StreamTimes,
};

/// Records the events of the inner conduit, and reports them when it is dropped.
pub(super) struct TracedConduit {
    inner: Box<dyn Conduit>,
    traces: Arc<dyn Traces>,
    /// None once it is reported.
    exchange: Option<Box<Exchange>>,
}

impl TracedConduit {
    pub fn new(
        traces: Arc<dyn Traces>,
        span: ExchangeSpan,
        request: OpenRequest,
        inner: Box<dyn Conduit>,
    ) -> TracedConduit {
        let now = Instant::now();
        let exchange = Exchange {
            span,
            class: request.class,
            request,
            path: None,
            began: now,
            resolved: None,
            connected: None,
            origin: None,
            stream: StreamTimes::default(),
            first_sent: None,
            first_received: None,
            sent_bytes: 0,
            received_bytes: 0,
            failure: None,
            far: None,
            left: false,
            ended: now,
        };
        TracedConduit {
            inner,
            traces,
            exchange: Some(Box::new(exchange)),
        }
    }

    fn note(&mut self, note: impl FnOnce(&mut Exchange)) {
        if let Some(exchange) = &mut self.exchange {
            note(exchange);
        }
    }

    /// Notes the first failure.
    fn failed<T>(&mut self, polled: Poll<Result<T, Failure>>) -> Poll<Result<T, Failure>> {
        if let Poll::Ready(Err(failure)) = &polled {
            self.note(|exchange| {
                exchange.failure.get_or_insert_with(|| failure.clone());
            });
        }
        polled
    }
}

impl Conduit for TracedConduit {
    fn poll_send_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        let polled = self.inner.poll_send_capacity(cx);
        self.failed(polled)
    }

    fn send(&mut self, data: Bytes) {
        let bytes = data.len() as u64;
        self.note(|exchange| {
            exchange.first_sent.get_or_insert_with(Instant::now);
            exchange.sent_bytes += bytes;
        });
        self.inner.send(data);
    }

    fn finish(&mut self) {
        self.inner.finish();
    }

    fn stop(&mut self) {
        self.inner.stop();
    }

    fn reset(&mut self, failure: Failure) {
        self.note(|exchange| {
            exchange.failure.get_or_insert_with(|| failure.clone());
        });
        self.inner.reset(failure);
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Received> {
        let polled = self.inner.poll_receive(cx, max);
        if let Poll::Ready(Ok(Some(data))) = &polled {
            self.note(|exchange| {
                exchange.first_received.get_or_insert_with(Instant::now);
                exchange.received_bytes += data.len() as u64;
            });
        }
        self.failed(polled)
    }

    fn peer_has_closed(&self) -> bool {
        self.inner.peer_has_closed()
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        let polled = self.inner.poll_outcome(cx);
        self.failed(polled)
    }

    fn connected(&mut self, connected: Connected) {
        self.note(|exchange| {
            exchange.resolved = connected.resolved;
            exchange.connected = Some(Instant::now());
            exchange.origin = connected.origin;
        });
        self.inner.connected(connected);
    }

    fn begin_flow(&mut self, size_bytes: u64, explain: bool) -> FlowPath {
        let mut path = self.inner.begin_flow(size_bytes, true);
        let chosen = path.why.as_ref().and_then(|why| why.chosen.clone());
        self.note(|exchange| exchange.path = chosen.or(exchange.path.take()));
        if !explain {
            path.why = None;
        }
        path
    }

    fn set_class(&mut self, class: Class) {
        self.note(|exchange| exchange.class = class);
        self.inner.set_class(class);
    }

    fn stream(&self) -> Option<StreamName> {
        self.inner.stream()
    }

    fn times(&self) -> StreamTimes {
        self.inner.times()
    }

    fn leave(&mut self) {
        self.note(|exchange| exchange.left = true);
        self.inner.leave();
    }
}

impl Drop for TracedConduit {
    fn drop(&mut self) {
        if let Some(mut exchange) = self.exchange.take() {
            exchange.stream = self.inner.times();
            exchange.far = self.inner.stream().map(|stream| stream.peer);
            exchange.ended = Instant::now();
            self.traces.ended(*exchange);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::stream::{FailureCode, PathChoice, Protocol, Target};
    use crate::traces::{Beginning, TraceContext, trace};

    /// Accepts all events.
    #[derive(Default)]
    struct Taking(Mutex<Vec<Exchange>>);

    impl Traces for Taking {
        fn begin(&self, _: Beginning<'_>) -> Option<ExchangeSpan> {
            None
        }

        fn ended(&self, exchange: Exchange) {
            self.0.lock().unwrap().push(exchange);
        }
    }

    /// A conduit that answers with one byte, and then breaks.
    struct Breaking {
        answered: bool,
    }

    fn broken() -> Failure {
        Failure::new(FailureCode::Reset, "it broke")
    }

    impl Conduit for Breaking {
        fn poll_send_capacity(&mut self, _: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
            Poll::Ready(Ok(1))
        }

        fn send(&mut self, _: Bytes) {}

        fn finish(&mut self) {}

        fn stop(&mut self) {}

        fn reset(&mut self, _: Failure) {}

        fn poll_receive(&mut self, _: &mut Context<'_>, _: usize) -> Poll<Received> {
            match std::mem::replace(&mut self.answered, true) {
                false => Poll::Ready(Ok(Some(Bytes::from_static(b"a")))),
                true => Poll::Ready(Err(broken())),
            }
        }

        fn poll_outcome(&mut self, _: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
            Poll::Pending
        }

        fn connected(&mut self, _: Connected) {}

        fn begin_flow(&mut self, _: u64, explain: bool) -> FlowPath {
            let chosen = PathChoice {
                policy: "migrate",
                estimate: None,
                chosen: Some("lte".to_owned()),
                compared: Vec::new(),
            };
            FlowPath {
                why: explain.then_some(chosen),
                ..FlowPath::default()
            }
        }
    }

    #[test]
    fn what_happens_on_a_conduit_is_told_once_at_its_end() {
        let taking = Arc::new(Taking::default());
        let span = ExchangeSpan {
            context: TraceContext {
                trace_id: [1; 16],
                span_id: [2; 8],
            },
            parent: None,
            peer: None,
        };
        let request = OpenRequest {
            target: Target::parse("origin.example", 80).unwrap(),
            client: "10.0.0.5:5000".parse().unwrap(),
            listener: "socks".into(),
            protocol: Protocol::Socks5,
            class: Class(1),
            awaits_outcome: false,
            trace: Some(span.context),
        };
        let inner = Box::new(Breaking { answered: false });
        let mut conduit = trace(taking.clone(), span, request, inner);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let path = conduit.begin_flow(5, false);
        assert_eq!(path.why, None, "nobody has asked why");
        conduit.send(Bytes::from_static(b"hello"));
        conduit.set_class(Class(2));
        assert!(conduit.poll_receive(&mut cx, 9).is_ready());
        assert_eq!(conduit.poll_receive(&mut cx, 9), Poll::Ready(Err(broken())));
        assert!(taking.0.lock().unwrap().is_empty(), "it is not over");
        drop(conduit);
        let told = taking.0.lock().unwrap();
        let [exchange] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((exchange.sent_bytes, exchange.received_bytes), (5, 1));
        assert_eq!(exchange.class, Class(2));
        assert_eq!(exchange.path.as_deref(), Some("lte"));
        assert_eq!(exchange.failure, Some(broken()));
        assert!(exchange.first_sent <= exchange.first_received);
        assert!(exchange.first_received <= Some(exchange.ended));
    }
}
