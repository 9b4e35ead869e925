//! Streams, bundles and the edge in the local API.

use super::*;

#[tokio::test]
async fn an_operator_resets_a_stream_once() {
    let world = World::new();
    world.session();
    let key = world.stream();
    let rows = world.get("/v1/streams").await;
    assert_eq!(rows[0]["id"], key.id.0);
    assert_eq!(rows[0]["state"], "open");
    let path = format!("/v1/streams/1/{}", key.id);
    let answer = world.ask("DELETE", &path, Body::empty()).await;
    assert_eq!(answer.status, 204);
    world
        .ask("DELETE", "/v1/streams/1/999999", Body::empty())
        .await
        .is_problem(404);
}

#[tokio::test]
async fn a_stream_is_listed_with_where_it_leads() {
    let world = World::new();
    world.session();
    let target = Target::Name {
        host: "example.org".to_owned(),
        port: 443,
    };
    let open = Open::new(Class(2), target);
    world.state.shell.open_stream(1, open).expect("room");
    let rows = world.get("/v1/streams").await;
    assert_eq!(rows[0]["target"], "example.org:443");
}

#[tokio::test]
async fn a_cancelled_bundle_is_gone_and_its_stream_is_reset() {
    let world = World::new();
    let session = world.session();
    let key = world.stream();
    let shell = &world.state.shell;
    shell.ready(SessionId(1));
    shell.with_hop(HopId(0), |engine, now| {
        engine.write(now, key, "hello".into()).unwrap()
    });
    assert_eq!(session.offered.lock().unwrap().len(), 1);
    let held = world.get("/v1/custody").await["held"].clone();
    assert_eq!(held[0]["class"], "normal");
    let path = format!("/v1/custody/{}", held[0]["id"]);
    let answer = world.ask("DELETE", &path, Body::empty()).await;
    assert_eq!(answer.status, 204);
    assert_eq!(world.get("/v1/custody").await["held"], json!([]));
    world
        .ask("DELETE", &path, Body::empty())
        .await
        .is_problem(404);
    let events = shell.stream_events();
    assert_eq!(events.expired, 1);
}

#[tokio::test]
async fn the_edge_tells_its_listeners_and_switches_only_what_is_configured() {
    let world = World::new();
    let edge = world.get("/v1/edge").await;
    assert_eq!(edge["connections"], 0);
    assert_eq!(edge["interception"], Value::Null);
    // A change is applied completely or not at all.
    let body = r#"{"proxies": {"enabled": false}, "interception": {"enabled": false}}"#;
    world.ask("PATCH", "/v1/edge", body).await.is_problem(409);
    assert_eq!(world.get("/v1/edge").await["proxies"]["enabled"], true);
    let body = r#"{"proxies": {"off_clients": ["10.0.0.0/8"], "off_ports": [22, "5000-5100"]}}"#;
    assert_eq!(world.ask("PATCH", "/v1/edge", body).await.status, 200);
    let status = world.get("/v1/status").await;
    let proxies = &status["edge"]["proxies"];
    assert_eq!(proxies["off_clients"], json!(["10.0.0.0/8"]));
    assert_eq!(proxies["off_ports"], json!(["22", "5000-5100"]));
    let text = serde_json::from_value::<Status>(status)
        .unwrap()
        .to_string();
    let line = "Proxies: on; off for clients 10.0.0.0/8; off for ports 22, 5000-5100\n";
    assert!(text.ends_with(line), "{text}");
}
