//! Streams that peers open: which dials wait, and for which peers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use socket2::{Domain, Socket, Type};
use tokio::sync::oneshot;
use underpass_cla::Class;
use underpass_edge::config::{EdgeConfig, PeerDialConfig};
use underpass_edge::dial::{Dialler, serve_inbound};
use underpass_edge::relay::Relays;
use underpass_edge::stream::{
    Conduit, Connected, Failure, FailureCode, OpenRequest, Protocol, Received, Target,
};

use crate::world::origin;

/// A stream that notes when its origin has answered, and that a test can reset.
struct Stream {
    reset: oneshot::Receiver<()>,
    connected: Option<oneshot::Sender<()>>,
}

impl Conduit for Stream {
    fn poll_send_capacity(&mut self, _: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        Poll::Ready(Ok(1))
    }

    fn send(&mut self, _: Bytes) {}

    fn finish(&mut self) {}

    fn stop(&mut self) {}

    fn reset(&mut self, _: Failure) {}

    fn poll_receive(&mut self, _: &mut Context<'_>, _: usize) -> Poll<Received> {
        Poll::Ready(Ok(None))
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        let failure = || Failure::new(FailureCode::Reset, "the peer has reset it");
        std::pin::Pin::new(&mut self.reset)
            .poll(cx)
            .map(|_| Err(failure()))
    }

    fn connected(&mut self, _: Connected) {
        let _ = self.connected.take().map(|told| told.send(()));
    }
}

/// An address that neither accepts nor refuses connections while the returned sockets
/// live.
pub fn silent_origin() -> (SocketAddr, Vec<Socket>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut kept = vec![listener];
    // The queue is short; SYNs beyond it are dropped.
    for _ in 0..4 {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address.into());
        kept.push(socket);
    }
    (address, kept)
}

struct Dialled {
    reset: oneshot::Sender<()>,
    connected: oneshot::Receiver<()>,
    served: tokio::task::JoinHandle<Result<(), Failure>>,
}

fn dial(dialler: &Arc<Dialler>, peer: u64, target: SocketAddr) -> Dialled {
    let (reset, on_reset) = oneshot::channel();
    let (on_connected, connected) = oneshot::channel();
    let stream = Stream {
        reset: on_reset,
        connected: Some(on_connected),
    };
    let request = OpenRequest {
        target: Target::Address(target),
        client: "10.0.0.1:1".parse().unwrap(),
        listener: "peer".into(),
        protocol: Protocol::Socks5,
        class: Class(0),
        awaits_outcome: false,
        trace: None,
    };
    let dialler = dialler.clone();
    let served = tokio::spawn(async move {
        serve_inbound(
            Box::new(stream),
            peer,
            request,
            &dialler,
            &Relays::default(),
        )
        .await
    });
    Dialled {
        reset,
        connected,
        served,
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_ends_its_dial_and_a_hanging_dial_delays_its_peer_alone() {
    let config: EdgeConfig = toml::from_str(
        "dial.allow_networks = ['127.0.0.0/8']
         dial.connect_timeout_s = 60
         dial.guaranteed_dials = 1
         dial.common_dials = 0",
    )
    .unwrap();
    let dialler = Arc::new(Dialler::new(config.dial));
    let origin = origin(|_| async {}).await;
    let (silent, _kept) = silent_origin();
    let hanging = dial(&dialler, 10, silent);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut behind = dial(&dialler, 10, origin);
    let other = dial(&dialler, 11, origin);
    let in_time = Duration::from_secs(20);
    let connected = tokio::time::timeout(in_time, other.connected).await;
    assert_eq!(connected, Ok(Ok(())));
    assert!(!hanging.served.is_finished());
    assert!(behind.connected.try_recv().is_err());

    hanging.reset.send(()).unwrap();
    let failure = tokio::time::timeout(in_time, hanging.served).await;
    assert_eq!(
        failure.unwrap().unwrap().unwrap_err().code,
        FailureCode::Reset
    );
    let connected = tokio::time::timeout(in_time, behind.connected).await;
    assert_eq!(connected, Ok(Ok(())));
    drop((other.reset, behind.reset));
}

#[tokio::test]
async fn a_peer_reaches_the_networks_that_are_open_to_it_and_another_one_does_not() {
    let mut config = EdgeConfig::default();
    let own = PeerDialConfig {
        allow_networks: Some(vec!["127.0.0.0/8".parse().unwrap()]),
        ..PeerDialConfig::default()
    };
    config.dial.peers.insert(10, own);
    let dialler = Arc::new(Dialler::new(config.dial));
    let origin = origin(|_| async {}).await;
    let reached = dial(&dialler, 10, origin);
    assert_eq!(reached.connected.await, Ok(()));
    let other = dial(&dialler, 11, origin);
    let refused = other.served.await.unwrap().unwrap_err();
    assert_eq!(refused.code, FailureCode::Forbidden);
    drop((reached.reset, other.reset));
}
