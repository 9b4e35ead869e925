//! The task of one session.

mod asking;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::BufMut;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::time::{Sleep, sleep_until, timeout};
use tokio_util::io::poll_read_buf;
use tracing::debug;
use underpass_cla::{Down, ExportedKey, Node, Outcome, SessionId, SessionInfo};

use super::handle::{Command, SessionHandle};
use super::input::Input;
use super::kernel::Socket;
use super::nudge::Nudge;
use super::output::Output;
use super::pace::Pace;
use super::partial::{Name, SharedPartials};
use super::taking::{ReadingPart, Taking};
use super::transport::Transport;
use super::{SessionDefaults, now};
use crate::session::{Established, Event, Found, SessionCore};
use crate::wire::TermReason;

/// How long the last messages may take to be sent and read.
const LINGER: Duration = Duration::from_secs(3);

/// After this many bytes read, other tasks of the thread have their turn, such as the session that
/// forwards the bytes: of more bytes, few would still be in the processor's caches.
const TURN_BYTES: usize = 512 << 10;

/// Checks an established session before the node knows of it; an error ends it.
pub(super) type OnUp = Box<dyn FnMut(&Established) -> Result<(), String> + Send>;

/// Has another session dialled beside one.
pub(super) type Renew = Box<dyn Fn() + Send + Sync>;

/// What the driver has to know of its surroundings.
pub(super) struct Surroundings {
    /// The session's number; the node's, once that knows of the session.
    pub(super) id: SessionId,
    pub(super) path: String,
    pub(super) node: Arc<dyn Node>,
    /// What TLS exports; `None` on plain TCP.
    pub(super) exported_key: Option<ExportedKey>,
    pub(super) partial: Arc<SharedPartials>,
    /// The largest bundle that is taken into memory.
    pub(super) whole_mru_bytes: u64,
    pub(super) unlimited_lowat_bytes: u32,
    pub(super) wants_mptcp: bool,
    /// The receive buffer from when the session is up, bytes of payload; `None` leaves it.
    pub(super) receive_buffer_bytes: Option<u32>,
    /// Notified when the session is suspended, and when no longer.
    pub(super) blocked: Option<watch::Sender<bool>>,
    /// Called when the node wants another session instead of this one.
    pub(super) renew: Option<Renew>,
    pub(super) on_up: OnUp,
}

impl Surroundings {
    /// Those of the next session with these `defaults`.
    pub(super) fn new(
        defaults: &SessionDefaults,
        node: Arc<dyn Node>,
        exported_key: Option<ExportedKey>,
        on_up: OnUp,
    ) -> Surroundings {
        Surroundings {
            id: defaults.next_id(),
            path: defaults.path.clone(),
            node,
            exported_key,
            partial: defaults.partial.clone(),
            whole_mru_bytes: defaults.config.whole_mru_bytes,
            unlimited_lowat_bytes: defaults.socket.notsent_lowat_bytes,
            wants_mptcp: defaults.socket.mptcp,
            receive_buffer_bytes: None,
            blocked: None,
            renew: None,
            on_up,
        }
    }
}

/// How a session went.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) down: Down,
    pub(super) was_up: bool,
}

impl Ended {
    /// Whether the peer was refused, or refused this node: it will be again, until somebody changes
    /// something.
    pub(super) fn lasts(&self) -> bool {
        !self.was_up && matches!(self.down, Down::Protocol(_))
    }
}

/// Moves bytes between a stream and a [`SessionCore`], and events between
/// that and the node.
pub(super) struct Driver<T: Transport> {
    transport: T,
    pub(super) core: SessionCore,
    pub(super) around: Surroundings,
    commands: UnboundedReceiver<Command>,
    pub(super) sender: UnboundedSender<Command>,
    handle: Option<Arc<SessionHandle<T::Socket>>>,
    input: Input,
    /// Bytes read since other tasks had their turn.
    read_in_turn: usize,
    /// What the transport had read below its stream at the last check.
    bytes_below: u64,
    output: Output,
    pace: Pace,
    /// The peer, if it names its transfers.
    pub(super) peer: Option<(String, u64)>,
    /// The transfer that is being received, if it has a name.
    pub(super) receiving: Option<Name>,
    /// Takes the transfer that is being received, piece by piece.
    pub(super) taking: Option<Taking>,
    /// A part of a payload on disk that is being read.
    pub(super) reading: Option<ReadingPart>,
    /// The source of the earlier part of a transfer that continues here.
    pub(super) awaited: Option<oneshot::Receiver<Found>>,
    /// The session is up, and the node does not use it yet.
    waits: bool,
    /// The node was told that the session is ready and has not offered yet.
    told_ready: bool,
    /// The kernel had little left to send, and nothing was written since.
    drained: bool,
    nudge: Nudge,
    timer: Pin<Box<Sleep>>,
    timer_at: Option<Instant>,
    ended: Option<Down>,
    aborted: bool,
}

