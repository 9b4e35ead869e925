//! A client of a node, and the service beyond the other node that sends back what it gets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

const BYTES: usize = 100_000;
/// At 16 Mbit/s these take half a second each way.
const LONG_BYTES: usize = 1_000_000;

/// Sends back what comes.
pub fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut from = socket.unwrap();
            std::thread::spawn(move || {
                let mut to = from.try_clone().unwrap();
                let _ = std::io::copy(&mut from, &mut to);
            });
        }
    });
    port
}

/// A connection to a port of this host through a SOCKS5 proxy.
pub fn connect(proxy: u16, port: u16) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", proxy)).unwrap();
    let patience = Some(Duration::from_secs(120));
    socket.set_read_timeout(patience).unwrap();
    socket.write_all(b"\x05\x01\x00").unwrap();
    let mut answer = [0; 10];
    socket.read_exact(&mut answer[..2]).unwrap();
    let request = [
        &b"\x05\x01\x00\x01\x7f\x00\x00\x01"[..],
        &port.to_be_bytes(),
    ]
    .concat();
    socket.write_all(&request).unwrap();
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(answer[1], 0, "{answer:?}");
    socket
}

/// Sends bytes through the echo and waits for them.
pub fn exchange(socket: &mut TcpStream, round: u8) {
    let sent = [round; BYTES];
    socket.write_all(&sent).unwrap();
    let mut got = [0; BYTES];
    socket.read_exact(&mut got).unwrap();
    assert!(got == sent, "round {round}");
}

/// Sends more bytes through the echo, and checks what comes back, in the background.
pub fn exchange_long(socket: &TcpStream, round: u8) -> JoinHandle<()> {
    let [mut to, mut from] = [(); 2].map(|()| socket.try_clone().unwrap());
    std::thread::spawn(move || {
        let sender = std::thread::spawn(move || to.write_all(&vec![round; LONG_BYTES]));
        let mut got = vec![0; LONG_BYTES];
        from.read_exact(&mut got).unwrap();
        assert!(got.iter().all(|byte| *byte == round), "round {round}");
        sender.join().unwrap().unwrap();
    })
}
