use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use underpass_cla::Class;
use underpass_edge::Edge;
use underpass_edge::classify::Classifier;
use underpass_edge::config::EdgeConfig;
use underpass_edge::direct::over;
use underpass_edge::stream::{Conduit, Failure, FailureCode, OpenRequest, Outlet};

use crate::world::{echo, edge_of, origin, socks};

/// A node whose peer cannot be reached.
struct NoPeer;

impl Outlet for NoPeer {
    fn open(&self, _: OpenRequest) -> Result<Box<dyn Conduit>, Failure> {
        Err(Failure::new(FailureCode::Unavailable, "no peer"))
    }
}

#[tokio::test]
async fn a_rule_sends_connections_past_the_peer() {
    let origin = echo().await;
    let other = echo().await;
    let config = format!(
        "client_networks = ['127.0.0.0/8']
         dial.allow_networks = ['127.0.0.0/8']
         dial.congestion_control = ['no-such-control', 'reno']
         [[listener]]
         name = 'in'\nprotocol = 'socks5'\naddress = '127.0.0.1:0'
         congestion_control = ['cubic']
         [[rule]]\nports = [{}]\nclass = '1'\ndirect = true",
        origin.port()
    );
    let config: EdgeConfig = toml::from_str(&config).unwrap();
    let classifier = Classifier::new(&config.rule, Class(0), |_| Some(Class(1))).unwrap();
    let edge = Edge::start(&config, classifier, Arc::new(NoPeer)).unwrap();
    let proxy = edge.addresses()[0].1;
    let (mut client, reply) = socks(proxy, origin).await;
    assert_eq!(reply, 0);
    client.write_all(b"x").await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'x');
    let (_, reply) = socks(proxy, other).await;
    assert_eq!(reply, 3);
    drop(client);
    edge.drain().await;
}

#[tokio::test]
async fn the_origin_is_told_the_client_by_proxy_protocol() {
    let origin = origin(|mut socket| async move {
        let mut header = [0; 28];
        socket.read_exact(&mut header).await.unwrap();
        assert_eq!(&header[12..16], [0x21, 0x11, 0, 12]);
        // The client's port, then the bytes that the client sends.
        socket.write_all(&header[24..26]).await.unwrap();
        let first = socket.read_u8().await.unwrap();
        socket.write_all(&[first]).await.unwrap();
    })
    .await;
    let (_edge, proxy) = edge_of(
        "client_networks = ['127.0.0.0/8']
         dial.allow_networks = ['127.0.0.0/8']
         dial.origin_source = 'proxy-protocol'
         [[listener]]\nname = 'in'\nprotocol = 'socks5'\naddress = '127.0.0.1:0'",
    );
    let (mut client, _) = socks(proxy, origin).await;
    client.write_all(b"y").await.unwrap();
    let port = client.local_addr().unwrap().port();
    assert_eq!(client.read_u16().await.unwrap(), port);
    assert_eq!(client.read_u8().await.unwrap(), b'y');
}

#[tokio::test]
async fn an_answer_is_received_although_the_rest_of_the_request_meets_a_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap());
    let (near, accepted) = tokio::join!(near, listener.accept());
    let mut conduit = over(near.unwrap());
    let (mut origin, _) = accepted.unwrap();
    origin.write_all(b"too large").await.unwrap();
    // Until the answer is in this side's socket.
    tokio::time::sleep(Duration::from_millis(50)).await;
    origin.set_zero_linger().unwrap();
    drop(origin);
    // A process that another test has just started may hold the origin's socket open for
    // a moment; the socket resets the connection when its last holder closes it.
    let broken = loop {
        match poll_fn(|cx| conduit.poll_send_capacity(cx)).await {
            Ok(_) => conduit.send(Bytes::from_static(b"more of it")),
            Err(broken) => break broken,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(broken.code, FailureCode::Reset);
    let answer = poll_fn(|cx| conduit.poll_receive(cx, 1_000)).await.unwrap();
    assert_eq!(answer.as_deref(), Some(&b"too large"[..]));
    let end = poll_fn(|cx| conduit.poll_receive(cx, 1_000)).await;
    assert_eq!(end.unwrap_err().code, FailureCode::Reset);
}
