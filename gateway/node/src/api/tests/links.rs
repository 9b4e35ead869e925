//! Links in the local API: rates, blockages, sessions.

use underpass_engine::Spent;

use super::*;
use crate::budgets::KeptBudgets;

/// A path whose bytes cost money.
const METERED: &str = "
    [[path]]
    name = \"lte\"
    neighbour = 1
    remote = \"192.0.2.1:4557\"
    [path.meter]
    budget_bytes = 1000
";

#[tokio::test]
async fn a_changed_rate_reaches_the_scheduler_and_the_sessions() {
    let world = World::new();
    let session = world.session();
    let answer = world
        .ask("PATCH", "/v1/paths/sat", r#"{"rate_bps": 512000}"#)
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["rate_bps"], 512_000);
    // The session may get a slightly lower rate, which keeps the queue empty.
    let told = session.rates.lock().unwrap().last().unwrap().unwrap();
    assert!((500_000..=512_000).contains(&told), "{told}");
    let answer = world
        .ask("PATCH", "/v1/paths/sat", r#"{"rate_bps": null}"#)
        .await;
    assert_eq!(answer.json()["rate_bps"], Value::Null);
    assert_eq!(session.rates.lock().unwrap().last(), Some(&None));
    assert_eq!(
        world.get("/v1/beam").await,
        json!({ "rate_bps": Value::Null, "allowed_bps": Value::Null, "follow_plan": true })
    );
    let answer = world
        .ask("PATCH", "/v1/beam", r#"{"rate_bps": 9000000}"#)
        .await;
    let set = json!({
        "rate_bps": 9_000_000,
        "allowed_bps": 9_000_000,
        "follow_plan": false,
    });
    assert_eq!(answer.json(), set);
    assert_eq!(world.get("/v1/beam").await, set);
}

#[tokio::test]
async fn a_blocked_path_holds_bundles_and_keepalives_until_it_is_unblocked() {
    let world = World::new();
    let session = world.session();
    let answer = world.ask("POST", "/v1/link/block", Body::empty()).await;
    assert_eq!(answer.json(), json!({ "paths": ["sat"], "blocked": true }));
    assert_eq!(*session.suspended.lock().unwrap(), [true]);
    let key = world.stream();
    let shell = &world.state.shell;
    shell.ready(SessionId(1));
    shell.with_hop(HopId(0), |engine, now| {
        engine.write(now, key, "hello".into()).unwrap()
    });
    assert!(session.offered.lock().unwrap().is_empty());
    world
        .ask("POST", "/v1/link/unblock?path=sat", Body::empty())
        .await;
    assert_eq!(*session.suspended.lock().unwrap(), [true, false]);
    assert_eq!(session.offered.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_session_that_comes_up_in_a_blockage_sends_no_keepalives() {
    let world = World::new();
    world
        .ask("PATCH", "/v1/paths/sat", r#"{"blocked": true}"#)
        .await;
    assert_eq!(*world.session().suspended.lock().unwrap(), [true]);
}

#[tokio::test]
async fn a_path_that_the_modem_and_an_operator_hold_is_free_when_both_say_so() {
    let world = World::new();
    for source in ["modem", "operator"] {
        let block = format!("/v1/link/block?source={source}");
        world.ask("POST", &block, Body::empty()).await;
        let paths = world.get("/v1/paths").await;
        assert_eq!(paths[0]["link"]["blocked_by"], source);
    }
    world.ask("POST", "/v1/link/unblock", Body::empty()).await;
    let paths = world.get("/v1/paths").await;
    assert_eq!(paths[0]["link"]["blocked_by"], "modem");
    assert_eq!(paths[0]["blocked"], true);
    let text = serde_json::from_value::<Status>(world.get("/v1/status").await).unwrap();
    assert!(
        text.to_string().contains("blocked, down (modem, "),
        "{text}"
    );
    world
        .ask("POST", "/v1/link/unblock?source=modem", Body::empty())
        .await;
    let paths = world.get("/v1/paths").await;
    assert_eq!(paths[0]["link"]["blocked_by"], Value::Null);
    assert_eq!(paths[0]["blocked"], false);
    world
        .ask("POST", "/v1/link/block?source=weather", Body::empty())
        .await
        .is_problem(400);
    let metrics = world.ask("GET", "/metrics", Body::empty()).await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    let row = r#"underpass_path_blockages_total{path="sat",source="modem"} 1"#;
    assert!(metrics.contains(row), "{metrics}");
}

#[tokio::test]
async fn planned_blockages_are_replaced_shown_and_checked() {
    let world = World::new();
    world.state.shell.with_each(|engine, now| {
        engine.set_utc(now, Some(4_102_444_800_000));
    });
    let plan = r#"{"blockages": [
        {"entry": "2100-01-01T00:00:10Z", "exit": "2100-01-01T01:00:40+01:00"},
        {"entry": "2099-12-31T23:59:00Z", "exit": "2100-01-01T00:00:05.250Z"}
    ]}"#;
    let url = "/v1/paths/sat/blockages";
    let answer = world.ask("PUT", url, plan).await;
    let link = &answer.json()["link"];
    assert_eq!(link["blocked_by"], "plan");
    assert_eq!(link["planned"][0]["exit"], "2100-01-01T00:00:05.25Z");
    assert_eq!(link["planned"][1]["exit"], "2100-01-01T00:00:40Z");
    for wrong in [
        r#"{"blockages": [{"entry": "2100-01-01T00:00:10Z", "exit": "2100-01-01T00:00:10Z"}]}"#,
        r#"{"blockages": [{"entry": "1960-01-01T00:00:10Z", "exit": "2100-01-01T00:00:10Z"}]}"#,
        r#"{"blockages": [{"entry": "soon", "exit": "later"}]}"#,
        r#"{"blockages": [{"entry": "2100-01-01T00:00:10Z"}]}"#,
    ] {
        world.ask("PUT", url, wrong).await.is_problem(422);
    }
    let answer = world.ask("PUT", url, r#"{"blockages": []}"#).await;
    assert_eq!(answer.json()["blocked"], false);
    world
        .ask("PUT", "/v1/paths/moon/blockages", plan)
        .await
        .is_problem(404);
}

/// What an ended run leaves on disk.
fn ended(world: World) -> tempfile::TempDir {
    world.folder
}

#[tokio::test]
async fn a_budget_is_shown_added_to_and_begun_anew_and_outlives_the_process() {
    let world = World::new();
    let url = "/v1/paths/sat/budget";
    for wrong in [
        r#"{"add_bytes": 5}"#,
        r#"{}"#,
        r#"{"add_bytes": 5, "reset": true}"#,
        r#"{"add_bytes": 0}"#,
        r#"{"add_bytes": -1}"#,
    ] {
        world.ask("POST", url, wrong).await.is_problem(422);
    }
    world
        .ask("POST", "/v1/paths/moon/budget", r#"{"reset": true}"#)
        .await
        .is_problem(404);

    let world = World::with_paths(ended(world), METERED);
    let hop = world.state.shell.hop_named("lte").unwrap();
    world.state.shell.with_hop(hop, |engine, now| {
        let spent = Spent {
            spent_bytes: 1_200,
            ..Spent::default()
        };
        engine.restore_spent(now, hop, spent);
    });
    let url = "/v1/paths/lte/budget";
    let meter = async |world: &World| world.get("/v1/paths").await[1]["meter"].clone();
    let shown = meter(&world).await;
    assert_eq!(shown["spent_bytes"], 1_200);
    assert_eq!(shown["exhausted"], true);
    let metrics = world.ask("GET", "/metrics", Body::empty()).await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    let row = r#"underpass_path_spent_bytes{path="lte",neighbour="1"} 1200"#;
    assert!(metrics.contains(row), "{metrics}");
    let status = serde_json::from_value::<Status>(world.get("/v1/status").await).unwrap();
    assert!(status.to_string().contains("METERED PATH"), "{status}");

    let added = world.ask("POST", url, r#"{"add_bytes": 500}"#).await;
    assert_eq!(added.json()["meter"]["budget_bytes"], 1_500);
    assert_eq!(added.json()["meter"]["exhausted"], false);

    // The next run has the saved counts, and counts nothing twice.
    let keep = |world: &World| {
        let budgets = KeptBudgets::load(world.folder.path());
        budgets.step(&world.state.shell, true);
        budgets.step(&world.state.shell, true);
    };
    keep(&world);
    let world = World::with_paths(ended(world), METERED);
    assert_eq!(meter(&world).await["spent_bytes"], 0);
    keep(&world);
    let after = meter(&world).await;
    assert_eq!(after["spent_bytes"], 1_200);
    assert_eq!(after["added_bytes"], 500);
    let reset = world.ask("POST", url, r#"{"reset": true}"#).await;
    assert_eq!(reset.json()["meter"]["spent_bytes"], 0);
    assert_eq!(reset.json()["meter"]["budget_bytes"], 1_000);
}

#[tokio::test]
async fn what_a_path_has_spent_stays_when_a_reload_leads_it_another_way() {
    let world = World::with_paths(tempfile::tempdir().unwrap(), METERED);
    let shell = &world.state.shell;
    let hop = shell.hop_named("lte").unwrap();
    shell.with_hop(hop, |engine, now| {
        let spent = Spent {
            spent_bytes: 1_200,
            added_bytes: 500,
            ..Spent::default()
        };
        engine.restore_spent(now, hop, spent);
    });
    let budgets = KeptBudgets::load(world.folder.path());
    budgets.step(shell, true);

    let mut config = configure(&world.state.config.get(), 7, Families::BOTH);
    let moved = config.hops.iter_mut().find(|hop| hop.name == "lte");
    moved.unwrap().id = HopId(7);
    shell.reconfigure(&config).unwrap();
    let spent = || {
        let meters = shell.meters();
        let (id, _, meter) = &meters[0];
        (*id, meter.spent.spent_bytes, meter.spent.added_bytes)
    };
    assert_eq!(spent(), (HopId(7), 0, 0), "it is another hop");
    budgets.restore(shell);
    assert_eq!(spent(), (HopId(7), 1_200, 500));
    // It counts once, and the next run has it, too.
    budgets.step(shell, true);
    assert_eq!(spent(), (HopId(7), 1_200, 500));
    let world = World::with_paths(ended(world), METERED);
    KeptBudgets::load(world.folder.path()).step(&world.state.shell, true);
    let meters = world.state.shell.meters();
    assert_eq!(meters[0].2.spent.spent_bytes, 1_200);
}
