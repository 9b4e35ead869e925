//! Plans in the local API.

use axum::body::Body;
use serde_json::json;
use underpass_reports::Body as Report;

use super::{Answer, World};

/// A plan of the return link, from a second ago on for a minute.
fn plan(world: &World, version: u64, rate_bps: u64) -> String {
    let now_ms = world.state.control_clock.now_ms().unwrap();
    let (start_ms, end_ms) = (now_ms - 1_000, now_ms + 60_000);
    let plan = json!({
        "version": 1, "beam": "east", "link": "return", "plan": version,
        "issued_ms": start_ms, "start_ms": start_ms, "end_ms": end_ms,
        "capacity": [{ "from_ms": start_ms, "rate_bps": 8_000_000 }],
        "lines": [{
            "terminals": [10], "guaranteed_bps": 500_000,
            "segments": [{
                "start_ms": start_ms, "end_ms": end_ms,
                "rate_bps": rate_bps, "state": "borrowing",
            }],
        }],
    });
    plan.to_string()
}

#[tokio::test]
async fn a_plan_that_is_put_is_followed_acknowledged_and_shown() {
    let world = World::new();
    let session = world.session();
    let answer = world
        .ask("PUT", "/v1/plans", plan(&world, 42, 1_500_000))
        .await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let shown = &answer.json()["plans"][0];
    assert_eq!(
        (&shown["version"], &shown["state"]),
        (&json!(42), &json!("in-force"))
    );
    let terminal = &shown["terminals"][0];
    assert_eq!(terminal["state"], "borrowing");
    assert_eq!(terminal["rate_bps"], 1_500_000);
    let told = session.rates.lock().unwrap().last().unwrap().unwrap();
    assert!((1_400_000..=1_500_000).contains(&told), "{told}");
    let made = world.made.lock().unwrap().try_recv().unwrap();
    let Report::Plan(acknowledged) = made.report.body else {
        panic!("{made:?}");
    };
    assert_eq!((acknowledged.plan, acknowledged.terminal), (42, Some(10)));
    let status = world.get("/v1/reports").await;
    assert_eq!(status["own"]["links"][0]["plan_version"], 42);
    let metrics = world.ask("GET", "/metrics", Body::empty()).await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(
        metrics
            .contains("underpass_plan_version{beam=\"east\",link=\"return\",role=\"follow\"} 42")
    );
    // A plan above the path's own rate is not followed.
    world
        .ask("PUT", "/v1/plans", plan(&world, 43, 3_000_000))
        .await;
    assert_eq!(world.get("/v1/paths").await[0]["rate_bps"], 2_000_000);
}

#[tokio::test]
async fn plans_that_are_none_or_not_newer_or_not_for_this_node_are_refused() {
    let world = World::new();
    let good = plan(&world, 42, 1_500_000);
    assert_eq!(
        world.ask("PUT", "/v1/plans", good.clone()).await.status,
        200
    );
    let again = world.ask("PUT", "/v1/plans", good.clone()).await;
    assert_eq!(again.status, 409);
    for (from, to, status) in [
        ("\"version\":1", "\"version\":2", 422),
        ("return", "forward", 409),
        ("[10]", "[11]", 409),
        ("\"rate_bps\":1500000", "\"rate_bps\":-1", 422),
        ("{", "[", 422),
    ] {
        let bad = good.replace(from, to).replace("\"plan\":42", "\"plan\":43");
        let answer = world.ask("PUT", "/v1/plans", bad).await;
        assert_eq!(answer.status, status, "{to}: {:?}", answer.body);
        assert_eq!(answer.kind, "application/problem+json");
    }
    let large = vec![b' '; underpass_plans::MAX_DOCUMENT_BYTES + 1];
    assert_eq!(world.ask("PUT", "/v1/plans", large).await.status, 413);
}

#[tokio::test]
async fn an_operators_rate_counts_over_the_plan_until_it_is_left_to_it_again() {
    let world = World::new();
    world
        .ask("PUT", "/v1/plans", plan(&world, 42, 1_500_000))
        .await;
    let rate = |answer: Answer| {
        let path = answer.json();
        (path["rate_bps"].clone(), path["follow_plan"].clone())
    };
    let set = world
        .ask("PATCH", "/v1/paths/sat", r#"{"rate_bps": 700000}"#)
        .await;
    assert_eq!(rate(set), (json!(700_000), json!(false)));
    world
        .ask("PUT", "/v1/plans", plan(&world, 43, 1_600_000))
        .await;
    let plans = world.get("/v1/plans").await;
    let terminal = &plans["plans"][0]["terminals"][0];
    assert_eq!(
        (&terminal["rate_bps"], &terminal["by_operator"]),
        (&json!(700_000), &json!(true))
    );
    let left = world
        .ask("PATCH", "/v1/paths/sat", r#"{"follow_plan": true}"#)
        .await;
    assert_eq!(rate(left), (json!(1_600_000), json!(true)));
    let both = r#"{"follow_plan": true, "rate_bps": 700000}"#;
    assert_eq!(world.ask("PATCH", "/v1/paths/sat", both).await.status, 422);
}
