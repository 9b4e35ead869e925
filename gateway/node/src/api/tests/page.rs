//! The node's own page, and its requests.

use std::io::Write;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

async fn asked(tcp: SocketAddr, method: &str, path: &str) -> (String, String) {
    let mut socket = TcpStream::connect(tcp).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn the_page_is_given_to_anybody_and_nothing_else_is() {
    let world = World::new();
    let servers = serve(world.state.clone()).await.unwrap();
    let tcp = servers.tcp.unwrap();
    let (head, page) = asked(tcp, "GET", "/").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let policy = head
        .lines()
        .find_map(|line| line.strip_prefix("content-security-policy: "))
        .unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert!(
        !policy.contains("unsafe") && !policy.contains('*'),
        "{policy}"
    );
    // Every file that the page names is there.
    let named = page.split('"').filter(|text| text.starts_with('/'));
    let named: Vec<&str> = named.collect();
    assert!(named.contains(&"/page.js"), "{named:?}");
    for path in named {
        let (head, _) = asked(tcp, "GET", path).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
    }
    for (method, path, code) in [
        ("POST", "/", "405"),
        ("GET", "/v1/status", "401"),
        ("GET", "/v1/log", "401"),
        ("GET", "/v1/throughput", "401"),
        ("GET", "/page.css/../v1/log", "401"),
        ("GET", "/index.html", "401"),
    ] {
        let (head, _) = asked(tcp, method, path).await;
        assert!(head.contains(code), "{method} {path}: {head}");
    }
}

#[tokio::test]
async fn the_log_is_read_on_from_where_it_was_left() {
    let world = World::new();
    let mut log = &*world.state.log;
    log.write_all(b"INFO link up\n").unwrap();
    let first = world.get("/v1/log").await;
    assert_eq!(first["lines"], json!(["INFO link up"]));
    log.write_all(b"WARN link down\n").unwrap();
    let next = world.get("/v1/log?from=1").await;
    assert_eq!(
        next,
        json!({"first": 1, "next": 2, "lines": ["WARN link down"]})
    );
    let wrong = world.ask("GET", "/v1/log?from=-1", Body::empty()).await;
    wrong.is_problem(400);
}

#[tokio::test]
async fn throughput_is_told_for_every_class() {
    let world = World::new();
    let told = world.get("/v1/throughput").await;
    assert_eq!(told["interval_s"], 5.0);
    let none = json!({"sent_bps": [], "received_bps": []});
    assert_eq!(told["classes"]["bulk"], none);
    assert_eq!(told["classes"].as_object().unwrap().len(), 4);
}
