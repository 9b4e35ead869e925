//! Connects to a source, reads it, and connects again when it is lost.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Duration, interval, sleep, sleep_until, timeout};
use underpass_backoff::Backoff;
use underpass_positions::{Event, Feed, FeedError, Fix, gpsd, nmea};

use super::known::Positions;
use super::serial::SerialLine;
use crate::clock;
use crate::config::Source;

/// Pauses between attempts: a receiver that is plugged in again is found soon, and a missing one
/// costs little.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    max: Duration::from_secs(5),
};

/// How long a source may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest datagram that is read in full.
const DATAGRAM: usize = 8 << 10;

/// Why a source is lost.
#[derive(Debug, Error)]
enum Lost {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("no answer for {} s", CONNECT.as_secs())]
    Unanswered(#[from] tokio::time::error::Elapsed),
    #[error("it has closed the connection")]
    Closed,
    #[error(transparent)]
    Feed(#[from] FeedError),
}

/// Reads the configured source until dropped.
pub async fn follow(positions: Arc<Positions>) {
    // The times of an old drive stay old until they are shifted.
    let not_before_ms = match positions.config().replay {
        true => 0,
        false => clock::PLAUSIBLE_MS,
    };
    let now = Instant::now();
    match positions.config().source.clone() {
        Source::Gpsd { address, device } => {
            let client = gpsd::Client::new(now, device, not_before_ms);
            again_and_again(&positions, client, || tcp(address)).await;
        }
        Source::Tcp { address } => {
            let stream = nmea::Stream::new(now, not_before_ms);
            again_and_again(&positions, stream, || tcp(address)).await;
        }
        Source::Serial { device, baud } => {
            let stream = nmea::Stream::new(now, not_before_ms);
            let line = || {
                let line = SerialLine::open(&device, baud);
                ready(line.map(|line| (line, tokio::io::sink())).map_err(Lost::Io))
            };
            again_and_again(&positions, stream, line).await;
        }
        Source::Udp { listen, senders } => {
            let mut stream = nmea::Stream::new(now, not_before_ms);
            let mut failures: u32 = 0;
            loop {
                let error = datagrams(&positions, &mut stream, listen, senders.as_deref()).await;
                positions.lost(error.to_string());
                failures = failures.saturating_add(1);
                sleep(BACKOFF.delay(failures)).await;
            }
        }
        Source::Fixed(fix) => fixed(&positions, fix).await,
    }
}

async fn tcp(address: SocketAddr) -> Result<(impl AsyncRead, impl AsyncWrite), Lost> {
    let socket = timeout(CONNECT, TcpStream::connect(address)).await??;
    Ok(socket.into_split())
}

/// Connects and listens, again and again.
async fn again_and_again<R: AsyncRead, W: AsyncWrite, C>(
    positions: &Positions,
    mut feed: impl Feed,
    connect: impl Fn() -> C,
) where
    C: Future<Output = Result<(R, W), Lost>>,
{
    let mut failures: u32 = 0;
    loop {
        let lost = match connect().await {
            Ok((reader, writer)) => {
                positions.connected();
                let heard = feed.counts().sentences;
                let lost = converse(positions, &mut feed, reader, writer).await;
                if feed.counts().sentences > heard {
                    failures = 0;
                }
                lost
            }
            Err(lost) => lost,
        };
        positions.lost(lost.to_string());
        failures = failures.saturating_add(1);
        sleep(BACKOFF.delay(failures)).await;
    }
}

/// Talks with a source until it is lost.
async fn converse(
    positions: &Positions,
    feed: &mut impl Feed,
    reader: impl AsyncRead,
    writer: impl AsyncWrite,
) -> Lost {
    let (mut reader, mut writer) = (Box::pin(reader), Box::pin(writer));
    let mut buffer = [0; 4096];
    feed.open(Instant::now());
    loop {
        match step(feed, &mut reader, &mut writer, &mut buffer).await {
            Ok(events) => positions.note(events, feed.counts()),
            Err(lost) => return lost,
        }
    }
}

async fn step(
    feed: &mut impl Feed,
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    buffer: &mut [u8],
) -> Result<Vec<Event>, Lost> {
    while let Some(words) = feed.poll_transmit() {
        writer.write_all(words.as_bytes()).await?;
    }
    let events = tokio::select! {
        read = reader.read(buffer) => match read? {
            0 => return Err(Lost::Closed),
            count => feed.receive(Instant::now(), &buffer[..count])?,
        },
        () = sleep_until(feed.deadline().into()) => feed.elapse(Instant::now())?,
    };
    Ok(events)
}

/// Takes datagrams in until the socket fails.
async fn datagrams(
    positions: &Positions,
    stream: &mut nmea::Stream,
    listen: SocketAddr,
    senders: Option<&[IpNet]>,
) -> io::Error {
    let socket = match UdpSocket::bind(listen).await {
        Ok(socket) => socket,
        Err(error) => return error,
    };
    let mut buffer = [0; DATAGRAM];
    stream.open(Instant::now());
    loop {
        let events = tokio::select! {
            received = socket.recv_from(&mut buffer) => match received {
                Err(error) => return error,
                Ok((_, from)) if !may_send(senders, from) => {
                    positions.foreign();
                    continue;
                }
                Ok((count, _)) => {
                    positions.connected();
                    stream.datagram(Instant::now(), &buffer[..count])
                }
            },
            () = sleep_until(stream.deadline().into()) => match stream.elapse(Instant::now()) {
                Ok(events) => events,
                Err(error) => {
                    positions.lost(error.to_string());
                    stream.open(Instant::now());
                    continue;
                }
            },
        };
        positions.note(events, stream.counts());
    }
}

fn may_send(senders: Option<&[IpNet]>, from: SocketAddr) -> bool {
    let from = from.ip().to_canonical();
    senders.is_none_or(|senders| senders.iter().any(|net| net.contains(&from)))
}

/// Reports a fixed position at the report interval.
async fn fixed(positions: &Positions, fix: Fix) {
    positions.connected();
    let mut ticks = interval(positions.config().interval);
    loop {
        ticks.tick().await;
        let mut counts = positions.figures().counts;
        counts.fixes += 1;
        positions.note(vec![Event::Fix(fix)], counts);
    }
}
