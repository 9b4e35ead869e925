//! Dialling while the link may be blocked.
//!
//! While a link is blocked, packets are lost, and the kernel retransmits more and more rarely: a
//! connection that was begun in a blockage may sleep for a minute after its end. So a fresh one is
//! begun at short intervals, whatever the state of earlier ones. The first one that completes the
//! TLS handshake wins, and the others are dropped. A connection that was made in advance
//! ([`super::spares`]) is tried first.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tracing::debug;
use underpass_cla::Class;

use super::contact::{self, Contact, ContactFailure, TlsSide};
use super::dialer::Shared;
use super::now;
use super::socket::SocketOptions;
use super::spares::Spare;
use crate::session::{Role, SessionCore};

/// Connections begun and not through, at most.
const MOST_ATTEMPTS: usize = 20;
/// After a connection is made, which takes a round trip, its handshake gets this many times as long
/// before the next connection is begun.
const HANDSHAKE_ROUND_TRIPS: u32 = 5;

/// After this many connections without an answer the link counts as blocked.
const DARK_AFTER: u32 = 4;

/// What a dial leads to.
type Reached = (Contact, SessionCore);

/// A connection of TCP, on which nothing was sent.
#[derive(Debug)]
pub(super) struct Connected {
    tcp: TcpStream,
    /// The options that it was made with.
    pub(super) options: SocketOptions,
    pub(super) took: Duration,
}

struct Failed {
    failure: ContactFailure,
    connected: bool,
}

/// Dials until a peer answers, first on the `spare` connection if there is one; `silent` gets the
/// reason while it has not answered. An error is the peer's answer, or this host's refusal.
pub(super) async fn dial(
    shared: &Arc<Shared>,
    class: Option<(Class, bool)>,
    spare: Option<Spare>,
    silent: impl Fn(&ContactFailure),
) -> Result<Reached, ContactFailure> {
    let interval = shared.config.backoff.base;
    let patient_until = Arc::new(Mutex::new(now()));
    let mut attempts = JoinSet::new();
    let start = now();
    let (mut next, mut begun) = (start, 0);
    if let Some(spare) = spare {
        if let Some(connected) = spare.connected() {
            extend(&patient_until, patience(shared, connected.took));
        }
        let attempt = attempt(shared.clone(), class, Some(spare), patient_until.clone());
        attempts.spawn(attempt);
    }
    loop {
        let patience_ends = *patient_until.lock().unwrap();
        let due = next.max(patience_ends);
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended {
                Ok(Ok(reached)) => return Ok(reached),
                Ok(Err(Failed { failure, .. })) if is_silence(&failure) => silent(&failure),
                // The end of a connection from before a blockage, or of one made in advance, comes
                // only now, and says nothing of others.
                Ok(Err(Failed { failure, connected: true }))
                    if failure.comes_and_goes() && (begun == 0 || !attempts.is_empty()) =>
                {
                    silent(&failure);
                    *patient_until.lock().unwrap() = now();
                }
                Ok(Err(Failed { failure, .. })) => return Err(failure),
                Err(broken) => return Err(io::Error::other(broken).into()),
            },
            () = sleep_until(due.into()) => {
                let patience_ends = *patient_until.lock().unwrap();
                if patience_ends <= now() && attempts.len() < MOST_ATTEMPTS {
                    let attempt = attempt(shared.clone(), class, None, patient_until.clone());
                    attempts.spawn(attempt);
                    begun += 1;
                }
                if begun >= DARK_AFTER && patience_ends <= start {
                    shared.dark.send_replace(true);
                }
                next = now() + interval;
            }
        }
    }
}

/// Whether nobody has answered: then the link may be blocked.
fn is_silence(failure: &ContactFailure) -> bool {
    match failure {
        ContactFailure::TimedOut => true,
        ContactFailure::Io(error) => matches!(
            error.kind(),
            ErrorKind::TimedOut
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::NetworkDown
        ),
        _ => false,
    }
}

/// How long to wait for the handshake on a connection that took `took` to make.
fn patience(shared: &Shared, took: Duration) -> Duration {
    took * HANDSHAKE_ROUND_TRIPS + shared.config.backoff.base
}

async fn attempt(
    shared: Arc<Shared>,
    class: Option<(Class, bool)>,
    spare: Option<Spare>,
    patient_until: Arc<Mutex<Instant>>,
) -> Result<Reached, Failed> {
    let config = &shared.config;
    let failed = |connected| move |failure| Failed { failure, connected };
    let connected = match spare {
        Some(spare) => spare_connection(&shared, spare).await,
        None => connect(&shared, config.connect_timeout).await,
    };
    let Connected { tcp, took, .. } = connected.map_err(failed(false))?;
    extend(&patient_until, patience(&shared, took));
    let mut session = shared
        .session()
        .session_config(Role::Active, config.tls.is_some());
    session.class = class;
    let mut core = SessionCore::new(session, now());
    let tls = config.tls.as_ref().map(TlsSide::Client);
    let contact = contact::make(tcp, &mut core, tls).await;
    let contact = contact.map_err(failed(true))?;
    if has_ended(contact.tcp()) {
        let ended = io::Error::from(ErrorKind::UnexpectedEof);
        return Err(failed(true)(ended.into()));
    }
    Ok((contact, core))
}

/// Whether the peer has ended the connection. If a node was killed in a blockage, its kernel still
/// sends the node's bytes afterwards, followed by the end.
fn has_ended(tcp: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    matches!(SockRef::from(tcp).peek(&mut byte), Ok(0))
}

/// Waits for a connection that was begun in advance, with the options that sockets have now. If
/// there is none, that says nothing about the peer.
async fn spare_connection(shared: &Shared, spare: Spare) -> Result<Connected, ContactFailure> {
    let connected = spare.wait().await;
    let session = shared.session();
    let connected = connected.filter(|connected| connected.options == session.socket);
    connected.ok_or(ContactFailure::TimedOut)
}

fn extend(until: &Mutex<Instant>, patience: Duration) {
    let mut until = until.lock().unwrap();
    *until = (*until).max(now() + patience);
}

/// Makes a connection within this time, or fails.
pub(super) async fn connect(
    shared: &Shared,
    within: Duration,
) -> Result<Connected, ContactFailure> {
    let (config, options, begun) = (&shared.config, shared.session().socket.clone(), now());
    let socket = options.socket(config.remote)?;
    if let Some(local) = config.local {
        socket.bind(&local.into())?;
    }
    let socket = TcpSocket::from_std_stream(socket.into());
    let connect = socket.connect(config.remote);
    let tcp = timeout(within, connect)
        .await
        .map_err(|_| ContactFailure::TimedOut)??;
    debug!(remote = %config.remote, "connected");
    let took = now() - begun;
    Ok(Connected { tcp, options, took })
}
