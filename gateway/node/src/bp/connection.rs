//! A connection to the applications' socket of a node.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};
use underpass_applications::wire::{ErrorCode, Event, FrameReader, Reported, Request, encode_head};

use super::command::{Common, Sending, ServiceName};
use super::error::BpError;
use crate::client;

/// The largest payload that a node delivers, bytes.
const MOST_PAYLOAD_BYTES: u32 = 64 << 20;

/// Default lifetime of a bundle, s.
pub const LIFETIME_S: f64 = 3600.0;

/// How soon a bundle that found no room is sent again.
pub const ROOM_PAUSE: Duration = Duration::from_millis(100);

/// A connection on which a service is registered.
pub struct Connection {
    socket: UnixStream,
    frames: FrameReader,
    /// Events that came while an answer was awaited.
    early: VecDeque<(Event, Bytes)>,
    next_id: u64,
    json: bool,
    /// The largest payload that the node takes in one frame.
    pub max_payload_bytes: u64,
    /// The largest payload that it takes in parts; 0 for none.
    pub max_file_bytes: u64,
    /// Whether the node may have all of the payload that was given in parts last.
    pub gave_all: bool,
    pub service: u64,
    pub endpoint: String,
}

/// The longest wait: about 34 years. It can be added to any time and multiplied by any number of
/// pings without overflow.
const MOST_WAIT: Duration = Duration::from_secs(1 << 30);

/// A time to wait of `seconds`, at most `MOST_WAIT`, which is for ever as far as a user can tell.
pub fn waiting(name: &str, seconds: f64) -> Result<Duration, BpError> {
    Ok(self::seconds(name, seconds)?.min(MOST_WAIT))
}

