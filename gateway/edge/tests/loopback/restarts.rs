//! Requests that were in transit when the far node restarted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use underpass_cla::Class;
use underpass_edge::Edge;
use underpass_edge::classify::Classifier;
use underpass_edge::config::EdgeConfig;
use underpass_edge::dial::Dialler;
use underpass_edge::direct::DirectOutlet;
use underpass_edge::stream::{
    Conduit, Connected, Failure, FailureCode, OpenRequest, Outlet, Received,
};

use crate::forward::{body, head};
use crate::world::{origin, read_until};

/// A stream that has taken some bytes when its peer restarts.
#[derive(Default)]
struct Lost {
    took: bool,
    reader: Option<Waker>,
}

impl Conduit for Lost {
    fn poll_send_capacity(&mut self, _: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        Poll::Ready(Ok(65_536))
    }

    fn send(&mut self, _: Bytes) {
        self.took = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn finish(&mut self) {}

    fn stop(&mut self) {}

    fn reset(&mut self, _: Failure) {}

    fn poll_receive(&mut self, cx: &mut Context<'_>, _: usize) -> Poll<Received> {
        if self.took {
            let text = "the peer node restarted";
            return Poll::Ready(Err(Failure::new(FailureCode::Unavailable, text)));
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_outcome(&mut self, _: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        Poll::Ready(Ok(Connected::default()))
    }

    fn connected(&mut self, _: Connected) {}
}

/// Streams to a peer that restarts this many times.
struct Restarting {
    outlet: DirectOutlet,
    opened: Arc<AtomicUsize>,
    restarts: usize,
}

impl Outlet for Restarting {
    fn open(&self, request: OpenRequest) -> Result<Box<dyn Conduit>, Failure> {
        if self.opened.fetch_add(1, Ordering::Relaxed) < self.restarts {
            return Ok(Box::new(Lost::default()));
        }
        self.outlet.open(request)
    }
}

/// The client's answer to a request, and how many streams were opened for it.
async fn asked(restarts: usize, request: &str) -> (String, String, usize) {
    let origin = origin(|mut socket| async move {
        let head = read_until(&mut socket, b"\r\n\r\n").await;
        assert!(head.starts_with(b"GET /a "), "{head:?}");
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere";
        socket.write_all(answer).await.unwrap();
    })
    .await;
    let config: EdgeConfig = toml::from_str(
        "client_networks = ['127.0.0.0/8']
         dial.allow_networks = ['127.0.0.0/8']
         [[listener]]
         name = 'in'\nprotocol = 'http'\naddress = '127.0.0.1:0'",
    )
    .unwrap();
    let opened = Arc::new(AtomicUsize::new(0));
    let outlet = Restarting {
        outlet: DirectOutlet::new(Arc::new(Dialler::new(config.dial.clone()))),
        opened: opened.clone(),
        restarts,
    };
    let classifier = Classifier::new(&config.rule, Class(0), |_| None).unwrap();
    let edge = Edge::start(&config, classifier, Arc::new(outlet)).unwrap();
    let mut client = TcpStream::connect(edge.addresses()[0].1).await.unwrap();
    let request = request.replace("ORIGIN", &origin.to_string());
    client.write_all(request.as_bytes()).await.unwrap();
    let head = head(&mut client).await;
    let body = body(&mut client, &head).await;
    (head, body, opened.load(Ordering::Relaxed))
}

const GET: &str = "GET http://ORIGIN/a HTTP/1.1\r\nHost: ORIGIN\r\n\r\n";

#[tokio::test]
async fn a_request_that_does_nothing_twice_is_sent_to_the_next_run() {
    let (head, body, opened) = asked(1, GET).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!((body.as_str(), opened), ("there", 2));
}

#[tokio::test]
async fn it_is_sent_once_more_and_not_for_ever() {
    let (head, body, opened) = asked(9, GET).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(body.contains("the peer node restarted"), "{body}");
    assert_eq!(opened, 2);
}

#[tokio::test]
async fn what_may_have_been_done_is_not_done_twice() {
    let post = "POST http://ORIGIN/a HTTP/1.1\r\nHost: ORIGIN\r\nContent-Length: 0\r\n\r\n";
    let put = "PUT http://ORIGIN/a HTTP/1.1\r\nHost: ORIGIN\r\nContent-Length: 2\r\n\r\nhi";
    for request in [post, put] {
        let (head, _, opened) = asked(1, request).await;
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        assert_eq!(opened, 1);
    }
}
