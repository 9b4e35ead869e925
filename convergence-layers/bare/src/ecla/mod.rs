//! The external convergence layer of a daemon of dtn7-rs (ECLA): this node is one
//! of its convergence layers, over a WebSocket that this node dials.
//!
//! This node announces the nodes beyond it as peers of the daemon, which hands over what its
//! routing sends to them. Nothing acknowledges a bundle in either direction: a written bundle
//! counts as received by the other side.

mod packets;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use underpass_cla::{Down, Node, Outcome, PathFigures, Refusal, SessionId, Transfer};

use crate::config::Config;
use crate::handle::{self, Command, Orders};
use crate::socket;
use packets::Packet;

pub(crate) use packets::MOST_SENT_BYTES;

/// The name under which the daemon knows this convergence layer.
const NAME: &str = "underpass";

/// How long the daemon has to answer, and to take a message.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the nodes beyond this one are announced to the daemon: it forgets them after 20 s by
/// default (`--peer-timeout`).
const ANNOUNCE_EVERY: Duration = Duration::from_secs(5);

/// The length of a message's frames, bytes; the daemon takes up to 16 MiB in one.
const FRAME_BYTES: usize = 1 << 20;

/// Most bytes of a message around a bundle.
const AROUND_BYTES: usize = 64 << 10;

type Socket = WebSocketStream<TcpStream>;

/// A daemon that has taken this node as a convergence layer.
pub(crate) struct Daemon {
    sink: SplitSink<Socket, Message>,
    source: SplitStream<Socket>,
}

