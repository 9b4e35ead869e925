//! The shell of the queue: posts, spools, and keeps the time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::contact::{Contact, Watched, is_denial};
use crate::document::{Answer, MAX_ANSWER_BYTES, Posted, post};
use crate::offset::{ClockFilter, Exchange};
use crate::queue::{Action, Entry, Figures, Lane, Limits, Outcome, Queue, Taken};
use crate::service::{Service, ServiceError};
use crate::spool::{Done, Spool, SpoolError};

/// How long the end of the node waits for the disk.
const FLUSH_TIME: Duration = Duration::from_secs(5);

/// The poster's calls to the rest of the node, from its own task; they must not wait.
pub trait Teller: Send + Sync + 'static {
    /// Reports that came with this ticket need no custody elsewhere any more.
    fn release(&self, ticket: u64);

    /// The service's clock showed `control_ms`, ms since the Unix epoch, at an
    /// instant.
    fn control_time(&self, at: Instant, control_ms: u64);

    /// The trace of the post of routine reports that begins now, if it has one.
    fn trace_post(&self) -> Option<Box<dyn PostTrace>> {
        None
    }
}

/// The trace of one post.
pub trait PostTrace: Send {
    /// The header that names the trace for the service (W3C Trace Context).
    fn traceparent(&self) -> String;

    /// The post is over.
    fn ended(self: Box<Self>, outcome: Result<(), String>);
}

/// How reports are posted and kept.
#[derive(Clone, Debug)]
pub struct PosterConfig {
    /// This node, which posts: its ipn node number.
    pub node: u64,
    /// How often what is not urgent is posted.
    pub interval: Duration,
    /// The file that keeps reports while the service is away; none for memory.
    pub spool_file: Option<PathBuf>,
    /// Bytes of reports kept at most.
    pub spool_bytes: u64,
}

/// Takes reports for the service; cheap to clone.
#[derive(Clone, Debug)]
pub struct Posting(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    taken: Notify,
    contact: Watched,
}

impl Posting {
    /// Takes in reports of `node`. With a `ticket`, custody of them is
    /// elsewhere until it is released.
    pub fn take(&self, node: u64, reports: Vec<Taken>, ticket: Option<u64>) {
        let now = Instant::now();
        self.queue().take(now, node, reports, ticket);
        self.0.taken.notify_one();
    }

    /// What has become of the reports.
    pub fn figures(&self) -> Figures {
        self.queue().figures()
    }

    /// How the posts fare.
    pub fn contact(&self) -> Contact {
        self.0.contact.contact()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Even after a panic, the queue's reports are still valid.
        self.0.queue.lock().unwrap()
    }
}

/// The running poster.
#[derive(Debug)]
pub struct Poster {
    posting: Posting,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Poster {
    /// Begins to post, including what an earlier run has left on disk.
    ///
    /// # Errors
    /// When the spool cannot be used.
    pub fn start(
        config: &PosterConfig,
        service: Arc<Service>,
        teller: Arc<dyn Teller>,
    ) -> Result<Poster, SpoolError> {
        let origin = Instant::now();
        let limits = Limits {
            durable: config.spool_file.is_some(),
            bytes: config.spool_bytes,
            interval: config.interval,
        };
        let (done, spooled) = mpsc::unbounded_channel();
        let opened = config.spool_file.as_ref().map(|path| {
            Spool::open(path, origin, move |what| {
                let _ = done.send(what);
            })
        });
        let (spool, left) = opened.transpose()?.unzip();
        let left = left.unwrap_or_default();
        if !left.is_empty() {
            tracing::info!(reports = left.len(), "reports of an earlier run wait");
        }
        let shared = Shared {
            queue: Mutex::new(Queue::new(origin, limits, left)),
            taken: Notify::new(),
            contact: Watched::new("posting reports"),
        };
        let posting = Posting(Arc::new(shared));
        let run = Run {
            posting: posting.clone(),
            node: config.node,
            service,
            teller,
            spool,
            clock: ClockFilter::default(),
            posts: JoinSet::new(),
        };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run.serve(spooled, stopped));
        Ok(Poster {
            posting,
            stop,
            task,
        })
    }

    /// Takes reports for it.
    pub fn posting(&self) -> Posting {
        self.posting.clone()
    }

