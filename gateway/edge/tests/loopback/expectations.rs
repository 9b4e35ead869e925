//! What an origin sends before its response: `100 Continue`, and hints.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::forward::{body, field, head};
use crate::world::{connected, origin, read_until};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
const CREATED: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
const LENGTH: usize = 3_000_000;

fn put(origin: SocketAddr, length: usize) -> String {
    format!(
        "PUT http://{origin}/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn the_client_may_continue_when_the_origin_says_so_and_not_before() {
    let agreed = Arc::new(Notify::new());
    let agrees = agreed.clone();
    let origin = origin(move |mut socket| {
        let agreed = agreed.clone();
        async move {
            let head = head(&mut socket).await;
            assert_eq!(field(&head, "expect").as_deref(), Some("100-continue"));
            assert_eq!(field(&head, "content-length"), Some(LENGTH.to_string()));
            agreed.notified().await;
            socket.write_all(CONTINUE).await.unwrap();
            let mut body = vec![0; LENGTH];
            socket.read_exact(&mut body).await.unwrap();
            assert!(body.iter().all(|octet| *octet == 5));
            socket.write_all(CREATED).await.unwrap();
        }
    })
    .await;
    let (mut client, _edge) = connected("http", "").await;
    client
        .write_all(put(origin, LENGTH).as_bytes())
        .await
        .unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), client.read_u8()).await;
    assert!(
        early.is_err(),
        "told to continue before the origin said anything"
    );
    agrees.notify_one();
    assert_eq!(head(&mut client).await.as_bytes(), CONTINUE);
    client.write_all(&vec![5; LENGTH]).await.unwrap();
    assert!(head(&mut client).await.starts_with("HTTP/1.1 201"));
}

/// An origin that answers each head with `answer`, and reports the bytes that follow.
async fn declining(answer: &'static str) -> (SocketAddr, UnboundedReceiver<Vec<u8>>) {
    let (sender, receiver) = unbounded_channel();
    let address = origin(move |mut socket| {
        let sender = sender.clone();
        async move {
            read_until(&mut socket, b"\r\n\r\n").await;
            socket.write_all(answer.as_bytes()).await.unwrap();
            let mut rest = Vec::new();
            let _ = socket.read_to_end(&mut rest).await;
            let _ = sender.send(rest);
        }
    })
    .await;
    (address, receiver)
}

#[tokio::test]
async fn an_origin_that_declines_gets_no_body_and_the_client_gets_its_answer() {
    for answer in [
        "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 401 Unauthorized\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ] {
        let (origin, mut rest) = declining(answer).await;
        let (mut client, _edge) = connected("http", "").await;
        client.write_all(put(origin, 5).as_bytes()).await.unwrap();
        let mut whole = String::new();
        client.read_to_string(&mut whole).await.unwrap();
        assert!(whole.starts_with(&answer[..12]), "{whole}");
        assert_eq!(answer.contains("no"), whole.contains("no"), "{whole}");
        assert_eq!(field(&whole, "connection").as_deref(), Some("close"));
        assert_eq!(rest.recv().await.unwrap(), b"", "{answer}");
    }
}

#[tokio::test]
async fn an_origin_that_knows_no_expectations_gets_the_body_all_the_same() {
    let origin = origin(|mut socket| async move {
        read_until(&mut socket, b"\r\n\r\n").await;
        assert_eq!(read_until(&mut socket, b"body").await, b"body");
        socket.write_all(CREATED).await.unwrap();
    })
    .await;
    let (mut client, _edge) = connected("http", "").await;
    // This request does not wait either.
    let request = put(origin, 4) + "body";
    client.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(head(&mut client).await.as_bytes(), CONTINUE);
    assert!(head(&mut client).await.starts_with("HTTP/1.1 201"));
}

#[tokio::test]
async fn hints_reach_clients_of_http_1_1_between_whole_responses() {
    let origin = origin(|mut socket| async move {
        while !read_until(&mut socket, b"\r\n\r\n").await.is_empty() {
            let hints = b"HTTP/1.1 102 Processing\r\n\r\n\
                HTTP/1.1 103 Early Hints\r\nLink: </s>\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n\
                HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
            socket.write_all(hints).await.unwrap();
        }
    })
    .await;
    let (mut client, _edge) = connected("http", "").await;
    for _ in 0..3 {
        let request = format!("GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        assert!(head(&mut client).await.starts_with("HTTP/1.1 102"));
        let hint = head(&mut client).await;
        assert!(hint.starts_with("HTTP/1.1 103 Early Hints\r\n"), "{hint}");
        assert_eq!(field(&hint, "link").as_deref(), Some("</s>"));
        assert_eq!(field(&hint, "x-hop"), None);
        let response = head(&mut client).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert_eq!(body(&mut client, &response).await, "body");
    }
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_no_interim_response_and_has_no_expectation() {
    let origin = origin(|mut socket| async move {
        let head = head(&mut socket).await;
        assert_eq!(field(&head, "expect"), None);
        assert_eq!(read_until(&mut socket, b"body").await, b"body");
        socket
            .write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            .await
            .unwrap();
        socket.write_all(CREATED).await.unwrap();
    })
    .await;
    let (mut client, _edge) = connected("http", "").await;
    let request = put(origin, 4).replace("HTTP/1.1", "HTTP/1.0") + "body";
    client.write_all(request.as_bytes()).await.unwrap();
    let answer = head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.0 201"), "{answer}");
}
