//! The state of the contact with the control service, for log, API and metrics.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use underpass_backoff::Backoff;

use crate::service::ServiceError;

/// Pauses while the service does not answer.
pub(crate) const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    max: Duration::from_secs(10),
};

/// The pause after it has denied access: an operator has to change something first.
pub(crate) const DENIED_PAUSE: Duration = Duration::from_secs(15);

/// Whether requests of one sort are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// None has been made.
    #[default]
    Untried,
    /// The last was answered as it should.
    Well,
    /// The service could not be reached, or could not answer.
    Away,
    /// The service does not let this node in.
    Denied,
}

impl State {
    /// Its name in API and metrics.
    pub fn name(self) -> &'static str {
        match self {
            State::Untried => "untried",
            State::Well => "well",
            State::Away => "away",
            State::Denied => "denied",
        }
    }
}

/// One sort of requests.
#[derive(Clone, Debug, Default)]
pub struct Contact {
    /// Whether they are answered.
    pub state: State,
    /// Why the last was not, if it was not.
    pub error: Option<String>,
    /// When one was last answered as it should.
    pub well: Option<Instant>,
}

/// A contact that is logged and shown.
#[derive(Debug)]
pub(crate) struct Watched {
    /// What its requests do, for the log.
    what: &'static str,
    contact: Mutex<Contact>,
}

impl Watched {
    pub fn new(what: &'static str) -> Watched {
        Watched {
            what,
            contact: Mutex::default(),
        }
    }

    pub fn contact(&self) -> Contact {
        self.lock().clone()
    }

    /// A request was answered as it should.
    pub fn well(&self, now: Instant) {
        let mut contact = self.lock();
        if contact.state != State::Well {
            tracing::info!("control service: {}", self.what);
        }
        *contact = Contact {
            state: State::Well,
            error: None,
            well: Some(now),
        };
    }

    /// Notes a failed request; it is logged once, until the reason changes.
    pub fn failed(&self, error: &ServiceError) {
        let state = match error {
            _ if is_denial(error) => State::Denied,
            _ => State::Away,
        };
        let text = error.to_string();
        let mut contact = self.lock();
        let news = contact.state != state || contact.error.as_deref() != Some(&text);
        match state {
            _ if !news => {}
            State::Denied => tracing::error!(
                error = text,
                "control service: {} is refused; control.url, or the token in control.token_file (role gateway, for this node), is wrong",
                self.what
            ),
            _ => tracing::warn!(error = text, "control service: no {}", self.what),
        }
        contact.state = state;
        contact.error = Some(text);
    }

    fn lock(&self) -> MutexGuard<'_, Contact> {
        self.contact.lock().unwrap()
    }
}

/// Whether the configuration has to be corrected.
pub(crate) fn is_denial(error: &ServiceError) -> bool {
    match error {
        ServiceError::Token(_) => true,
        ServiceError::Status { status, .. } => matches!(
            *status,
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::NOT_ACCEPTABLE
        ),
        _ => false,
    }
}
