//! Proxies switched off and on while they run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use underpass_cla::Class;
use underpass_edge::classify::Classifier;
use underpass_edge::config::EdgeConfig;
use underpass_edge::dial::Dialler;
use underpass_edge::direct::DirectOutlet;
use underpass_edge::stream::{Conduit, Failure, OpenRequest, Outlet};
use underpass_edge::{Edge, Switch};

use crate::forward::{body, head};
use crate::world::{echo, origin, read_until, socks};

/// Stands for the streams to the peer, and counts them.
struct Peer {
    outlet: DirectOutlet,
    opened: Arc<AtomicUsize>,
}

impl Outlet for Peer {
    fn open(&self, request: OpenRequest) -> Result<Box<dyn Conduit>, Failure> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.outlet.open(request)
    }
}

fn counted(protocol: &str) -> (Edge, Arc<AtomicUsize>) {
    let config: EdgeConfig = toml::from_str(&format!(
        "client_networks = ['127.0.0.0/8']
         dial.allow_networks = ['127.0.0.0/8']
         [[listener]]
         name = 'in'\nprotocol = '{protocol}'\naddress = '127.0.0.1:0'"
    ))
    .unwrap();
    let opened = Arc::new(AtomicUsize::new(0));
    let peer = Peer {
        outlet: DirectOutlet::new(Arc::new(Dialler::new(config.dial.clone()))),
        opened: opened.clone(),
    };
    let classifier = Classifier::new(&config.rule, Class(0), |_| None).unwrap();
    let edge = Edge::start(&config, classifier, Arc::new(peer)).unwrap();
    (edge, opened)
}

fn off() -> Switch {
    Switch {
        enabled: false,
        ..Switch::default()
    }
}

async fn ping(socket: &mut TcpStream) {
    socket.write_all(b"ping").await.unwrap();
    let mut back = [0; 4];
    socket.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"ping");
}

#[tokio::test]
async fn off_new_connections_pass_the_streams_by_and_open_ones_live_on() {
    let (edge, opened) = counted("socks5");
    let (proxy, echo) = (edge.addresses()[0].1, echo().await);
    let (mut before, reply) = socks(proxy, echo).await;
    assert_eq!(reply, 0);
    ping(&mut before).await;
    edge.set_switch(off());
    let (mut during, reply) = socks(proxy, echo).await;
    assert_eq!(reply, 0);
    ping(&mut during).await;
    ping(&mut before).await;
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    edge.set_switch(Switch::default());
    let (mut after, _) = socks(proxy, echo).await;
    ping(&mut after).await;
    ping(&mut during).await;
    assert_eq!(opened.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn off_by_rule_only_what_the_rule_names_passes_by() {
    let (edge, opened) = counted("socks5");
    let proxy = edge.addresses()[0].1;
    let (one, other) = (echo().await, echo().await);
    edge.set_switch(Switch {
        off_ports: vec![one.port().to_string().parse().unwrap()],
        ..Switch::default()
    });
    ping(&mut socks(proxy, one).await.0).await;
    assert_eq!(opened.load(Ordering::Relaxed), 0);
    ping(&mut socks(proxy, other).await.0).await;
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    edge.set_switch(Switch {
        off_clients: vec!["127.0.0.1/32".parse().unwrap()],
        ..Switch::default()
    });
    ping(&mut socks(proxy, other).await.0).await;
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_kept_http_connection_follows_the_switch_with_its_next_request() {
    let peers = Arc::new(Mutex::new(Vec::new()));
    let seen = peers.clone();
    let origin = origin(move |mut socket| {
        seen.lock().unwrap().push(socket.peer_addr().unwrap());
        async move {
            while !read_until(&mut socket, b"\r\n\r\n").await.is_empty() {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                socket.write_all(answer).await.unwrap();
            }
        }
    })
    .await;
    let (edge, opened) = counted("http");
    let mut client = TcpStream::connect(edge.addresses()[0].1).await.unwrap();
    for switch in [Switch::default(), off(), off()] {
        edge.set_switch(switch);
        let request = format!("GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut client).await;
        assert_eq!(body(&mut client, &head).await, "ok");
    }
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    assert_eq!(peers.lock().unwrap().len(), 2);
}
