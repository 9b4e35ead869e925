//! Dialling into the dark.
//!
//! While a link is blocked, what is sent is lost, and the kernel repeats it
//! ever more seldom: a connection that was begun in a blockage may sleep for a
//! minute after its end. So a fresh one is begun at short intervals, whatever
//! has become of those before; the first that gets through to the end of the
//! TLS handshake wins, and the others are dropped.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tracing::debug;
use underpass_cla::Class;

use super::contact::{self, Contact, ContactFailure, TlsSide};
use super::dialer::Shared;
use super::now;
use crate::session::{Role, SessionCore};

/// Connections begun and not through, at most.
const MOST_ATTEMPTS: usize = 20;
/// A handshake that has a connection is waited for so many times as long as
/// that took, which is a round trip, before the next connection is begun.
const HANDSHAKE_ROUND_TRIPS: u32 = 5;

/// After so many connections without an answer the link is taken for blocked.
const DARK_AFTER: u32 = 4;

/// What a dial leads to.
type Reached = (Contact, SessionCore);

/// An attempt that failed.
struct Failed {
    failure: ContactFailure,
    /// There was a connection.
    connected: bool,
}

/// Dials until a peer answers; `silent` is told why it has not yet. An error
/// is the peer's answer, or this host's refusal.
pub(super) async fn dial(
    shared: &Arc<Shared>,
    class: Option<(Class, bool)>,
    silent: impl Fn(&ContactFailure),
) -> Result<Reached, ContactFailure> {
    let interval = shared.config.backoff.base;
    let patient_until = Arc::new(Mutex::new(now()));
    let mut attempts = JoinSet::new();
    let start = now();
    let (mut next, mut begun) = (start, 0);
    loop {
        let patience_ends = *patient_until.lock().unwrap();
        let due = next.max(patience_ends);
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended {
                Ok(Ok(reached)) => return Ok(reached),
                Ok(Err(Failed { failure, .. })) if is_silence(&failure) => silent(&failure),
                // A connection of before a blockage: its end, which comes only now, says
                // nothing of those that were begun since.
                Ok(Err(Failed { failure, connected: true }))
                    if failure.comes_and_goes() && !attempts.is_empty() =>
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
                    attempts.spawn(attempt(shared.clone(), class, patient_until.clone()));
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

async fn attempt(
    shared: Arc<Shared>,
    class: Option<(Class, bool)>,
    patient_until: Arc<Mutex<Instant>>,
) -> Result<Reached, Failed> {
    let begun = now();
    let tcp = connect(&shared).await;
    let failed = |connected| move |failure| Failed { failure, connected };
    let tcp = tcp.map_err(failed(false))?;
    let config = &shared.config;
    let patience = (now() - begun) * HANDSHAKE_ROUND_TRIPS + config.backoff.base;
    extend(&patient_until, patience);
    let mut session = shared
        .session()
        .session_config(Role::Active, config.tls.is_some());
    session.class = class;
    let mut core = SessionCore::new(session, now());
    let tls = config.tls.as_ref().map(TlsSide::Client);
    let contact = contact::make(tcp, &mut core, tls).await;
    let contact = contact.map_err(failed(true))?;
    Ok((contact, core))
}

fn extend(until: &Mutex<Instant>, patience: Duration) {
    let mut until = until.lock().unwrap();
    *until = (*until).max(now() + patience);
}

async fn connect(shared: &Shared) -> Result<TcpStream, ContactFailure> {
    let config = &shared.config;
    let socket = shared.session().socket.socket(config.remote)?;
    if let Some(local) = config.local {
        socket.bind(&local.into())?;
    }
    let socket = TcpSocket::from_std_stream(socket.into());
    let connect = socket.connect(config.remote);
    let tcp = timeout(config.connect_timeout, connect)
        .await
        .map_err(|_| ContactFailure::TimedOut)??;
    debug!(remote = %config.remote, "connected");
    Ok(tcp)
}
