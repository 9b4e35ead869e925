//! Beacons over UDP: the thin shell of an endpoint.

use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use crate::endpoint::{Counters, Delayed, Endpoint, Event, PeerConfig, PeerId, Signs};
use crate::key::Key;
use crate::wire::BEACON_BYTES;

mod arrival;

use arrival::Arrivals;

/// Datagrams that are read before the timers have their turn again: a flood must not keep beacons
/// from leaving.
const READ_AT_ONCE: usize = 64;

/// With more peers than this, datagrams and timers are handled together each `ROUND`: a wake-up for
/// each would cost more than the datagram.
const FEW_PEERS: usize = 32;
/// Short compared with the interval of beacons, and with any hop's round trip.
const ROUND: Duration = Duration::from_millis(5);

/// The node that beacons serve. Implementations return quickly.
pub trait Node: Send + Sync + 'static {
    /// What the convergence layer has heard and sent; called when a beacon would be due.
    fn signs(&self, peer: PeerId) -> Signs;

    /// An authentic beacon of the peer came at `at`.
    fn heard(&self, peer: PeerId, at: Instant);

    /// A beacon came in which the peer says that it hears nothing of this end. By default treated
    /// as heard.
    fn deaf(&self, peer: PeerId, at: Instant) {
        self.heard(peer, at);
    }

    /// A beacon came in which the peer lets the link rest. By default treated as heard.
    fn resting(&self, peer: PeerId, at: Instant) {
        self.heard(peer, at);
    }

    /// The peer runs, but no longer has any of this node's sessions.
    fn key_unknown(&self, peer: PeerId);
}

/// How a socket is made.
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// Address to bind; port 0 leaves the choice to the system.
    pub local: SocketAddr,
    /// Interface to use.
    pub interface: Option<String>,
    /// Mark of its packets (SO_MARK).
    pub mark: Option<u32>,
}

