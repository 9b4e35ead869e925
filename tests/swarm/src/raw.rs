//! A session whose bytes the caller writes, or leaves out, at will.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use underpass_cla::{Class, Transfer};
use underpass_tcpcl::session::{Event, Role, SessionConfig, SessionCore};

use crate::identity;

/// From the connection to the session.
const CONTACT_TIME: Duration = Duration::from_secs(20);

/// An established session and the connection below.
pub struct RawSession {
    stream: TlsStream<TcpStream>,
    core: SessionCore,
}

/// A session of `node` with the hub, for one class.
///
/// # Errors
/// When the hub refuses it, or is not reachable in time.
pub async fn open(
    hub: SocketAddr,
    pki: &Path,
    node: u64,
    run: u64,
    class: Class,
) -> io::Result<RawSession> {
    timeout(CONTACT_TIME, contact(hub, pki, node, run, class)).await?
}

async fn contact(
    hub: SocketAddr,
    pki: &Path,
    node: u64,
    run: u64,
    class: Class,
) -> io::Result<RawSession> {
    let mut config = SessionConfig::new(Role::Active, format!("ipn:{node}.0"));
    config.tls = true;
    config.class = Some((class, true));
    config.incarnation = run;
    let mut core = SessionCore::new(config, Instant::now());
    let mut tcp = TcpStream::connect(hub).await?;
    write_all(&mut core, &mut tcp).await?;
    let mut header = [0; 6];
    tcp.read_exact(&mut header).await?;
    core.handle_input(Instant::now(), &header);
    let tls = identity::client(pki, node).map_err(io::Error::other)?;
    let connector = TlsConnector::from((tls.source)());
    let stream = connector.connect(ServerName::from(hub.ip()), tcp).await?;
    core.tls_established(Instant::now(), vec!["ipn:1.0".to_owned()]);
    let mut session = RawSession { stream, core };
    while !session.is_up()? {
        write_all(&mut session.core, &mut session.stream).await?;
        let mut input = [0; 4096];
        let count = session.stream.read(&mut input).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        session.core.handle_input(Instant::now(), &input[..count]);
    }
    Ok(session)
}

async fn write_all(
    core: &mut SessionCore,
    to: &mut (impl AsyncWriteExt + Unpin),
) -> io::Result<()> {
    while let Some(piece) = core.poll_output(Instant::now()) {
        to.write_all(&piece).await?;
    }
    to.flush().await
}

impl RawSession {
    fn is_up(&mut self) -> io::Result<bool> {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Established(_) => return Ok(true),
                Event::Closed(down) => return Err(io::Error::other(format!("{down:?}"))),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Sends a whole bundle and reads no answer.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn send(&mut self, bundle: Bytes) -> io::Result<()> {
        self.core.offer(Transfer::new(0, vec![bundle]));
        write_all(&mut self.core, &mut self.stream).await
    }

    /// Sends only the first `bytes` of what carries a bundle.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn send_part(&mut self, bundle: Bytes, bytes: usize) -> io::Result<()> {
        self.core.offer(Transfer::new(0, vec![bundle]));
        let mut left = bytes;
        while left > 0 {
            let Some(piece) = self.core.poll_output(Instant::now()) else {
                break;
            };
            let part = piece.slice(..piece.len().min(left));
            left -= part.len();
            self.stream.write_all(&part).await?;
        }
        self.stream.flush().await
    }

    /// Sends bytes that are no message of the project's own making.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    pub async fn is_ended_within(&mut self, time: Duration) -> bool {
        let end = async {
            let mut input = [0; 4096];
            while matches!(self.stream.read(&mut input).await, Ok(1..)) {}
        };
        timeout(time, end).await.is_ok()
    }
}
