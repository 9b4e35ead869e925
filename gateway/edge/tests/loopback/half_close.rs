use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::world::{ask, becomes_idle, edge, origin, read_until, socks};

#[tokio::test]
async fn the_origin_may_end_first_and_still_gets_the_rest() {
    let (received, mut all) = tokio::sync::mpsc::channel(1);
    let origin = origin(move |mut socket| {
        let received = received.clone();
        async move {
            socket.shutdown().await.unwrap();
            let mut rest = Vec::new();
            socket.read_to_end(&mut rest).await.unwrap();
            received.send(rest).await.unwrap();
        }
    })
    .await;
    let (_edge, proxy) = edge("socks5", "");
    let (mut client, _) = socks(proxy, origin).await;
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    let upload: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
    client.write_all(&upload).await.unwrap();
    client.shutdown().await.unwrap();
    assert!(all.recv().await.unwrap() == upload);
}

#[tokio::test]
async fn a_reset_of_the_origin_in_mid_body_resets_the_client() {
    let origin = origin(|mut socket| async move {
        socket.write_all(b"half a bo").await.unwrap();
        let _ = socket.read_u8().await;
        socket.set_zero_linger().unwrap();
    })
    .await;
    let (_edge, proxy) = edge("socks5", "");
    let (mut client, _) = socks(proxy, origin).await;
    let mut half = [0; 9];
    client.read_exact(&mut half).await.unwrap();
    client.write_all(b"go on").await.unwrap();
    let error = client.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_reset_of_the_client_resets_the_origin() {
    let (seen, mut kinds) = tokio::sync::mpsc::channel(1);
    let origin = origin(move |mut socket| {
        let seen = seen.clone();
        async move {
            assert_eq!(socket.read_u8().await.unwrap(), b'x');
            socket.write_all(b"y").await.unwrap();
            let error = socket.read_u8().await.unwrap_err();
            seen.send(error.kind()).await.unwrap();
        }
    })
    .await;
    let (_edge, proxy) = edge("socks5", "");
    let (mut client, _) = socks(proxy, origin).await;
    client.write_all(b"x").await.unwrap();
    client.read_u8().await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(kinds.recv().await, Some(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_client_that_does_not_read_slows_the_origin() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let origin = origin(move |mut socket| {
        let count = count.clone();
        async move {
            let block = vec![1; 64 * 1024];
            while let Ok(Ok(())) =
                timeout(Duration::from_millis(300), socket.write_all(&block)).await
            {
                count.fetch_add(block.len(), Ordering::Relaxed);
            }
            count.fetch_add(1 << 40, Ordering::Relaxed);
        }
    })
    .await;
    let (_edge, proxy) = edge("socks5", "");
    let (_client, _) = socks(proxy, origin).await;
    while sent.load(Ordering::Relaxed) < 1 << 40 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // At most the buffers of four sockets and one batch of the relay.
    let stuck = sent.load(Ordering::Relaxed) - (1 << 40);
    assert!(stuck < 32 << 20, "{stuck} bytes were taken");
}

#[tokio::test]
async fn an_http_client_that_resets_while_it_waits_for_its_answer_is_noticed() {
    let (asked, mut words) = tokio::sync::mpsc::channel(2);
    let origin = origin(move |mut socket| {
        let asked = asked.clone();
        async move {
            read_until(&mut socket, b"\r\n\r\n").await;
            asked.send("asked").await.unwrap();
            // The origin never answers.
            let _ = socket.read_u8().await;
            asked.send("left").await.unwrap();
        }
    })
    .await;
    let (client, edge) = ask(origin, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(words.recv().await, Some("asked"));
    client.set_zero_linger().unwrap();
    drop(client);
    let word = timeout(Duration::from_secs(60), words.recv()).await;
    assert_eq!(word, Ok(Some("left")));
    becomes_idle(&edge).await;
}

#[tokio::test]
async fn an_http_client_that_has_half_closed_gets_a_late_answer() {
    let origin = origin(|mut socket| async move {
        read_until(&mut socket, b"\r\n\r\n").await;
        sleep(Duration::from_secs(7)).await;
        let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
        socket.write_all(answer).await.unwrap();
        let _ = socket.read_u8().await;
    })
    .await;
    let (mut client, _edge) = ask(origin, "GET http://{origin}/ HTTP/1.1\r\nHost: x\r\n\r\n").await;
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}

#[tokio::test]
async fn a_client_that_has_half_closed_and_is_gone_is_noticed() {
    let (ended, mut ends) = tokio::sync::mpsc::channel(1);
    let origin = origin(move |mut socket| {
        let ended = ended.clone();
        async move {
            let mut request = Vec::new();
            socket.read_to_end(&mut request).await.unwrap();
            ended.send(()).await.unwrap();
            // The origin never answers.
            sleep(Duration::from_secs(600)).await;
        }
    })
    .await;
    let (edge, proxy) = edge("socks5", "");
    let (mut client, _) = socks(proxy, origin).await;
    client.write_all(b"x").await.unwrap();
    client.shutdown().await.unwrap();
    ends.recv().await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    becomes_idle(&edge).await;
}