/// The channel for a driver's commands; made before the driver.
pub(super) fn command_channel() -> (UnboundedSender<Command>, UnboundedReceiver<Command>) {
    unbounded_channel()
}

impl<T: Transport> Driver<T> {
    pub(super) fn new(
        transport: T,
        core: SessionCore,
        around: Surroundings,
        sender: UnboundedSender<Command>,
        commands: UnboundedReceiver<Command>,
    ) -> Self {
        // TLS has read its handshake.
        let bytes_below = transport.bytes_below();
        Self {
            transport,
            core,
            around,
            commands,
            sender,
            handle: None,
            input: Input::default(),
            read_in_turn: 0,
            bytes_below,
            output: Output::default(),
            pace: Pace::new(now()),
            peer: None,
            receiving: None,
            taking: None,
            reading: None,
            awaited: None,
            waits: false,
            told_ready: false,
            drained: false,
            nudge: Nudge::new(),
            timer: Box::pin(sleep_until(now().into())),
            timer_at: None,
            ended: None,
            aborted: false,
        }
    }

    pub(super) async fn run(mut self) -> Ended {
        poll_fn(|cx| self.poll(cx)).await;
        let down = self
            .ended
            .take()
            .unwrap_or_else(|| Down::Broken("the session ended".into()));
        self.finish(&down);
        let ended = Ended {
            was_up: self.handle.is_some(),
            down,
        };
        if self.aborted {
            self.transport.end_by_reset();
        } else if matches!(ended.down, Down::Broken(_)) {
            // The next session need not wait for a peer that may be gone.
            tokio::spawn(timeout(LINGER, self.linger()));
        } else if timeout(LINGER, self.linger()).await.is_err() {
            debug!("the peer did not close its connection in time");
        }
        ended
    }

    /// Sends the last messages and waits for the peer's end: a socket closed
    /// with bytes unread resets the connection, and with it what the peer has
    /// not read.
    async fn linger(mut self) {
        let (output, transport) = (&mut self.output, &mut self.transport);
        if poll_fn(|cx| output.poll_shutdown(transport, cx))
            .await
            .is_ok()
        {
            let mut unheeded = [0; 1024];
            while matches!(self.transport.read(&mut unheeded).await, Ok(1..)) {}
        }
    }

