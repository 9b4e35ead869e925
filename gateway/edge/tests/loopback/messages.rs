//! Requests and responses in less usual forms that HTTP/1.1 allows.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use underpass_edge::{Accounts, Ended};

use crate::forward::{body, field, head};
use crate::world::{ask, edge, origin, read_until};

#[tokio::test]
async fn a_get_keeps_its_chunked_body_and_trailers_pass_both_ways() {
    let origin = origin(|mut socket| async move {
        let head = head(&mut socket).await;
        assert_eq!(field(&head, "te").as_deref(), Some("trailers"));
        assert_eq!(field(&head, "connection").as_deref(), Some("te"));
        let rest = read_until(&mut socket, b"\r\n\r\n").await;
        assert_eq!(
            String::from_utf8(rest).unwrap().to_lowercase(),
            "4\r\nping\r\n0\r\nx-sum: 7\r\n\r\n"
        );
        let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-Hop\r\n\
                      Connection: X-Hop\r\n\r\n4\r\npong\r\n0\r\nX-Sum: 9\r\nX-Hop: 1\r\n\r\n";
        socket.write_all(answer.as_bytes()).await.unwrap();
        // Open until the client has read.
        read_until(&mut socket, b"\r\n\r\n").await;
    })
    .await;
    let (mut client, _edge) = ask(
        origin,
        "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nConnection: TE, X-Hop\r\n\
         Trailer: X-Sum, X-Hop\r\nTransfer-Encoding: chunked\r\n\r\n\
         4\r\nping\r\n0\r\nX-Sum: 7\r\nX-Hop: 1\r\n\r\n",
    )
    .await;
    let answer = head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let rest = read_until(&mut client, b"\r\n\r\n").await;
    assert_eq!(
        String::from_utf8(rest).unwrap().to_lowercase(),
        "4\r\npong\r\n0\r\nx-sum: 9\r\n\r\n"
    );
}

#[tokio::test]
async fn a_response_with_a_length_and_a_coding_is_passed_on_whole() {
    let origin = origin(|mut socket| async move {
        read_until(&mut socket, b"\r\n\r\n").await;
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n\
            4\r\npong\r\n0\r\n\r\n";
        socket.write_all(answer).await.unwrap();
        // Open until the client has read.
        read_until(&mut socket, b"\r\n\r\n").await;
    })
    .await;
    let request = "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let (mut client, _edge) = ask(origin, request).await;
    let answer = head(&mut client).await;
    assert_eq!(field(&answer, "content-length"), None, "{answer}");
    let rest = read_until(&mut client, b"\r\n\r\n").await;
    assert_eq!(rest, b"4\r\npong\r\n0\r\n\r\n");
}

#[tokio::test]
async fn a_response_with_its_length_twice_is_passed_on_with_one() {
    for lengths in [
        "Content-Length: 4\r\nContent-Length: 4",
        "Content-Length: 4, 4",
    ] {
        let origin = origin(move |mut socket| async move {
            let head = head(&mut socket).await;
            let answer = format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\n");
            socket.write_all(answer.as_bytes()).await.unwrap();
            if head.starts_with("GET") {
                socket.write_all(b"pong").await.unwrap();
            }
            // Open until the client has read.
            read_until(&mut socket, b"\r\n\r\n").await;
        })
        .await;
        for method in ["GET", "HEAD"] {
            let request = format!("{method} http://{{origin}}/ HTTP/1.1\r\nHost: x\r\n\r\n");
            let (mut client, _edge) = ask(origin, &request).await;
            let answer = head(&mut client).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{lengths}: {answer}");
            assert_eq!(field(&answer, "content-length").as_deref(), Some("4"));
            let answer = answer.to_lowercase();
            assert_eq!(answer.matches("content-length").count(), 1, "{answer}");
            if method == "GET" {
                assert_eq!(body(&mut client, &answer).await, "pong");
            }
        }
    }
}

#[tokio::test]
async fn the_head_of_an_answer_loses_its_folds_and_the_space_before_its_colons() {
    let origin = origin(|mut socket| async move {
        read_until(&mut socket, b"\r\n\r\n").await;
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length \t: 4\r\nX-Folded: one\r\n\ttwo\r\n\
            X-Next : three\r\n\r\npong";
        socket.write_all(answer).await.unwrap();
        // Open until the client has read.
        read_until(&mut socket, b"\r\n\r\n").await;
    })
    .await;
    let request = "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n";
    let (mut client, _edge) = ask(origin, request).await;
    let answer = head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!answer.contains(" :") && !answer.contains('\t'), "{answer}");
    assert_eq!(field(&answer, "x-folded").as_deref(), Some("one two"));
    assert_eq!(field(&answer, "x-next").as_deref(), Some("three"));
    assert_eq!(body(&mut client, &answer).await, "pong");
}

#[tokio::test]
async fn a_request_whose_connection_names_host_still_has_one() {
    let origin = origin(|mut socket| async move {
        let head = head(&mut socket).await;
        let host = field(&head, "host").unwrap_or_default();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{host}",
            host.len()
        );
        socket.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    let request = "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\nConnection: Host\r\n\r\n";
    let (mut client, _edge) = ask(origin, request).await;
    let answer = head(&mut client).await;
    assert_eq!(body(&mut client, &answer).await, origin.to_string());
}

#[tokio::test]
async fn a_switch_of_protocols_that_nobody_asked_for_is_no_tunnel() {
    let origin = origin(|mut socket| async move {
        read_until(&mut socket, b"\r\n\r\n").await;
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
            Upgrade: h2c\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign";
        socket.write_all(answer).await.unwrap();
        // The proxy ends the connection and sends nothing more.
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest).await;
        assert!(rest.is_empty(), "{rest:?}");
    })
    .await;
    for upgrade in ["", "Connection: Upgrade\r\nUpgrade: websocket\r\n"] {
        let request = format!("GET http://{{origin}}/ HTTP/1.1\r\nHost: x\r\n{upgrade}\r\n");
        let (mut client, _edge) = ask(origin, &request).await;
        // The connection continues as an HTTP connection.
        for _ in 0..2 {
            let answer = head(&mut client).await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
            let page = body(&mut client, &answer).await;
            assert!(page.contains("not asked for"), "{page}");
            let again = format!("GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n");
            client.write_all(again.as_bytes()).await.unwrap();
        }
    }
}

/// Records the statuses of finished exchanges.
#[derive(Default)]
struct Statuses(Mutex<Vec<u16>>);

impl Accounts for Statuses {
    fn ended(&self, ended: &Ended<'_>) {
        self.0.lock().unwrap().push(ended.status);
    }
}

#[tokio::test]
async fn an_exchange_whose_answer_cannot_be_passed_on_is_accounted_for() {
    let origin = origin(|mut socket| async move {
        read_until(&mut socket, b"\r\n\r\n").await;
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx";
        socket.write_all(answer).await.unwrap();
    })
    .await;
    let (edge, proxy) = edge("http", "");
    let statuses = Arc::new(Statuses::default());
    edge.account_to(statuses.clone());
    let mut client = TcpStream::connect(proxy).await.unwrap();
    let request = format!("GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let answer = head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert_eq!(*statuses.0.lock().unwrap(), [502]);
}
