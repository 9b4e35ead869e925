//! The node's hold on a session.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tracing::warn;
use underpass_cla::{Activity, PathFigures, Session, Transfer};

use super::kernel::{Pacing, Socket};
use super::now;
use crate::session::KeepaliveCount;

/// The node's commands to a session's task. The contract bounds offers: one for each `ready`.
#[derive(Debug)]
pub(super) enum Command {
    Offer(Transfer),
    Suspend(bool),
    Ask,
    Renew,
    /// Write so many bytes/s; `None` is unlimited.
    Pace(Option<u64>),
    Close,
    Abort(String),
}

/// After this time without bytes received, nothing follows them any more: an acknowledgement waits
/// at most 200 ms (TCP_DELACK_MAX of Linux).
const STILL: Duration = Duration::from_millis(250);

/// After this long without the rest of a bundle, it is no longer waited for.
const STILL_RECEIVING: Duration = Duration::from_secs(2);

/// Figures that stay valid until bytes move again: a hub reads those of thousands of idle sessions
/// again and again.
#[derive(Debug)]
struct Still {
    /// The count of moves that they are of.
    moves: u64,
    /// When that count was first seen.
    since: Instant,
    /// The figures and when the kernel gave them, once nothing changes them.
    figures: Option<(Instant, PathFigures)>,
}

/// Implements [`Session`]. Rate and figures go straight to the socket; the rest is sent to the
/// task. An offer after the session's end is dropped: [`underpass_cla::Node::session_down`] has
/// ended all its transfers.
#[derive(Debug)]
pub(super) struct SessionHandle<S> {
    commands: UnboundedSender<Command>,
    /// The socket, until the session is over. It is the driver's, which closes
    /// it only after [`SessionHandle::release`].
    socket: Mutex<Option<S>>,
    rate: Mutex<Option<u64>>,
    /// How often bytes have come or gone.
    moves: AtomicU64,
    /// The rest of a bundle is to come.
    receiving: AtomicBool,
    /// Keepalives sent, and received, in all.
    keepalives_sent: AtomicU64,
    keepalives_received: AtomicU64,
    /// Where they are counted, too.
    activity: OnceLock<Arc<Activity>>,
    still: Mutex<Still>,
}

impl<S: Socket> SessionHandle<S> {
    /// A handle of the session on `socket`, which stays open until [`SessionHandle::release`].
    pub(super) fn new(commands: UnboundedSender<Command>, socket: S) -> Self {
        Self {
            commands,
            socket: Mutex::new(Some(socket)),
            rate: Mutex::new(None),
            moves: AtomicU64::new(0),
            receiving: AtomicBool::new(false),
            keepalives_sent: AtomicU64::new(0),
            keepalives_received: AtomicU64::new(0),
            activity: OnceLock::new(),
            still: Mutex::new(Still {
                moves: 0,
                since: now(),
                figures: None,
            }),
        }
    }

    /// Whether no rate is set.
    pub(super) fn is_unlimited(&self) -> bool {
        lock(&self.rate).is_none()
    }

    /// The session is over: lets go of the socket.
    pub(super) fn release(&self) {
        lock(&self.socket).take();
        self.moved();
    }

    /// Bytes have come; whether they ended in the middle of a bundle.
    pub(super) fn received(&self, receiving: bool) {
        self.receiving.store(receiving, SeqCst);
        self.moved();
    }

    /// Sets the count of keepalives so far; must be called before the bytes are reported.
    pub(super) fn keeps_alive(&self, count: KeepaliveCount) {
        self.keepalives_sent.store(count.sent, SeqCst);
        self.keepalives_received.store(count.received, SeqCst);
    }

    /// Bytes have come or gone.
    pub(super) fn moved(&self) {
        self.moves.fetch_add(1, SeqCst);
        if let Some(activity) = self.activity.get() {
            activity.moved();
        }
    }

