//! The part of a dtn7-rs daemon that this node talks to.

use std::net::SocketAddr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};
use underpass_bare::{Config, Layer, Neighbour};
use underpass_cla::Outcome;
use underpass_cla_testing::node::{TestNode, transfer};

struct Daemon {
    listener: TcpListener,
}

/// The daemon's end of one connection.
struct Module(WebSocketStream<TcpStream>);

impl Daemon {
    async fn start() -> Daemon {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        Daemon {
            listener: listener.expect("a free port"),
        }
    }

    /// Accepts the next connection, which must register.
    async fn module(&self) -> Module {
        let (stream, _) = self.listener.accept().await.expect("a connection");
        let mut module = Module(accept_async(stream).await.expect("a handshake"));
        let register = module.next().await;
        assert_eq!(register["type"], "Register");
        assert_eq!(register["name"], "underpass");
        module
    }

    fn config(&self) -> Config {
        let remote = self.listener.local_addr().expect("an address");
        let from = SocketAddr::from(([0; 4], 0));
        Config {
            announced: vec![21],
            ..super::config(Layer::Ecla, from, remote)
        }
    }
}

impl Module {
    async fn next(&mut self) -> Value {
        loop {
            let message = self.0.next().await.expect("a message").expect("whole");
            if let Message::Text(text) = message {
                return serde_json::from_str(&text).expect("JSON");
            }
        }
    }

    async fn say(&mut self, packet: Value) {
        let text = packet.to_string().into();
        self.0.send(Message::Text(text)).await.expect("is taken");
    }

    async fn registered(&mut self, node: u64) {
        self.say(json!({"type": "Registered", "eid": [2, [node, 0]], "nodeid": "n"}))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_go_both_ways_with_a_daemon() {
    let daemon = Daemon::start().await;
    let mut node = TestNode::new();
    let kept = Neighbour::spawn(daemon.config(), node.node.clone());
    let mut module = daemon.module().await;
    module.registered(2).await;
    let (id, info, session) = node.up().await;
    assert_eq!((info.convergence_layer, info.tls), ("ecla", false));
    assert!(info.takes_files);
    let beacon = module.next().await;
    assert_eq!(
        (&beacon["type"], &beacon["eid"]),
        (&json!("Beacon"), &json!([2, [21, 0]]))
    );
    node.ready(id).await;
    // Both are longer than a frame.
    let (sent, whole) = transfer(1, 3_000_000);
    session.offer(sent);
    let forwarded = module.next().await;
    assert_eq!(forwarded["type"], "ForwardData");
    let data = forwarded["data"].as_str().expect("base64");
    assert_eq!(BASE64_STANDARD.decode(data).expect("base64"), whole);
    assert_eq!(node.finished().await, (1, Outcome::Acknowledged));
    let data = BASE64_STANDARD.encode(&whole);
    let packet = json!({
        "type": "ForwardData", "src": "", "dst": "ipn:21:0", "bundle_id": "", "data": data,
    });
    module.say(packet).await;
    assert_eq!(node.received().await.1, whole);
    // The daemon ends the connection; the node connects again.
    drop(module);
    node.down().await;
    let mut module = daemon.module().await;
    module.registered(2).await;
    node.up().await;
    kept.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_that_is_held_is_dialled_once_it_is_let_go() {
    let daemon = Daemon::start().await;
    let mut node = TestNode::new();
    let kept = Neighbour::spawn_early(daemon.config(), node.node.clone());
    let waits = std::time::Duration::from_millis(200);
    let dialled = tokio::time::timeout(waits, daemon.module()).await;
    assert!(dialled.is_err(), "another process has the daemon");
    kept.hold(false);
    let mut module = daemon.module().await;
    module.registered(2).await;
    node.up().await;
    kept.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_daemon_and_one_that_refuses_are_not_served() {
    let daemon = Daemon::start().await;
    let mut node = TestNode::new();
    let kept = Neighbour::spawn(daemon.config(), node.node.clone());
    let mut other = daemon.module().await;
    other.registered(3).await;
    let mut refusing = daemon.module().await;
    let error = json!({"type": "Error", "reason": "already registered"});
    refusing.say(error).await;
    let mut talking = daemon.module().await;
    talking.say(json!({"type": "Nonsense"})).await;
    let mut right = daemon.module().await;
    assert!(node.never_up());
    right.registered(2).await;
    node.up().await;
    // A message that it cannot read ends the session.
    right.say(json!({"type": "ForwardData", "data": "*"})).await;
    node.down().await;
    kept.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_longer_than_any_bundle_ends_the_session() {
    let daemon = Daemon::start().await;
    let mut node = TestNode::new();
    let kept = Neighbour::spawn(daemon.config(), node.node.clone());
    let mut module = daemon.module().await;
    module.registered(2).await;
    let (id, ..) = node.up().await;
    node.ready(id).await;
    let data = "A".repeat(6 << 20);
    let text = json!({"type": "ForwardData", "data": data}).to_string();
    // The module may close before all is written.
    let _ = module.0.send(Message::Text(text.into())).await;
    node.down().await;
    kept.shutdown().await;
}
