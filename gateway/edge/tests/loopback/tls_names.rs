//! Streams to addresses get the class of the name in their ClientHello, whichever
//! listener they use.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use underpass_cla::Class;
use underpass_edge::Edge;
use underpass_edge::classify::Classifier;
use underpass_edge::config::EdgeConfig;
use underpass_edge::dial::Dialler;
use underpass_edge::direct::DirectOutlet;
use underpass_edge::stream::{Conduit, Connected, Failure, OpenRequest, Outlet, Received};

use crate::world::{echo, read_until, socks};

type Classes = Arc<Mutex<Vec<Class>>>;

/// Opens single-box streams, and records the classes that they get.
struct Noting(DirectOutlet, Classes);

struct NotingConduit(Box<dyn Conduit>, Classes);

impl Outlet for Noting {
    fn open(&self, request: OpenRequest) -> Result<Box<dyn Conduit>, Failure> {
        let inner = self.0.open(request)?;
        Ok(Box::new(NotingConduit(inner, self.1.clone())))
    }
}

impl Conduit for NotingConduit {
    fn set_class(&mut self, class: Class) {
        self.1.lock().unwrap().push(class);
    }

    fn poll_send_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        self.0.poll_send_capacity(cx)
    }

    fn send(&mut self, data: Bytes) {
        self.0.send(data);
    }

    fn finish(&mut self) {
        self.0.finish();
    }

    fn stop(&mut self) {
        self.0.stop();
    }

    fn reset(&mut self, failure: Failure) {
        self.0.reset(failure);
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Received> {
        self.0.poll_receive(cx, max)
    }

    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        self.0.poll_outcome(cx)
    }

    fn connected(&mut self, connected: Connected) {
        self.0.connected(connected);
    }
}

/// An edge that gives hosts below video.example class 2, and other streams 0.
fn edge(protocol: &str) -> (Edge, SocketAddr, Classes) {
    let config: EdgeConfig = toml::from_str(&format!(
        "client_networks = ['127.0.0.0/8']
         dial.allow_networks = ['127.0.0.0/8']
         [[listener]]
         name = 'in'\nprotocol = '{protocol}'\naddress = '127.0.0.1:0'
         [[rule]]
         hosts = ['*.video.example']\nclass = 'video'"
    ))
    .unwrap();
    let named = |name: &str| (name == "video").then_some(Class(2));
    let classifier = Classifier::new(&config.rule, Class(0), named).unwrap();
    let dialler = Arc::new(Dialler::new(config.dial.clone()));
    let classes = Classes::default();
    let outlet = Noting(DirectOutlet::new(dialler), classes.clone());
    let edge = Edge::start(&config, classifier, Arc::new(outlet)).unwrap();
    let address = edge.addresses()[0].1;
    (edge, address, classes)
}

/// A TLS client's first message to a server of this name.
fn client_hello(name: &'static str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = name.try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// Sends this through a stream to an origin that sends it back.
async fn pass(mut client: TcpStream, data: &[u8]) {
    client.write_all(data).await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, data);
}

/// The classes of a stream to an address whose client sends this.
async fn classes_by(protocol: &str, data: &[u8]) -> Vec<Class> {
    let (_edge, proxy, classes) = edge(protocol);
    let origin = echo().await;
    let client = match protocol {
        "socks5" => socks(proxy, origin).await.0,
        _ => {
            let mut client = TcpStream::connect(proxy).await.unwrap();
            let request = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let answer = read_until(&mut client, b"\r\n\r\n").await;
            assert!(answer.starts_with(b"HTTP/1.1 200"));
            client
        }
    };
    pass(client, data).await;
    let classes = classes.lock().unwrap();
    classes.clone()
}

#[tokio::test]
async fn a_stream_to_an_address_gets_the_class_of_its_server_name() {
    for protocol in ["socks5", "http"] {
        let video = client_hello("cdn.video.example");
        assert_eq!(classes_by(protocol, &video).await, [Class(2)], "{protocol}");
        let other = client_hello("www.example.org");
        assert_eq!(classes_by(protocol, &other).await, [], "{protocol}");
    }
}

#[tokio::test]
async fn what_is_no_clienthello_passes_as_it_is() {
    let mut broken = client_hello("cdn.video.example");
    // The length of the record, and of the message in it.
    broken[3] = 0xff;
    broken[7] = 0xff;
    for data in [
        &broken[..],
        &broken[..40],
        b"SSH-2.0-x\r\n",
        b"\x16",
        b"\x16\x03",
    ] {
        assert_eq!(classes_by("socks5", data).await, [], "{data:?}");
    }
}
