use std::sync::Mutex;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tower::ServiceExt;
use underpass_cla::{Class, Node, PathFigures, Session, SessionId, SessionInfo, Transfer};
use underpass_deferred::{Carrier, Id, Name, Owner, Submission};
use underpass_edge::dial::{Dialler, Families};
use underpass_edge::direct::DirectOutlet;
use underpass_engine::{Engine, StreamKey};
use underpass_streams::{Open, Target};

use super::routes::BODY_BYTES;
use super::*;
use crate::config::{Config, Current};
use crate::run::engine::configure;
use crate::run::reports::{Made, Reporter};
use crate::security::Security;
use crate::shell::NeighbourNames;

mod access;
mod plans;

const TOKEN: &str = "0123456789abcdef";
/// For the metrics alone, and its hash as sha256sum(1) gives it.
const METRICS_TOKEN: &str = "fedcba9876543210";
const METRICS_SHA256: &str = "3465f6e6975baa864ca957f0914ecda9bf7eb601ac31ac20a5dc3d329279a843";

/// A terminal's state without sockets; the folder lives as long as it.
struct World {
    state: Arc<ApiState>,
    /// What it reports.
    made: Mutex<mpsc::Receiver<Made>>,
    folder: TempDir,
}

impl World {
    fn new() -> World {
        World::with(tempfile::tempdir().unwrap(), "")
    }

    /// A world in `folder` with more keys of `[api]`.
    fn with(folder: TempDir, api: &str) -> World {
        let at = folder.path().display();
        std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let text = format!(
            r#"
            [node]
            number = 10
            role = "terminal"
            state_dir = "{at}"
            [api]
            socket = "{at}/api.sock"
            listen = "127.0.0.1:0"
            {api}
            [[api.token]]
            name = "operator"
            role = "operate"
            file = "{at}/token"
            [[api.token]]
            name = "prometheus"
            role = "metrics"
            sha256 = "{METRICS_SHA256}"
            [tls]
            plain = true
            [[path]]
            name = "sat"
            neighbour = 1
            remote = "192.0.2.1:4556"
            send_rate_bps = 2_000_000
            [reports]
            to = 1
            [[outlet]]
            node = 1
            "#
        );
        let path = folder.path().join("node.toml");
        std::fs::write(&path, text).unwrap();
        let config = Config::load(&path).unwrap();
        let current = Current::new(config);
        let config = current.get();
        let engine = configure(&config, 7, Families::BOTH);
        let engine = Engine::new(Instant::now(), engine).unwrap();
        let names = NeighbourNames::new(config.neighbours());
        let (inbound, _) = mpsc::unbounded_channel();
        let dialler = Arc::new(Dialler::new(config.edge.dial.clone()));
        let outlet = Arc::new(DirectOutlet::new(dialler));
        let edge = Edge::start(&config.edge, config.classifier().unwrap(), outlet).unwrap();
        let shell = Shell::new(engine, names, inbound);
        let started = Instant::now();
        let control_clock = Arc::new(ControlClock::default());
        let (report_sender, made) = ReportSender::new(7, started);
        let settings = config.deferred.settings(folder.path());
        let (deferred, _) = underpass_deferred::start(&settings, Arc::new(Nowhere)).unwrap();
        let acknowledge = {
            let reports = report_sender.clone();
            crate::run::acknowledge_plans(Some(reports))
        };
        let (plans, _) = Plans::start(&current, &shell, &control_clock, acknowledge);
        let state = Arc::new(ApiState {
            reporter: Arc::new(Reporter::new(shell.clone(), &config, control_clock.clone())),
            positions: None,
            report_sender: Some(report_sender),
            announced: Announced::default(),
            plans,
            control_clock,
            control: None,
            reports_sent: None,
            reports: None,
            shell,
            custody: None,
            edge: Arc::new(edge),
            interceptor: None,
            deferred: Some(deferred),
            config: current,
            security: Security::Plain,
            reload: Box::new(|| tokio::spawn(async { Ok(Vec::new()) })),
            incarnation: 7,
            started,
            congestion_controls: vec!["in use: cubic".to_owned()],
            confinement: crate::confinement::Confinement::default(),
        });
        World {
            state,
            made: Mutex::new(made),
            folder,
        }
    }

