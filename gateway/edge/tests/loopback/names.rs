//! Names that no host can have: the terminal refuses them itself.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::edge;

/// A label longer than 63 octets, and labels of 63 that together exceed 253.
fn impossible() -> [(String, &'static str); 2] {
    let label = "a".repeat(63);
    [
        (
            format!("{label}a.example"),
            "a label of a host name has 1 to 63 octets",
        ),
        (
            format!("{label}.{label}.{label}.{}", &label[1..]) + "aa",
            "a host name has 1 to 253 octets",
        ),
    ]
}

async fn answer(proxy: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect(proxy).await.unwrap();
    client.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn impossible_names_are_bad_requests_with_the_reason() {
    for (name, reason) in impossible() {
        for head in [
            format!("CONNECT {name}:80 HTTP/1.1\r\n"),
            format!("GET http://{name}/ HTTP/1.1\r\n"),
        ] {
            let (_edge, proxy) = edge("http", "");
            let request = format!("{head}Host: x\r\nConnection: close\r\n\r\n");
            let answer = String::from_utf8(answer(proxy, request.as_bytes()).await).unwrap();
            assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
            assert!(answer.contains(reason), "{answer}");
        }
    }
}

#[tokio::test]
async fn impossible_names_are_unknown_hosts_whenever_the_listener_answers() {
    for (name, _) in impossible() {
        for listener in ["", "answer = 'after-dial'"] {
            let (_edge, proxy) = edge("socks5", listener);
            let mut request = vec![5, 1, 0, 5, 1, 0, 3, name.len() as u8];
            request.extend(name.as_bytes());
            request.extend([0, 80]);
            let answer = answer(proxy, &request).await;
            assert_eq!(answer[..4], [5, 0, 5, 4], "{name}");
        }
    }
}
