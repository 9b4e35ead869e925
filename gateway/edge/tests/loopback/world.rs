//! An edge, and origins to reach through it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use underpass_cla::Class;
use underpass_edge::Edge;
use underpass_edge::classify::Classifier;
use underpass_edge::config::EdgeConfig;
use underpass_edge::dial::Dialler;
use underpass_edge::direct::DirectOutlet;

/// An edge of one listener, with loopback allowed on both sides; `extra` are
/// further lines of the listener's table.
pub fn edge(protocol: &str, extra: &str) -> (Edge, SocketAddr) {
    edge_of(&format!(
        "client_networks = ['127.0.0.0/8', '::1/128']
         dial.allow_networks = ['127.0.0.0/8', '::1/128']
         dial.connect_timeout_s = 5
         [[listener]]
         name = 'in'\nprotocol = '{protocol}'\naddress = '127.0.0.1:0'\n{extra}"
    ))
}

/// The same, and a client that has connected to it.
pub async fn connected(protocol: &str, extra: &str) -> (TcpStream, Edge) {
    let (edge, proxy) = edge(protocol, extra);
    (TcpStream::connect(proxy).await.unwrap(), edge)
}

/// Sends `request` through an HTTP proxy; `{origin}` in it is the origin's address.
pub async fn ask(origin: SocketAddr, request: &str) -> (TcpStream, Edge) {
    let (mut client, edge) = connected("http", "").await;
    let request = request.replace("{origin}", &origin.to_string());
    client.write_all(request.as_bytes()).await.unwrap();
    (client, edge)
}

/// An edge with this TOML configuration.
pub fn edge_of(config: &str) -> (Edge, SocketAddr) {
    let config: EdgeConfig = toml::from_str(config).unwrap();
    let dialler = Arc::new(Dialler::new(config.dial.clone()));
    let classifier = Classifier::new(&config.rule, Class(0), |_| None).unwrap();
    let outlet = Arc::new(DirectOutlet::new(dialler));
    let edge = Edge::start(&config, classifier, outlet).unwrap();
    let address = edge.addresses()[0].1;
    (edge, address)
}

/// An origin that runs `serve` on each connection.
pub async fn origin<F, S>(serve: S) -> SocketAddr
where
    S: Fn(TcpStream) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket));
        }
    });
    address
}

/// An origin that echoes what it receives, and ends its side after the client.
pub async fn echo() -> SocketAddr {
    origin(|mut socket| async move {
        let (mut from, mut to) = socket.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.shutdown().await;
    })
    .await
}

/// A port on which nobody listens while this process lives: a socket is bound to it.
pub fn closed_port() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = socket.local_addr().unwrap();
    std::mem::forget(socket);
    address
}

/// Reads up to and including `end`.
pub async fn read_until(socket: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        match socket.read_u8().await {
            Ok(octet) => read.push(octet),
            Err(_) => break,
        }
    }
    read
}

/// Waits until the edge has no connection any more.
pub async fn becomes_idle(edge: &Edge) {
    let idle = timeout(Duration::from_secs(60), async {
        while edge.open_connections() > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(idle.await.is_ok(), "a connection is still open");
}

/// Connects to `proxy` as a SOCKS5 client without a password and asks for `target`;
/// returns the reply code.
pub async fn socks(proxy: SocketAddr, target: SocketAddr) -> (TcpStream, u8) {
    let mut socket = TcpStream::connect(proxy).await.unwrap();
    let mut request = vec![5, 1, 0, 5, 1, 0];
    match target.ip() {
        std::net::IpAddr::V4(ip) => {
            request.push(1);
            request.extend(ip.octets());
        }
        std::net::IpAddr::V6(ip) => {
            request.push(4);
            request.extend(ip.octets());
        }
    }
    request.extend(target.port().to_be_bytes());
    socket.write_all(&request).await.unwrap();
    let mut method = [0; 2];
    socket.read_exact(&mut method).await.unwrap();
    assert_eq!(method, [5, 0]);
    let mut reply = [0; 4];
    socket.read_exact(&mut reply).await.unwrap();
    let rest = if reply[3] == 4 { 18 } else { 6 };
    socket.read_exact(&mut vec![0; rest]).await.unwrap();
    (socket, reply[1])
}