/// Makes the socket of an endpoint.
///
/// # Errors
/// When the address is taken or an option is not permitted.
pub fn bind(config: &SocketConfig) -> io::Result<StdSocket> {
    let socket = Socket::new(
        Domain::for_address(config.local),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if config.local.is_ipv6() {
        // As for sessions: [::] takes both families.
        socket.set_only_v6(false)?;
    }
    if let Some(interface) = &config.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    if let Some(mark) = config.mark {
        socket.set_mark(mark)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&config.local.into())?;
    Ok(socket.into())
}

/// An endpoint at work; it ends when this is dropped.
pub struct Beacons {
    shared: Arc<Shared>,
    local: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

struct Shared {
    endpoint: Mutex<Endpoint>,
    changed: Notify,
}

impl Beacons {
    /// Puts an endpoint to work; called inside a tokio runtime.
    ///
    /// # Errors
    /// When the socket cannot be watched.
    pub fn spawn(
        socket: StdSocket,
        endpoint: Endpoint,
        node: Arc<dyn Node>,
    ) -> io::Result<Beacons> {
        // Without time stamps, a datagram's arrival is the time when it is read.
        let _ = setsockopt(&socket, sockopt::ReceiveTimestampns, &true);
        let socket = UdpSocket::from_std(socket)?;
        let local = socket.local_addr()?;
        let shared = Arc::new(Shared {
            endpoint: Mutex::new(endpoint),
            changed: Notify::new(),
        });
        let task = tokio::spawn(drive(shared.clone(), socket, node));
        Ok(Beacons {
            shared,
            local,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// The address bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// See [`Endpoint::add_peer`].
    pub fn add_peer(&self, id: PeerId, config: PeerConfig) {
        self.shared.lock().add_peer(Instant::now(), id, config);
    }

    /// See [`Endpoint::add_key`].
    pub fn add_key(&self, id: PeerId, key: Key) {
        self.shared.lock().add_key(Instant::now(), id, key);
        self.shared.changed.notify_one();
    }

    /// See [`Endpoint::remove_peer`].
    pub fn remove_peer(&self, id: PeerId) {
        self.shared.lock().remove_peer(id);
    }

    /// See [`Endpoint::set_rtt`].
    pub fn set_rtt(&self, id: PeerId, rtt: Duration) {
        self.shared.lock().set_rtt(id, rtt);
        self.shared.changed.notify_one();
    }

    /// See [`Endpoint::want`].
    pub fn want(&self, id: PeerId) {
        self.shared.lock().want(Instant::now(), id);
        self.shared.changed.notify_one();
    }

    /// See [`Endpoint::let_rest`].
    pub fn let_rest(&self, id: PeerId, may: bool) {
        self.shared.lock().let_rest(Instant::now(), id, may);
        self.shared.changed.notify_one();
    }

    /// See [`Endpoint::set_probe_interval`].
    pub fn set_probe_interval(&self, id: PeerId, interval: Duration) {
        self.shared.lock().set_probe_interval(id, interval);
    }

    /// See [`Endpoint::probe`].
    pub fn probe(&self, id: PeerId, lasting: Duration) {
        self.shared.lock().probe(Instant::now(), id, lasting);
        self.shared.changed.notify_one();
    }

    /// See [`Endpoint::note`].
    pub fn note(&self, id: PeerId, signs: Signs) {
        self.shared.lock().note(id, signs);
    }

    /// See [`Endpoint::set_pace`].
    pub fn set_pace(&self, id: PeerId, pace: Duration) {
        self.shared.lock().set_pace(id, pace);
    }

    /// See [`Endpoint::moved`].
    pub fn moved(&self, id: PeerId) -> u64 {
        self.shared.lock().moved(id)
    }

    /// See [`Endpoint::delayed`].
    pub fn delayed(&self, id: PeerId) -> Delayed {
        self.shared.lock().delayed(Instant::now(), id)
    }

    /// See [`Endpoint::leave`].
    pub fn leave(&self, id: PeerId) {
        self.shared.lock().leave(id);
    }

    /// Datagrams in numbers.
    pub fn counters(&self) -> Counters {
        self.shared.lock().counters()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Endpoint> {
        self.endpoint.lock().unwrap()
    }

    /// Asks what the convergence layer knows of the peers that are due, and sends beacons to those
    /// that are still due after that.
    fn beacon(&self, node: &dyn Node) {
        let due = self.lock().due(Instant::now());
        // Asked outside of the lock: the answer may take system calls.
        let signs: Vec<_> = due.into_iter().map(|id| (id, node.signs(id))).collect();
        let mut endpoint = self.lock();
        for (id, signs) in signs {
            endpoint.note(id, signs);
        }
        endpoint.handle_timeout(Instant::now());
    }

    fn tell(&self, node: &dyn Node) {
        loop {
            let event = self.lock().poll_event();
            match event {
                Some(Event::Heard(id)) => node.heard(id, Instant::now()),
                Some(Event::Deaf(id)) => node.deaf(id, Instant::now()),
                Some(Event::Resting(id)) => node.resting(id, Instant::now()),
                Some(Event::KeyUnknown(id)) => node.key_unknown(id),
                None => return,
            }
        }
    }

    fn transmit(&self, socket: &UdpSocket) {
        loop {
            let next = self.lock().poll_transmit();
            let Some(next) = next else { return };
            // A beacon that cannot be sent counts as lost: another follows, and silence shows the
            // rest.
            let _ = socket.try_send_to(&next.datagram, next.to);
        }
    }
}

async fn drive(shared: Arc<Shared>, socket: UdpSocket, node: Arc<dyn Node>) {
    // One byte more than a beacon, so that longer datagrams are seen as such.
    let mut buffer = [0; BEACON_BYTES + 1];
    let mut arrivals = Arrivals::new();
    loop {
        let deadline = shared.lock().next_timeout();
        tokio::select! {
            readable = socket.readable() => if readable.is_err() {
                // This does not happen on UDP sockets; the pause bounds its cost.
                tokio::time::sleep(crate::timing::INTERVAL).await;
            },
            () = sleep_until(deadline) => {}
            () = shared.changed.notified() => {}
        }
        let mut drained = false;
        for _ in 0..READ_AT_ONCE {
            match arrivals.receive(&socket, &mut buffer) {
                Ok((length, from, at)) => {
                    let mut endpoint = shared.lock();
                    endpoint.handle_datagram(at, from, &buffer[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    drained = true;
                    break;
                }
                // An ICMP error of an earlier datagram.
                Err(_) => {}
            }
        }
        shared.tell(&*node);
        shared.beacon(&*node);
        shared.transmit(&socket);
        // In a flood the socket's queue would be full before the next round.
        if drained && shared.lock().peers() > FEW_PEERS {
            tokio::time::sleep(ROUND).await;
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