    async fn ask(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.into())
            .unwrap();
        let router = router(self.state.clone()).layer(axum::Extension(ApiRole::Operate));
        let response = router.oneshot(request).await.unwrap();
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.map(|kind| kind.to_str().unwrap().to_owned());
        Answer {
            status: response.status().as_u16(),
            kind: kind.unwrap_or_default(),
            body: response.into_body().collect().await.unwrap().to_bytes(),
        }
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, Body::empty()).await;
        assert_eq!(answer.status, 200, "{path}");
        answer.json()
    }

    /// A session of the class "normal" to the hub.
    fn session(&self) -> Arc<Recorded> {
        let session = Arc::new(Recorded::default());
        let info = SessionInfo {
            peer_node_id: "ipn:1.0".to_owned(),
            path: "sat".to_owned(),
            remote: "192.0.2.1:4556".parse().unwrap(),
            class: Some(Class(2)),
            standby: false,
            incarnation: None,
            resumes: true,
            transfer_mru_bytes: 1 << 20,
            tls: true,
            exported_key: None,
            congestion_control: "hybla".to_owned(),
        };
        let id = SessionId(1);
        self.state.shell.session_up(id, info, session.clone());
        session
    }

    fn stream(&self) -> StreamKey {
        let open = Open {
            class: Class(2),
            target: Target::Address("198.51.100.7:80".parse().unwrap()),
            client: None,
            report_connected: true,
        };
        let opened = self
            .state
            .shell
            .with(|engine, now| engine.open(now, 1, open));
        opened.unwrap()
    }
}

