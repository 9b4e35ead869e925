//! Operators' holds stay until they are released, also in the next process.

use super::*;
use crate::holds::KeptHolds;

/// The same node in its next process.
fn restarted(world: World) -> World {
    let World { state, folder, .. } = world;
    // Dropping it writes nothing, as with `kill -9`.
    drop(state);
    let next = World::with(folder, "");
    next.state
        .holds
        .apply(&next.state.shell, &next.state.config.get());
    next
}

async fn sat(world: &World) -> Value {
    world.get("/v1/paths").await[0].clone()
}

#[tokio::test]
async fn what_was_answered_is_in_force_in_the_next_process() {
    let world = World::new();
    assert_eq!(world.get("/v1/holds").await, json!([]));
    let change = json!({"rate_bps": 900_000, "receive_rate_bps": 5_000_000, "blocked": true});
    let path = "/v1/paths/sat";
    let answer = world.ask("PATCH", path, change.to_string()).await;
    assert_eq!(answer.status, 200);
    let answer = world.ask("PATCH", "/v1/beam", r#"{"rate_bps": 800000}"#);
    assert_eq!(answer.await.status, 200);
    let world = restarted(world);
    let view = sat(&world).await;
    assert_eq!(view["link"]["blocked_by"], "operator");
    assert_eq!(
        (&view["rate_bps"], &view["follow_plan"]),
        (&json!(900_000), &json!(false))
    );
    let beam = world.get("/v1/beam").await;
    assert_eq!(beam["allowed_bps"], 800_000);
    let holds = world.get("/v1/holds").await;
    let kinds = holds.as_array().unwrap().iter().map(|hold| {
        assert_eq!(
            (&hold["by"], &hold["in_force"]),
            (&json!("token test"), &json!(true))
        );
        assert!(hold["since"].as_str().unwrap().starts_with("20"));
        hold["what"].as_str().unwrap()
    });
    let kinds: Vec<&str> = kinds.collect();
    assert_eq!(kinds, ["rate", "receive-rate", "blocked", "beam-rate"]);
    assert_eq!(world.get("/v1/status").await["holds"], holds);
    let metrics = world.ask("GET", "/metrics", Body::empty()).await.body;
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    assert!(metrics.contains(r#"underpass_holds{what="blocked",in_force="true"} 1"#));
}

#[tokio::test]
async fn what_is_released_is_no_longer_in_force_now_nor_later() {
    let world = World::new();
    world.ask("POST", "/v1/link/block", Body::empty()).await;
    for change in [r#"{"rate_bps": 900000}"#, r#"{"follow_plan": false}"#] {
        let answer = world.ask("PATCH", "/v1/paths/sat", change).await;
        assert_eq!(answer.status, 200);
    }
    let holds = world.get("/v1/holds").await;
    assert_eq!(holds.as_array().unwrap().len(), 2);
    for hold in holds.as_array().unwrap() {
        let path = format!("/v1/holds/{}", hold["id"]);
        assert_eq!(world.ask("DELETE", &path, Body::empty()).await.status, 204);
        world
            .ask("DELETE", &path, Body::empty())
            .await
            .is_problem(404);
    }
    assert_eq!(sat(&world).await["link"]["blocked_by"], Value::Null);
    assert_eq!(sat(&world).await["follow_plan"], true);
    let world = restarted(world);
    assert_eq!(sat(&world).await["follow_plan"], true);
    assert_eq!(world.get("/v1/holds").await, json!([]));
}

#[tokio::test]
async fn each_way_of_taking_something_back_releases_it() {
    let world = World::new();
    for (set, back) in [
        (
            ("POST", "/v1/link/block", ""),
            ("POST", "/v1/link/unblock?path=sat", ""),
        ),
        (
            ("PATCH", "/v1/paths/sat", r#"{"blocked": true}"#),
            ("POST", "/v1/link/unblock", ""),
        ),
        (
            ("PATCH", "/v1/paths/sat", r#"{"rate_bps": null}"#),
            ("PATCH", "/v1/paths/sat", r#"{"follow_plan": true}"#),
        ),
        (
            ("PATCH", "/v1/beam", r#"{"follow_plan": false}"#),
            ("PATCH", "/v1/beam", r#"{"follow_plan": true}"#),
        ),
    ] {
        for ((method, path, body), count) in [(set, 1), (back, 0)] {
            assert_eq!(world.ask(method, path, body).await.status, 200, "{path}");
            let held = KeptHolds::load(world.folder.path()).all();
            assert_eq!(held.len(), count, "{method} {path}: {held:?}");
        }
    }
    // A modem repeats its report by itself.
    let said = world.ask("POST", "/v1/link/block?source=modem", "").await;
    assert_eq!(said.status, 200);
    assert_eq!(world.get("/v1/holds").await, json!([]));
}

#[tokio::test]
async fn what_is_refused_is_not_held() {
    let world = World::new();
    for (method, path, body, status) in [
        ("PATCH", "/v1/paths/moon", r#"{"blocked": true}"#, 404),
        ("PATCH", "/v1/paths/sat", r#"{"rate_bps": 5}"#, 422),
        ("POST", "/v1/link/block?path=moon", "", 404),
        (
            "POST",
            "/v1/migrations",
            r#"{"class": "normal", "path": "sat"}"#,
            422,
        ),
    ] {
        world.ask(method, path, body).await.is_problem(status);
    }
    assert_eq!(world.get("/v1/holds").await, json!([]));
    assert!(!world.folder.path().join("holds.json").exists());
}

#[tokio::test]
async fn who_cannot_be_written_down_is_told_and_obeyed() {
    let world = World::new();
    // A file cannot replace a folder.
    std::fs::create_dir_all(world.folder.path().join("holds.json/x")).unwrap();
    let answer = world.ask("POST", "/v1/link/block", "").await;
    answer.is_problem(507);
    assert_eq!(sat(&world).await["link"]["blocked_by"], "operator");
}

#[tokio::test]
async fn a_rate_that_could_not_be_held_at_the_next_start_is_not_frozen() {
    let world = World::new();
    let hop = world.state.shell.hop_named("sat").unwrap();
    let set = |engine: &mut Engine, now| engine.set_rate(now, hop, Some(5));
    world.state.shell.with_hop(hop, set);
    let change = r#"{"follow_plan": false, "blocked": true}"#;
    let answer = world.ask("PATCH", "/v1/paths/sat", change).await;
    assert_eq!(answer.status, 422);
    assert_eq!(world.get("/v1/holds").await, json!([]));
    assert_eq!(sat(&world).await["link"]["blocked_by"], Value::Null);
}
