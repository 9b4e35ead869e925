//! Sockets.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use underpass_cla::set_buffers;

use crate::config::{Config, Layer};

/// Bytes that a UDP socket can buffer while the process is busy.
const UDP_BUFFER_BYTES: u32 = 4 << 20;

/// Bytes that the kernel may hold unsent: about a bundle.
const UNSENT_BYTES: u32 = 128 << 10;

/// How long it takes to notice a peer that vanished silently.
const SILENCE: Duration = Duration::from_secs(60);

/// Where the socket stays to which a neighbour sends, so that the node's next process goes on with
/// it.
pub trait Place: fmt::Debug + Send + Sync {
    /// The socket that is there already.
    ///
    /// # Errors
    /// When there are too many open files.
    fn bound(&self) -> io::Result<Option<OwnedFd>>;

    /// Keeps a socket.
    ///
    /// # Errors
    /// When there are too many open files.
    fn keep(&self, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Lets the socket go that is there.
    fn forget(&self);
}

fn prepare(socket: &Socket, interface: Option<&str>, mark: Option<u32>) -> io::Result<()> {
    if let Some(interface) = interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    Ok(())
}

fn type_of(layer: Layer) -> Type {
    match layer {
        Layer::Udp | Layer::Ltp { .. } => Type::DGRAM,
        Layer::Stcp | Layer::Mtcp | Layer::Ecla => Type::STREAM,
    }
}

/// The socket to which a neighbour sends: the one in its place, otherwise a new one; with TCP it
/// listens.
///
/// # Errors
/// When the address or the interface cannot be used.
pub fn bind(
    layer: Layer,
    listen: SocketAddr,
    interface: Option<&str>,
    mark: Option<u32>,
    place: Option<&dyn Place>,
) -> io::Result<OwnedFd> {
    let kind = type_of(layer);
    if let Some(place) = place
        && let Some(socket) = place.bound()?.map(Socket::from)
    {
        if is_usable(&socket, kind, interface) {
            let mark = mark.unwrap_or(0);
            if socket.mark()? != mark {
                socket.set_mark(mark)?;
            }
            return Ok(socket.into());
        }
        place.forget();
    }
    let socket = Socket::new(Domain::for_address(listen), kind.nonblocking(), None)?;
    prepare(&socket, interface, mark)?;
    if listen.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    let is_udp = kind == Type::DGRAM;
    match is_udp {
        true => set_buffers(socket.as_fd(), UDP_BUFFER_BYTES)?,
        false => socket.set_reuse_address(true)?,
    }
    socket.bind(&listen.into())?;
    if !is_udp {
        socket.listen(16)?;
    }
    if let Some(place) = place {
        place.keep(socket.as_fd())?;
    }
    Ok(socket.into())
}

/// Whether a socket is of this type and on this interface, which may have been created again since.
fn is_usable(socket: &Socket, kind: Type, interface: Option<&str>) -> bool {
    let there = socket.device();
    let on_it = there.is_ok_and(|there| there.as_deref() == interface.map(str::as_bytes));
    on_it && socket.r#type().is_ok_and(|there| there == kind)
}

fn bound(config: &Config) -> io::Result<OwnedFd> {
    let (interface, place) = (config.interface.as_deref(), config.place.as_deref());
    bind(config.layer, config.listen, interface, config.mark, place)
}

/// A UDP socket at the address that the neighbour sends to.
pub(crate) fn udp(config: &Config) -> io::Result<UdpSocket> {
    UdpSocket::from_std(bound(config)?.into())
}

/// Sends a datagram now or not at all, even if the runtime does not know yet that the socket is
/// writable.
pub(crate) fn send_now(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
    SockRef::from(socket).send_to(datagram, &to.into())?;
    Ok(())
}

/// Listens at the address that the neighbour dials.
pub(crate) fn listen(config: &Config) -> io::Result<TcpListener> {
    TcpListener::from_std(bound(config)?.into())
}

pub(crate) async fn dial(config: &Config) -> io::Result<TcpStream> {
    let domain = Domain::for_address(config.remote);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    prepare(&socket, config.interface.as_deref(), config.mark)?;
    let any = match config.remote {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    // The same address at which it listens: the neighbour recognises this node by it.
    let own = config.listen.ip().to_canonical();
    let fits = own.is_ipv4() == config.remote.is_ipv4();
    let local = if fits { own } else { any };
    socket.bind(&SocketAddr::new(local, 0).into())?;
    let stream = TcpSocket::from_std_stream(socket.into());
    let stream = stream.connect(config.remote).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES)?;
    expect_life(&stream)?;
    Ok(stream)
}

/// Lets the kernel detect that the peer's host is gone.
pub(crate) fn expect_life(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(SILENCE)
        .with_interval(SILENCE / 4);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Bytes written to a connection that the peer's TCP has not acknowledged
/// (SIOCOUTQ).
pub(crate) fn unacknowledged(stream: &TcpStream) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int, to a place that outlives the call.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match result {
        0 => Ok(u64::try_from(bytes).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel's smoothed round trip of a connection.
pub(crate) fn round_trip(stream: &TcpStream) -> Option<Duration> {
    // SAFETY: all of the struct's fields are numbers, for which 0 is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of the struct.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (result == 0 && info.tcpi_rtt > 0).then(|| Duration::from_micros(info.tcpi_rtt.into()))
}
