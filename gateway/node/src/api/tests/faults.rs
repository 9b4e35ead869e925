//! What callers are told of malformed requests.

use super::*;

#[tokio::test]
async fn a_malformed_request_is_told_which_field_is_wrong_and_what_may_be_given() {
    let world = World::new();
    let path = "/v1/paths/sat";
    let blockages = "/v1/paths/sat/blockages";
    let edge = "/v1/edge";
    for (method, path, body, detail) in [
        ("PATCH", path, "{", "the body is no JSON: it ends too early"),
        (
            "PATCH",
            path,
            r#"{"rate": 1}"#,
            "there is no rate here, only rate_bps, follow_plan, receive_rate_bps, blocked, \
             brought_up",
        ),
        (
            "PATCH",
            path,
            r#"{"rate_bps": "fast"}"#,
            r#"rate_bps must be a whole number that is not negative, not "fast""#,
        ),
        (
            "PATCH",
            path,
            r#"{"rate_bps": -5}"#,
            "rate_bps must be a whole number that is not negative, not -5",
        ),
        (
            "PATCH",
            path,
            r#"{"blocked": 1}"#,
            "blocked must be true or false, not 1",
        ),
        (
            "PATCH",
            path,
            r#"{"blocked": true, "blocked": true}"#,
            "blocked is given twice",
        ),
        ("PUT", blockages, "5", "the body must be an object, not 5"),
        (
            "PUT",
            blockages,
            r#"{"blockages": [{"entry": "2026-01-31T12:00:00Z"}]}"#,
            "blockages[0].exit is missing",
        ),
        (
            "PUT",
            blockages,
            r#"{"blockages": [{"entry": null}]}"#,
            "blockages[0].entry must be a time such as 2026-01-31T12:00:00Z, not null",
        ),
        (
            "PATCH",
            edge,
            r#"{"proxies": {"off_clients": ["home"]}}"#,
            "proxies.off_clients[0] must be a network such as 192.168.8.0/24",
        ),
        (
            "PATCH",
            edge,
            r#"{"proxies": {"off_ports": ["web"]}}"#,
            r#"proxies.off_ports[0] must be a port (443) or a range of ports ("5000-5100"), not "web""#,
        ),
        (
            "GET",
            "/v1/streams?limit=many",
            "",
            "limit must be a whole number",
        ),
        (
            "GET",
            "/v1/streams?most=3",
            "",
            "there is no most here, only limit",
        ),
        (
            "POST",
            "/v1/link/block?source=sun",
            "",
            r#"source must be operator or modem, not "sun""#,
        ),
        (
            "DELETE",
            "/v1/custody/x",
            "",
            r#""x" in the path must be a whole number that is not negative"#,
        ),
    ] {
        let answer = world.ask(method, path, body).await;
        assert_eq!(answer.json()["detail"], detail, "{method} {path} {body}");
    }
}

#[tokio::test]
async fn a_body_of_another_kind_is_told_what_is_missing() {
    let world = World::new();
    let request = Request::builder().method("PATCH").uri("/v1/paths/sat");
    let request = request.body(Body::from("{}")).unwrap();
    let router = router(world.state.clone())
        .layer(axum::Extension(ApiRole::Operate))
        .layer(axum::Extension(Actor::with_token("test")));
    let response = router.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 415);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let problem: Value = serde_json::from_slice(&body).unwrap();
    let detail = "a body needs the header Content-Type: application/json";
    assert_eq!(problem["detail"], detail);
}