    fn finish(&mut self, down: &Down) {
        self.forget_receiving();
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Offer(transfer) = command {
                let outcome = Outcome::Broken { acknowledged: 0 };
                self.around
                    .node
                    .finished(self.around.id, transfer.key, outcome);
            }
        }
        if let Some(handle) = &self.handle {
            handle.release();
            self.around.node.session_down(self.around.id, down.clone());
        }
    }

    /// Does all that can be done at once, but reads no more than one turn's bytes; ready when the
    /// session is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.read_in_turn = 0;
        // Output left from the last turn comes first: otherwise reading might use up the task's
        // whole budget in each turn.
        if !self.output.is_drained()
            && let Err(error) = self.write(cx)
        {
            self.core.connection_lost(&error.to_string());
        }
        loop {
            let mut progress = self.take_commands(cx);
            progress |= self.poll_in_use(cx);
            progress |= self.poll_awaited(cx);
            progress |= self.poll_taking(cx);
            progress |= self.poll_reading(cx);
            progress |= self.dispatch();
            let moved = match self.read(cx) {
                Ok(true) => Ok(true),
                // There is nothing more to read, or this turn has used its part: one write answers
                // all that was read, even if the peer has closed after it.
                read => self.send(cx).and_then(|sent| Ok(sent | read?)),
            };
            match moved {
                Ok(moved) => progress |= moved,
                Err(error) => self.core.connection_lost(&error.to_string()),
            }
            progress |= self.keep_time(cx);
            progress |= self.dispatch();
            if self.ended.is_some() {
                self.output.fetch(&mut self.core, now());
                return Poll::Ready(());
            }
            progress |= self.tell_ready(cx);
            if !progress && !self.nudge(cx) {
                if self.has_read_enough() {
                    // There may be more, for the next turn.
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
        }
    }

    /// Whether it is the turn of others.
    fn has_read_enough(&self) -> bool {
        self.read_in_turn >= TURN_BYTES
    }

    /// Checks whether the node uses the session by now.
    fn poll_in_use(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.waits {
            return false;
        }
        let Poll::Ready(id) = self.around.node.poll_in_use(self.around.id, cx) else {
            return false;
        };
        self.around.id = id;
        self.waits = false;
        self.digest();
        true
    }

    fn take_commands(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while let Poll::Ready(Some(command)) = self.commands.poll_recv(cx) {
            progress = true;
            match command {
                Command::Offer(transfer) => {
                    self.told_ready = false;
                    self.core.offer(transfer);
                }
                Command::Suspend(blocked) => {
                    self.core.suspend(now(), blocked);
                    if let Some(told) = &self.around.blocked {
                        told.send_replace(blocked);
                    }
                }
                Command::Ask => self.core.ask(now()),
                Command::Renew => {
                    if let Some(renew) = &self.around.renew {
                        renew();
                    }
                }
                Command::Pace(rate) => self.pace.set_rate(now(), rate),
                Command::Close => self.core.close(now(), TermReason::Unknown),
                Command::Abort(reason) => {
                    self.aborted = true;
                    self.core.connection_lost(&reason);
                }
            }
        }
        progress
    }

    /// Passes events on to the node, and its answers back.
    fn dispatch(&mut self) -> bool {
        let mut progress = false;
        while let Some(event) = self.core.poll_event() {
            progress = true;
            let (node, id) = (&self.around.node, self.around.id);
            match event {
                Event::StartTls => {}
                Event::Established(established) => self.up(&established),
                Event::Admit { length, resumption } => {
                    let verdict = node.admit(id, length);
                    self.begin(verdict, length, resumption);
                }
                Event::Received(bundle) => match &mut self.taking {
                    Some(taking) => taking.end(bundle),
                    None => {
                        let verdict = node.received(id, bundle);
                        self.end_receiving(verdict);
                    }
                },
                Event::Partial { key: _, received } => {
                    if let Some(name) = self.receiving.take() {
                        self.around.partial.store(&name, id, received);
                    }
                }
                Event::Progress { key, acknowledged } => node.progress(id, key, acknowledged),
                Event::Finished { key, outcome } => node.finished(id, key, outcome),
                Event::Closed(down) => self.ended = Some(down),
            }
            self.digest();
        }
        progress
    }

    fn up(&mut self, established: &Established) {
        if let Err(reason) = (self.around.on_up)(established) {
            debug!(reason, "a session is not wanted");
            self.core.close(now(), TermReason::Unknown);
            return;
        }
        let (mptcp, lowat_bytes) = (self.around.wants_mptcp, self.around.unlimited_lowat_bytes);
        match self.transport.socket(mptcp, lowat_bytes) {
            Ok((socket, remote)) => {
                if established.keepalive_s == 0 {
                    socket.keep_alive();
                }
                if let Some(bytes) = self.around.receive_buffer_bytes {
                    socket.widen(bytes);
                }
                if let Some(incarnation) = established.incarnation {
                    let peer = established.peer_node_id.clone();
                    self.around.partial.enter(&peer, incarnation);
                    self.peer = Some((peer, incarnation));
                }
                let info = SessionInfo {
                    peer_node_id: established.peer_node_id.clone(),
                    path: self.around.path.clone(),
                    remote,
                    class: established.class,
                    standby: established.standby,
                    receives_only: false,
                    hears_refusals: true,
                    acknowledges: true,
                    resumes: established.resumes,
                    incarnation: established.incarnation,
                    former_over_by: established.former_over_by,
                    transfer_mru_bytes: established.transfer_mru_bytes,
                    takes_files: true,
                    tls: self.around.exported_key.is_some(),
                    exported_key: self.around.exported_key,
                    convergence_layer: "tcpcl",
                    congestion_control: socket.congestion_control(),
                };
                let handle = Arc::new(SessionHandle::new(self.sender.clone(), socket));
                self.handle = Some(handle.clone());
                let id = self.around.id;
                self.around.id = self.around.node.session_up(id, info, handle);
                self.waits = true;
            }
            Err(error) => self.core.connection_lost(&error.to_string()),
        }
    }

    /// Gives the session the bytes that were read and not yet taken.
    pub(super) fn digest(&mut self) {
        if self.waits {
            return;
        }
        let unread = self.input.unread();
        if !unread.is_empty() {
            let taken = self.core.handle_input(now(), unread);
            self.input.take(taken);
        }
    }

    /// Writes the output of the session and the node.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        self.output.fetch(&mut self.core, now());
        self.gather(cx);
        self.write(cx)
    }

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let waiting = self.output.bytes();
        let most = match waiting {
            0 => 0,
            _ => self.pace.room(now(), waiting),
        };
        if waiting > 0 && most == 0 {
            return Ok(false);
        }
        let wrote = self.output.write(&mut self.transport, cx, most)?;
        if wrote {
            self.pace.spend(waiting - self.output.bytes());
            self.drained = false;
            self.nudge.moving();
            self.moved();
        }
        Ok(wrote)
    }

    /// Reads once; segment data goes directly into its bundle if nothing else was read before it.
    fn read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let holds = self.waits || self.awaited.is_some() || self.core.is_held_up();
        if holds || self.has_read_enough() {
            return Ok(false);
        }
        if self.input.unread().is_empty()
            && let Some((buffer, room)) = self.core.direct_buffer()
        {
            let mut target = buffer.limit(room);
            let transport = Pin::new(&mut self.transport);
            return match poll_read_buf(transport, cx, &mut target)? {
                Poll::Ready(0) => Err(end_of_stream()),
                Poll::Ready(count) => {
                    self.read_in_turn += count;
                    self.core.handle_direct(now(), count);
                    self.received();
                    Ok(true)
                }
                Poll::Pending => {
                    self.awaits_record();
                    Ok(false)
                }
            };
        }
        let (transport, most) = (Pin::new(&mut self.transport), self.core.most_to_read());
        match self.input.poll_fill(transport, cx, most)? {
            Poll::Ready(0) => Err(end_of_stream()),
            Poll::Ready(count) => {
                self.read_in_turn += count;
                self.digest();
                self.received();
                Ok(true)
            }
            Poll::Pending => {
                self.awaits_record();
                Ok(false)
            }
        }
    }

    /// Bytes have come, and were looked at.
    fn received(&mut self) {
        self.bytes_below = self.transport.bytes_below();
        if let Some(handle) = &self.handle {
            handle.keeps_alive(self.core.keepalives());
            handle.received(self.core.is_receiving());
        }
    }

    /// No bytes are available. What has come may be part of a TLS record in which a bundle begins:
    /// the rest of that is still to come.
    fn awaits_record(&mut self) {
        let bytes = self.transport.bytes_below();
        let begun = std::mem::replace(&mut self.bytes_below, bytes) < bytes;
        if let Some(handle) = &self.handle
            && begun
            && !self.core.is_receiving()
        {
            handle.received(true);
        }
    }

    /// Bytes have come or gone.
    fn moved(&self) {
        if let Some(handle) = &self.handle {
            handle.keeps_alive(self.core.keepalives());
            handle.moved();
        }
    }

    /// Deadlines move with every message, so the timer is only moved to earlier times, and the
    /// deadline is checked again when it fires.
    fn keep_time(&mut self, cx: &mut Context<'_>) -> bool {
        let paced = self.pace.poll_timeout(self.output.bytes());
        let deadlines = [self.core.poll_timeout(), paced];
        let Some(deadline) = deadlines.into_iter().flatten().min() else {
            return false;
        };
        if self.timer_at.is_none_or(|at| deadline < at) {
            self.timer_at = Some(deadline);
            self.timer.as_mut().reset(deadline.into());
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.timer_at = None;
        self.core.handle_timeout(now());
        true
    }
}

impl<T: Transport> Drop for Driver<T> {
    /// The socket is closed only after the handle has released it, also if the task was dropped
    /// before its end.
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            handle.release();
        }
    }
}

fn end_of_stream() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the peer closed the connection",
    )
}
