//! A control service that records what it receives and answers as the test tells it to.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;
use underpass_control_client::{Planned, Service, ServiceConfig, Teller, Trust};

pub const TOKEN: &str = "up_secret";

/// The time on the service's clock at each post, ms.
pub const T_MS: u64 = 1_795_230_000_000;

/// What the service has received, and its prepared answers.
#[derive(Default)]
pub struct State {
    /// Posts that were answered with 200.
    pub posts: Vec<Value>,
    /// The number of requests that were answered otherwise.
    pub failed: usize,
    /// The answer instead of 200.
    pub status: Option<StatusCode>,
    /// A report with this text makes its post fail.
    pub poison: Option<String>,
    /// Streams in order, each with the id from which it was asked to resume.
    pub streams: Vec<Option<String>>,
    /// What the next streams send before they end.
    pub scripts: Vec<&'static str>,
}

/// A running service; dropping it ends it.
pub struct Control {
    pub state: Arc<Mutex<State>>,
    pub address: SocketAddr,
    /// Bound to the address without listening: nobody else gets the address while the
    /// service is away.
    _held: TcpSocket,
    pub folder: TempDir,
    scheme: &'static str,
    running: Option<AbortOnDropHandle<()>>,
}

/// A socket bound to this address, which other sockets of this kind can share.
fn bound(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

type Body = BoxBody<Bytes, Infallible>;

impl Control {
    pub fn start() -> Control {
        Control::with(None)
    }

    /// With TLS; `ca.pem` in the folder is its certificate's authority.
    pub fn start_tls() -> Control {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let pem = made.cert.pem();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.unwrap())
            .unwrap();
        let control = Control::with(Some(TlsAcceptor::from(Arc::new(tls))));
        std::fs::write(control.folder.path().join("ca.pem"), pem).unwrap();
        control
    }

    fn with(tls: Option<TlsAcceptor>) -> Control {
        let held = bound(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = held.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let mut control = Control {
            state: Arc::default(),
            address,
            _held: held,
            folder,
            scheme: if tls.is_some() { "https" } else { "http" },
            running: None,
        };
        control.run(bound(address).listen(16).unwrap(), tls);
        control
    }

    fn run(&mut self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        let state = self.state.clone();
        let serve = async move {
            let mut connections = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (state, tls) = (state.clone(), tls.clone());
                let connection = tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            if let Ok(socket) = tls.accept(socket).await {
                                connection(socket, state).await;
                            }
                        }
                        None => connection(socket, state).await,
                    }
                });
                // The connections end with the service.
                connections.push(AbortOnDropHandle::new(connection));
            }
        };
        self.running = Some(AbortOnDropHandle::new(tokio::spawn(serve)));
    }

    /// Stops the service and its connections.
    pub fn stop(&mut self) {
        self.running = None;
    }

    /// Starts the service again at the same address.
    pub fn restart(&mut self) {
        self.run(bound(self.address).listen(16).unwrap(), None);
    }

    pub fn config(&self) -> ServiceConfig {
        ServiceConfig {
            url: format!("{}://localhost:{}", self.scheme, self.address.port()),
            token_file: Some(self.folder.path().join("token")),
            trust: Trust::System,
            timeout: Duration::from_secs(60),
        }
    }

    pub fn service(&self) -> Arc<Service> {
        Arc::new(Service::new(self.config()).unwrap())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The texts of all accepted reports, in order.
    pub fn reports(&self) -> Vec<Value> {
        let state = self.state();
        let posts = state.posts.iter();
        let reports = posts.flat_map(|post| post["reports"].as_array().unwrap());
        reports.map(|entry| entry["report"].clone()).collect()
    }
}

/// Waits until a condition holds.
pub async fn until(mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < deadline, "it does not come about");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn connection(socket: impl AsyncRead + AsyncWrite + Unpin, state: Arc<Mutex<State>>) {
    let service = service_fn(move |request| {
        let state = state.clone();
        async move { Ok::<_, Infallible>(answer(request, state).await) }
    });
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(socket), service)
        .await;
}

async fn answer(request: Request<Incoming>, state: Arc<Mutex<State>>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut state = state.lock().unwrap();
    let path = head.uri.path();
    let known = head.headers[AUTHORIZATION] == format!("Bearer {TOKEN}");
    let poisoned = state
        .poison
        .as_ref()
        .is_some_and(|poison| String::from_utf8_lossy(&body).contains(poison));
    let status = match state.status {
        Some(status) => Some(status),
        None if !known => Some(StatusCode::UNAUTHORIZED),
        None => poisoned.then_some(StatusCode::UNPROCESSABLE_ENTITY),
    };
    if let Some(status) = status {
        state.failed += 1;
        let problem = json!({ "status": status.as_u16(), "detail": "it is as it is" });
        let mut response = json_of(&problem);
        *response.status_mut() = status;
        return response;
    }
    match path {
        "/v1/reports" => {
            let post: Value = serde_json::from_slice(&body).unwrap();
            let accepted = post["reports"].as_array().unwrap().len();
            state.posts.push(post);
            json_of(&json!({
                "accepted": accepted, "refused": [], "received_ms": T_MS, "answered_ms": T_MS + 3,
            }))
        }
        "/v1/gateways/1/plans" => {
            let last = head.headers.get("last-event-id");
            let last = last.map(|id| id.to_str().unwrap().to_owned());
            state.streams.push(last);
            let script = match state.scripts.is_empty() {
                true => None,
                false => Some(state.scripts.remove(0)),
            };
            stream(script)
        }
        _ => panic!("asked for {path}"),
    }
}

fn json_of(value: &Value) -> Response<Body> {
    let body = Full::from(value.to_string()).boxed();
    let mut response = Response::new(body);
    let kind = "application/json".parse().unwrap();
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A stream that sends a script and ends, or sends nothing and stays open.
fn stream(script: Option<&'static str>) -> Response<Body> {
    // In pieces, as a network might split it.
    let size = |script: &str| if script.len() < 1 << 16 { 7 } else { 1 << 16 };
    let pieces = script.map(|script| {
        let pieces = script.as_bytes().chunks(size(script));
        pieces.map(Bytes::from_static)
    });
    let body = Script(pieces.map(Iterator::collect)).boxed();
    let mut response = Response::new(body);
    let kind = "text/event-stream".parse().unwrap();
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// What is still to be sent; none for a silent stream.
struct Script(Option<VecDeque<Bytes>>);

impl hyper::body::Body for Script {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Some(left) => Poll::Ready(left.pop_front().map(|piece| Ok(Frame::data(piece)))),
            None => Poll::Pending,
        }
    }
}

/// Records what the poster reports.
#[derive(Default)]
pub struct Told {
    pub released: Mutex<Vec<u64>>,
    pub time: Mutex<Option<(Instant, u64)>>,
}

impl Teller for Told {
    fn release(&self, ticket: u64) {
        self.released.lock().unwrap().push(ticket);
    }

    fn control_time(&self, at: Instant, control_ms: u64) {
        *self.time.lock().unwrap() = Some((at, control_ms));
    }
}

/// Records the plans, settings and questions that arrive.
#[derive(Default)]
pub struct Plans(pub Mutex<Vec<String>>);

impl Planned for Plans {
    fn plan(&self, document: &[u8]) {
        let text = String::from_utf8(document.to_vec()).unwrap();
        self.0.lock().unwrap().push(text);
    }

    fn settings(&self, document: &[u8]) {
        self.plan(document);
    }

    fn streams(&self, question: &[u8]) {
        self.plan(question);
    }
}
