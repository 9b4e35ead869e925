//! Relays between the modem and the antenna's controller.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::lock::{Lock, LockReader};
use crate::config::ModemConfig;
use crate::upgrade::Sockets;

/// A peer whose TCP has not answered for this long is dead.
const SILENCE: Duration = Duration::from_secs(10);

/// Why a modem cannot be waited for.
#[derive(Debug, Error)]
#[error("modem of {path:?}: cannot listen on {address}: {source}")]
pub struct ModemError {
    path: String,
    address: SocketAddr,
    /// The system's reason.
    source: io::Error,
}

/// Binds the address to which the modem connects, unless the previous process has bound it.
///
/// # Errors
/// When it is taken.
pub fn listen(config: &ModemConfig, sockets: &Sockets) -> Result<TcpListener, ModemError> {
    let name = format!("modem {}", config.path);
    let bound = sockets.bind(&name, config.listen, || {
        let listener = std::net::TcpListener::bind(config.listen)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound
        .and_then(TcpListener::from_std)
        .map_err(|source| ModemError {
            path: config.path.clone(),
            address: config.listen,
            source,
        })
}

/// Serves the modem that connects, and calls `report` with whether it says that the link is
/// blocked. A modem that is not connected blocks nothing. Runs until dropped.
///
/// A modem has one connection: when it opens another, it has given up the previous one, even if
/// this side has not noticed. A modem at another of the configured addresses waits until the
/// present connection ends; if that is dead, it ends within [`SILENCE`].
pub async fn serve(
    listener: TcpListener,
    config: ModemConfig,
    report: impl Fn(bool) + Send + Sync + 'static,
) {
    let mut current: Option<Current<'_>> = None;
    let mut waiting = None;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((modem, remote)) = accepted else {
                    // Descriptors have run out, but will become free again.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                };
                let address = remote.ip().to_canonical();
                if !config.from.contains(&address) {
                    tracing::warn!(path = config.path, %remote, "refused: not the modem's address");
                } else if current.as_ref().is_some_and(|current| current.address != address) {
                    tracing::info!(path = config.path, %remote, "another modem waits");
                    waiting = Some((modem, remote));
                } else {
                    if current.take().is_some() {
                        tracing::info!(path = config.path, %remote, "the modem connects anew");
                        report(false);
                    }
                    current = Some(Current::begin(modem, remote, &config, &report));
                }
            }
            () = ended(&mut current) => {
                report(false);
                let next = waiting.take();
                current = next.map(|(modem, remote)| Current::begin(modem, remote, &config, &report));
            }
        }
    }
}

/// The modem that is being served.
struct Current<'a> {
    address: IpAddr,
    service: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

impl<'a> Current<'a> {
    fn begin(
        modem: TcpStream,
        remote: SocketAddr,
        config: &'a ModemConfig,
        report: &'a (impl Fn(bool) + Sync),
    ) -> Current<'a> {
        Current {
            address: remote.ip().to_canonical(),
            service: Box::pin(attend(modem, remote, config, report)),
        }
    }
}

/// Waits for the end of the current modem; for ever if there is none.
async fn ended(current: &mut Option<Current<'_>>) {
    match current {
        Some(current) => current.service.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Serves one modem until it or the antenna's controller ends.
async fn attend(
    modem: TcpStream,
    remote: SocketAddr,
    config: &ModemConfig,
    report: &(impl Fn(bool) + Sync),
) {
    let path = &config.path;
    let connected = timeout(SILENCE, TcpStream::connect(config.antenna)).await;
    let antenna = match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(antenna) => antenna,
        Err(error) => {
            tracing::warn!(path, antenna = %config.antenna, %error, "the antenna's controller is out of reach");
            return;
        }
    };
    if let Err(error) = watch_for_silence(&modem).and_then(|()| watch_for_silence(&antenna)) {
        tracing::warn!(path, %error, "a dead modem or controller is found late");
    }
    tracing::info!(path, %remote, "modem connected");
    let ended = pass_on(modem, antenna, report).await;
    let reason = ended.err().map(|error| error.to_string());
    tracing::info!(path, reason, "modem disconnected");
}

/// Lets the kernel end a connection whose other end has not answered for
/// [`SILENCE`], idle or not.
fn watch_for_silence(socket: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(SILENCE / 2)
        .with_interval(SILENCE / 10)
        .with_retries(5);
    let socket = SockRef::from(socket);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(SILENCE))
}

/// Passes everything on until one side ends, and reads the modem's lock.
async fn pass_on(
    modem: TcpStream,
    antenna: TcpStream,
    report: &(impl Fn(bool) + Sync),
) -> io::Result<()> {
    let (mut from_modem, mut to_modem) = modem.into_split();
    let (mut from_antenna, mut to_antenna) = antenna.into_split();
    let up = async {
        let (mut reader, mut last) = (LockReader::default(), None);
        let mut buffer = [0; 4096];
        loop {
            let count = from_modem.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            let lock = reader.read(&buffer[..count]);
            if lock.is_some() && lock != last {
                last = lock;
                report(lock.is_some_and(is_blocked));
            }
            to_antenna.write_all(&buffer[..count]).await?;
        }
    };
    let down = async {
        tokio::io::copy(&mut from_antenna, &mut to_modem).await?;
        Ok(())
    };
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
}

