//! Speed tests that do not start.

use super::*;

#[tokio::test]
async fn a_speed_test_needs_a_peer_and_a_sensible_length() {
    let world = World::new();
    let asked = async |body: &str| world.ask("POST", "/v1/speed-test", body.to_owned()).await;
    assert_eq!(world.ask("GET", "/v1/speed-test", "").await.status, 404);
    for wrong in [
        r#"{"seconds": 0}"#,
        r#"{"seconds": 31}"#,
        r#"{"class": "none such"}"#,
        r#"{"bytes": 1}"#,
    ] {
        let status = asked(wrong).await.status;
        assert!((400..=422).contains(&status), "{wrong}: {status}");
    }
    // This node's clients connect from the node itself.
    assert_eq!(asked("{}").await.status, 409);
    assert_eq!(world.ask("DELETE", "/v1/speed-test", "").await.status, 204);
}