/// Dials the daemon and registers with it.
pub(crate) async fn dial(config: &Config) -> io::Result<Daemon> {
    let registered = timeout(PATIENCE, register(config)).await;
    registered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn register(config: &Config) -> io::Result<Daemon> {
    let stream = socket::dial(config).await?;
    let bundle = usize::try_from(config.transfer_mru_bytes).unwrap_or(usize::MAX);
    let most = packets::base64_bytes(bundle).saturating_add(AROUND_BYTES);
    let limits = WebSocketConfig::default()
        .max_message_size(Some(most))
        .max_frame_size(Some(most));
    let url = format!("ws://{}/ws/ecla", config.remote);
    let (socket, _) = client_async_with_config(url, stream, Some(limits))
        .await
        .map_err(io::Error::other)?;
    let (sink, source) = socket.split();
    let mut daemon = Daemon { sink, source };
    write(&mut daemon.sink, packets::register(NAME)).await?;
    loop {
        match next(&mut daemon.source).await? {
            Some(Packet::Registered(node_id)) if node_id == config.peer_node_id => {
                return Ok(daemon);
            }
            Some(Packet::Registered(other)) => {
                let wanted = &config.peer_node_id;
                return Err(io::Error::other(format!("it is {other}, not {wanted}")));
            }
            Some(Packet::Error(reason)) => return Err(io::Error::other(reason)),
            Some(Packet::Bundle(_) | Packet::Beacon) => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Carries bundles both ways until the connection is over.
pub(crate) async fn run(
    config: &Config,
    node: &Arc<dyn Node>,
    daemon: Daemon,
    stop: &CancellationToken,
) -> Down {
    let (handle, mut orders) = handle::pair();
    let id = node.session_up(config.next_id(), config.info(), handle);
    // Nothing more is read until the node has taken what was read.
    let (bundles, mut taken) = mpsc::channel(1);
    let Daemon { mut sink, source } = daemon;
    let reading = tokio::spawn(read(source, bundles));
    let (id, down) = match handle::in_use(node, id, stop).await {
        Ok(id) => {
            let mut session = Session {
                config,
                node,
                id,
                sent_bytes: 0,
                received_bytes: 0,
            };
            let down = session.carry(&mut sink, &mut orders, &mut taken, stop);
            (id, down.await)
        }
        Err(id) => (id, Down::Closed),
    };
    reading.abort();
    // The daemon considers its peers reachable until the connection ends.
    let _ = timeout(Duration::from_secs(1), sink.close()).await;
    orders.end(&**node, id, [], down.clone());
    down
}

struct Session<'a> {
    config: &'a Config,
    node: &'a Arc<dyn Node>,
    id: SessionId,
    sent_bytes: u64,
    received_bytes: u64,
}

impl Session<'_> {
    async fn carry(
        &mut self,
        sink: &mut SplitSink<Socket, Message>,
        orders: &mut Orders,
        taken: &mut Receiver<io::Result<Bytes>>,
        stop: &CancellationToken,
    ) -> Down {
        let mut announce = interval(ANNOUNCE_EVERY);
        announce.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.node.ready(self.id);
        loop {
            self.show(orders);
            let done = tokio::select! {
                () = stop.cancelled() => return Down::Closed,
                command = orders.commands.recv() => match command {
                    Some(Command::Offer(transfer)) => {
                        let sent = stop.run_until_cancelled(self.send(sink, transfer)).await;
                        sent.unwrap_or(Ok(()))
                    }
                    // The daemon is nearby, so the path's rate does not matter.
                    Some(Command::Rate(_) | Command::Suspend(_)) => Ok(()),
                    Some(Command::Abort(reason)) => return Down::Broken(reason),
                    Some(Command::Close) | None => return Down::Closed,
                },
                came = taken.recv() => match came {
                    Some(Ok(bundle)) => {
                        self.received(bundle).await;
                        Ok(())
                    }
                    Some(Err(error)) => Err(error),
                    None => Err(io::ErrorKind::UnexpectedEof.into()),
                },
                _ = announce.tick() => self.announce(sink).await,
            };
            if let Err(error) = done {
                return Down::Broken(error.to_string());
            }
        }
    }

    async fn announce(&self, sink: &mut SplitSink<Socket, Message>) -> io::Result<()> {
        for node in &self.config.announced {
            write(sink, packets::beacon(NAME, *node)).await?;
        }
        Ok(())
    }

    /// Writes a bundle; it counts as sent once the kernel has it.
    async fn send(
        &mut self,
        sink: &mut SplitSink<Socket, Message>,
        transfer: Transfer,
    ) -> io::Result<()> {
        let (key, bytes) = (transfer.key, transfer.len());
        let outcome = match bytes <= MOST_SENT_BYTES {
            false => Outcome::Refused(Refusal::NotAcceptable),
            true => {
                // This waits for the disk and, for a long bundle, for the processor.
                let message = spawn_blocking(move || packets::forward(NAME, &transfer)).await;
                let message = message.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
                let sent = match message {
                    Ok(message) => write(sink, message).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = sent {
                    let broken = Outcome::Broken { acknowledged: 0 };
                    self.node.finished(self.id, key, broken);
                    return Err(error);
                }
                self.sent_bytes += bytes;
                Outcome::Acknowledged
            }
        };
        self.node.finished(self.id, key, outcome);
        self.node.ready(self.id);
        Ok(())
    }

    async fn received(&mut self, bundle: Bytes) {
        self.received_bytes += bundle.len() as u64;
        if let Err(refusal) = handle::take(self.node, self.id, bundle).await {
            // This cannot be reported: the daemon considers it sent.
            warn!(path = self.config.path, %refusal, "a bundle of the daemon is not taken");
        }
    }

    fn show(&self, orders: &Orders) {
        orders.show(PathFigures {
            rtt: self.config.rtt,
            min_rtt: self.config.rtt,
            sent_bytes: self.sent_bytes,
            delivered_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
            ..PathFigures::default()
        });
    }
}

/// Takes bundles off the connection until that ends.
async fn read(mut source: SplitStream<Socket>, bundles: Sender<io::Result<Bytes>>) {
    loop {
        let came = match next(&mut source).await {
            Ok(Some(Packet::Bundle(bundle))) => Ok(bundle),
            Ok(Some(Packet::Error(reason))) => Err(io::Error::other(reason)),
            Ok(Some(_)) => continue,
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let ends = came.is_err();
        if bundles.send(came).await.is_err() || ends {
            return;
        }
    }
}

/// The next packet of the daemon; none at the connection's end.
async fn next(source: &mut SplitStream<Socket>) -> io::Result<Option<Packet>> {
    loop {
        let Some(message) = source.next().await else {
            return Ok(None);
        };
        match message.map_err(io::Error::other)? {
            Message::Text(text) => {
                let read = spawn_blocking(move || packets::read(&text)).await;
                let read = read.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
                return read.map(Some);
            }
            Message::Close(_) => return Ok(None),
            _ => {}
        }
    }
}

/// Writes a message, in frames where it is long.
async fn write(sink: &mut SplitSink<Socket, Message>, message: Vec<u8>) -> io::Result<()> {
    let mut left = Bytes::from(message);
    let mut kind = OpCode::Data(Data::Text);
    let writing = async {
        loop {
            let frame = left.split_to(left.len().min(FRAME_BYTES));
            let frame = Frame::message(frame, kind, left.is_empty());
            sink.send(Message::Frame(frame)).await?;
            kind = OpCode::Data(Data::Continue);
            if left.is_empty() {
                return Ok(());
            }
        }
    };
    let written: Result<(), tokio_tungstenite::tungstenite::Error> =
        match timeout(PATIENCE, writing).await {
            Ok(written) => written,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
    written.map_err(io::Error::other)
}
