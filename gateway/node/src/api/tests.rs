use std::sync::Mutex;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tower::ServiceExt;
use underpass_bundle::MemoryStore;
use underpass_cla::{
    Class, CodedFigures, LtpFigures, Node, PathFigures, Session, SessionId, SessionInfo, Transfer,
};
use underpass_edge::dial::{Dialler, Families};
use underpass_edge::direct::DirectOutlet;
use underpass_engine::{Engine, HopId, StreamKey};
use underpass_streams::{Open, Target};

use super::auth::Actor;
use super::routes::BODY_BYTES;
use super::*;
use crate::config::{Config, Current, Document};
use crate::provider::KeptSettings;
use crate::run::engine::configure;
use crate::run::provider::Provider;
use crate::run::reports::{Made, Reporter};
use crate::security::Security;

mod access;
mod announcements;
mod decisions;
mod deferred;
mod faults;
mod holds;
mod links;
mod page;
mod plans;
mod speed;
mod traffic;
mod ways;

use deferred::Nowhere;

const TOKEN: &str = "0123456789abcdef";
/// For the metrics only, with its hash as sha256sum(1) prints it.
const METRICS_TOKEN: &str = "fedcba9876543210";
const METRICS_SHA256: &str = "3465f6e6975baa864ca957f0914ecda9bf7eb601ac31ac20a5dc3d329279a843";

/// The state of a terminal without sockets; the folder lives as long as this does.
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
        World::of(folder, api, "")
    }

    fn with_paths(folder: TempDir, paths: &str) -> World {
        World::of(folder, "", paths)
    }

    fn of(folder: TempDir, api: &str, paths: &str) -> World {
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
            {paths}
            "#
        );
        let path = folder.path().join("node.toml");
        std::fs::write(&path, text).unwrap();
        let config = Config::of(&Document::read(&path).unwrap()).unwrap();
        let current = Current::new(config);
        let config = current.get();
        let engine = configure(&config, 7, Families::BOTH);
        let store = Box::new(MemoryStore::default());
        let engines = Engine::of_shards(Instant::now(), &engine, vec![store]).unwrap();
        let (inbound, _) = mpsc::unbounded_channel();
        let dialler = Arc::new(Dialler::new(config.edge.dial.clone()));
        let outlet = Arc::new(DirectOutlet::new(dialler));
        let edge = Edge::start(&config.edge, config.classifier().unwrap(), outlet).unwrap();
        let shell = Shell::new(engines, &engine, inbound);
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
        let (kept_settings, _) = KeptSettings::load(folder.path());
        let provider = Provider::start(&current, &shell, &Arc::new(kept_settings));
        let state = Arc::new(ApiState {
            speed_test: SpeedTest::new(shell.clone(), Box::new(|| None)),
            accounts: Arc::new(Accounts::new(&config).unwrap()),
            tracer: None,
            reporter: Arc::new(Reporter::new(
                shell.clone(),
                &config,
                control_clock.clone(),
                Security::Plain,
                None,
            )),
            positions: None,
            report_sender: Some(report_sender),
            announced: Announced::default(),
            contacts: ContactRouting::start(&config, &shell),
            plans,
            provider,
            holds: Arc::new(KeptHolds::load(folder.path())),
            control_clock,
            control: None,
            reports_sent: None,
            reports: None,
            shell,
            custody: Arc::default(),
            edge: Arc::new(edge),
            interceptor: None,
            deferred: Some(deferred),
            config: current,
            without_items: Box::new(|_| false),
            security: Security::Plain,
            bpsec: crate::bpsec::guard(&config).unwrap(),
            reload: Box::new(|| tokio::spawn(async { Ok(Vec::new()) })),
            upgrade: Box::new(|| tokio::spawn(async { Ok(4711) })),
            sockets: Arc::default(),
            incarnation: 7,
            started,
            congestion_controls: vec!["in use: cubic".to_owned()],
            cdni: None,
            mptcp: crate::run::mptcp::Mptcp::start(&config, None),
            confinement: crate::confinement::Confinement::default(),
            history: Arc::default(),
            log: Arc::default(),
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
        let router = router(self.state.clone())
            .layer(axum::Extension(ApiRole::Operate))
            .layer(axum::Extension(Actor::with_token("test")));
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
            class: Some(Class(2)),
            resumes: true,
            transfer_mru_bytes: 1 << 20,
            tls: true,
            congestion_control: "hybla".to_owned(),
            ..SessionInfo::new("tcpcl", "192.0.2.1:4556".parse().unwrap())
        };
        let id = SessionId(1);
        self.state.shell.session_up(id, info, session.clone());
        session
    }

    fn stream(&self) -> StreamKey {
        let open = Open {
            report_connected: true,
            ..Open::new(
                Class(2),
                Target::Address("198.51.100.7:80".parse().unwrap()),
            )
        };
        let opened = self
            .state
            .shell
            .with_hop(HopId(0), |engine, now| engine.open(now, 1, open));
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

/// A session that records its calls.
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
            coded: CodedFigures {
                symbols_recovered: 3,
                ..CodedFigures::default()
            },
            ltp: LtpFigures {
                cancelled_sent_blocks: 2,
                no_room_segments: 6,
                ..LtpFigures::default()
            },
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
    // `underpass status` can read the API's answer.
    let text = serde_json::from_value::<Status>(status)
        .unwrap()
        .to_string();
    for part in ["ipn:10.0, terminal", "2.0 Mbit/s", "carries", "612 ms"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[tokio::test]
async fn every_error_is_a_problem_document() {
    let world = World::new();
    let large = vec![b' '; BODY_BYTES + 1];
    let order = |class: &str, path: &str| {
        Body::from(format!(r#"{{"class": "{class}", "path": "{path}"}}"#))
    };
    let cases: [(&str, &str, Body, u16); 16] = [
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
        ("POST", "/v1/migrations", order("none", "sat"), 404),
        ("POST", "/v1/migrations", order("bulk", "moon"), 404),
        ("POST", "/v1/migrations", order("bulk", "sat"), 422),
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
        r#"underpass_coded_symbols_recovered_total{path="sat",class="normal"} 3"#,
        r#"underpass_ltp_cancelled_blocks_total{path="sat",direction="sent"} 2"#,
        r#"underpass_ltp_refused_segments_total{path="sat",reason="no-room"} 6"#,
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
