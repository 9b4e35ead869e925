//! Reports to the control service: blockages and efficiency as they were told, capacity
//! as it was measured.

use super::*;

#[tokio::test]
async fn announced_blockage_is_reported_by_the_control_services_clock() {
    let world = World::new();
    let body = r#"{"in_s": 45, "duration_s": 60.5, "confidence": 0.9, "obstruction": "Elbe"}"#;
    world
        .state
        .control_clock
        .set(Instant::now(), 4_102_444_800_000);
    let answer = world.ask("POST", "/v1/announcements", body).await;
    assert_eq!(answer.status, 202);
    let made = world.made.lock().unwrap().try_recv().unwrap();
    let underpass_reports::Body::Announcement(announcement) = made.report.body else {
        panic!("{made:?}");
    };
    let ahead_ms = announcement.entry_ms - 4_102_444_800_000;
    assert!((45_000..50_000).contains(&ahead_ms), "{ahead_ms}");
    assert_eq!(announcement.duration_ms, 60_500);
    let first_ms = announcement.announced_ms;
    world
        .state
        .control_clock
        .set(Instant::now(), 4_102_444_700_000);
    let body = r#"{"entry": "2100-01-01T01:01:00+01:00", "duration_s": 60, "confidence": 1}"#;
    let answer = world.ask("POST", "/v1/announcements", body).await;
    assert_eq!(answer.json()["entry"], "2100-01-01T00:01:00Z");
    let made = world.made.lock().unwrap().try_recv().unwrap();
    let underpass_reports::Body::Announcement(announcement) = made.report.body else {
        panic!("{made:?}");
    };
    // No two announcements have the same time, even if the clock jumps.
    assert_eq!(announcement.announced_ms, first_ms + 1);
    let listed = world.get("/v1/announcements").await;
    assert_eq!(listed[0]["obstruction"], Value::Null);
    assert_eq!(listed[1]["obstruction"], "Elbe");
    assert_eq!(listed[1]["duration_s"], 60.5);
}

#[tokio::test]
async fn announcement_that_makes_no_sense_is_refused_and_not_reported() {
    let world = World::new();
    for wrong in [
        r#"{"duration_s": 60, "confidence": 1}"#,
        r#"{"in_s": 5, "entry": "2100-01-01T00:00:00Z", "duration_s": 60, "confidence": 1}"#,
        r#"{"in_s": -5, "duration_s": 60, "confidence": 1}"#,
        r#"{"in_s": 5, "duration_s": 0, "confidence": 1}"#,
        r#"{"in_s": 5, "duration_s": 60, "confidence": 1.1}"#,
        r#"{"in_s": 5, "duration_s": 60}"#,
        r#"{"entry": "2001-01-01T00:00:00Z", "duration_s": 60, "confidence": 1}"#,
        r#"{"entry": "2400-01-01T00:00:00Z", "duration_s": 60, "confidence": 1}"#,
        r#"{"entry": "soon", "duration_s": 60, "confidence": 1}"#,
        r#"{"in_s": 5, "duration_s": 60, "confidence": 1, "where": "here"}"#,
    ] {
        let answer = world.ask("POST", "/v1/announcements", wrong).await;
        assert!(matches!(answer.status, 400 | 422), "{wrong}");
        answer.is_problem(answer.status);
    }
    assert_eq!(world.get("/v1/announcements").await, json!([]));
    assert!(world.made.lock().unwrap().try_recv().is_err());
}

#[tokio::test]
async fn node_without_control_service_says_so() {
    let world = World::new();
    let answer = world.ask("GET", "/v1/control", Body::empty()).await;
    answer.is_problem(404);
    assert_eq!(world.get("/v1/status").await["control"], Value::Null);
}

#[tokio::test]
async fn told_efficiency_is_in_the_status_reports() {
    let world = World::new();
    let url = "/v1/paths/sat/efficiency";
    let answer = world.ask("PUT", url, r#"{"efficiency": 2.25}"#).await;
    assert_eq!(answer.json()["efficiency"], 2.25);
    let reports = world.get("/v1/reports").await;
    assert_eq!(reports["own"]["links"][0]["efficiency"], 2.25);
    for wrong in ["0", "-1", "1e9", "\"much\""] {
        let body = format!(r#"{{"efficiency": {wrong}}}"#);
        world.ask("PUT", url, body).await.is_problem(422);
    }
    world.ask("PUT", url, r#"{"efficiency": null}"#).await;
    let reports = world.get("/v1/reports").await;
    assert_eq!(reports["own"]["links"][0].get("efficiency"), None);
    world
        .ask("PUT", "/v1/paths/moon/efficiency", r#"{"efficiency": 1}"#)
        .await
        .is_problem(404);
}

#[tokio::test]
async fn measured_capacity_is_in_the_status_reports_with_its_reason() {
    use underpass_capacity::Reason;
    use underpass_engine::{HopId, MeasuredLink};

    let world = World::new();
    let reports = world.get("/v1/reports").await;
    assert_eq!(reports["own"]["links"][0].get("measured"), None);
    for (reason, name) in [
        (Reason::Hint, "hint"),
        (Reason::Start, "start"),
        (Reason::Probe, "probe"),
        (Reason::Limit, "limit"),
    ] {
        let link = MeasuredLink {
            rate_bps: Some(640_000),
            capacity_bps: Some(655_000),
            reason: Some(reason),
            ..MeasuredLink::default()
        };
        world.state.shell.with_hop(HopId(0), |engine, now| {
            engine.measured(now, HopId(0), link, 0)
        });
        let reports = world.get("/v1/reports").await;
        let expected = json!({ "capacity_bps": 655_000, "reason": name });
        assert_eq!(reports["own"]["links"][0]["measured"], expected);
        let paths = world.get("/v1/paths").await;
        assert_eq!(paths[0]["measured"]["capacity_bps"], 655_000);
        assert_eq!(paths[0]["measured"]["reason"], name);
    }
}