pub fn seconds(name: &str, seconds: f64) -> Result<Duration, BpError> {
    let wrong = || BpError::Usage(format!("--{name} {seconds}: must be a time in s"));
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

impl Connection {
    /// Connects and registers a service; a free one if none is named.
    pub async fn open(
        common: &Common,
        service: Option<&ServiceName>,
    ) -> Result<Connection, BpError> {
        let socket = UnixStream::connect(&common.socket).await;
        let socket = socket.map_err(|source| BpError::Connect {
            socket: common.socket.clone(),
            source,
        })?;
        let mut connection = Connection {
            socket,
            frames: FrameReader::new(MOST_PAYLOAD_BYTES),
            early: VecDeque::new(),
            next_id: 0,
            json: common.json,
            max_payload_bytes: 0,
            max_file_bytes: 0,
            gave_all: false,
            service: 0,
            endpoint: String::new(),
        };
        match connection.read().await?.0 {
            Event::Hello {
                max_payload_bytes,
                max_file_bytes,
                ..
            } => {
                connection.max_payload_bytes = max_payload_bytes;
                connection.max_file_bytes = max_file_bytes;
            }
            other => return Err(unexpected(other)),
        }
        let id = connection.id();
        let (number, name) = match service {
            Some(ServiceName::Number(number)) => (Some(*number), None),
            Some(ServiceName::Name(name)) => (None, Some(name.clone())),
            None => (None, None),
        };
        let register = Request::Register {
            id,
            service: number,
            name,
        };
        match connection.ask(id, &register, b"").await? {
            Event::Registered {
                service, endpoint, ..
            } => {
                connection.service = service;
                connection.endpoint = endpoint;
            }
            other => return Err(unexpected(other)),
        }
        Ok(connection)
    }

    /// Sends a bundle; waits while there is no room for it. Returns its creation timestamp, DTN
    /// time, ms, and sequence number; none if it is for this node.
    pub async fn send(
        &mut self,
        destination: &str,
        sending: &Sending,
        reports: &[Reported],
        payload: &[u8],
    ) -> Result<Option<(u64, u64)>, BpError> {
        let lifetime = seconds("lifetime", sending.lifetime.unwrap_or(LIFETIME_S))?;
        let until = Instant::now() + waiting("wait", sending.wait)?;
        self.check_size(payload.len() as u64)?;
        loop {
            let id = self.id();
            let request = Request::Send {
                id,
                service: self.service,
                destination: destination.to_owned(),
                lifetime_ms: Some(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX)),
                custody: Some(!sending.no_custody),
                reports: reports.to_vec(),
            };
            match self.ask(id, &request, payload).await {
                Ok(Event::Sent {
                    time_ms, sequence, ..
                }) => return Ok(time_ms.zip(sequence)),
                Err(BpError::Refused {
                    code: ErrorCode::NoRoom,
                    ..
                }) if Instant::now() < until => sleep(ROOM_PAUSE).await,
                Ok(other) => return Err(unexpected(other)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Refuses a payload that the node would refuse.
    pub fn check_size(&self, bytes: u64) -> Result<(), BpError> {
        let most = self.max_payload_bytes;
        match bytes > most {
            true => Err(BpError::TooLarge { bytes, most }),
            false => Ok(()),
        }
    }

    /// The next event; none if there is none until then.
    pub async fn next(
        &mut self,
        until: Option<Instant>,
    ) -> Result<Option<(Event, Bytes)>, BpError> {
        if let Some(early) = self.early.pop_front() {
            return Ok(Some(early));
        }
        let Some(until) = until else {
            return Ok(Some(self.read().await?));
        };
        match timeout_at(until, self.read()).await {
            Ok(read) => Ok(Some(read?)),
            Err(_) => Ok(None),
        }
    }

    /// Lets the node forget a bundle.
    pub async fn acknowledge(&mut self, delivery: u64) -> Result<(), BpError> {
        let head = encode_head(&Request::Acknowledge { delivery }, 0);
        Ok(self.socket.write_all(&head).await?)
    }

    /// Prints a line of text, or the same as JSON.
    pub fn tell(&self, json: &serde_json::Value, text: &str) -> Result<(), BpError> {
        let line = match self.json {
            true => format!("{json}\n"),
            false => format!("{text}\n"),
        };
        Ok(client::print(&line)?)
    }

    pub fn tells_json(&self) -> bool {
        self.json
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    async fn ask(
        &mut self,
        asked: u64,
        request: &Request,
        payload: &[u8],
    ) -> Result<Event, BpError> {
        self.say(request, payload).await?;
        Ok(self.answer(asked).await?.0)
    }

    /// Writes a request. Meanwhile it reads the node's events and keeps them for later: while
    /// nobody reads them, the node does not read either.
    pub(super) async fn say(&mut self, request: &Request, payload: &[u8]) -> Result<(), BpError> {
        let head = encode_head(request, payload.len());
        let mut left = Buf::chain(head.as_slice(), payload);
        while left.has_remaining() {
            let ready = self.socket.ready(Interest::READABLE | Interest::WRITABLE);
            let ready = ready.await?;
            if ready.is_readable() {
                self.listen()?;
            }
            match self.socket.try_write(left.chunk()) {
                Ok(written) => left.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads what is there.
    fn listen(&mut self) -> Result<(), BpError> {
        match self.socket.try_read_buf(self.frames.buffer()) {
            Ok(0) => {
                // Its last word says why.
                while self.next_read()?.is_some() {}
                Err(io::Error::from(ErrorKind::UnexpectedEof).into())
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks whether the node has refused a request already.
    ///
    /// # Errors
    /// If it has.
    pub(super) fn check(&mut self, asked: u64) -> Result<(), BpError> {
        self.listen()?;
        while let Some((event, payload)) = self.next_read()? {
            match event {
                Event::Error {
                    id: Some(id),
                    code,
                    message,
                } if id == asked => return Err(BpError::Refused { code, message }),
                other => self.early.push_back((other, payload)),
            }
        }
        Ok(())
    }

    pub(super) async fn answer(&mut self, asked: u64) -> Result<(Event, Bytes), BpError> {
        loop {
            let (event, payload) = self.read().await?;
            match event {
                Event::Registered { id, .. } | Event::Sent { id, .. } | Event::Begun { id }
                    if id == asked =>
                {
                    return Ok((event, payload));
                }
                Event::Data { id } if id == asked => return Ok((event, payload)),
                Event::Error {
                    id: Some(id),
                    code,
                    message,
                } if id == asked => return Err(BpError::Refused { code, message }),
                other => self.early.push_back((other, payload)),
            }
        }
    }

    /// The next frame. Nothing is lost if the future is dropped.
    async fn read(&mut self) -> Result<(Event, Bytes), BpError> {
        loop {
            if let Some(frame) = self.next_read()? {
                return Ok(frame);
            }
            if self.socket.read_buf(self.frames.buffer()).await? == 0 {
                return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
            }
        }
    }

    /// The next frame of those that have been read.
    fn next_read(&mut self) -> Result<Option<(Event, Bytes)>, BpError> {
        let Some((head, payload)) = self.frames.next_frame()? else {
            return Ok(None);
        };
        match Event::parse(&head)? {
            Event::Error {
                id: None,
                code,
                message,
            } => Err(BpError::Refused { code, message }),
            event => Ok(Some((event, payload))),
        }
    }
}

pub(super) fn unexpected(event: Event) -> BpError {
    use underpass_applications::wire::FrameError;
    FrameError::Malformed(format!("{event:?} is not due")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_very_long_wait_has_an_end_that_is_a_time() {
        for long in [1e12, 1e19] {
            let wait = waiting("wait", long).unwrap();
            assert!(Instant::now().checked_add(wait).is_some(), "{long}");
            assert!(wait.checked_mul(u32::MAX).is_some(), "{long}");
        }
        assert_eq!(waiting("wait", 1.5).unwrap(), Duration::from_millis(1500));
        for none in [-1.0, f64::NAN, 1e20] {
            assert!(waiting("wait", none).is_err(), "{none}");
        }
    }
}
