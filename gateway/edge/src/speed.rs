//! A speed test through the hop: streams to a name that the peer node serves itself.
//!
//! The services are those of RFC 862 (echo), RFC 863 (discard) and RFC 864 (character generator),
//! at their ports. At its end, discard answers with the amount that has arrived.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Mutex;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::stream::{Conduit, Connected, Failure, FailureCode, Target};

/// The name that is served and never resolved. ICANN keeps `.internal` for private use.
pub const HOST: &str = "speed-test.underpass.internal";

const ECHO: u16 = 7;
const DISCARD: u16 = 9;
const GENERATOR: u16 = 19;

/// Streams of one peer at once: each direction of a test has one beside its echo.
const MOST_STREAMS: usize = 4;
/// The longest one.
const LONGEST: Duration = Duration::from_secs(120);
/// How long an answer may take: the hop may be blocked.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is sent and taken in one piece, at most, bytes.
const PIECE: usize = 64 * 1024;
static CONTENT: [u8; PIECE] = [b'~'; PIECE];
/// Octets of an echo, and of what discard answers: bytes and microseconds, 64 bits each.
const ECHO_BYTES: usize = 8;
const ANSWER_BYTES: usize = 16;

/// What has passed, and in what time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// Payload, bytes.
    pub bytes: u64,
    /// From the first of them to the last.
    pub took: Duration,
}

impl Passed {
    /// Payload, bit/s; `None` of a moment.
    pub fn bps(&self) -> Option<u64> {
        let seconds = self.took.as_secs_f64();
        (seconds > 0.0).then(|| (self.bytes as f64 * 8.0 / seconds) as u64)
    }
}

/// The streams for a test at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Sends back what it gets.
    Echo,
    /// Takes all bytes, and reports at the end how fast they came.
    Discard,
    /// Sends as fast as it can.
    Generator,
}

impl Service {
    /// Where it is.
    ///
    /// # Panics
    /// Never: the name is a valid one.
    pub fn target(self) -> Target {
        let port = match self {
            Service::Echo => ECHO,
            Service::Discard => DISCARD,
            Service::Generator => GENERATOR,
        };
        Target::parse(HOST, port).expect("the name is valid")
    }

    /// The service that a target names; `Err` for a port without one.
    fn at(target: &Target) -> Option<Result<Service, Failure>> {
        let name = target.name()?;
        name.eq_ignore_ascii_case(HOST)
            .then(|| match target.port() {
                ECHO => Ok(Service::Echo),
                DISCARD => Ok(Service::Discard),
                GENERATOR => Ok(Service::Generator),
                port => {
                    let text = format!("{HOST} has nothing at port {port}");
                    Err(Failure::new(FailureCode::Refused, text))
                }
            })
    }
}

/// Serves the tests of peers.
#[derive(Debug, Default)]
pub struct SpeedTests {
    streams: Mutex<HashMap<u64, usize>>,
}

/// A stream that counts while it lasts.
struct Place<'a> {
    tests: &'a SpeedTests,
    peer: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut streams = self.tests.streams.lock().unwrap();
        if let Some(count) = streams.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                streams.remove(&self.peer);
            }
        }
    }
}

impl SpeedTests {
    fn take(&self, peer: u64) -> Option<Place<'_>> {
        let mut streams = self.streams.lock().unwrap();
        let count = streams.entry(peer).or_default();
        (*count < MOST_STREAMS).then(|| {
            *count += 1;
            Place { tests: self, peer }
        })
    }

    /// Serves a stream of `peer` if its target is a test's; else gives it back.
    pub async fn serve(
        &self,
        mut conduit: Box<dyn Conduit>,
        peer: u64,
        target: &Target,
    ) -> Result<(), Box<dyn Conduit>> {
        let service = match Service::at(target) {
            None => return Err(conduit),
            Some(Err(failure)) => {
                conduit.reset(failure);
                return Ok(());
            }
            Some(Ok(service)) => service,
        };
        let Some(_place) = self.take(peer) else {
            let text = format!("more than {MOST_STREAMS} streams of speed tests at once");
            conduit.reset(Failure::new(FailureCode::Exhausted, text));
            return Ok(());
        };
        conduit.connected(Connected::default());
        let served = timeout_at(Instant::now() + LONGEST, async {
            match service {
                Service::Echo => echo(conduit.as_mut()).await,
                Service::Discard => discard(conduit.as_mut()).await,
                Service::Generator => generate(conduit.as_mut(), None).await.map(drop),
            }
        });
        if served.await.is_err() {
            let text = "a speed test takes two minutes at most";
            conduit.reset(Failure::new(FailureCode::TimedOut, text));
        }
        Ok(())
    }
}

async fn echo(conduit: &mut dyn Conduit) -> Result<(), Failure> {
    while let Some(piece) = receive(conduit).await? {
        send(conduit, piece).await?;
    }
    finish(conduit).await
}

async fn discard(conduit: &mut dyn Conduit) -> Result<(), Failure> {
    let passed = count(conduit, None).await?;
    let mut answer = BytesMut::with_capacity(ANSWER_BYTES);
    answer.put_u64(passed.bytes);
    answer.put_u64(u64::try_from(passed.took.as_micros()).unwrap_or(u64::MAX));
    send(conduit, answer.freeze()).await?;
    finish(conduit).await
}

