use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{closed_port, echo, edge, read_until};

async fn connect(proxy: std::net::SocketAddr, head: String) -> (TcpStream, String) {
    let mut client = TcpStream::connect(proxy).await.unwrap();
    client.write_all(head.as_bytes()).await.unwrap();
    let head = read_until(&mut client, b"\r\n\r\n").await;
    (client, String::from_utf8(head).unwrap())
}

#[tokio::test]
async fn tunnel_carries_bytes_and_half_close() {
    let (_edge, proxy) = edge("http", "");
    let origin = echo().await;
    // The first bytes of the tunnel follow the head at once.
    let head = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\nearly");
    let (mut client, answer) = connect(proxy, head).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        !answer.to_lowercase().contains("content-length"),
        "{answer}"
    );
    client.write_all(b" and late").await.unwrap();
    client.shutdown().await.unwrap();
    let mut echoed = String::new();
    client.read_to_string(&mut echoed).await.unwrap();
    assert_eq!(echoed, "early and late");
}

#[tokio::test]
async fn failures_have_their_status_and_reason_after_the_dial() {
    let (_edge, proxy) = edge("http", "answer = 'after-dial'");
    let refused = closed_port().to_string();
    let said_once = format!("Gateway: {refused}: the server refused the connection\n");
    for (target, status, reason) in [
        (refused.as_str(), "502", said_once.as_str()),
        ("10.0.0.1:80", "403", "not dialled"),
        // 504 if no resolver is available.
        ("no-such-host.invalid:80", "50", "does not resolve"),
    ] {
        let (mut client, head) = connect(
            proxy,
            format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        )
        .await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        let mut body = String::new();
        client.read_to_string(&mut body).await.unwrap();
        assert!(body.contains(reason), "{body}");
    }
}

#[tokio::test]
async fn what_the_node_itself_would_not_dial_is_forbidden_at_once() {
    let (_edge, proxy) = edge("http", "");
    for target in ["10.0.0.1:80", "localhost:25"] {
        let (_, head) = connect(
            proxy,
            format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n"),
        )
        .await;
        assert!(head.starts_with("HTTP/1.1 403"), "{target}: {head}");
    }
}

#[tokio::test]
async fn bad_targets_are_bad_requests() {
    let (_edge, proxy) = edge("http", "");
    for target in [
        "example.org",
        "user@example.org:80",
        "127.1:80",
        "example.org:99999",
    ] {
        let (_, head) = connect(
            proxy,
            format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n"),
        )
        .await;
        assert!(head.starts_with("HTTP/1.1 400"), "{target}: {head}");
    }
}

#[tokio::test]
async fn users_log_in_by_basic() {
    let (_edge, proxy) = edge(
        "http",
        "users = [{ name = 'Aladdin', password = 'open sesame' }]",
    );
    let origin = echo().await;
    let (_, head) = connect(
        proxy,
        format!("CONNECT {origin} HTTP/1.1\r\nHost: x\r\n\r\n"),
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 407"), "{head}");
    assert!(
        head.to_lowercase().contains("proxy-authenticate: basic"),
        "{head}"
    );
    let (_, head) = connect(
        proxy,
        format!("CONNECT {origin} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"),
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}
