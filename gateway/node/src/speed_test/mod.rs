//! A speed test through the hop, as a user beside the vehicle runs one.

mod command;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use time::OffsetDateTime;
use tokio_util::task::AbortOnDropHandle;
use underpass_cla::Class;
use underpass_edge::speed::{self, Service};
use underpass_edge::stream::{Conduit, Failure};
use underpass_streams::{Open, Target};

use crate::shell::Shell;

pub use command::execute;

/// How long the round trip of the idle hop is measured, and the interval of echoes.
const IDLE: Duration = Duration::from_secs(3);
const ECHO_EACH: Duration = Duration::from_millis(200);

/// Why no test begins.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SpeedTestError {
    #[error("a speed test is running")]
    Running,
    #[error("this node has no peer that its clients' streams go to")]
    NoPeer,
}

/// How far a test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The round trip of the idle hop.
    Idle,
    /// To this node.
    Down,
    /// From this node.
    Up,
    /// All is there.
    Done,
    /// It was aborted; the results until then are kept.
    Failed,
}

/// Round trips of echoes, ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    count: usize,
    least_ms: f64,
    median_ms: f64,
    most_ms: f64,
}

impl RoundTrips {
    /// Of none there is nothing to say.
    fn of(mut taken: Vec<Duration>) -> Option<RoundTrips> {
        taken.sort_unstable();
        let ms = |at: usize| taken.get(at).map(|one| one.as_secs_f64() * 1e3);
        Some(RoundTrips {
            count: taken.len(),
            least_ms: ms(0)?,
            median_ms: ms(taken.len() / 2)?,
            most_ms: ms(taken.len() - 1)?,
        })
    }
}

/// One direction under load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Payload, bytes and bit/s.
    bytes: u64,
    bps: Option<u64>,
    /// Beside it.
    round_trips: Option<RoundTrips>,
}

/// What a test has found so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    state: State,
    #[serde(with = "time::serde::rfc3339")]
    began: OffsetDateTime,
    peer: u64,
    class: String,
    /// How long each direction is loaded, s.
    seconds: u64,
    idle: Option<RoundTrips>,
    down: Option<Loaded>,
    up: Option<Loaded>,
    failure: Option<String>,
}

/// What a test is to be like.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The class of all its traffic, and its name.
    pub class: (Class, String),
    /// How long each direction is loaded.
    pub lasts: Duration,
}

/// The node that a test is made with, if there is one.
pub type Peer = Box<dyn Fn() -> Option<u64> + Send + Sync>;

/// The node's speed tests, one at a time.
pub struct SpeedTest {
    shell: Arc<Shell>,
    peer: Peer,
    latest: Mutex<Option<Running>>,
}

/// A test and its report: an aborted test may still write, but only to its own report.
struct Running {
    report: Arc<Mutex<Report>>,
    task: AbortOnDropHandle<()>,
}

impl SpeedTest {
    /// With `peer`, by streams of `shell`.
    pub fn new(shell: Arc<Shell>, peer: Peer) -> SpeedTest {
        SpeedTest {
            shell,
            peer,
            latest: Mutex::default(),
        }
    }

    pub fn latest(&self) -> Option<Report> {
        let latest = self.latest.lock().unwrap();
        latest.as_ref().map(Running::report)
    }

    /// Begins one.
    ///
    /// # Errors
    /// While another runs, or when there is no node to test with.
    pub fn begin(&self, wanted: Wanted) -> Result<Report, SpeedTestError> {
        let peer = (self.peer)().ok_or(SpeedTestError::NoPeer)?;
        let mut latest = self.latest.lock().unwrap();
        if latest.as_ref().is_some_and(Running::goes_on) {
            return Err(SpeedTestError::Running);
        }
        let report = Report {
            state: State::Idle,
            began: OffsetDateTime::now_utc(),
            peer,
            class: wanted.class.1.clone(),
            seconds: wanted.lasts.as_secs(),
            idle: None,
            down: None,
            up: None,
            failure: None,
        };
        let course = Course {
            shell: self.shell.clone(),
            peer,
            class: wanted.class.0,
            lasts: wanted.lasts,
            report: Arc::new(Mutex::new(report.clone())),
        };
        *latest = Some(Running {
            report: course.report.clone(),
            task: AbortOnDropHandle::new(tokio::spawn(async move { course.run().await })),
        });
        Ok(report)
    }

    /// Breaks one off that runs.
    pub fn end(&self) {
        if let Some(running) = &*self.latest.lock().unwrap()
            && running.goes_on()
        {
            running.task.abort();
            end(&running.report, Some("it was broken off".to_owned()));
        }
    }
}

impl Running {
    fn report(&self) -> Report {
        self.report.lock().unwrap().clone()
    }

    fn goes_on(&self) -> bool {
        !matches!(self.report().state, State::Done | State::Failed)
    }
}

/// A test is over; only its first outcome counts.
fn end(report: &Mutex<Report>, failure: Option<String>) {
    let mut report = report.lock().unwrap();
    if !matches!(report.state, State::Done | State::Failed) {
        report.state = match failure {
            None => State::Done,
            Some(_) => State::Failed,
        };
        report.failure = failure;
    }
}

struct Course {
    shell: Arc<Shell>,
    peer: u64,
    class: Class,
    lasts: Duration,
    report: Arc<Mutex<Report>>,
}

impl Course {
    async fn run(&self) {
        let failure = self.measure().await.err();
        end(&self.report, failure.map(|failure| failure.to_string()));
    }

    /// Records a result, unless the test is over.
    fn note(&self, next: State, change: impl FnOnce(&mut Report)) {
        let mut report = self.report.lock().unwrap();
        if report.state != State::Failed {
            report.state = next;
            change(&mut report);
        }
    }

    async fn measure(&self) -> Result<(), Failure> {
        let idle = IDLE.min(self.lasts);
        let taken = self.round_trips(idle).await?;
        self.note(State::Down, |report| report.idle = RoundTrips::of(taken));
        let mut stream = self.open(Service::Generator)?;
        let (passed, taken) = tokio::join!(
            speed::download(stream.as_mut(), self.lasts),
            self.round_trips(self.lasts)
        );
        drop(stream);
        let down = loaded(passed?, taken?);
        self.note(State::Up, |report| report.down = Some(down));
        let mut stream = self.open(Service::Discard)?;
        let (passed, taken) = tokio::join!(
            speed::upload(stream.as_mut(), self.lasts),
            self.round_trips(self.lasts)
        );
        let up = loaded(passed?, taken?);
        self.note(State::Up, |report| report.up = Some(up));
        Ok(())
    }

    /// By a stream of their own, so that a late echo of one measurement does not count in the next.
    async fn round_trips(&self, lasts: Duration) -> Result<Vec<Duration>, Failure> {
        let mut echo = self.open(Service::Echo)?;
        speed::round_trips(echo.as_mut(), lasts, ECHO_EACH).await
    }

    fn open(&self, service: Service) -> Result<Box<dyn Conduit>, Failure> {
        let target = service.target();
        let open = Open::new(
            self.class,
            Target::Name {
                host: target.name().unwrap_or_default().to_owned(),
                port: target.port(),
            },
        );
        let stream = self.shell.open_stream(self.peer, open)?;
        Ok(self.shell.conduit_again(stream, false))
    }
}

fn loaded(passed: speed::Passed, taken: Vec<Duration>) -> Loaded {
    Loaded {
        bytes: passed.bytes,
        bps: passed.bps(),
        round_trips: RoundTrips::of(taken),
    }
}
