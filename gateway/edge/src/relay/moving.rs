//! Relays that another process of the node continues.
//!
//! Between two polls a relay is its socket, what it has read and not written yet, and the name of
//! its stream. So it can stop at any moment, and another process that has the socket and the stream
//! continues from there. Connections whose other end is no stream of this node do not move.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{Glances, Moved, Relay};
use crate::stream::{Conduit, Failure, StreamName};

/// Whose connection it is, for the log and for the places of its listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relayed {
    /// A client's, taken in by a listener of this name.
    Client {
        /// The listener's name.
        listener: String,
        /// The client's address.
        client: SocketAddr,
        /// Where it goes to, as the log shows it.
        target: String,
    },
    /// An origin's, dialled for a peer.
    Origin {
        /// The node that has opened the stream.
        peer: u64,
        /// The origin, as the log shows it.
        target: String,
    },
    /// Of another process of this node, which has the exchange with a client or an origin and logs
    /// it.
    Process,
}

/// A relay without its socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayState {
    /// Whose it is.
    pub relayed: Relayed,
    /// Its stream.
    pub stream: StreamName,
    /// The socket has finished, and this was passed on to the stream.
    pub up_done: bool,
    early: Bytes,
    pending: Vec<Bytes>,
    down_done: bool,
    to_peer: u64,
    from_peer: u64,
    age_ms: u64,
}

impl RelayState {
    /// For a connection that has not been relayed yet; its socket is set up. `up_done` tells
    /// whether the socket has finished already.
    pub fn fresh(relayed: Relayed, stream: StreamName, up_done: bool) -> RelayState {
        RelayState {
            relayed,
            stream,
            up_done,
            early: Bytes::new(),
            pending: Vec::new(),
            down_done: false,
            to_peer: 0,
            from_peer: 0,
            age_ms: 0,
        }
    }
}

/// A relay that has stopped; dropping it resets its connection.
#[derive(Debug)]
pub struct HeldRelay {
    /// All but its socket.
    pub state: RelayState,
    /// The client's or origin's connection.
    pub socket: std::net::TcpStream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Relays run.
    Running,
    /// They are to stop where they are.
    Holding,
    /// All relays that could stop have stopped; those that begin now run.
    Held,
}

/// The relays of an edge that are running, and those that have stopped.
#[derive(Debug)]
pub struct Relays {
    phase: watch::Sender<Phase>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// That could stop.
    running: usize,
    held: Vec<HeldRelay>,
}

impl Default for Relays {
    fn default() -> Relays {
        Relays {
            phase: watch::Sender::new(Phase::Running),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

/// One of the running relays, while this lives.
struct Running<'a>(&'a Relays);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.changed.notify_one();
    }
}

impl Relays {
    /// Stops all relays whose streams can be taken up, and returns them. Relays that begin later
    /// run until [`Relays::release`] and beyond.
    pub async fn hold(&self) -> Vec<HeldRelay> {
        self.phase.send_replace(Phase::Holding);
        loop {
            {
                let mut state = self.state();
                if state.running == 0 {
                    self.phase.send_replace(Phase::Held);
                    return std::mem::take(&mut state.held);
                }
            }
            self.changed.notified().await;
        }
    }

    /// Lets relays run again, including those that are resumed from now on.
    pub fn release(&self) {
        self.phase.send_replace(Phase::Running);
    }

    /// Relays a connection to its end. Returns what it has moved in all and since when, or nothing
    /// if it has stopped for another process.
    pub(crate) async fn relay(
        &self,
        socket: TcpStream,
        conduit: Box<dyn Conduit>,
        early: Bytes,
        relayed: &Relayed,
    ) -> Option<(Moved, Duration, Result<(), Failure>)> {
        let relay = Relay::begin(socket, early);
        self.run(relay, conduit, relayed, Instant::now()).await
    }

    /// Goes on with a relay that has stopped.
    pub(crate) async fn resume(
        &self,
        socket: TcpStream,
        conduit: Box<dyn Conduit>,
        state: RelayState,
    ) -> Option<(Moved, Duration, Result<(), Failure>)> {
        // The socket has kept its options.
        let relay = Relay {
            socket,
            early: state.early,
            up_done: state.up_done,
            pending: state.pending.into(),
            peer_finished: false,
            down_done: state.down_done,
            broken: None,
            moved: Moved {
                to_peer: state.to_peer,
                from_peer: state.from_peer,
            },
            glances: Glances::default(),
        };
        let since = Instant::now().checked_sub(Duration::from_millis(state.age_ms));
        let since = since.unwrap_or_else(Instant::now);
        self.run(relay, conduit, &state.relayed, since).await
    }

    async fn run(
        &self,
        mut relay: Relay<TcpStream>,
        mut conduit: Box<dyn Conduit>,
        relayed: &Relayed,
        since: Instant,
    ) -> Option<(Moved, Duration, Result<(), Failure>)> {
        let Some(stream) = conduit.stream() else {
            let (moved, result) = relay.run_to_end(conduit).await;
            return Some((moved, since.elapsed(), result));
        };
        let running = self.enter();
        let mut phases = self.phase.subscribe();
        let ended = loop {
            tokio::select! {
                biased;
                ended = poll_fn(|cx| relay.poll(cx, conduit.as_mut())) => break ended,
                _ = phases.wait_for(|phase| *phase == Phase::Holding) => {}
            }
            match self.deposit(relay, stream, relayed, since) {
                None => {
                    conduit.leave();
                    return None;
                }
                // Too late: the others have stopped already.
                Some(back) => relay = back,
            }
        };
        drop(running);
        let (moved, result) = relay.end(conduit, ended).await;
        Some((moved, since.elapsed(), result))
    }

    fn enter(&self) -> Running<'_> {
        self.state().running += 1;
        Running(self)
    }

    /// Keeps a relay that has stopped; returns it if it was too late.
    fn deposit(
        &self,
        relay: Relay<TcpStream>,
        stream: StreamName,
        relayed: &Relayed,
        since: Instant,
    ) -> Option<Relay<TcpStream>> {
        let mut state = self.state();
        if *self.phase.borrow() != Phase::Holding {
            return Some(relay);
        }
        let age_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let Relay {
            socket,
            early,
            up_done,
            pending,
            // The stream reports both again.
            peer_finished: _,
            broken: _,
            down_done,
            moved,
            glances: _,
        } = relay;
        // It does not fail on a socket that the runtime had registered.
        if let Ok(socket) = socket.into_std() {
            state.held.push(HeldRelay {
                state: RelayState {
                    relayed: relayed.clone(),
                    stream,
                    up_done,
                    early,
                    pending: pending.into(),
                    down_done,
                    to_peer: moved.to_peer,
                    from_peer: moved.from_peer,
                    age_ms,
                },
                socket,
            });
        }
        None
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}
