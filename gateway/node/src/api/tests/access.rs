//! Which callers may ask what.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::*;
use crate::upgrade::Sockets;

const ROLES: [ApiRole; 3] = [ApiRole::Metrics, ApiRole::Read, ApiRole::Operate];

/// The status code of a GET; none if there is no answer.
async fn code_of(
    mut socket: impl AsyncReadExt + AsyncWriteExt + Unpin,
    path: &str,
    token: Option<&str>,
) -> Option<String> {
    let authorization = token.map(|token| format!("Authorization: {token}\r\n"));
    let authorization = authorization.unwrap_or_default();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{authorization}\r\n");
    socket.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Some(answer.strip_prefix("HTTP/1.1 ")?[..3].to_owned())
}

/// A connection to `to` from an address of this host.
async fn connected_from(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(from.parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn tcp_callers_need_a_token_that_has_the_role_and_the_socket_needs_none() {
    let world = World::new();
    let servers = serve(world.state.clone()).await.unwrap();
    let tcp = servers.tcp.unwrap();
    let (operator, metrics) = (format!("Bearer {TOKEN}"), format!("bearer {METRICS_TOKEN}"));
    let basic = format!("Basic {TOKEN}");
    for (path, token, code) in [
        ("/v1/status", None, "401"),
        ("/v1/status", Some("Bearer 0123456789abcdeX"), "401"),
        ("/v1/status", Some("Bearer 0123456789abcde"), "401"),
        ("/v1/status", Some("Bearer "), "401"),
        // A token's hash is not a token.
        (
            "/metrics",
            Some(&*format!("Bearer {METRICS_SHA256}")),
            "401",
        ),
        ("/v1/status", Some(&*basic), "401"),
        ("/v1/status", Some(&*operator), "200"),
        ("/metrics", Some(&*operator), "200"),
        ("/metrics", Some(&*metrics), "200"),
        ("/v1/status", Some(&*metrics), "403"),
        ("/v1/nothing", None, "401"),
        ("/v1/nothing", Some(&*metrics), "404"),
    ] {
        let socket = TcpStream::connect(tcp).await.unwrap();
        let answer = code_of(socket, path, token).await;
        assert_eq!(answer.as_deref(), Some(code), "{path} {token:?}");
    }
    let path = world.folder.path().join("api.sock");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let socket = UnixStream::connect(&path).await.unwrap();
    let answer = code_of(socket, "/v1/status", None).await;
    assert_eq!(answer.as_deref(), Some("200"));
    // Another process does not have this one's sockets.
    let other = unix_socket("api.socket", &path, &Sockets::default());
    assert!(matches!(other, Err(ApiError::Taken(..))));
}

#[tokio::test]
async fn who_guesses_tokens_is_refused_and_the_socket_is_not() {
    let world = World::new();
    let servers = serve(world.state.clone()).await.unwrap();
    let tcp = servers.tcp.unwrap();
    let ask = async |token: Option<&str>| {
        let socket = TcpStream::connect(tcp).await.unwrap();
        code_of(socket, "/metrics", token).await.unwrap()
    };
    let right = format!("Bearer {TOKEN}");
    // A caller without a token has not tried to guess one.
    for _ in 0..20 {
        assert_eq!(ask(None).await, "401");
    }
    assert_eq!(ask(Some(&right)).await, "200");
    for guess in 0..10 {
        assert_eq!(ask(Some(&format!("Bearer guess-{guess}"))).await, "401");
    }
    assert_eq!(ask(Some("Bearer one guess more")).await, "429");
    assert_eq!(ask(Some(&right)).await, "429");
    let socket = UnixStream::connect(world.folder.path().join("api.sock"));
    let answer = code_of(socket.await.unwrap(), "/metrics", None).await;
    assert_eq!(answer.as_deref(), Some("200"));
}

#[tokio::test]
async fn a_caller_that_holds_connections_leaves_some_to_others() {
    let world = World::new();
    let servers = serve(world.state.clone()).await.unwrap();
    let tcp = servers.tcp.unwrap();
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(TcpStream::connect(tcp).await.unwrap());
    }
    let other = connected_from("127.0.0.2:0", tcp).await;
    let token = format!("Bearer {TOKEN}");
    let answer = code_of(other, "/v1/status", Some(&token));
    // This is before the held connections are given up.
    let answer = timeout(Duration::from_secs(5), answer).await.unwrap();
    assert_eq!(answer.as_deref(), Some("200"));
}

#[tokio::test]
async fn who_presents_no_token_makes_room_for_others() {
    let token = format!("Bearer {TOKEN}");
    // One of the addresses that hold all connections, and another one.
    for from in ["127.0.0.1:0", "127.0.0.2:0"] {
        let world = World::new();
        let servers = serve(world.state.clone()).await.unwrap();
        let tcp = servers.tcp.unwrap();
        let mut held = Vec::new();
        for holder in ["127.0.0.1:0", "127.0.0.3:0"] {
            for _ in 0..32 {
                held.push(connected_from(holder, tcp).await);
            }
        }
        let socket = connected_from(from, tcp).await;
        let answer = code_of(socket, "/v1/status", Some(&token));
        // This is before the held connections are given up.
        let answer = timeout(Duration::from_secs(5), answer).await.unwrap();
        assert_eq!(answer.as_deref(), Some("200"), "{from}");
    }
}

#[tokio::test]
async fn every_route_is_closed_to_lesser_roles_than_its_own() {
    let world = World::new();
    let routes = routes();
    assert!(routes.listed().len() > 25);
    for (method, path, least) in routes.listed() {
        if *method != "GET" {
            assert_eq!(
                *least,
                ApiRole::Operate,
                "{method} {path} changes something"
            );
        }
        let uri = path
            .replace("{name}", "sat")
            .replace("{peer}", "1")
            .replace("{id}", "5");
        for role in [None].into_iter().chain(ROLES.map(Some)) {
            let request = Request::builder().method(*method).uri(&uri);
            let request = request.body(Body::empty()).unwrap();
            let mut router = router(world.state.clone());
            if let Some(role) = role {
                router = router.layer(axum::Extension(role));
            }
            let status = router.oneshot(request).await.unwrap().status();
            let allowed = role >= Some(*least);
            let told = format!("{method} {path} as {role:?}: {status}");
            assert_eq!(status != StatusCode::FORBIDDEN, allowed, "{told}");
            assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{told}");
        }
    }
}

#[test]
fn the_documentation_has_every_route_with_its_role() {
    let page = include_str!("../../../../../docs/local-api.md");
    let mut documented = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", routes, role, _, ""] = cells[..] else {
            continue;
        };
        for route in routes.split('`').filter(|part| part.contains(" /")) {
            documented.insert(route.to_owned(), role.to_owned());
        }
    }
    let made = routes();
    let made = made.listed().iter().map(|(method, path, role)| {
        let role = role.name().to_owned();
        (format!("{method} {path}"), role)
    });
    assert_eq!(documented, made.collect());
}

#[tokio::test]
async fn with_a_certificate_tcp_speaks_tls_alone() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("crt"), folder.path().join("key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let files = format!("certificate_file = {certificate:?}\nkey_file = {key:?}");
    let world = World::with(folder, &files);
    let servers = serve(world.state.clone()).await.unwrap();
    let tcp = servers.tcp.unwrap();

    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(client));
    for (token, code) in [(TOKEN, "200"), ("0123456789abcdeX", "401")] {
        let socket = TcpStream::connect(tcp).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let socket = connector.connect(name, socket).await.unwrap();
        let answer = code_of(socket, "/v1/status", Some(&format!("Bearer {token}"))).await;
        assert_eq!(answer.as_deref(), Some(code));
    }
    let plain = TcpStream::connect(tcp).await.unwrap();
    let answer = code_of(plain, "/v1/status", Some(&format!("Bearer {TOKEN}"))).await;
    assert_eq!(answer, None);
}
