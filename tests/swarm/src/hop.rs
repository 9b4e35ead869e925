//! The satellite hop of a light terminal: incoming bytes reach its protocol half a round trip after
//! its sockets, and outgoing ones reach its sockets half a round trip after its protocol.
//!
//! Bundles and beacons are delayed. The sessions' own messages, TLS and TCP's
//! acknowledgements are not: they are between the sockets.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::time::sleep_until;
use underpass_beacon::{Endpoint, Event, Key, Node, PeerId, Transmit};
use underpass_cla::{Session, SessionId, Transfer};

/// Bundles of a session that may be on their way to its socket.
const UNDER_WAY: usize = 64;
/// More than any beacon has, bytes.
const DATAGRAM_BYTES: usize = 64;

/// In order, with when each is due.
type Delayed<T> = VecDeque<(Instant, T)>;

fn next_due<T>(delayed: &mut Delayed<T>, now: Instant) -> Option<T> {
    let due = delayed.front().is_some_and(|(at, _)| *at <= now);
    let (_, item) = due.then(|| delayed.pop_front())??;
    Some(item)
}

/// What has come from the sockets.
pub enum Arrival {
    /// A bundle.
    Bundle(SessionId, Bytes),
    /// The end of a session.
    Down(SessionId),
}

/// What is on its way between sessions and engine.
pub struct Hop {
    /// One way.
    delay: Duration,
    arrivals: Delayed<Arrival>,
    lanes: HashMap<SessionId, Lane>,
}

/// A session, and what it is to send.
struct Lane {
    session: Arc<dyn Session>,
    ready: bool,
    transfers: Delayed<Transfer>,
}

impl Hop {
    pub fn new(delay: Duration) -> Hop {
        Hop {
            delay,
            arrivals: VecDeque::new(),
            lanes: HashMap::new(),
        }
    }

    pub fn is_direct(&self) -> bool {
        self.delay.is_zero()
    }

    pub fn sessions(&self) -> usize {
        self.lanes.len()
    }

    pub fn session(&self, id: SessionId) -> Option<&Arc<dyn Session>> {
        self.lanes.get(&id).map(|lane| &lane.session)
    }

    pub fn every_session(&self) -> Vec<Arc<dyn Session>> {
        let lanes = self.lanes.values();
        lanes.map(|lane| lane.session.clone()).collect()
    }

    pub fn up(&mut self, id: SessionId, session: Arc<dyn Session>) {
        let lane = Lane {
            session,
            ready: false,
            transfers: VecDeque::new(),
        };
        self.lanes.insert(id, lane);
    }

    /// Something has come from the sockets.
    pub fn arrive(&mut self, now: Instant, arrival: Arrival) {
        self.arrivals.push_back((now + self.delay, arrival));
    }

    /// What has come to the terminal by now, and when it came to the socket.
    pub fn next_arrival(&mut self, now: Instant) -> Option<(Instant, Arrival)> {
        let due = self.arrivals.front().map(|(at, _)| *at)?;
        let arrival = next_due(&mut self.arrivals, now)?;
        Some((due - self.delay, arrival))
    }

    /// A session is gone; what it has not sent is returned.
    pub fn down(&mut self, id: SessionId) -> Option<Vec<Transfer>> {
        let lane = self.lanes.remove(&id)?;
        Some(
            lane.transfers
                .into_iter()
                .map(|(_, transfer)| transfer)
                .collect(),
        )
    }

    /// A session can take a bundle.
    pub fn ready(&mut self, id: SessionId) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.ready = true;
        }
    }

    /// The terminal sends a bundle.
    pub fn send(&mut self, now: Instant, id: SessionId, transfer: Transfer) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.transfers.push_back((now + self.delay, transfer));
        }
    }

    /// Whether the terminal may send another bundle on a session; bundles on their way to the
    /// socket no longer concern the terminal.
    pub fn has_room(&self, id: SessionId) -> bool {
        let lane = self.lanes.get(&id);
        lane.is_some_and(|lane| match self.delay.is_zero() {
            true => lane.ready && lane.transfers.is_empty(),
            false => lane.transfers.len() < UNDER_WAY,
        })
    }

    /// Bundles that sessions are to take now.
    pub fn offers(&mut self, now: Instant) -> Vec<(SessionId, Arc<dyn Session>, Transfer)> {
        let mut offers = Vec::new();
        for (id, lane) in &mut self.lanes {
            if lane.ready
                && let Some(transfer) = next_due(&mut lane.transfers, now)
            {
                lane.ready = false;
                offers.push((*id, lane.session.clone(), transfer));
            }
        }
        offers
    }

    /// When there is something to do.
    pub fn next_timeout(&self) -> Option<Instant> {
        let lanes = self.lanes.values().filter(|lane| lane.ready);
        let offers = lanes.filter_map(|lane| lane.transfers.front().map(|(at, _)| *at));
        offers.chain(self.arrivals.front().map(|(at, _)| *at)).min()
    }
}

