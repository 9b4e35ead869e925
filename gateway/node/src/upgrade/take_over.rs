//! The next process' side.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::dup2_stdin;
use thiserror::Error;
use underpass_edge::Edge;
use underpass_edge::relay::{HeldRelay, RelayState, Relayed};
use underpass_engine::NodeState;
use underpass_handover::HandoverError;
use underpass_streams::Open;

use super::channel::Channel;
use super::early_sessions::EarlySessions;
use super::messages::{Answer, Hello, Order, ProcessState};
use super::sockets::Sockets;
use crate::config::Config;
use crate::shell::{Dial, Shell, StreamEdge};

/// Most sockets of a node, and most of its relays.
const MOST_FILES: usize = 1 << 20;

/// Why a node is not taken over.
#[derive(Debug, Error)]
pub enum TakeOverError {
    #[error("the process that runs does not answer: {0}")]
    Channel(#[from] io::Error),
    #[error(transparent)]
    State(#[from] HandoverError),
    #[error("{0} has changed: restart the node")]
    Changed(&'static str),
    #[error("the process that runs does not say what was expected")]
    Order,
}

/// The process that runs.
pub struct Predecessor {
    channel: Channel,
    /// What it says of the node.
    pub hello: Hello,
}

pub struct Taken {
    /// Streams and custody.
    pub engines: NodeState,
    /// What edge tasks know of the streams.
    pub streams: Vec<StreamEdge>,
    pub helper: Option<UnixStream>,
    pub connections: Connections,
    /// Numbers of neighbours' sessions of LTP whose blocks were not received to the end, by path.
    pub unfinished_blocks: BTreeMap<String, Vec<u64>>,
}

/// Connections that carry streams, and their sockets.
pub struct Connections {
    relays: Vec<RelayState>,
    sockets: Vec<TcpStream>,
}

impl Channel {
    /// Reports why the node is not taken over, if the other process still listens.
    pub fn refuse(&mut self, reason: &impl ToString) {
        let _ = self.send(&Answer::Refused(reason.to_string()));
    }
}

impl Predecessor {
    /// The channel to it, on standard input.
    ///
    /// # Errors
    /// When that is no socket.
    pub fn reach() -> io::Result<Channel> {
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        socket.peer_addr()?;
        // Programs that are started here must not inherit it.
        dup2_stdin(File::open("/dev/null")?).map_err(io::Error::from)?;
        Ok(Channel::of(socket))
    }

    /// Receives the description of the node, and its sockets.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn hear(mut channel: Channel) -> Result<(Predecessor, Sockets), TakeOverError> {
        let hello: Hello = channel.receive()?;
        let sockets = channel.receive_files(hello.sockets.len())?;
        let named = hello.sockets.iter().cloned().zip(sockets);
        let sockets = Sockets::of(named);
        Ok((Predecessor { channel, hello }, sockets))
    }

    /// Checks that this configuration can continue the other one.
    ///
    /// # Errors
    /// What has changed.
    pub fn check(&self, config: &Config, needs_helper: bool) -> Result<(), TakeOverError> {
        let hello = &self.hello;
        let intercepts = config.edge.interception.is_some();
        let changed = [
            ("node.number", hello.node != config.node.number),
            (
                "custody.durability",
                hello.is_durable != config.custody.is_durable(),
            ),
            (
                "edge.interception",
                hello.interception.is_some() != intercepts,
            ),
            (
                "what the helper is for",
                hello.has_helper != needs_helper
                    || hello.manages_paths != config.uses_mptcp()
                    || hello.commands != config.path_commands(),
            ),
        ];
        let changed = changed.into_iter().find(|(_, changed)| *changed);
        changed.map_or(Ok(()), |(what, _)| Err(TakeOverError::Changed(what)))
    }

    /// Reports that all is ready. If the other process wants sessions to be set up beforehand,
    /// calls `begin` to dial and accept them, waits until the early sessions have them, and sends
    /// their keys.
    ///
    /// # Errors
    /// When it has ended, or sends something else; and those of `begin`.
    pub fn set_up_sessions<L, E: From<TakeOverError>>(
        &mut self,
        early: &EarlySessions,
        begin: impl FnOnce() -> Result<L, E>,
    ) -> Result<Option<L>, E> {
        if !self.hello.sets_up_sessions {
            self.tell(&Answer::Ready)?;
            return Ok(None);
        }
        self.tell(&Answer::CanSetUp)?;
        let order = self.channel.receive().map_err(TakeOverError::from)?;
        let Order::SetUp {
            sessions,
            within_ms,
        } = order
        else {
            return Err(TakeOverError::Order.into());
        };
        let (begun, since) = (begin()?, Instant::now());
        let missing = early.wait(
            sessions,
            Duration::from_millis(within_ms),
            |(path, peer, key)| {
                let key = key.0;
                self.tell(&Answer::Key { path, peer, key })
            },
        )?;
        self.tell(&Answer::SetUp)?;
        let took_ms = since.elapsed().as_millis();
        tracing::info!(took_ms, missing, "sessions are set up beforehand");
        Ok(Some(begun))
    }

    fn tell(&mut self, answer: &Answer) -> Result<(), TakeOverError> {
        Ok(self.channel.send(answer)?)
    }

    /// Waits for the state, of at most `most_bytes`.
    ///
    /// # Errors
    /// When it does not come, or is not valid.
    pub fn take(&mut self, most_bytes: u64) -> Result<Taken, TakeOverError> {
        let state = self.channel.receive_state(most_bytes)?;
        let ProcessState {
            engines,
            streams,
            relays,
            unfinished_blocks,
        } = state;
        let count = relays.len();
        if count > MOST_FILES {
            return Err(TakeOverError::Order);
        }
        let sockets = self.channel.receive_files(count)?;
        let helper = match self.hello.has_helper {
            true => self.channel.receive_files(1)?.pop(),
            false => None,
        };
        let sockets = sockets.into_iter().map(TcpStream::from).collect();
        Ok(Taken {
            engines,
            streams,
            helper: helper.map(UnixStream::from),
            connections: Connections { relays, sockets },
            unfinished_blocks,
        })
    }

    /// Reports that all is taken over, and waits for the confirmation.
    ///
    /// # Errors
    /// When it does not come: this process then does not have the node.
    pub fn confirm(&mut self) -> Result<(), TakeOverError> {
        self.channel.send(&Answer::TakenOver)?;
        match self.channel.receive()? {
            Order::Go => Ok(()),
            Order::SetUp { .. } | Order::Open { .. } => Err(TakeOverError::Order),
        }
    }

    /// Opens streams for clients that the other process still serves, until it ends. Blocks.
    pub fn serve(mut self, shell: &Arc<Shell>, edge: &Edge) {
        while let Ok(Order::Open { peer, dial }) = self.channel.receive() {
            let Ok(mut sockets) = self.channel.receive_files(1) else {
                return;
            };
            let (Some(socket), Some(open)) = (sockets.pop(), dial.open()) else {
                continue;
            };
            match shell.open_stream(peer, open) {
                Ok(stream) => {
                    let state = RelayState::fresh(Relayed::Process, stream, false);
                    let socket = TcpStream::from(socket);
                    let conduit = shell.conduit_again(stream, false);
                    edge.resume(HeldRelay { state, socket }, conduit);
                }
                Err(failure) => {
                    tracing::info!(peer, %failure, "no stream for a client of the former process");
                }
            }
        }
    }
}

impl Connections {
    pub fn resume(self, shell: &Arc<Shell>, edge: &Edge) {
        for (state, socket) in self.relays.into_iter().zip(self.sockets) {
            let conduit = shell.conduit_again(state.stream, state.up_done);
            edge.resume(HeldRelay { state, socket }, conduit);
        }
    }
}

/// A connection of this process with itself: one end stays, the other goes to
/// the next process.
///
/// # Errors
/// When the loopback does not work, or there are too many open files.
pub(super) fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    loop {
        let (far, from) = listener.accept()?;
        // Any other process of this host may have connected first.
        if from == near.local_addr()? {
            for end in [&near, &far] {
                end.set_nonblocking(true)?;
                end.set_nodelay(true)?;
                socket2::SockRef::from(end).set_linger(Some(Duration::ZERO))?;
            }
            return Ok((near, far));
        }
    }
}

/// Lets the next process open a stream. Returns this end of its connection.
///
/// # Errors
/// When it is gone.
pub fn lead(next: &mut Channel, peer: u64, open: &Open) -> io::Result<TcpStream> {
    let (near, far) = connection()?;
    let dial = Dial::of(open);
    next.send(&Order::Open { peer, dial })?;
    next.send_files(&[far.as_fd()])?;
    Ok(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_itself_is_its_own() {
        let (near, far) = connection().unwrap();
        assert_eq!(near.local_addr().unwrap(), far.peer_addr().unwrap());
        assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
    }
}