/// Nothing can be sent without a lock, or while the modem may not transmit.
fn is_blocked(lock: Lock) -> bool {
    !lock.receives || !lock.transmits
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpSocket;
    use tokio::sync::mpsc;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A relay between modems and an antenna's controller.
    struct World {
        address: SocketAddr,
        antenna: TcpListener,
        report: mpsc::UnboundedReceiver<bool>,
        served: tokio::task::JoinHandle<()>,
    }

    impl World {
        /// Modems may connect from 127.0.0.1 and 127.0.0.2.
        async fn new() -> World {
            let antenna = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let config = ModemConfig {
                path: "sat".to_owned(),
                listen: "127.0.0.1:0".parse().unwrap(),
                from: vec![[127, 0, 0, 1].into(), [127, 0, 0, 2].into()],
                antenna: antenna.local_addr().unwrap(),
            };
            let listener = listen(&config, &Sockets::default()).unwrap();
            let address = listener.local_addr().unwrap();
            let (sender, report) = mpsc::unbounded_channel();
            let served = tokio::spawn(serve(listener, config, move |blocked| {
                let _ = sender.send(blocked);
            }));
            World {
                address,
                antenna,
                report,
                served,
            }
        }

        /// A modem at 127.0.0.`host`.
        async fn modem(&self, host: u8) -> TcpStream {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, host], 0).into()).unwrap();
            socket.connect(self.address).await.unwrap()
        }

        async fn controller(&self) -> TcpStream {
            timeout(PATIENCE, self.antenna.accept())
                .await
                .unwrap()
                .unwrap()
                .0
        }

        async fn blocked(&mut self) -> bool {
            timeout(PATIENCE, self.report.recv())
                .await
                .unwrap()
                .unwrap()
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            self.served.abort();
        }
    }

    async fn is_closed(socket: &mut TcpStream) -> bool {
        let read = timeout(PATIENCE, socket.read(&mut [0; 1])).await.unwrap();
        !matches!(read, Ok(1..))
    }

    async fn hears(socket: &mut TcpStream, wanted: &[u8]) {
        let mut heard = vec![0; wanted.len()];
        let read = socket.read_exact(&mut heard);
        timeout(PATIENCE, read).await.unwrap().unwrap();
        assert_eq!(heard, wanted);
    }

    #[tokio::test]
    async fn the_modems_lock_is_told_and_both_sides_hear_each_other() {
        let mut world = World::new().await;
        let mut modem = world.modem(1).await;
        let mut controller = world.controller().await;
        modem.write_all(b"A 15\nL 1 1\n").await.unwrap();
        hears(&mut controller, b"A 15\nL 1 1\n").await;
        controller.write_all(b"s 1 1\n").await.unwrap();
        hears(&mut modem, b"s 1 1\n").await;

        assert!(!world.blocked().await);
        for (line, blocked) in [("L 0 0\n", true), ("L 1 1\n", false), ("L 1 0\n", true)] {
            modem.write_all(line.as_bytes()).await.unwrap();
            assert_eq!(world.blocked().await, blocked, "{line}");
        }
        // A disconnected modem blocks nothing.
        drop(modem);
        assert!(!world.blocked().await);
    }

    #[tokio::test]
    async fn who_is_not_named_is_closed_and_harms_nobody() {
        let world = World::new().await;
        let mut modem = world.modem(2).await;
        let mut controller = world.controller().await;
        let mut stranger = world.modem(3).await;
        let _ = stranger.write_all(b"L 0 0\n").await;
        assert!(is_closed(&mut stranger).await);
        modem.write_all(b"L 1 1\n").await.unwrap();
        hears(&mut controller, b"L 1 1\n").await;
    }

    #[tokio::test]
    async fn a_modem_that_connects_anew_replaces_its_connection_of_before() {
        let mut world = World::new().await;
        // The modem has lost power, and this side has not noticed.
        let mut dead = world.modem(1).await;
        let mut former = world.controller().await;
        dead.write_all(b"L 0 0\n").await.unwrap();
        assert!(world.blocked().await);
        let mut modem = world.modem(1).await;
        let mut controller = world.controller().await;
        assert!(!world.blocked().await);
        hears(&mut former, b"L 0 0\n").await;
        assert!(is_closed(&mut former).await && is_closed(&mut dead).await);
        modem.write_all(b"L 1 0\n").await.unwrap();
        hears(&mut controller, b"L 1 0\n").await;
        assert!(world.blocked().await);
    }

    #[tokio::test]
    async fn a_modem_at_another_address_waits_for_the_end_of_the_first() {
        let mut world = World::new().await;
        let mut first = world.modem(1).await;
        let mut controller = world.controller().await;
        let mut second = world.modem(2).await;
        second.write_all(b"L 0 0\n").await.unwrap();
        first.write_all(b"L 1 1\n").await.unwrap();
        hears(&mut controller, b"L 1 1\n").await;
        assert!(!world.blocked().await);
        drop(first);
        assert!(is_closed(&mut controller).await);
        hears(&mut world.controller().await, b"L 0 0\n").await;
        assert!(!world.blocked().await);
        assert!(world.blocked().await);
    }

    #[tokio::test]
    async fn silence_ends_the_connections_of_either_side() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap());
        let socket = socket.await.unwrap();
        watch_for_silence(&socket).unwrap();
        let socket = SockRef::from(&socket);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(SILENCE));
        let probes = socket.tcp_keepalive_interval().unwrap();
        let probes = probes * socket.tcp_keepalive_retries().unwrap();
        assert_eq!(socket.tcp_keepalive_time().unwrap() + probes, SILENCE);
    }
}