    fn ask(&self) -> PathFigures {
        let figures = self.with_socket(|socket| socket.figures());
        figures.map_or_else(PathFigures::default, |figures| PathFigures {
            receiving: self.receiving.load(SeqCst),
            keepalives_sent: self.keepalives_sent.load(SeqCst),
            keepalives_received: self.keepalives_received.load(SeqCst),
            ..figures
        })
    }

    /// Calls for the socket, unless the session is over.
    fn with_socket<R>(&self, call: impl FnOnce(&mut S) -> R) -> Option<R> {
        lock(&self.socket).as_mut().map(call)
    }

    /// Makes the socket check whether it takes more ([`super::nudge`]).
    pub(super) fn nudge(&self) {
        self.with_socket(|socket| socket.look());
    }

    fn send(&self, command: Command) {
        // A task that is gone has reported the session down.
        let _ = self.commands.send(command);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl<S: Socket> Session for SessionHandle<S> {
    fn offer(&self, transfer: Transfer) {
        self.send(Command::Offer(transfer));
    }

    fn set_rate(&self, ip_bps: Option<u64>) {
        // Held while the socket is set, so that the last rate given wins.
        let mut rate = lock(&self.rate);
        if *rate == ip_bps {
            return;
        }
        let applied = self.with_socket(|socket| socket.set_rate(ip_bps));
        match applied.unwrap_or(Ok(Pacing::ByTransport)) {
            Ok(pacing) => {
                *rate = ip_bps;
                if let Pacing::ByWriting(bytes_per_second) = pacing {
                    self.send(Command::Pace(bytes_per_second));
                }
            }
            Err(error) => warn!(%error, ip_bps, "the rate cannot be set"),
        }
    }

    fn figures(&self) -> PathFigures {
        let moves = self.moves.load(SeqCst);
        let now = now();
        let mut still = lock(&self.still);
        if still.moves != moves {
            *still = Still {
                moves,
                since: now,
                figures: None,
            };
        }
        if let Some((at, figures)) = still.figures {
            let heard_ago = figures.heard_ago.map(|ago| ago + (now - at));
            return PathFigures {
                heard_ago,
                ..figures
            };
        }
        let mut figures = self.ask();
        // Subflows come and go without a byte of the session.
        let subflows = figures.subflows.unwrap_or(0);
        let lasting = match figures.receiving {
            true => STILL_RECEIVING,
            false => STILL,
        };
        let at_rest = now - still.since >= lasting;
        figures.still = subflows == 0 && figures.in_flight_bytes == 0 && at_rest;
        if figures.still {
            still.figures = Some((now, figures));
        }
        figures
    }

    fn share(&self, activity: Arc<Activity>) {
        // A session stays on one hop.
        let _ = self.activity.set(activity);
    }

    fn suspend(&self, blocked: bool) {
        self.send(Command::Suspend(blocked));
    }

    fn ask(&self) {
        self.send(Command::Ask);
    }

    fn renew(&self) {
        self.send(Command::Renew);
    }

    fn close(&self) {
        self.send(Command::Close);
    }

    fn abort(&self, reason: &str) {
        self.send(Command::Abort(reason.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use socket2::SockRef;

    use super::*;
    use crate::net::driver::command_channel;
    use crate::net::kernel::KernelSocket;
    use crate::net::pacing::payload_bytes_per_second;
    use crate::net::socket::max_pacing_rate;
    use crate::net::tcp_info::TcpInfo;

    fn handle(stream: &TcpStream) -> SessionHandle<KernelSocket> {
        let socket = KernelSocket::new(stream.as_fd(), false, false, 128 << 10);
        SessionHandle::new(command_channel().0, socket)
    }

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let local = listener.local_addr().expect("bound");
        let active = TcpStream::connect(local).expect("it listens");
        (active, listener.accept().expect("a connection").0)
    }

    #[test]
    fn the_rate_reaches_the_kernel_and_is_lifted_again() {
        let (stream, _peer) = connection();
        let session = handle(&stream);
        let fd = stream.as_fd();
        let socket = SockRef::from(&stream);
        let lowat = || socket.tcp_notsent_lowat().expect("it can be read");
        session.set_rate(Some(40_000_000));
        let info = TcpInfo::of(fd).expect("a connection");
        assert!(info.has_timestamps());
        let rate = payload_bytes_per_second(40_000_000, info.mss_bytes(), false, true);
        assert_eq!(max_pacing_rate(fd), rate);
        assert_eq!(lowat(), 600_000);
        session.set_rate(Some(0));
        assert_eq!(max_pacing_rate(fd), 1);
        session.set_rate(None);
        assert_eq!(max_pacing_rate(fd), u64::MAX);
        assert_eq!(lowat(), 128 << 10);
    }

    #[test]
    fn the_kernel_finds_out_that_a_peer_without_keepalives_is_gone() {
        let (stream, _peer) = connection();
        let kept_alive = || SockRef::from(&stream).keepalive().expect("readable");
        assert!(!kept_alive());
        KernelSocket::new(stream.as_fd(), false, false, 128 << 10).keep_alive();
        assert!(kept_alive());
    }

    #[test]
    fn a_session_that_is_over_has_no_figures_and_takes_no_rate() {
        let (stream, _peer) = connection();
        let session = handle(&stream);
        assert!(session.figures().cwnd_bytes > 0);
        session.release();
        assert_eq!(session.figures(), PathFigures::default());
        session.set_rate(Some(40_000_000));
        assert_eq!(max_pacing_rate(stream.as_fd()), u64::MAX);
    }

    #[test]
    fn figures_hold_while_nothing_moves_and_only_then() {
        let (stream, mut peer) = connection();
        let session = handle(&stream);
        let activity = Arc::new(Activity::default());
        session.share(activity.clone());
        // Keeps the session from coming to rest by itself, however long other programs delay this
        // one.
        let stays_awake = || lock(&session.still).since += Duration::from_secs(3_600);
        stays_awake();
        assert_eq!(session.figures().received_bytes, 0);
        peer.write_all(b"news").expect("a connection");
        assert_eq!(read_exactly(&stream, 4), b"news");
        assert_eq!(session.figures().received_bytes, 4, "it is asked for");
        assert!(!session.figures().still);
        lock(&session.still).since = now() - STILL;
        let still = session.figures();
        assert!(still.still && activity.count() == 0);
        peer.write_all(b"more").expect("a connection");
        assert_eq!(read_exactly(&stream, 4), b"more");
        let later = session.figures();
        assert_eq!(later.received_bytes, still.received_bytes);
        assert!(later.heard_ago > still.heard_ago);
        session.moved();
        assert_eq!(session.figures().received_bytes, 8);
        stays_awake();
        assert!(!session.figures().still && activity.count() == 1);
    }

    #[test]
    fn the_rest_of_a_bundle_is_waited_for_and_not_for_ever() {
        let (stream, _peer) = connection();
        let session = handle(&stream);
        session.received(true);
        session.figures();
        lock(&session.still).since -= STILL;
        let figures = session.figures();
        assert!(figures.receiving && !figures.still);
        lock(&session.still).since -= STILL_RECEIVING;
        assert!(session.figures().still);
        session.received(false);
        assert!(!session.figures().receiving);
    }

    #[test]
    fn keepalives_are_among_the_figures() {
        let (stream, _peer) = connection();
        let session = handle(&stream);
        session.keeps_alive(KeepaliveCount {
            sent: 3,
            received: 2,
        });
        let figures = session.figures();
        let told = (figures.keepalives_sent, figures.keepalives_received);
        assert_eq!(told, (3, 2));
    }

    fn read_exactly(mut stream: &TcpStream, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        stream.read_exact(&mut buffer).expect("so many bytes");
        buffer
    }
}
