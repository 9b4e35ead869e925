//! A session on which only the neighbour sends: a connection that it has made.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use underpass_cla::{Down, Intake, Node, PathFigures, Refusal, SessionId, SessionInfo};

use crate::config::Config;
use crate::framing::{Decoder, Frame, Framing};
use crate::handle::{self, Command, Orders};
use crate::socket;

/// Longer bundles are handed on as they come, bytes.
pub(crate) const LONG_BYTES: u64 = 16 << 20;

/// What is read at once, bytes.
const READ_BYTES: usize = 64 << 10;

/// Between attempts to listen where the address is taken.
const RETRY: Duration = Duration::from_secs(1);

/// Listens where the neighbour sends to.
pub(crate) async fn listen(config: &Config) -> TcpListener {
    loop {
        match socket::listen(config) {
            Ok(listener) => return listener,
            Err(error) => {
                let (path, address) = (&config.path, config.listen);
                warn!(path, %address, %error, "not listening");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// The next connection that comes from the neighbour's address.
pub(crate) async fn accept(config: &Config, listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        let Ok((stream, source)) = listener.accept().await else {
            // Descriptors have run out for the moment.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if config.is_from_peer(source) {
            return (stream, source);
        }
        info!(path = config.path, %source, "not the neighbour's address: refused");
    }
}

/// Takes what comes on a connection of the neighbour until it is over.
pub(crate) async fn run(
    config: &Config,
    node: &Arc<dyn Node>,
    framing: Framing,
    (stream, source): (TcpStream, SocketAddr),
    stop: &CancellationToken,
) {
    let (handle, mut orders) = handle::pair();
    let info = SessionInfo {
        remote: source,
        receives_only: true,
        ..config.info()
    };
    let id = node.session_up(config.next_id(), info, handle);
    let (id, down) = match handle::in_use(node, id, stop).await {
        Ok(id) => {
            let mut connection = Connection::new(config, node, framing, stream);
            (id, connection.carry(id, &mut orders, stop).await)
        }
        Err(id) => (id, Down::Closed),
    };
    info!(path = config.path, %source, reason = %down, "connection of the neighbour is over");
    // Nothing is offered to it.
    orders.end(&**node, id, [], down);
}

/// The length of a bundle that has ended, bytes, and its outcome.
type Taken = (u64, Result<(), Refusal>);

/// A long bundle that is coming.
enum Long {
    /// The node takes it piece by piece.
    InPieces(Box<dyn Intake>),
    /// It is kept until it is whole.
    InMemory(BytesMut),
    /// The node does not take it: the rest is read and discarded.
    Refused(Refusal),
}

struct Connection<'a> {
    config: &'a Config,
    node: &'a Arc<dyn Node>,
    stream: TcpStream,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// The part of the buffer that was read and not decoded yet.
    unread: Range<usize>,
    /// The long bundle that is being received, and its declared length, bytes.
    long: Option<(u64, Long)>,
}

impl<'a> Connection<'a> {
    fn new(
        config: &'a Config,
        node: &'a Arc<dyn Node>,
        framing: Framing,
        stream: TcpStream,
    ) -> Connection<'a> {
        let most_whole = config.transfer_mru_bytes.min(LONG_BYTES);
        Connection {
            config,
            node,
            stream,
            decoder: Decoder::new(framing, most_whole).in_parts(config.long_mru_bytes),
            buffer: vec![0; READ_BYTES],
            unread: 0..0,
            long: None,
        }
    }

    async fn carry(
        &mut self,
        id: SessionId,
        orders: &mut Orders,
        stop: &CancellationToken,
    ) -> Down {
        if let Err(error) = socket::expect_life(&self.stream) {
            return Down::Broken(error.to_string());
        }
        let mut received_bytes = 0;
        loop {
            let taken = tokio::select! {
                () = stop.cancelled() => return Down::Closed,
                down = told_to_end(&mut orders.commands) => return down,
                taken = self.take_frame(id) => taken,
            };
            match taken {
                Ok(None) => {}
                Ok(Some((bytes, taken))) => {
                    received_bytes += bytes;
                    // The round trip is not measured where nothing is sent.
                    orders.show(PathFigures {
                        received_bytes,
                        ..PathFigures::default()
                    });
                    // This cannot be reported to the sender: a bundle that is not taken is lost.
                    if let Err(refusal) = taken {
                        info!(path = self.config.path, %refusal, "a bundle is not taken");
                    }
                }
                Err(down) => return down,
            }
        }
    }

    /// Takes the next frame, or the part of it that is there. Returns the bundle that it ends.
    /// Nothing more is read until the node has taken what was read.
    async fn take_frame(&mut self, id: SessionId) -> Result<Option<Taken>, Down> {
        if self.unread.is_empty() {
            let read = self.stream.read(&mut self.buffer).await;
            match read.map_err(|error: io::Error| Down::Broken(error.to_string()))? {
                0 => return Err(Down::Closed),
                count => self.unread = 0..count,
            }
        }
        let mut input = &self.buffer[self.unread.clone()];
        let frame = self.decoder.take(&mut input);
        self.unread.start = self.unread.end - input.len();
        match frame.map_err(|error| Down::Protocol(error.to_string()))? {
            Some(Frame::Bundle(bundle)) => {
                let bytes = bundle.len() as u64;
                let taken = handle::take(self.node, id, bundle).await;
                Ok(Some((bytes, taken)))
            }
            Some(Frame::Begin(length)) => {
                self.long = Some((length, self.begin(id, length)));
                Ok(None)
            }
            Some(Frame::Part { bytes, last }) => Ok(self.take_part(id, bytes, last).await),
            Some(Frame::Keepalive) | None => Ok(None),
        }
    }

    fn begin(&self, id: SessionId, length: u64) -> Long {
        match self.node.intake(id, length) {
            Ok(Some(intake)) => Long::InPieces(intake),
            // Memory follows the bytes that come.
            Ok(None) if length <= self.config.transfer_mru_bytes => Long::InMemory(BytesMut::new()),
            Ok(None) => Long::Refused(Refusal::NotAcceptable),
            Err(refusal) => Long::Refused(refusal),
        }
    }

    async fn take_part(&mut self, id: SessionId, part: Bytes, last: bool) -> Option<Taken> {
        let (length, long) = self.long.take()?;
        let long = match long {
            Long::InPieces(mut intake) => match poll_fn(|cx| intake.poll_ready(cx)).await {
                Ok(()) => {
                    intake.take(part);
                    Long::InPieces(intake)
                }
                Err(refusal) => Long::Refused(refusal),
            },
            Long::InMemory(mut whole) => {
                whole.extend_from_slice(&part);
                Long::InMemory(whole)
            }
            Long::Refused(refusal) => Long::Refused(refusal),
        };
        if !last {
            self.long = Some((length, long));
            return None;
        }
        let taken = match long {
            Long::InPieces(mut intake) => poll_fn(|cx| intake.poll_end(cx)).await,
            Long::InMemory(whole) => self.node.received(id, whole.freeze()),
            Long::Refused(refusal) => Err(refusal),
        };
        Some((length, taken))
    }
}

/// Waits until the node ends the session: its other commands do not concern a session that sends
/// nothing.
async fn told_to_end(commands: &mut UnboundedReceiver<Command>) -> Down {
    loop {
        match commands.recv().await {
            Some(Command::Abort(reason)) => return Down::Broken(reason),
            Some(Command::Close) | None => return Down::Closed,
            Some(Command::Offer(_) | Command::Rate(_) | Command::Suspend(_)) => {}
        }
    }
}
