//! Listening sockets and what they know of a client.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::config::{ListenerConfig, ListenerProtocol};
use crate::dial::set_congestion_control;

/// Connections that may wait to be accepted; the kernel cuts it to somaxconn.
const BACKLOG: i32 = 4096;

sockopt_impl!(
    /// Has the kernel keep the headers of each SYN, the only place where the
    /// client's DSCP can be read from.
    SaveSyn,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_SAVE_SYN,
    bool
);

/// The listening socket of `config`, on this runtime.
pub(super) fn listen(config: &ListenerConfig) -> io::Result<TcpListener> {
    TcpListener::from_std(bind(config)?)
}

/// The listening socket of `config`. Accepted sockets inherit its options.
pub(crate) fn bind(config: &ListenerConfig) -> io::Result<std::net::TcpListener> {
    let address = config.address;
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // Dual-stack only on the wildcard address.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    if config.protocol == ListenerProtocol::Transparent {
        socket.set_ip_transparent_v4(true)?;
        if address.is_ipv6() {
            socket.set_ip_transparent_v6(true)?;
        }
    }
    if let Some(interface) = &config.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    set_congestion_control(&socket, &config.congestion_control)?;
    set_keepalive(&SockRef::from(&socket))?;
    setsockopt(&socket, SaveSyn, &true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Lets the kernel detect within some four minutes that a silent client or origin is gone: streams
/// may be idle, or stopped by a blockage, for hours.
pub(crate) fn set_keepalive(socket: &SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(120))
        .with_interval(Duration::from_secs(30))
        .with_retries(4);
    socket.set_tcp_keepalive(&keepalive)
}

/// DSCP of the SYN that `socket` was accepted for. Reading the saved headers
/// also frees them.
pub(super) fn syn_dscp(socket: &TcpStream) -> Option<u8> {
    let mut headers = [0u8; 256];
    let mut length = size_of_val(&headers) as libc::socklen_t;
    // SAFETY: the pointer and length describe `headers`, which outlives the
    // call; the kernel writes at most `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_SAVED_SYN,
            headers.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 || length < 2 {
        return None;
    }
    dscp(headers[0], headers[1])
}

/// DSCP from the first two octets of an IP header (RFC 791, RFC 8200).
fn dscp(first: u8, second: u8) -> Option<u8> {
    match first >> 4 {
        4 => Some(second >> 2),
        6 => Some(((first & 0xf) << 2) | (second >> 6)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dscp_is_read_from_either_header() {
        assert_eq!(dscp(0x45, 46 << 2), Some(46));
        assert_eq!(dscp(0x6b, 0x80), Some(46));
        assert_eq!(dscp(0x10, 0), None);
    }

    #[tokio::test]
    async fn dscp_of_a_client_is_seen() {
        let config: ListenerConfig =
            toml::from_str("name = 't'\nprotocol = 'socks5'\naddress = '[::]:0'").unwrap();
        let listener = listen(&config).unwrap();
        let port = listener.local_addr().unwrap().port();
        for (target, expected) in [("127.0.0.1", 10), ("::1", 0)] {
            let target: std::net::IpAddr = target.parse().unwrap();
            let address = std::net::SocketAddr::new(target, port);
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
            if address.is_ipv4() {
                socket.set_tos_v4(expected << 2).unwrap();
            }
            socket.connect(&address.into()).unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            assert_eq!(syn_dscp(&accepted), Some(expected as u8));
        }
    }
}
