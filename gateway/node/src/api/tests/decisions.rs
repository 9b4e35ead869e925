//! What callers are told about flows.

use std::task::{Context, Poll, Waker};

use underpass_edge::flows::Owner;
use underpass_edge::stream::{Conduit, OpenRequest, Outlet, Protocol, Target as Destination};

use super::*;
use crate::shell::StreamOutlet;

const LINE: &str = "/v1/decisions?client=10.0.0.0/24&destination=*.example&for_s=60";

/// A stream of a client to a host, as the edge has it.
fn conduit(world: &World) -> Box<dyn Conduit> {
    let state = &world.state;
    let dialler = Arc::new(Dialler::new(state.config.get().edge.dial.clone()));
    let direct = DirectOutlet::new(dialler);
    let outlet = StreamOutlet::new(state.shell.clone(), [(1, Vec::new())], direct, None);
    let request = OpenRequest {
        target: Destination::parse("www.example", 80).unwrap(),
        client: "10.0.0.5:4711".parse().unwrap(),
        listener: "socks".into(),
        protocol: Protocol::Socks5,
        class: Class(2),
        awaits_outcome: false,
        trace: None,
    };
    let owner = Owner::Client(request.client.ip());
    let opened = outlet.open(request.clone()).unwrap();
    state
        .edge
        .flows()
        .watch(opened, owner, &request, None, None)
}

async fn asked(world: &World, path: &str) -> axum::response::Response {
    let request = Request::builder().uri(path).body(Body::empty()).unwrap();
    let router = router(world.state.clone()).layer(axum::Extension(ApiRole::Read));
    router.oneshot(request).await.unwrap()
}

#[tokio::test]
async fn a_line_says_what_was_compared_and_chosen() {
    let world = World::new();
    let _session = world.session();
    let response = asked(&world, LINE).await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut conduit = conduit(&world);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(
        conduit.poll_send_capacity(&mut cx),
        Poll::Ready(Ok(_))
    ));
    conduit.send("GET / HTTP/1.1\r\nHost: www.example\r\nContent-Length: 0\r\n\r\n".into());
    let line = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let told: Value = serde_json::from_slice(&line).unwrap();
    for (key, expected) in [
        ("what", json!("flow")),
        ("cause", json!("begins")),
        ("client", json!("10.0.0.5:4711")),
        ("target", json!("www.example:80")),
        ("size_from", json!("told")),
        ("class", json!("normal")),
        ("policy", json!("bonded")),
        ("rule", Value::Null),
        ("chosen", json!("sat")),
        ("missed", json!(0)),
    ] {
        assert_eq!(told[key], expected, "{key} of {told}");
    }
    assert_eq!(told["stream"]["peer"], 1);
    let compared = &told["compared"][0];
    assert_eq!(compared["path"], "sat");
    assert!(compared["capacity_bps"].as_u64().unwrap() <= 2_000_000);
    // A round trip of 600 ms is assumed until one is measured.
    assert_eq!(compared["delay_ms"], 300.0);
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_and_so_is_a_ninth_reader() {
    let world = World::new();
    for query in [
        "client=moon",
        "destination=a..b",
        "for_s=0",
        "for_s=3601",
        "clients=10.0.0.0/8",
    ] {
        let path = format!("/v1/decisions?{query}");
        let status = asked(&world, &path).await.status().as_u16();
        assert!(status == 422 || status == 400, "{query}: {status}");
    }
    let mut readers = Vec::new();
    for _ in 0..8 {
        readers.push(asked(&world, LINE).await);
        assert_eq!(
            readers.last().map(|reader| reader.status().as_u16()),
            Some(200)
        );
    }
    assert_eq!(asked(&world, LINE).await.status(), 503);
}