/// Ends behind the peer's end.
async fn finish(conduit: &mut dyn Conduit) -> Result<(), Failure> {
    conduit.finish();
    // A poll of the conduit may be needed to send the bytes.
    receive(conduit).await.map(drop)
}

/// Sends until `until`, or until the stream is reset.
async fn generate(conduit: &mut dyn Conduit, until: Option<Instant>) -> Result<(), Failure> {
    let content = Bytes::from_static(&CONTENT);
    while until.is_none_or(|until| Instant::now() < until) {
        tokio::task::consume_budget().await;
        match until {
            None => send(conduit, content.clone()).await?,
            Some(until) => match timeout_at(until, send(conduit, content.clone())).await {
                Ok(sent) => sent?,
                Err(_) => return Ok(()),
            },
        }
    }
    Ok(())
}

/// Takes what comes, until `until` or its end.
async fn count(conduit: &mut dyn Conduit, until: Option<Instant>) -> Result<Passed, Failure> {
    let mut passed = Passed::default();
    let mut first = None;
    loop {
        let piece = match until {
            None => receive(conduit).await?,
            Some(until) => match timeout_at(until, receive(conduit)).await {
                Ok(piece) => piece?,
                Err(_) => return Ok(passed),
            },
        };
        let Some(piece) = piece else {
            return Ok(passed);
        };
        let now = Instant::now();
        let first = *first.get_or_insert(now);
        passed.bytes += piece.len() as u64;
        passed.took = now - first;
    }
}

/// Takes round trips for so long, `each` apart, by a stream to [`Service::Echo`]. A late echo does
/// not delay the next one: otherwise there would be few of them under load.
///
/// # Errors
/// When the stream breaks.
pub async fn round_trips(
    conduit: &mut dyn Conduit,
    lasts: Duration,
    each: Duration,
) -> Result<Vec<Duration>, Failure> {
    let mut next = Instant::now();
    let ends = next + lasts;
    let (mut taken, mut under_way, mut received) = (Vec::new(), VecDeque::new(), 0);
    loop {
        let now = Instant::now();
        if next <= now && now < ends {
            send(conduit, Bytes::from_static(&CONTENT[..ECHO_BYTES])).await?;
            under_way.push_back(now);
            next = now + each;
        }
        let Some(oldest) = under_way.front().copied() else {
            if ends <= now {
                return Ok(taken);
            }
            sleep_until(next.min(ends)).await;
            continue;
        };
        let given_up = oldest + PATIENCE;
        let until = if next < ends { next } else { given_up };
        match timeout_at(until.min(given_up), receive(conduit)).await {
            // An echo that takes this long ends the test; the rest is not waited for.
            Err(_) if given_up <= Instant::now() => return Ok(taken),
            Err(_) => {}
            Ok(piece) => received += piece?.ok_or_else(ended)?.len(),
        }
        while received >= ECHO_BYTES
            && let Some(sent) = under_way.pop_front()
        {
            received -= ECHO_BYTES;
            taken.push(sent.elapsed());
        }
    }
}

/// Downloads by a stream to [`Service::Generator`] for so long from the first byte on.
///
/// # Errors
/// When the stream breaks.
pub async fn download(conduit: &mut dyn Conduit, lasts: Duration) -> Result<Passed, Failure> {
    let first = timeout_at(Instant::now() + PATIENCE, receive(conduit)).await;
    let first = first.map_err(|_| no_answer())??;
    let first = first.ok_or_else(ended)?;
    let began = Instant::now();
    let mut passed = count(conduit, Some(began + lasts)).await?;
    // The first piece is not counted: the time that it took is unknown.
    passed.took = began.elapsed();
    drop(first);
    Ok(passed)
}

/// Uploads by a stream to [`Service::Discard`] for so long, and asks what has arrived.
///
/// # Errors
/// When the stream breaks, or the answer does not come.
pub async fn upload(conduit: &mut dyn Conduit, lasts: Duration) -> Result<Passed, Failure> {
    let ends = Instant::now() + lasts;
    generate(conduit, Some(ends)).await?;
    conduit.finish();
    let mut answer = BytesMut::new();
    while answer.len() < ANSWER_BYTES {
        let piece = timeout_at(ends + lasts + PATIENCE, receive(conduit)).await;
        let piece = piece.map_err(|_| no_answer())??;
        answer.extend_from_slice(&piece.ok_or_else(ended)?);
    }
    let number = |at: usize| {
        let octets = answer[at..].first_chunk().copied();
        octets.map_or(0, u64::from_be_bytes)
    };
    Ok(Passed {
        bytes: number(0),
        took: Duration::from_micros(number(8)),
    })
}

fn ended() -> Failure {
    Failure::new(FailureCode::Reset, "the peer has ended the speed test")
}

fn no_answer() -> Failure {
    Failure::new(FailureCode::TimedOut, "nothing came through the hop")
}

async fn receive(conduit: &mut dyn Conduit) -> Result<Option<Bytes>, Failure> {
    poll_fn(|cx| conduit.poll_receive(cx, PIECE)).await
}

async fn send(conduit: &mut dyn Conduit, mut data: Bytes) -> Result<(), Failure> {
    while !data.is_empty() {
        let room = poll_fn(|cx| conduit.poll_send_capacity(cx)).await?;
        conduit.send(data.split_to(room.min(data.len())));
    }
    Ok(())
}
