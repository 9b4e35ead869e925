//! From a QUIC connection to an established session: both sides give their node ids, and each
//! checks the other's certificate against it.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use quinn::{Connection, ConnectionError, RecvStream, SendStream, TransportErrorCode};
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use tokio::time::timeout;
use underpass_cla::{Class, Down, ExportedKey, comes_and_goes};
use underpass_identity::{
    EXPORTER_LABEL, IdentityError, IsRevoked, PeerIdentity, UriNodeIds, peer_identity,
};

use crate::defaults::SessionDefaults;
use crate::wire::{Hello, Message, WireError};
use crate::{code, defaults};

/// Bytes of a control stream that are read at once.
const READ_BYTES: usize = 16 << 10;
/// TLS alert `bad_certificate`, by which a certificate is refused.
const BAD_CERTIFICATE: u8 = 42;

/// Why a contact came to nothing.
#[derive(Debug, Error)]
pub(crate) enum ContactFailure {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(String),
    #[error(
        "TLS: the peer's certificate is refused: the log has the reason (invalid peer certificate)"
    )]
    Certificate,
    #[error("TLS: the peer refuses this node's certificate")]
    OwnCertificate,
    #[error("{0}")]
    Identity(#[from] IdentityError),
    #[error("{0}")]
    Connection(ConnectionError),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("the contact timed out")]
    TimedOut,
    #[error("dialling was stopped")]
    Stopped,
}

impl ContactFailure {
    /// Whether it is temporary, depending on link and peer.
    pub(crate) fn comes_and_goes(&self) -> bool {
        match self {
            ContactFailure::Io(error) => comes_and_goes(error),
            ContactFailure::Connection(_) | ContactFailure::TimedOut | ContactFailure::Stopped => {
                true
            }
            _ => false,
        }
    }

    /// Whether nobody has answered: then the link may be blocked.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(
            self,
            ContactFailure::TimedOut | ContactFailure::Connection(ConnectionError::TimedOut)
        )
    }

    /// Whether the peer left before it had given its identity: connections that a dialler no longer
    /// needs end like this.
    pub(crate) fn is_withdrawal(&self) -> bool {
        match self {
            ContactFailure::Connection(error) => defaults::down_of(error) == Down::Closed,
            _ => false,
        }
    }

    /// Tells the peer on a connection that stands.
    fn tell(&self, connection: &Connection) {
        let code = match self {
            ContactFailure::Refused(_) | ContactFailure::Identity(_) => code::IDENTITY,
            ContactFailure::Wire(_) => code::PROTOCOL,
            _ => code::CLOSED,
        };
        connection.close(code, self.to_string().as_bytes());
    }
}

impl From<ConnectionError> for ContactFailure {
    fn from(error: ConnectionError) -> Self {
        let bad_certificate = TransportErrorCode::crypto(BAD_CERTIFICATE);
        match &error {
            ConnectionError::TransportError(failed) if failed.code == bad_certificate => {
                ContactFailure::Certificate
            }
            ConnectionError::ConnectionClosed(closed) if closed.error_code == bad_certificate => {
                ContactFailure::OwnCertificate
            }
            _ => ContactFailure::Connection(error),
        }
    }
}

/// How peers are judged.
pub(crate) struct Trust {
    pub(crate) uris: UriNodeIds,
    pub(crate) is_revoked: IsRevoked,
}

/// A connection whose two sides have identified each other.
pub(crate) struct Contact {
    pub(crate) connection: Connection,
    pub(crate) send: SendStream,
    pub(crate) receive: RecvStream,
    /// Bytes that were read of the control stream and not processed yet.
    pub(crate) unread: BytesMut,
    /// What the peer has said of itself.
    pub(crate) peer: Hello,
    pub(crate) identity: PeerIdentity,
    pub(crate) is_revoked: IsRevoked,
    pub(crate) exported_key: ExportedKey,
}

/// The dialling side says what it wants, and learns whether it gets that.
pub(crate) async fn ask(
    connection: Connection,
    defaults: &SessionDefaults,
    class: Option<(Class, bool)>,
    trust: Trust,
) -> Result<Contact, ContactFailure> {
    let (class, standby) = class.unzip();
    let own = defaults.hello(class, standby.unwrap_or(false));
    let hellos = async {
        let (mut send, mut receive) = connection.open_bi().await?;
        say(&mut send, &own).await?;
        let (peer, unread) = hear(&mut receive).await?;
        if (peer.class, peer.standby) != (own.class, own.standby) {
            return Err(ContactFailure::Refused(
                "the peer offers a session of another class".into(),
            ));
        }
        Ok((send, receive, peer, unread))
    };
    judge(&connection, defaults, trust, hellos).await
}

