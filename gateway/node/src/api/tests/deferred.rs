//! Deferred requests in the local API.

use underpass_deferred::{Carrier, Id, Name, Owner, Submission};

use super::*;

/// A link on which messages wait.
pub(super) struct Nowhere;

impl Carrier for Nowhere {
    fn send(&self, _: u64, _: u8, _: Duration, _: Name, _: bytes::Bytes) -> bool {
        true
    }
}

/// Submits a request and returns its id.
async fn submit(world: &World) -> String {
    let id = Id::random().unwrap();
    let submission = Submission {
        id,
        peer: 1,
        class: 1,
        repeatable: false,
        owner: Owner {
            client: [192, 168, 8, 20].into(),
            user: None,
        },
        method: "POST".to_owned(),
        target: "http://origin.example/".to_owned(),
        head_bytes: 4,
    };
    let submitted = world
        .state
        .deferred
        .as_ref()
        .unwrap()
        .call(move |node, now_ms| {
            let client = submission.owner.client;
            node.begin_upload(id, client).unwrap();
            node.upload(id, b"head and body")?.unwrap();
            node.submit(now_ms, submission)
        });
    submitted.await.unwrap().unwrap();
    id.to_string()
}

#[tokio::test]
async fn deferred_requests_are_shown_in_pages_and_cancelled() {
    let world = World::new();
    let ids = [submit(&world).await, submit(&world).await];
    let one = &ids[0];
    let shown = world.get(&format!("/v1/deferred/{one}")).await;
    assert_eq!(shown["state"], "stored");
    assert_eq!(shown["class"], "interactive");
    assert_eq!(shown["client"], "192.168.8.20");
    assert_eq!(shown["request_bytes"], 9);
    let all = world.get("/v1/deferred?state=stored").await;
    assert_eq!(all.as_array().unwrap().len(), 2);
    let behind = world.get(&format!("/v1/deferred?after={one}")).await;
    assert_eq!(behind[0]["id"], *ids[1]);
    assert_eq!(world.get("/v1/deferred?limit=1").await[0]["id"], **one);
    for (method, path, status) in [
        ("GET", format!("/v1/deferred/{one}/response"), 404),
        ("POST", format!("/v1/deferred/{one}/repeat"), 409),
        // The whole request has been sent: the dispatching node must confirm first.
        ("DELETE", format!("/v1/deferred/{one}"), 202),
        ("GET", "/v1/deferred/nonsense".to_owned(), 400),
        ("GET", format!("/v1/deferred/{}", "0".repeat(32)), 404),
    ] {
        let answer = world.ask(method, &path, Body::empty()).await;
        assert_eq!(answer.status, status, "{method} {path}");
    }
    let shown = world.get(&format!("/v1/deferred/{one}")).await;
    assert_eq!(shown["cancelling"], true);
    let metrics = world.ask("GET", "/metrics", Body::empty()).await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(
        text.contains("underpass_deferred_requests{state=\"stored\"} 2"),
        "{text}"
    );
}
