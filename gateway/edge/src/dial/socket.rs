//! One socket to one address of an origin.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};

use crate::config::{DialConfig, OriginSource};
use crate::listen::set_keepalive;
use crate::stream::{Failure, FailureCode};
use crate::words;

/// Connects to `address`; the deadline is the caller's.
pub(super) async fn connect(
    config: &DialConfig,
    address: SocketAddr,
    client: SocketAddr,
) -> Result<TcpStream, Failure> {
    let socket = prepare(config, address, client).map_err(|error| {
        Failure::new(
            FailureCode::Unavailable,
            format!(
                "cannot set up a socket to {address}: {}",
                words::of_system(&error)
            ),
        )
    })?;
    let connected = TcpSocket::from_std_stream(socket.into())
        .connect(address)
        .await;
    connected.map_err(|error| {
        let failure = Failure::of_connect(&error);
        Failure::new(failure.code, format!("{address}: {}", failure.text))
    })
}

fn prepare(config: &DialConfig, address: SocketAddr, client: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    if let Some(mark) = config.mark {
        socket.set_mark(mark)?;
    }
    set_congestion_control(&socket, &config.congestion_control)?;
    set_keepalive(&SockRef::from(&socket))?;
    let client = client.ip().to_canonical();
    // A client of the other family cannot be the source; the origin then sees
    // the node.
    if config.origin_source == OriginSource::Client
        && client.is_ipv4() == address.is_ipv4()
        && !client.is_unspecified()
    {
        bind_as(&socket, client)?;
    }
    Ok(socket)
}

/// Binds `socket` to an address that is not the host's. The kernel chooses the port at connect(2),
/// so ports can run out only per destination.
fn bind_as(socket: &Socket, client: IpAddr) -> io::Result<()> {
    match client {
        IpAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
        IpAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
    }
    setsockopt(socket, sockopt::IpBindAddressNoPort, &true)?;
    socket.bind(&SocketAddr::new(client, 0).into())
}

/// Takes the first congestion control of `preference` that the kernel has; an
/// empty list leaves the kernel's default.
pub(crate) fn set_congestion_control(socket: &impl AsFd, preference: &[String]) -> io::Result<()> {
    let socket = SockRef::from(socket);
    let mut refused = Ok(());
    for name in preference {
        match socket.set_tcp_congestion(name.as_bytes()) {
            Ok(()) => return Ok(()),
            Err(error) => {
                refused = Err(io::Error::new(
                    error.kind(),
                    format!("congestion control {name}: {}", words::of_system(&error)),
                ));
            }
        }
    }
    refused
}
