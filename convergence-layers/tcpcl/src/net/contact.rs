//! From a TCP connection to a stream on which SESS_INIT can be exchanged.

use std::io;
use std::ops::DerefMut;

use rustls::pki_types::ServerName;
use rustls::{ConnectionCommon, SideData};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use underpass_cla::{Down, ExportedKey, comes_and_goes};
use underpass_identity::{
    ClientTls, EXPORTER_LABEL, IdentityError, IsRevoked, PeerIdentity, ServerTls, peer_identity,
};

use super::now;
use super::transport::{OverTcp, ReadAhead, Tls, Transport};
use crate::session::{Event, SessionCore};
use crate::wire::CONTACT_HEADER_BYTES;

/// Plaintext that TLS may hold, bytes.
const TLS_BUFFER_BYTES: usize = 256 << 10;

/// Why a contact came to nothing.
#[derive(Debug, Error)]
pub(super) enum ContactFailure {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error(
        "TLS: the peer's certificate is refused: the log has the reason (invalid peer certificate)"
    )]
    Certificate,
    #[error("{0}")]
    Identity(#[from] IdentityError),
    #[error("the contact timed out")]
    TimedOut,
    #[error("{0}")]
    Refused(Down),
    #[error("the peer does not know classes and has its one session")]
    OneSession,
    #[error("dialling was stopped")]
    Stopped,
}

impl ContactFailure {
    /// Whether it is temporary, depending on link and peer.
    pub(super) fn comes_and_goes(&self) -> bool {
        match self {
            ContactFailure::Io(error) | ContactFailure::Tls(error) => comes_and_goes(error),
            ContactFailure::Refused(down) => !matches!(down, Down::Protocol(_)),
            ContactFailure::TimedOut | ContactFailure::OneSession | ContactFailure::Stopped => true,
            ContactFailure::Certificate | ContactFailure::Identity(_) => false,
        }
    }

    /// Whether the peer left before it had given its identity: the slower of two connections of a
    /// dialler ends like this, and so does a port scan.
    pub(super) fn is_withdrawal(&self) -> bool {
        let (ContactFailure::Io(error) | ContactFailure::Tls(error)) = self else {
            return false;
        };
        matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
        )
    }
}

/// Which side of TLS we are.
pub(super) enum TlsSide<'a> {
    Client(&'a ClientTls),
    Server(&'a ServerTls),
}

/// The stream that the session goes on with.
pub(super) enum Contact {
    Plain(TcpStream),
    Tls {
        stream: Box<Tls>,
        peer: PeerIdentity,
        exported_key: ExportedKey,
        is_revoked: IsRevoked,
    },
}

impl Contact {
    /// The secret that both ends of the TLS session share.
    pub(super) fn exported_key(&self) -> Option<ExportedKey> {
        match self {
            Contact::Plain(_) => None,
            Contact::Tls { exported_key, .. } => Some(*exported_key),
        }
    }

    /// The connection below.
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Contact::Plain(tcp) => tcp,
            Contact::Tls { stream, .. } => stream.tcp(),
        }
    }
}

/// Exchanges contact headers and shakes hands, in bounded time.
pub(super) async fn make(
    mut tcp: TcpStream,
    core: &mut SessionCore,
    tls: Option<TlsSide<'_>>,
) -> Result<Contact, ContactFailure> {
    let deadline = deadline(core);
    let contact = async {
        let wants_tls = exchange_headers(&mut tcp, core).await?;
        match tls {
            Some(side) if wants_tls => shake_hands(tcp, side).await,
            _ => Ok(Contact::Plain(tcp)),
        }
    };
    let contact = timeout_at(deadline, contact)
        .await
        .map_err(|_| ContactFailure::TimedOut)??;
    if let Contact::Tls { peer, .. } = &contact {
        core.tls_established(now(), peer.node_ids.clone());
    }
    Ok(contact)
}

/// The same over a stream of its own, without TLS.
pub(super) async fn make_plain(
    transport: &mut impl Transport,
    core: &mut SessionCore,
) -> Result<(), ContactFailure> {
    let headers = timeout_at(deadline(core), exchange_headers(transport, core));
    headers.await.map_err(|_| ContactFailure::TimedOut)??;
    Ok(())
}

pub(super) fn deadline(core: &SessionCore) -> Instant {
    core.poll_timeout().unwrap_or_else(now).into()
}

/// Reads no byte beyond the header: the next bytes may belong to TLS.
async fn exchange_headers(
    transport: &mut impl Transport,
    core: &mut SessionCore,
) -> Result<bool, ContactFailure> {
    let mut header = [0; CONTACT_HEADER_BYTES];
    let mut filled = 0;
    flush(transport, core).await?;
    while filled < header.len() {
        let count = transport.read(&mut header[filled..]).await?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        filled += count;
        core.handle_input(now(), &header[..filled]);
        if core.is_closed() {
            break;
        }
    }
    flush(transport, core).await?;
    match core.poll_event() {
        Some(Event::StartTls) => Ok(true),
        Some(Event::Closed(down)) => {
            transport.shutdown().await?;
            Err(ContactFailure::Refused(down))
        }
        _ => Ok(false),
    }
}

async fn flush(transport: &mut impl Transport, core: &mut SessionCore) -> io::Result<()> {
    while let Some(piece) = core.poll_output(now()) {
        transport.write_all(&piece).await?;
    }
    Ok(())
}

async fn shake_hands(tcp: TcpStream, side: TlsSide<'_>) -> Result<Contact, ContactFailure> {
    let remote = tcp.peer_addr()?.ip();
    let tcp = ReadAhead::new(tcp);
    let (mut stream, uris, is_revoked) = match side {
        TlsSide::Client(tls) => {
            let name = ServerName::IpAddress(remote.into());
            let connector = TlsConnector::from((tls.source)());
            let stream = connector.connect(name, tcp).await;
            let stream = TlsStream::Client(stream.map_err(handshake_failure)?);
            (stream, tls.uris, tls.is_revoked.clone())
        }
        TlsSide::Server(tls) => {
            let acceptor = TlsAcceptor::from((tls.source)());
            let stream = acceptor.accept(tcp).await;
            let stream = TlsStream::Server(stream.map_err(handshake_failure)?);
            (stream, tls.uris, tls.is_revoked.clone())
        }
    };
    let exported_key = match &mut stream {
        TlsStream::Client(client) => prepare(client.get_mut().1),
        TlsStream::Server(server) => prepare(server.get_mut().1),
    }?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let peer = match certificates.first() {
        Some(certificate) => peer_identity(certificate, uris)?,
        None => PeerIdentity::default(),
    };
    Ok(Contact::Tls {
        stream: Box::new(stream),
        peer,
        exported_key,
        is_revoked,
    })
}

/// Bounds what TLS holds, and asks it for the session's key.
fn prepare<D>(
    connection: &mut impl DerefMut<Target = ConnectionCommon<D>>,
) -> Result<ExportedKey, ContactFailure>
where
    D: SideData,
{
    connection.set_buffer_limit(Some(TLS_BUFFER_BYTES));
    connection
        .export_keying_material([0; 32], EXPORTER_LABEL, None)
        .map(ExportedKey)
        .map_err(|error| ContactFailure::Tls(io::Error::other(error)))
}

/// [`underpass_identity::PathVerifier`] has logged the reason.
fn handshake_failure(error: io::Error) -> ContactFailure {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    match cause {
        Some(rustls::Error::InvalidCertificate(_)) => ContactFailure::Certificate,
        _ => ContactFailure::Tls(error),
    }
}
