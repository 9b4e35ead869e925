//! What the kernel holds for a peer that has not proved who it is.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use underpass_cla_testing::node::TestNode;
use underpass_tcpcl::Listener;

use super::hub;
use super::plain::CONTACT_AND_INIT;

const CONTACT_BYTES: usize = 6;

/// The receive buffer of this process's end of the connection from `peer`, bytes of the kernel's
/// own count: twice what was asked for.
fn buffer_of_connection_from(peer: SocketAddr) -> usize {
    let files = std::fs::read_dir("/proc/self/fd").expect("mounted");
    let numbers = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let buffer_of = |number| {
        // SAFETY: the kernel is only asked about the number, and says if it is no socket.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let socket = SockRef::from(&file);
        let remote = socket.peer_addr().ok()?.as_socket()?;
        (remote == peer).then(|| socket.recv_buffer_size().expect("a socket"))
    };
    let mut buffers = numbers.filter_map(buffer_of);
    buffers.next().expect("the listener has the connection")
}

#[tokio::test]
async fn the_receive_buffer_of_a_connection_is_small_until_its_session_is_up() {
    const BUFFER_BYTES: u32 = 100_000;
    let mut at_hub = TestNode::new();
    let mut config = hub();
    config.session.socket.receive_buffer_bytes = Some(BUFFER_BYTES);
    let listener = Listener::bind(config, at_hub.node.clone()).expect("a free port");
    let mut peer = TcpStream::connect(listener.local_addr())
        .await
        .expect("it listens");
    let local = peer.local_addr().expect("connected");
    let (contact, init) = CONTACT_AND_INIT.split_at(CONTACT_BYTES);
    peer.write_all(contact).await.expect("taken");
    let mut answer = [0; CONTACT_BYTES];
    peer.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(buffer_of_connection_from(local), 2 * (64 << 10));
    peer.write_all(init).await.expect("taken");
    at_hub.up().await;
    assert_eq!(buffer_of_connection_from(local), 2 * BUFFER_BYTES as usize);
}
