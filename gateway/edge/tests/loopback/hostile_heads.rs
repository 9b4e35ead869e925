use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::{ask, connected, echo, edge, origin, read_until, socks};

async fn status(proxy: std::net::SocketAddr, request: &[u8]) -> String {
    let mut client = TcpStream::connect(proxy).await.unwrap();
    // The proxy may close before it has read the whole head.
    let _ = client.write_all(request).await;
    let head = read_until(&mut client, b"\r\n").await;
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn malformed_requests_are_refused_and_others_go_on() {
    let (_edge, proxy) = edge("http", "");
    let (_socks, other) = edge("socks5", "");
    let (mut bystander, _) = socks(other, echo().await).await;
    let cases: [(&[u8], &str); 10] = [
        (b"\0\0\0\0\r\n\r\n", "400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        (b"GET https://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n", "501"),
        (
            b"GET http://u:p@a.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
            "400",
        ),
        (b"GET http://2130706433/ HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
        (b"GET http://a.example/ HTTP/1.1\r\nHost : x\r\n\r\n", "400"),
        (
            b"GET http://a.example/ HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
            "400",
        ),
        (
            b"POST http://a.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            "400",
        ),
        (
            b"POST http://a.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
            "400",
        ),
        (
            b"POST http://a.example/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "501",
        ),
    ];
    for (request, expected) in cases {
        let line = status(proxy, request).await;
        let shown = String::from_utf8_lossy(request);
        assert!(line.contains(expected), "{shown}: {line}");
    }
    bystander.write_all(b"!").await.unwrap();
    assert_eq!(bystander.read_u8().await.unwrap(), b'!');
}

#[tokio::test]
async fn a_request_without_exactly_one_valid_host_reaches_no_origin() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let origin = origin(move |mut socket| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            read_until(&mut socket, b"\r\n\r\n").await;
            let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
            socket.write_all(answer).await.unwrap();
        }
    })
    .await;
    let (_edge, proxy) = edge("http", "");
    for (version, fields, fault) in [
        ("1.1", "", "must have a Host field"),
        ("1.1", "Host: x\r\nHost: x\r\n", "more than one Host field"),
        ("1.0", "Host: x\r\nHost: y\r\n", "more than one Host field"),
        ("1.1", "Host: a b\r\n", "no host"),
        ("1.0", "Host: http://x\r\n", "no host"),
    ] {
        for target in [format!("GET http://{origin}/"), format!("CONNECT {origin}")] {
            let request = format!("{target} HTTP/{version}\r\n{fields}Connection: close\r\n\r\n");
            let mut client = TcpStream::connect(proxy).await.unwrap();
            client.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(
                answer.contains(" 400 Bad Request\r\n"),
                "{request}: {answer}"
            );
            assert!(answer.contains(fault), "{request}: {answer}");
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    for rest in ["HTTP/1.0\r\n\r\n", "HTTP/1.1\r\nHost:\r\n\r\n"] {
        let request = format!("GET http://{origin}/ {rest}");
        let line = status(proxy, request.as_bytes()).await;
        assert!(line.contains("204"), "{request}: {line}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn what_is_no_request_is_refused_with_a_reason() {
    for garbage in ["\0\0\0\0\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n\r\n"] {
        let (mut client, _edge) = connected("http", "").await;
        client.write_all(garbage.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{head}"
        );
        assert!(body.contains("no request of HTTP/1.1"), "{body}");
    }
}

#[tokio::test]
async fn a_client_with_a_broken_body_is_told_so_and_the_origin_is_not_blamed() {
    let origin = origin(|mut socket| async move {
        // It answers only whole requests.
        let _ = socket.read_to_end(&mut Vec::new()).await;
    })
    .await;
    for (field, body, fault) in [
        ("Transfer-Encoding: chunked", "no size\r\n", "malformed"),
        ("Transfer-Encoding: chunked", "1\r\nab\r\n", "malformed"),
        (
            "Transfer-Encoding: chunked",
            "0\r\nno field\r\n\r\n",
            "malformed",
        ),
        ("Transfer-Encoding: chunked", "4\r\nha", "broke off"),
        ("Content-Length: 4", "ha", "broke off"),
    ] {
        let head = "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\n";
        let request = format!("{head}{field}\r\n\r\n{body}");
        let (mut client, _edge) = ask(origin, &request).await;
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{body:?}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        assert!(answer.contains(fault), "{body:?}: {answer}");
    }
}

/// A body that is like a refusal of the proxy itself, in one piece, after the head has left.
#[tokio::test]
async fn an_origins_bytes_are_no_refusal_of_the_proxy() {
    const BODY: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let origin = origin(|mut socket| async move {
        read_until(&mut socket, b"\r\n\r\n").await;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", BODY.len());
        socket.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        socket.write_all(BODY.as_bytes()).await.unwrap();
    })
    .await;
    let (_edge, proxy) = edge("http", "");
    let mut client = TcpStream::connect(proxy).await.unwrap();
    let request = format!("GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut client, b"\r\n\r\n").await;
    let mut body = vec![0; BODY.len()];
    client.read_exact(&mut body).await.unwrap();
    assert_eq!(body, BODY.as_bytes());
    // What comes next on this connection is no request.
    client.write_all(b"\0\r\n\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    let mut refusal = String::new();
    client.read_to_string(&mut refusal).await.unwrap();
    assert!(refusal.starts_with("HTTP/1.1 400"), "{refusal}");
    assert!(refusal.contains("no request of HTTP/1.1"), "{refusal}");
}

#[tokio::test]
async fn endless_heads_are_refused() {
    let (_edge, proxy) = edge("http", "");
    let mut long = b"GET http://a.example/ HTTP/1.1\r\nX: ".to_vec();
    long.resize(200_000, b'a');
    let line = status(proxy, &long).await;
    assert!(line.is_empty() || line.contains("431"), "{line}");
    let mut many = b"GET http://a.example/ HTTP/1.1\r\n".to_vec();
    for _ in 0..1000 {
        many.extend(b"X: y\r\n");
    }
    many.extend(b"\r\n");
    let line = status(proxy, &many).await;
    assert!(line.contains("431"), "{line}");
}

#[tokio::test]
async fn a_slow_head_is_cut_off() {
    let (mut client, _edge) = connected("http", "handshake_timeout_s = 0.05").await;
    client.write_all(b"GET http://a").await.unwrap();
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"));
}

#[tokio::test]
async fn a_request_with_two_lengths_reaches_the_origin_with_one() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let origin = origin(move |mut socket| {
        let log = log.clone();
        async move {
            let head = read_until(&mut socket, b"\r\n\r\n").await;
            log.lock()
                .unwrap()
                .push(String::from_utf8(head).unwrap().to_lowercase());
            socket
                .write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
                .await
                .unwrap();
        }
    })
    .await;
    let (_edge, proxy) = edge("http", "");
    for fields in [
        "Content-Length: 35\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 35",
    ] {
        let request = format!(
            "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n0\r\n\r\nGET http://smuggled/ HTTP/1.1\r\n\r\n"
        );
        let line = status(proxy, request.as_bytes()).await;
        assert!(line.contains("204") || line.contains("400"), "{line}");
    }
    for head in seen.lock().unwrap().iter() {
        let both = head.contains("content-length") && head.contains("transfer-encoding");
        assert!(!both && !head.contains("smuggled"), "{head}");
    }
}

#[tokio::test]
async fn a_client_that_is_refused_while_it_sends_is_not_reset() {
    let (mut client, _edge) = connected("http", "").await;
    let head = b"POST https://a.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 6000000\r\n\r\n";
    client.write_all(head).await.unwrap();
    for _ in 0..2 {
        client.write_all(&vec![0; 3_000_000]).await.unwrap();
        // Until the proxy has ended its side.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
}

#[tokio::test]
async fn a_node_that_stops_does_not_wait_for_clients_that_have_been_answered() {
    // Other programs may delay this one, so one prompt end is enough.
    for _ in 0..20 {
        let (mut client, edge) = connected("http", "").await;
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        // The client keeps its side open.
        if timeout(Duration::from_secs(1), edge.drain()).await.is_ok() {
            return;
        }
    }
    panic!("the node waits for a client");
}