/// When beacons that somebody waits for have left their socket.
#[derive(Default)]
pub struct SentBeacons(Mutex<Vec<Option<Instant>>>);

impl SentBeacons {
    /// Waits for the next; returns the number to ask for it.
    pub fn expect(&self) -> usize {
        let mut awaited = self.lock();
        awaited.push(None);
        awaited.len() - 1
    }

    /// When the awaited beacon of that number left.
    pub fn sent(&self, number: usize) -> Option<Instant> {
        self.lock().get(number).copied().flatten()
    }

    fn note(&self) {
        if let Some(awaited @ None) = self.lock().last_mut() {
            *awaited = Some(Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beacons of a terminal, delayed both ways.
pub struct DelayedBeacons {
    endpoint: Mutex<Endpoint>,
    changed: Notify,
    delay: Duration,
    sent: Arc<SentBeacons>,
}

impl DelayedBeacons {
    pub fn new(endpoint: Endpoint, delay: Duration) -> Arc<DelayedBeacons> {
        Arc::new(DelayedBeacons {
            endpoint: Mutex::new(endpoint),
            changed: Notify::new(),
            delay,
            sent: Arc::default(),
        })
    }

    /// When those that are awaited have left.
    pub fn sent(&self) -> Arc<SentBeacons> {
        self.sent.clone()
    }

    /// A session brings its key.
    pub fn add_key(&self, peer: PeerId, key: Key) {
        self.lock().add_key(Instant::now(), peer, key);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Endpoint> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves beacons between the socket and the endpoint. Runs until dropped.
    pub async fn run(self: Arc<Self>, socket: UdpSocket, node: impl Node) {
        let mut arriving: Delayed<(SocketAddr, Vec<u8>)> = VecDeque::new();
        let mut leaving: Delayed<Transmit> = VecDeque::new();
        let mut buffer = [0; DATAGRAM_BYTES];
        loop {
            let own = self.lock().next_timeout();
            let first = arriving.front().map(|(at, _)| *at);
            let last = leaving.front().map(|(at, _)| *at);
            let deadline = own.into_iter().chain(first).chain(last).min();
            let due = async {
                match deadline {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = socket.readable() => {}
                () = due => {}
                () = self.changed.notified() => {}
            }
            let now = Instant::now();
            while let Ok((length, from)) = socket.try_recv_from(&mut buffer) {
                let datagram = buffer[..length].to_vec();
                arriving.push_back((now + self.delay, (from, datagram)));
            }
            let mut endpoint = self.lock();
            while let Some((from, datagram)) = next_due(&mut arriving, now) {
                endpoint.handle_datagram(now, from, &datagram);
            }
            let mut events = Vec::new();
            while let Some(event) = endpoint.poll_event() {
                events.push(event);
            }
            drop(endpoint);
            for event in events {
                match event {
                    Event::Heard(peer) => node.heard(peer, now),
                    Event::Deaf(peer) => node.deaf(peer, now),
                    Event::Resting(peer) => node.resting(peer, now),
                    Event::KeyUnknown(peer) => node.key_unknown(peer),
                }
            }
            let mut endpoint = self.lock();
            for peer in endpoint.due(now) {
                endpoint.note(peer, node.signs(peer));
            }
            endpoint.handle_timeout(now);
            while let Some(transmit) = endpoint.poll_transmit() {
                leaving.push_back((now + self.delay, transmit));
            }
            drop(endpoint);
            while let Some(transmit) = next_due(&mut leaving, now) {
                // A beacon that cannot be sent counts as lost.
                if socket.try_send_to(&transmit.datagram, transmit.to).is_ok() {
                    self.sent.note();
                }
            }
        }
    }
}
