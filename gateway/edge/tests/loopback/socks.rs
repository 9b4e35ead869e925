use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::inbound::silent_origin;
use crate::world::{becomes_idle, closed_port, connected, echo, edge, edge_of, read_until, socks};

#[tokio::test]
async fn bytes_pass_both_ways() {
    let (_edge, proxy) = edge("socks5", "");
    let (mut client, reply) = socks(proxy, echo().await).await;
    assert_eq!(reply, 0);
    client.write_all(b"hello").await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"hello");
}

#[tokio::test]
async fn names_are_resolved_where_the_origin_is_dialled() {
    let (_edge, proxy) = edge("socks5", "");
    let port = echo().await.port();
    let mut client = TcpStream::connect(proxy).await.unwrap();
    let mut request = b"\x05\x01\x00\x05\x01\x00\x03\x09localhost".to_vec();
    request.extend(port.to_be_bytes());
    request.extend(b"early");
    client.write_all(&request).await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(&answer[answer.len() - 5..], b"early");
}

#[tokio::test]
async fn a_failed_dial_is_a_reset_when_answered_at_once() {
    let (_edge, proxy) = edge("socks5", "");
    let (mut client, reply) = socks(proxy, closed_port()).await;
    assert_eq!(reply, 0);
    let error = client.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_failed_dial_has_its_reply_when_answered_after_the_dial() {
    let (_edge, proxy) = edge("socks5", "answer = 'after-dial'");
    let (_, refused) = socks(proxy, closed_port()).await;
    assert_eq!(refused, 5);
    let (_, forbidden) = socks(proxy, "10.0.0.1:80".parse().unwrap()).await;
    assert_eq!(forbidden, 2);
    let (mut client, reply) = socks(proxy, echo().await).await;
    assert_eq!(reply, 0);
    client.write_all(b"x").await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'x');
}

#[tokio::test]
async fn a_client_that_is_gone_before_its_dial_ends_is_noticed() {
    let (origin, _queued) = silent_origin();
    let (edge, proxy) = edge_of(
        "client_networks = ['127.0.0.0/8']
         dial.allow_networks = ['127.0.0.0/8']
         dial.connect_timeout_s = 600
         [[listener]]
         name = 'in'\nprotocol = 'socks5'\naddress = '127.0.0.1:0'\nanswer = 'after-dial'",
    );
    let mut client = TcpStream::connect(proxy).await.unwrap();
    let mut request = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(origin.port().to_be_bytes());
    client.write_all(&request).await.unwrap();
    let mut method = [0; 2];
    client.read_exact(&mut method).await.unwrap();
    assert_eq!(method, [5, 0]);
    client.set_zero_linger().unwrap();
    drop(client);
    becomes_idle(&edge).await;
}

#[tokio::test]
async fn what_the_node_itself_would_not_dial_is_refused_at_once() {
    let (_edge, proxy) = edge("socks5", "");
    let (mut client, reply) = socks(proxy, "10.0.0.1:80".parse().unwrap()).await;
    assert_eq!(reply, 2);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    // Nor a name at a port that nothing is dialled at.
    let mut client = TcpStream::connect(proxy).await.unwrap();
    let request = b"\x05\x01\x00\x05\x01\x00\x03\x09localhost\x00\x19";
    client.write_all(request).await.unwrap();
    let mut replies = [0; 4];
    client.read_exact(&mut replies).await.unwrap();
    assert_eq!(replies, [5, 0, 5, 2]);
}

#[tokio::test]
async fn a_client_that_is_refused_while_it_sends_gets_its_reply() {
    let (mut client, _edge) = connected("socks5", "").await;
    let request = b"\x05\x01\x00\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x50";
    client.write_all(request).await.unwrap();
    for _ in 0..2 {
        client.write_all(&vec![0; 3_000_000]).await.unwrap();
        // Until the proxy has ended its side.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    client.shutdown().await.unwrap();
    let mut replies = Vec::new();
    client.read_to_end(&mut replies).await.unwrap();
    assert_eq!(replies[..4], [5, 0, 5, 2]);
}

#[tokio::test]
async fn strangers_are_closed_at_once() {
    let (_edge, proxy) = edge_of(
        "client_networks = ['192.0.2.0/24']
         [[listener]]\nname = 'in'\nprotocol = 'socks5'\naddress = '127.0.0.1:0'",
    );
    let mut client = TcpStream::connect(proxy).await.unwrap();
    let mut answer = Vec::new();
    let read = client.read_to_end(&mut answer).await;
    assert!(read.is_err() && answer.is_empty());
}

#[tokio::test]
async fn a_silent_client_is_closed_when_its_time_is_over() {
    let (mut client, _edge) = connected("socks5", "handshake_timeout_s = 0.05").await;
    client.write_all(b"\x05").await.unwrap();
    let read = client.read_u8().await;
    assert!(read.is_err());
}

#[tokio::test]
async fn users_enter_with_their_password_only() {
    let (_edge, proxy) = edge("socks5", "users = [{ name = 'u', password = 'p' }]");
    for (password, admitted) in [(b'p', 0), (b'q', 1)] {
        let mut client = TcpStream::connect(proxy).await.unwrap();
        client
            .write_all(b"\x05\x01\x02\x01\x01u\x01")
            .await
            .unwrap();
        client.write_all(&[password]).await.unwrap();
        let mut replies = [0; 4];
        client.read_exact(&mut replies).await.unwrap();
        assert_eq!(replies, [5, 2, 1, admitted]);
    }
}

#[tokio::test]
async fn a_listeners_guesser_is_refused_at_the_others_too() {
    let hash = underpass_edge::password::hash(b"p").unwrap();
    let (edge, socks) = edge_of(&format!(
        "client_networks = ['127.0.0.0/8']
         [[listener]]
         name = 'socks'\nprotocol = 'socks5'\naddress = '127.0.0.1:0'
         users = [{{ name = 'u', password_hash = '{hash}' }}]
         [[listener]]
         name = 'http'\nprotocol = 'http'\naddress = '127.0.0.1:0'
         users = [{{ name = 'u', password_hash = '{hash}' }}]"
    ));
    let attempt = async |password: u8| {
        let mut client = TcpStream::connect(socks).await.unwrap();
        let greeting = b"\x05\x01\x02\x01\x01u\x01";
        client.write_all(greeting).await.unwrap();
        client.write_all(&[password]).await.unwrap();
        let mut replies = [0; 4];
        client.read_exact(&mut replies).await.unwrap();
        replies[3]
    };
    assert_eq!(attempt(b'p').await, 0);
    // More than may fail at once: some failures are forgiven while others are hashed.
    for _ in 0..30 {
        assert_eq!(attempt(b'q').await, 1);
    }
    assert_eq!(attempt(b'p').await, 1);
    // "u:p"
    let request = "GET http://192.0.2.1/ HTTP/1.1\r\nHost: x\r\n\
                   Proxy-Authorization: Basic dTpw\r\n\r\n";
    let mut client = TcpStream::connect(edge.addresses()[1].1).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let head = read_until(&mut client, b"\r\n\r\n").await;
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("http/1.1 429"), "{head}");
    assert!(head.contains("retry-after: "), "{head}");
}
