//! Follows the stream of plans and of the provider's settings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use tokio_util::task::AbortOnDropHandle;

use crate::contact::{BACKOFF, Contact, DENIED_PAUSE, Watched, is_denial};
use crate::events::{EventParser, MAX_EVENT_BYTES};
use crate::service::{Service, ServiceError, told};

/// A stream that has been silent for this long is gone: a comment comes each 15 s.
const SILENCE: Duration = Duration::from_secs(45);

/// A stream that lasted so long was no failure.
const LASTING: Duration = Duration::from_secs(10);

/// Takes plans, settings and questions, from the follower's task; a call must not
/// wait.
pub trait Planned: Send + Sync + 'static {
    /// A plan has come, as its document.
    fn plan(&self, document: &[u8]);

    /// The settings of a node have come, as their document.
    fn settings(&self, document: &[u8]);

    /// Somebody asks for the streams of a terminal: the question, as its document.
    fn streams(&self, question: &[u8]);
}

/// The running follower; it ends when this is dropped.
#[derive(Debug)]
pub struct Follower {
    following: Following,
    _task: AbortOnDropHandle<()>,
}

impl Follower {
    /// Follows the plans of a gateway from now on.
    pub fn start(node: u64, service: Arc<Service>, planned: Arc<dyn Planned>) -> Follower {
        let following = Following {
            contact: Arc::new(Watched::new("following plans")),
            passed_over: Arc::default(),
        };
        let run = Run {
            path: format!("/v1/gateways/{node}/plans"),
            service,
            planned,
            following: following.clone(),
            last: None,
        };
        Follower {
            following,
            _task: AbortOnDropHandle::new(tokio::spawn(run.serve())),
        }
    }

    /// How the stream fares.
    pub fn following(&self) -> Following {
        self.following.clone()
    }
}

/// Shows how a follower fares; cheap to clone.
#[derive(Clone, Debug)]
pub struct Following {
    contact: Arc<Watched>,
    passed_over: Arc<AtomicU64>,
}

impl Following {
    /// How the stream fares.
    pub fn contact(&self) -> Contact {
        self.contact.contact()
    }

    /// How many events were skipped because they were too large.
    pub fn passed_over(&self) -> u64 {
        self.passed_over.load(Ordering::Relaxed)
    }
}

struct Run {
    path: String,
    service: Arc<Service>,
    planned: Arc<dyn Planned>,
    following: Following,
    /// The id of the last event: earlier ones need not come again.
    last: Option<String>,
}

impl Run {
    async fn serve(mut self) {
        let mut failures: u32 = 0;
        loop {
            let began = Instant::now();
            let error = self.follow().await;
            self.following.contact.failed(&error);
            if began.elapsed() >= LASTING {
                failures = 0;
            }
            failures = failures.saturating_add(1);
            let pause = match is_denial(&error) {
                true => DENIED_PAUSE,
                false => BACKOFF.jittered(failures, fastrand::f64()),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Follows one stream until it ends.
    async fn follow(&mut self) -> ServiceError {
        let last = self.last.as_deref();
        let mut body = match self.service.events(&self.path, last).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        self.following.contact.well(Instant::now());
        let mut parser = EventParser::default();
        loop {
            let frame = match tokio::time::timeout(SILENCE, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return ServiceError::Lost(told(&error)),
                Ok(None) => return ServiceError::Lost("the stream has ended".to_owned()),
                Err(_) => return ServiceError::Late(SILENCE),
            };
            self.following.contact.well(Instant::now());
            let Some(data) = frame.data_ref() else {
                continue;
            };
            if let Err(error) = parser.feed(data) {
                return ServiceError::Answer(error.to_string());
            }
            while let Some(event) = parser.next() {
                match (event.passed_over, event.kind.as_str()) {
                    // If the stream were ended, the event would only be sent again.
                    (Some(bytes), kind) => self.pass_over(bytes, kind, event.id.as_deref()),
                    (None, "plan") => self.planned.plan(&event.data),
                    (None, "settings") => self.planned.settings(&event.data),
                    (None, "streams") => self.planned.streams(&event.data),
                    (None, "cut") => {
                        let why = String::from_utf8_lossy(&event.data);
                        return ServiceError::Lost(format!("the service ends the stream: {why}"));
                    }
                    _ => {}
                }
                self.last = event.id.or(self.last.take());
            }
        }
    }

    /// Says that an event was too large.
    fn pass_over(&self, bytes: usize, kind: &str, id: Option<&str>) {
        self.following.passed_over.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            kind,
            id = id.unwrap_or_default(),
            bytes,
            most_bytes = MAX_EVENT_BYTES,
            "control service: an event is too large and is passed over; what it would have changed stays as it is"
        );
    }
}
