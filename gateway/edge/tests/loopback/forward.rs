use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::world::{ask, closed_port, connected, edge, edge_of, origin, read_until};

/// An origin that answers each request with the head it has received.
async fn mirror(connections: Arc<AtomicUsize>) -> SocketAddr {
    origin(move |mut socket| {
        connections.fetch_add(1, Ordering::Relaxed);
        async move {
            loop {
                let head = read_until(&mut socket, b"\r\n\r\n").await;
                if head.is_empty() {
                    return;
                }
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nKeep-Alive: timeout=9\r\n\
                     Connection: X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n\r\n",
                    head.len()
                );
                socket.write_all(answer.as_bytes()).await.unwrap();
                socket.write_all(&head).await.unwrap();
            }
        }
    })
    .await
}

pub async fn head(client: &mut TcpStream) -> String {
    String::from_utf8(read_until(client, b"\r\n\r\n").await).unwrap()
}

/// The field's value in `head`, in lower case.
pub fn field(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        field
            .eq_ignore_ascii_case(name)
            .then(|| value.trim().to_lowercase())
    })
}

pub async fn body(client: &mut TcpStream, head: &str) -> String {
    let length = field(head, "content-length").unwrap().parse().unwrap();
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.unwrap();
    String::from_utf8(body).unwrap()
}