    /// Ends. If there is a disk, unposted reports are then on it.
    pub async fn close(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

struct Run {
    posting: Posting,
    node: u64,
    service: Arc<Service>,
    teller: Arc<dyn Teller>,
    spool: Option<Spool>,
    clock: ClockFilter,
    posts: JoinSet<(Lane, Result<Reply, ServiceError>)>,
}

/// An answer with its times here.
struct Reply {
    answer: Answer,
    sent: Instant,
    back: Instant,
}

impl Run {
    async fn serve(
        mut self,
        mut spooled: mpsc::UnboundedReceiver<Done>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        loop {
            let next = self.act();
            tokio::select! {
                _ = &mut stopped => break,
                () = self.posting.0.taken.notified() => {}
                Some(done) = spooled.recv() => self.spooled(done),
                Some(post) = self.posts.join_next() => self.posted(post),
                () = sleep_until(next) => {}
            }
        }
        // Posts under way end here; what they carry is posted again.
        self.posts.abort_all();
        let flush = async {
            loop {
                let unsaved = self.posting.queue().flush(Instant::now());
                self.act();
                if !unsaved {
                    break;
                }
                match spooled.recv().await {
                    Some(done) => self.spooled(done),
                    None => break,
                }
            }
        };
        if tokio::time::timeout(FLUSH_TIME, flush).await.is_err() {
            tracing::error!("reports that wait could not be written to the disk in time");
        }
        if let Some(spool) = self.spool {
            let _ = tokio::task::spawn_blocking(|| spool.close()).await;
        }
    }

    /// Carries out the queue's actions. Returns when the next one is due.
    fn act(&mut self) -> Option<Instant> {
        let posting = self.posting.clone();
        let mut queue = posting.queue();
        let mut released = Vec::new();
        while let Some(action) = queue.poll(Instant::now()) {
            match (action, &self.spool) {
                (Action::Post(lane, entries), _) => self.post(&queue, lane, entries),
                (Action::Release(ticket), _) => released.push(ticket),
                (Action::Save(entries), Some(spool)) => spool.save(entries),
                (Action::Load(ids), Some(spool)) => spool.load(ids),
                (Action::Forget(ids), Some(spool)) => spool.forget(ids),
                // A queue that is not durable wants nothing of a disk.
                (Action::Save(_) | Action::Load(_) | Action::Forget(_), None) => {}
            }
        }
        let next = queue.next_timeout();
        drop(queue);
        // Not under the lock: the call reaches the engine, which calls this in turn.
        for ticket in released {
            self.teller.release(ticket);
        }
        next
    }

    fn post(&mut self, queue: &Queue, lane: Lane, entries: Vec<Arc<Entry>>) {
        let now = Instant::now();
        let posted = entries.iter().map(|entry| Posted {
            node: entry.node,
            age_ms: queue.age_ms(now, entry),
            report: &entry.report,
        });
        let body = post(self.node, utc_ms(), posted);
        let service = self.service.clone();
        let trace = match lane {
            Lane::Routine => self.teller.trace_post(),
            _ => None,
        };
        self.posts.spawn(async move {
            let sent = Instant::now();
            let traceparent = trace.as_ref().map(|trace| trace.traceparent());
            let (path, json) = ("/v1/reports", "application/json");
            let traceparent = traceparent.as_deref();
            let answer = service.send(path, json, body.into(), traceparent, MAX_ANSWER_BYTES);
            let answer = answer.await;
            let back = Instant::now();
            if let Some(trace) = trace {
                let outcome = answer.as_ref().map(|_| ());
                trace.ended(outcome.map_err(ToString::to_string));
            }
            let reply = answer.and_then(|body| {
                let answer = serde_json::from_slice(&body);
                let answer = answer.map_err(|error| ServiceError::Answer(error.to_string()))?;
                Ok(Reply { answer, sent, back })
            });
            (lane, reply)
        });
    }

    fn posted(
        &mut self,
        post: Result<(Lane, Result<Reply, ServiceError>), tokio::task::JoinError>,
    ) {
        // A post neither panics nor is aborted while this is served.
        let Ok((lane, reply)) = post else { return };
        let now = Instant::now();
        let outcome = match &reply {
            Ok(reply) => self.answered(reply),
            Err(error) => self.failed(error),
        };
        let mut queue = self.posting.queue();
        queue.posted(now, lane, &outcome, fastrand::f64());
    }

    fn answered(&mut self, reply: &Reply) -> Outcome {
        let Reply { answer, sent, back } = reply;
        self.posting.0.contact.well(*back);
        let (at, control_ms) = self.clock.note(Exchange {
            sent: *sent,
            received_ms: answer.received_ms,
            answered_ms: answer.answered_ms,
            back: *back,
        });
        self.teller.control_time(at, control_ms);
        if let Some(first) = answer.refused.first() {
            tracing::warn!(
                refused = answer.refused.len(),
                first = first.detail,
                "reports refused by the control service"
            );
        }
        Outcome::Answered {
            refused: answer.refused.len(),
        }
    }

    fn failed(&self, error: &ServiceError) -> Outcome {
        if let ServiceError::Status { status, detail } = error
            && matches!(
                *status,
                StatusCode::BAD_REQUEST
                    | StatusCode::PAYLOAD_TOO_LARGE
                    | StatusCode::UNPROCESSABLE_ENTITY
            )
        {
            tracing::warn!(%status, detail, "a post of reports is refused as a whole");
            return Outcome::Rejected;
        }
        self.posting.0.contact.failed(error);
        match is_denial(error) {
            true => Outcome::Denied,
            false => Outcome::Unavailable,
        }
    }

    fn spooled(&mut self, done: Done) {
        let now = Instant::now();
        let mut queue = self.posting.queue();
        match done {
            Done::Saved(result) => queue.saved(now, result.is_ok()),
            Done::Loaded(Ok(entries)) => queue.loaded(now, Some(entries)),
            Done::Loaded(Err(error)) => {
                tracing::error!(%error, "kept reports cannot be read (control.spool_file)");
                queue.loaded(now, None);
            }
        }
    }
}

/// This machine's clock, ms since the Unix epoch.
fn utc_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