/// The dialled side learns what is wanted, and agrees.
pub(crate) async fn answer(
    connection: Connection,
    defaults: &SessionDefaults,
    trust: Trust,
) -> Result<Contact, ContactFailure> {
    let greeting = async {
        let (send, mut receive) = connection.accept_bi().await?;
        let (peer, unread) = hear(&mut receive).await?;
        Ok::<_, ContactFailure>((send, receive, peer, unread))
    };
    let hellos = async {
        let (mut send, receive, peer, unread) = tokio::select! {
            biased;
            greeted = greeting => greeted?,
            // No window bounds datagrams, and symbols come only after both HELLOs.
            early = connection.read_datagram() => {
                early?;
                let reason = "a datagram came before HELLO";
                return Err(ContactFailure::Refused(reason.into()));
            }
        };
        // A peer that is not accepted is told so instead.
        check(&connection, &peer, defaults, trust.uris)?;
        connection.set_receive_window(defaults.window());
        say(&mut send, &defaults.hello(peer.class, peer.standby)).await?;
        Ok((send, receive, peer, unread))
    };
    let trust = Trust {
        uris: trust.uris,
        is_revoked: trust.is_revoked.clone(),
    };
    judge(&connection, defaults, trust, hellos).await
}

type Hellos = (SendStream, RecvStream, Hello, BytesMut);

async fn judge(
    connection: &Connection,
    defaults: &SessionDefaults,
    trust: Trust,
    hellos: impl Future<Output = Result<Hellos, ContactFailure>>,
) -> Result<Contact, ContactFailure> {
    let contact = async {
        let (send, receive, peer, unread) = within(defaults.contact_timeout, hellos).await?;
        let identity = check(connection, &peer, defaults, trust.uris)?;
        let mut key = [0; 32];
        connection
            .export_keying_material(&mut key, EXPORTER_LABEL, &[])
            .map_err(|_| ContactFailure::Tls("no key can be exported".into()))?;
        Ok(Contact {
            connection: connection.clone(),
            send,
            receive,
            unread,
            peer,
            identity,
            is_revoked: trust.is_revoked,
            exported_key: ExportedKey(key),
        })
    };
    let contact: Result<Contact, ContactFailure> = contact.await;
    if let Err(failure) = &contact {
        failure.tell(connection);
    }
    contact
}

/// Waits for a part of a contact, in bounded time.
pub(crate) async fn within<T>(
    time: Duration,
    part: impl Future<Output = Result<T, ContactFailure>>,
) -> Result<T, ContactFailure> {
    let part = timeout(time, part).await;
    part.unwrap_or(Err(ContactFailure::TimedOut))
}

async fn say(send: &mut SendStream, hello: &Hello) -> Result<(), ContactFailure> {
    let mut bytes = BytesMut::new();
    Message::Hello(hello.clone()).encode(&mut bytes);
    send.write_chunk(bytes.freeze()).await.map_err(lost)
}

fn lost(error: quinn::WriteError) -> ContactFailure {
    match error {
        quinn::WriteError::ConnectionLost(error) => error.into(),
        other => ContactFailure::Io(other.into()),
    }
}

async fn hear(receive: &mut RecvStream) -> Result<(Hello, BytesMut), ContactFailure> {
    let mut unread = BytesMut::new();
    loop {
        match Message::decode(&mut unread)? {
            Some(Message::Hello(hello)) => return Ok((hello, unread)),
            Some(_) => return Err(ContactFailure::Refused("no HELLO came first".into())),
            None => {}
        }
        let chunk = receive.read_chunk(READ_BYTES, true).await;
        match chunk {
            Ok(Some(chunk)) => unread.extend_from_slice(&chunk.bytes),
            Ok(None) => return Err(ContactFailure::Refused("the peer said nothing".into())),
            Err(quinn::ReadError::ConnectionLost(error)) => return Err(error.into()),
            Err(other) => return Err(ContactFailure::Io(other.into())),
        }
    }
}

/// Checks that the peer is accepted, and that its certificate names it.
fn check(
    connection: &Connection,
    peer: &Hello,
    defaults: &SessionDefaults,
    uris: UriNodeIds,
) -> Result<PeerIdentity, ContactFailure> {
    let chain = connection.peer_identity();
    let chain = chain.and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok());
    let identity = match chain.as_deref().and_then(|chain| chain.first()) {
        Some(certificate) => peer_identity(certificate, uris)?,
        None => PeerIdentity::default(),
    };
    if !identity.node_ids.contains(&peer.node_id) {
        return Err(ContactFailure::Refused(format!(
            "the peer says it is {:?}, its certificate names {:?}",
            peer.node_id, identity.node_ids
        )));
    }
    if !defaults.accepts(&peer.node_id) {
        return Err(ContactFailure::Refused(format!(
            "{:?} is not a peer that is wanted here",
            peer.node_id
        )));
    }
    Ok(identity)
}