#[tokio::test]
async fn both_legs_keep_their_connection() {
    let connections = Arc::new(AtomicUsize::new(0));
    let origin = mirror(connections.clone()).await;
    let (mut client, _edge) = connected("http", "").await;
    for _ in 0..5 {
        let request = format!("GET http://{origin}/a?b=c HTTP/1.1\r\nHost: {origin}\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut client).await;
        assert!(
            body(&mut client, &head)
                .await
                .starts_with("GET /a?b=c HTTP/1.1\r\n")
        );
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn fields_of_a_hop_end_at_the_proxy() {
    let origin = mirror(Arc::default()).await;
    let request = "GET http://{origin}/ HTTP/1.1\r\nHost: elsewhere.example\r\n\
         Proxy-Connection: keep-alive\r\nConnection: X-Secret\r\nX-Secret: 1\r\nTE: gzip\r\n\
         X-Stays: Yes\r\nVia: 1.1 fred\r\n\r\n";
    let (mut client, _edge) = ask(origin, request).await;
    let answer = head(&mut client).await;
    let seen = body(&mut client, &answer).await;
    assert_eq!(field(&seen, "host"), Some(origin.to_string()));
    assert_eq!(field(&seen, "x-stays").as_deref(), Some("yes"));
    assert!(seen.to_lowercase().contains("1.1 underpass"), "{seen}");
    for gone in ["proxy-connection", "x-secret", "te", "connection"] {
        assert_eq!(field(&seen, gone), None, "{gone}");
    }
    assert_eq!(field(&answer, "via").as_deref(), Some("1.1 underpass"));
    assert_eq!(field(&answer, "x-end").as_deref(), Some("2"));
    assert_eq!(field(&answer, "x-hop"), None);
    assert_eq!(field(&answer, "keep-alive"), None);
}

#[tokio::test]
async fn chunked_bodies_stream_both_ways() {
    let origin = origin(|mut socket| async move {
        let head = head(&mut socket).await;
        assert_eq!(
            field(&head, "transfer-encoding").as_deref(),
            Some("chunked")
        );
        let start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        socket.write_all(start).await.unwrap();
        for _ in 0..3 {
            let chunk = read_until(&mut socket, b"ping\r\n").await;
            socket.write_all(&chunk).await.unwrap();
        }
        assert_eq!(read_until(&mut socket, b"0\r\n\r\n").await, b"0\r\n\r\n");
        socket.write_all(b"0\r\n\r\n").await.unwrap();
    })
    .await;
    let (mut client, _edge) = ask(
        origin,
        "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
    .await;
    client.write_all(b"4\r\nping\r\n").await.unwrap();
    assert!(head(&mut client).await.starts_with("HTTP/1.1 200"));
    // Each chunk comes back before the next one leaves: the proxy does not wait for the
    // end.
    assert_eq!(read_until(&mut client, b"ping\r\n").await, b"4\r\nping\r\n");
    for _ in 0..2 {
        client.write_all(b"4\r\nping\r\n").await.unwrap();
        assert_eq!(read_until(&mut client, b"ping\r\n").await, b"4\r\nping\r\n");
    }
    client.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(read_until(&mut client, b"0\r\n\r\n").await, b"0\r\n\r\n");
}

#[tokio::test]
async fn failures_come_back_as_status_and_reason() {
    let (_edge, proxy) = edge("http", "");
    let refused = closed_port().to_string();
    let said_once = format!("Gateway: {refused}: the server refused the connection\n");
    for (target, status, reason) in [
        (refused.as_str(), "502", said_once.as_str()),
        ("10.0.0.1", "403", "not dialled"),
        // 504 if no resolver is available.
        ("no-such-host.invalid", "50", "does not resolve"),
    ] {
        let mut client = TcpStream::connect(proxy).await.unwrap();
        let request = format!("GET http://{target}/ HTTP/1.1\r\nHost: x\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut client).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        assert!(
            field(&head, "proxy-status")
                .unwrap()
                .starts_with("underpass; error=")
        );
        let page = body(&mut client, &head).await;
        assert!(page.contains(reason), "{page}");
    }
}

#[tokio::test]
async fn an_origin_that_closes_without_an_answer_is_said_to() {
    let origin = origin(|mut socket| async move {
        read_until(&mut socket, b"\r\n\r\n").await;
    })
    .await;
    let (mut client, _edge) = ask(origin, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let head = head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    let page = body(&mut client, &head).await;
    assert!(
        page.ends_with("the server closed the connection before it answered\n"),
        "{page}"
    );
}

#[tokio::test]
async fn an_origin_that_says_nothing_is_given_up_with_504_after_its_time() {
    let full = TcpSocket::new_v4().unwrap();
    full.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let full = full.listen(0).unwrap();
    let address = full.local_addr().unwrap();
    // Nobody accepts: once the queue is full, Linux answers no SYN.
    let mut queued = Vec::new();
    let soon = Duration::from_millis(200);
    while let Ok(connected) = timeout(soon, TcpStream::connect(address)).await {
        queued.push(connected.unwrap());
    }
    let (_edge, proxy) = edge_of(
        "client_networks = ['127.0.0.0/8']
         dial.allow_networks = ['127.0.0.0/8']
         dial.connect_timeout_s = 0.25
         [[listener]]
         name = 'in'\nprotocol = 'http'\naddress = '127.0.0.1:0'\nanswer = 'after-dial'",
    );
    for target in [
        format!("GET http://{address}/"),
        format!("CONNECT {address}"),
    ] {
        let mut client = TcpStream::connect(proxy).await.unwrap();
        let request = format!("{target} HTTP/1.1\r\nHost: x\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 504"), "{head}");
        let page = body(&mut client, &head).await;
        let said = format!("Timeout: {address}: the server did not answer within 0.25 s\n");
        assert!(page.ends_with(&said), "{page}");
    }
}

#[tokio::test]
async fn an_answer_whose_head_is_too_long_is_called_that() {
    let origin = origin(|mut socket| async move {
        read_until(&mut socket, b"\r\n\r\n").await;
        let answer = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(300));
        let _ = socket.write_all(answer.as_bytes()).await;
    })
    .await;
    let (mut client, _edge) = ask(origin, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let head = head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    let page = body(&mut client, &head).await;
    assert!(page.contains("more than 256 fields"), "{page}");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_reset_for_a_client_that_sees_no_length() {
    let origin = origin(|mut socket| async move {
        read_until(&mut socket, b"\r\n\r\n").await;
        let start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
        socket.write_all(start).await.unwrap();
        // The connection closes in the middle of the chunked body.
    })
    .await;
    let (mut client, _edge) = ask(origin, "GET http://{origin}/ HTTP/1.0\r\n\r\n").await;
    let mut answer = Vec::new();
    let error = client.read_to_end(&mut answer).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// An origin that answers the first request on each connection. It also takes the next one, and
/// closes without an answer.
async fn forgetful(connections: Arc<AtomicUsize>) -> SocketAddr {
    origin(move |mut socket| {
        connections.fetch_add(1, Ordering::Relaxed);
        async move {
            read_until(&mut socket, b"\r\n\r\n").await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            socket.write_all(answer).await.unwrap();
            read_until(&mut socket, b"\r\n\r\n").await;
        }
    })
    .await
}

#[tokio::test]
async fn a_kept_connection_that_the_origin_has_closed_is_replaced() {
    let connections = Arc::new(AtomicUsize::new(0));
    let origin = forgetful(connections.clone()).await;
    let (mut client, _edge) = connected("http", "").await;
    for _ in 0..3 {
        let request = format!("GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut client).await;
        assert_eq!(body(&mut client, &head).await, "ok");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn what_may_not_be_sent_twice_does_not_rely_on_a_kept_connection() {
    let connections = Arc::new(AtomicUsize::new(0));
    let origin = forgetful(connections.clone()).await;
    let (mut client, _edge) = connected("http", "").await;
    for (method, sent) in [("GET", ""), ("POST", ""), ("POST", "a=1"), ("PUT", "a=1")] {
        let request = format!(
            "{method} http://{origin}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{sent}",
            sent.len()
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{method}: {head}");
        assert_eq!(body(&mut client, &head).await, "ok");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_login_that_belongs_to_a_connection_goes_on_there() {
    let origin = origin(|mut socket| async move {
        for status in ["401 Unauthorized", "401 Unauthorized", "200 OK"] {
            let head = head(&mut socket).await;
            body(&mut socket, &head).await;
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let (mut client, _edge) = connected("http", "").await;
    let mut statuses = Vec::new();
    for login in ["Basic YTpi", "NTLM TlRM", "Negotiate TlRN"] {
        let request = format!(
            "POST http://{origin}/ HTTP/1.1\r\nHost: x\r\nAuthorization: {login}\r\n\
             Content-Length: 3\r\n\r\na=1"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut client).await;
        body(&mut client, &head).await;
        statuses.push(head[9..12].to_owned());
    }
    assert_eq!(statuses, ["401", "401", "200"]);
}

#[tokio::test]
async fn an_upgraded_connection_is_a_tunnel() {
    let origin = origin(|mut socket| async move {
        let head = head(&mut socket).await;
        assert_eq!(field(&head, "upgrade").as_deref(), Some("websocket"));
        assert_eq!(field(&head, "connection").as_deref(), Some("upgrade"));
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
            Upgrade: websocket\r\n\r\nfirst";
        socket.write_all(answer).await.unwrap();
        let (mut from, mut to) = socket.split();
        tokio::io::copy(&mut from, &mut to).await.unwrap();
        to.shutdown().await.unwrap();
    })
    .await;
    let request = "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (mut client, _edge) = ask(origin, request).await;
    let head = head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client.write_all(b" and second").await.unwrap();
    client.shutdown().await.unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "first and second");
}

#[tokio::test]
async fn curl_downloads_and_uploads_through_every_listener() {
    let Ok(found) = Command::new("curl").arg("--version").output() else {
        skipped::because("curl is not installed");
        return;
    };
    assert!(found.status.success());
    let origin = origin(|mut socket| async move {
        let head = String::from_utf8(read_until(&mut socket, b"\r\n\r\n").await).unwrap();
        let length: usize = field(&head, "content-length").unwrap().parse().unwrap();
        if field(&head, "expect").is_some() {
            socket
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await
                .unwrap();
        }
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        socket.write_all(answer.as_bytes()).await.unwrap();
        socket.write_all(&body).await.unwrap();
    })
    .await;
    let (_http, http) = edge("http", "");
    let (_socks, socks) = edge("socks5", "");
    let folder = tempfile::tempdir().unwrap();
    let sent = folder.path().join("sent");
    let got = folder.path().join("got");
    let data: Vec<u8> = (0..5_000_000u32).map(|n| (n * 7) as u8).collect();
    std::fs::write(&sent, &data).unwrap();
    for options in [
        vec!["-x".to_owned(), format!("http://{http}")],
        vec!["-p".to_owned(), "-x".to_owned(), format!("http://{http}")],
        vec!["-x".to_owned(), format!("socks5h://{socks}")],
    ] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--noproxy", "", "--max-time", "60", "-T"]);
        curl.arg(&sent).arg("-o").arg(&got).args(&options);
        curl.arg(format!("http://{origin}/"));
        let output = tokio::task::spawn_blocking(move || curl.output().unwrap())
            .await
            .unwrap();
        assert!(
            output.status.success(),
            "{options:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(std::fs::read(&got).unwrap() == data, "{options:?}");
    }
}
