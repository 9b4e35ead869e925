//! Connections that are begun while the link is blocked, for the session that is dialled when it is
//! back. [`super::sparing`] decides when.

use std::future::pending;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep_until;
use tracing::debug;

use super::attempts::{self, Connected};
use super::contact::ContactFailure;
use super::dialer::Shared;
use super::now;
use super::socket::SocketOptions;
use super::sparing::{Sparing, Step};

/// How long one may take. TCP repeats its SYN after 1 s and then after 2 s or more: the next
/// connection serves as well as a second repetition.
const CONNECTED_WITHIN: Duration = Duration::from_millis(1900);

/// The spare connections of a lane.
#[derive(Debug)]
pub(super) struct Spares {
    sparing: Sparing,
    spare: Spare,
}

/// One connection: the first one to complete of those being made.
#[derive(Debug, Default)]
pub(super) struct Spare {
    making: JoinSet<Result<Connected, ContactFailure>>,
    connected: Option<Connected>,
}

impl Spares {
    /// None yet; `base` is the time between two connections of a dial.
    pub(super) fn new(base: Duration) -> Self {
        Self {
            sparing: Sparing::new(base),
            spare: Spare::default(),
        }
    }

    /// The link is believed to be blocked, or free.
    pub(super) fn set_blocked(&mut self, blocked: bool) {
        self.sparing.set_blocked(now(), blocked);
    }

    /// Spare connections are not needed until the link is reported blocked again.
    pub(super) fn end(&mut self) {
        self.sparing.end();
    }

    /// Takes the spare connection, if any, for a session with these options that is dialled now.
    pub(super) fn take(&mut self, options: &SocketOptions) -> Option<Spare> {
        let spare = mem::take(&mut self.spare);
        let usable = match spare.connected() {
            Some(connected) => connected.options == *options,
            None => !spare.making.is_empty(),
        };
        usable.then_some(spare)
    }

    /// Begins and drops connections when due, without end; may be cancelled.
    pub(super) async fn tend(&mut self, shared: &Arc<Shared>) {
        loop {
            while let Some(step) = self.sparing.poll(now()) {
                match step {
                    Step::Begin => self.begin(shared.clone()),
                    Step::Drop => self.spare = Spare::default(),
                }
            }
            let due = self.sparing.poll_timeout();
            tokio::select! {
                Some(made) = self.spare.making.join_next() => self.made(made),
                () = until(due) => {}
            }
        }
    }

    fn begin(&mut self, shared: Arc<Shared>) {
        let making = async move { attempts::connect(&shared, CONNECTED_WITHIN).await };
        self.spare.making.spawn(making);
    }

    fn made(&mut self, made: Result<Result<Connected, ContactFailure>, JoinError>) {
        match made {
            Ok(Ok(connected)) => {
                debug!(took = ?connected.took, "a spare connection is through");
                self.spare = Spare {
                    making: JoinSet::new(),
                    connected: Some(connected),
                };
                self.sparing.connected(now());
            }
            Ok(Err(_)) | Err(_) => self.sparing.failed(),
        }
    }
}

impl Spare {
    /// The connection that is through already.
    pub(super) fn connected(&self) -> Option<&Connected> {
        self.connected.as_ref()
    }

    /// Waits for the connection; `None` if none gets through.
    pub(super) async fn wait(mut self) -> Option<Connected> {
        while self.connected.is_none() {
            let made = self.making.join_next().await?;
            self.connected = made.ok().and_then(Result::ok);
        }
        self.connected
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => pending().await,
    }
}