struct Answer {
    status: u16,
    kind: String,
    body: bytes::Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn is_problem(&self, status: u16) {
        assert_eq!(self.status, status);
        assert_eq!(self.kind, "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string());
        assert!(!problem["detail"].as_str().unwrap().is_empty());
    }
}

/// A session that keeps what it is told.
#[derive(Default)]
struct Recorded {
    suspended: Mutex<Vec<bool>>,
    rates: Mutex<Vec<Option<u64>>>,
    offered: Mutex<Vec<Transfer>>,
}

impl Session for Recorded {
    fn offer(&self, transfer: Transfer) {
        self.offered.lock().unwrap().push(transfer);
    }
    fn set_rate(&self, ip_bps: Option<u64>) {
        self.rates.lock().unwrap().push(ip_bps);
    }
    fn figures(&self) -> PathFigures {
        PathFigures {
            rtt: Duration::from_millis(612),
            min_rtt: Duration::from_millis(600),
            sent_bytes: 5_000,
            retransmitted_bytes: 40,
            ..PathFigures::default()
        }
    }
    fn suspend(&self, blocked: bool) {
        self.suspended.lock().unwrap().push(blocked);
    }
    fn close(&self) {}
    fn abort(&self, _reason: &str) {}
}

#[tokio::test]
async fn the_status_tells_paths_sessions_streams_and_custody() {
    let world = World::new();
    world.session();
    world.stream();
    let status = world.get("/v1/status").await;
    assert_eq!(status["node"], "ipn:10.0");
    assert_eq!(status["incarnation"], 7);
    let path = &status["paths"][0];
    assert_eq!(path["name"], "sat");
    assert_eq!(path["up"], true);
    assert_eq!(path["rate_bps"], 2_000_000);
    let session = &path["sessions"][0];
    assert_eq!(session["class"], "normal");
    assert_eq!(session["carrying"], true);
    assert_eq!(session["rtt_ms"], 612.0);
    assert_eq!(status["streams"]["normal"]["open"], 1);
    assert_eq!(status["custody"]["bundles"], 0);
    // What the API tells is what `underpass status` reads.
    let text = serde_json::from_value::<Status>(status)
        .unwrap()
        .to_string();
    for part in ["ipn:10.0, terminal", "2.0 Mbit/s", "carries", "612 ms"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[tokio::test]
async fn a_changed_rate_reaches_the_scheduler_and_the_sessions() {
    let world = World::new();
    let session = world.session();
    let answer = world
        .ask("PATCH", "/v1/paths/sat", r#"{"rate_bps": 512000}"#)
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["rate_bps"], 512_000);
    // The session may be told a little less, which keeps the queue empty.
    let told = session.rates.lock().unwrap().last().unwrap().unwrap();
    assert!((500_000..=512_000).contains(&told), "{told}");
    let answer = world
        .ask("PATCH", "/v1/paths/sat", r#"{"rate_bps": null}"#)
        .await;
    assert_eq!(answer.json()["rate_bps"], Value::Null);
    assert_eq!(session.rates.lock().unwrap().last(), Some(&None));
    assert_eq!(
        world.get("/v1/beam").await,
        json!({ "rate_bps": Value::Null, "follow_plan": true })
    );
    let answer = world
        .ask("PATCH", "/v1/beam", r#"{"rate_bps": 9000000}"#)
        .await;
    let set = json!({ "rate_bps": 9_000_000, "follow_plan": false });
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
    shell.with(|engine, now| engine.write(now, key, "hello".into()).unwrap());
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
    world.state.shell.with(|engine, now| {
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
    // However the clock jumps, no two have the same name.
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
async fn a_cancelled_bundle_is_held_no_more_and_its_stream_is_reset() {
    let world = World::new();
    let session = world.session();
    let key = world.stream();
    let shell = &world.state.shell;
    shell.ready(SessionId(1));
    shell.with(|engine, now| engine.write(now, key, "hello".into()).unwrap());
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
    let events = shell.read(Engine::stream_events);
    assert_eq!(events.expired, 1);
}

#[tokio::test]
async fn the_edge_tells_its_listeners_and_switches_only_what_is_configured() {
    let world = World::new();
    let edge = world.get("/v1/edge").await;
    assert_eq!(edge["connections"], 0);
    assert_eq!(edge["interception"], Value::Null);
    // Nothing is changed by half.
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

#[tokio::test]
async fn every_error_is_a_problem_document() {
    let world = World::new();
    let large = vec![b' '; BODY_BYTES + 1];
    let cases: [(&str, &str, Body, u16); 13] = [
        ("GET", "/v1/nothing", Body::empty(), 404),
        ("GET", "/v1/position", Body::empty(), 404),
        ("GET", "/", Body::empty(), 404),
        ("DELETE", "/v1/status", Body::empty(), 405),
        ("PATCH", "/v1/paths/moon", "{}".into(), 404),
        ("PATCH", "/v1/paths/sat", "{".into(), 400),
        ("PATCH", "/v1/paths/sat", r#"{"rate": 1}"#.into(), 422),
        ("PATCH", "/v1/paths/sat", r#"{"rate_bps": 5}"#.into(), 422),
        ("PATCH", "/v1/paths/sat", large.into(), 413),
        ("GET", "/v1/streams?limit=many", Body::empty(), 400),
        ("GET", "/v1/streams?most=3", Body::empty(), 400),
        ("POST", "/v1/link/block?path=moon", Body::empty(), 404),
        ("DELETE", "/v1/custody/x", Body::empty(), 400),
    ];
    for (method, path, body, status) in cases {
        let answer = world.ask(method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}");
        answer.is_problem(status);
    }
}

#[tokio::test]
async fn metrics_are_read_at_each_scrape() {
    let world = World::new();
    world.session();
    world.state.shell.session_figures();
    let answer = world.ask("GET", "/metrics", Body::empty()).await;
    assert!(answer.kind.starts_with("application/openmetrics-text"));
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    for line in [
        r#"underpass_build_info{version="0.1.0",node="10",role="terminal"} 1"#,
        "underpass_incarnation 7",
        r#"underpass_path_up{path="sat",neighbour="1"} 1"#,
        r#"underpass_path_rate_bytes_per_second{path="sat",neighbour="1"} 250000.0"#,
        r#"underpass_path_sent_bundles_total{path="sat",class="bulk"} 0"#,
        r#"underpass_path_received_bundle_bytes_total{path="sat",class="normal"} 0"#,
        r#"underpass_transport_sent_bytes_total{path="sat",class="normal"} 5000"#,
        r#"underpass_transport_retransmitted_bytes_total{path="sat",class="normal"} 40"#,
        r#"underpass_sessions{path="sat",class="normal",state="carrying"} 1"#,
        r#"underpass_congestion_control_info{path="sat",class="normal",algorithm="hybla"} 1"#,
        r#"underpass_session_rtt_seconds{path="sat",class="normal"} 0.612"#,
        r#"underpass_streams{class="normal",state="open"} 0"#,
        r#"underpass_custody_bundles{class="interactive"} 0"#,
        r#"underpass_held_oldest_age_seconds{class="normal"} 0.0"#,
        "underpass_refused_bundles_total 0",
        "# EOF",
    ] {
        assert!(
            text.lines().any(|l| l == line),
            "{line} is missing in:\n{text}"
        );
    }
    let unprefixed = text
        .lines()
        .find(|l| !l.starts_with('#') && !l.starts_with("underpass_"));
    assert_eq!(unprefixed, None);
}

/// A link on which messages wait.
struct Nowhere;

impl Carrier for Nowhere {
    fn send(&self, _: u64, _: u8, _: Duration, _: Name, _: bytes::Bytes) -> bool {
        true
    }
}

/// Keeps a request; gives its id.
async fn keep(world: &World) -> String {
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
    let kept = world
        .state
        .deferred
        .as_ref()
        .unwrap()
        .call(move |node, now_ms| {
            node.begin_upload(id).unwrap();
            node.upload(id, b"head and body")?.unwrap();
            node.submit(now_ms, submission)
        });
    kept.await.unwrap().unwrap();
    id.to_string()
}

#[tokio::test]
async fn requests_kept_for_later_are_shown_in_pages_and_cancelled() {
    let world = World::new();
    let ids = [keep(&world).await, keep(&world).await];
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
        // All of it has left: the dispatching node has to say so first.
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
