//! A session over UDP: a bundle in each datagram. Nothing reports whether it has arrived or was
//! taken; if the node has no room for one, only the node itself reports that.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use underpass_cla::{Down, Node, Outcome, PathFigures, Refusal, SessionId, Transfer};

use crate::config::{Config, MOST_DATAGRAM_BYTES};
use crate::handle::{self, Command, Orders, Read};
use crate::pace::Pace;
use crate::socket;

/// The header of UDP, bytes.
pub(crate) const HEADER_BYTES: u64 = 8;

/// How long nothing is done at most.
const PAUSE: Duration = Duration::from_secs(3600);

struct Session<'a> {
    config: &'a Config,
    node: &'a Arc<dyn Node>,
    socket: UdpSocket,
    pace: Pace,
    blocked: bool,
    closing: bool,
    waiting: VecDeque<Transfer>,
    /// Payloads on disk that are being read, and their transfers' keys.
    reading: JoinSet<Read>,
    read: BTreeSet<u64>,
    told_ready: bool,
    figures: PathFigures,
}

/// Carries bundles both ways for as long as the socket lives.
pub(crate) async fn run(
    config: &Config,
    node: &Arc<dyn Node>,
    socket: UdpSocket,
    stop: &CancellationToken,
) -> Down {
    let (handle, mut orders) = handle::pair();
    let id = node.session_up(config.next_id(), config.info(), handle);
    let mut session = Session {
        config,
        node,
        socket,
        pace: Pace::new(config.ceiling_bps, Instant::now()),
        blocked: false,
        closing: false,
        waiting: VecDeque::new(),
        reading: JoinSet::new(),
        read: BTreeSet::new(),
        told_ready: false,
        figures: PathFigures {
            rtt: config.rtt,
            min_rtt: config.rtt,
            ..PathFigures::default()
        },
    };
    let (id, down) = match handle::in_use(node, id, stop).await {
        Ok(id) => (id, session.carry(id, &mut orders, stop).await),
        Err(id) => (id, Down::Closed),
    };
    let waiting = session.waiting.iter().map(|transfer| transfer.key);
    let keys = waiting.chain(session.read.iter().copied());
    orders.end(&**node, id, keys, down.clone());
    down
}

impl Session<'_> {
    async fn carry(
        &mut self,
        id: SessionId,
        orders: &mut Orders,
        stop: &CancellationToken,
    ) -> Down {
        let mut buffer = vec![0; 1 << 16];
        loop {
            self.send(id);
            orders.show(self.figures);
            let idle = self.waiting.is_empty() && self.read.is_empty();
            if self.closing && idle {
                return Down::Closed;
            }
            if !self.told_ready && !self.closing && idle {
                self.told_ready = true;
                self.node.ready(id);
            }
            let next = self
                .pace
                .next()
                .filter(|_| !self.blocked && !self.waiting.is_empty());
            let wake = next.unwrap_or_else(|| Instant::now() + PAUSE);
            tokio::select! {
                () = stop.cancelled() => return Down::Closed,
                command = orders.commands.recv() => match command {
                    Some(Command::Abort(reason)) => return Down::Broken(reason),
                    Some(command) => self.order(id, command),
                    None => return Down::Closed,
                },
                Some(read) = self.reading.join_next() => match read {
                    Ok(read) => self.supply(id, read),
                    Err(error) => return Down::Broken(error.to_string()),
                },
                received = self.socket.recv_from(&mut buffer) => match received {
                    Ok((count, source)) if self.config.is_from_peer(source) => {
                        self.figures.received_bytes += count as u64;
                        let bundle = Bytes::copy_from_slice(&buffer[..count]);
                        if let Err(refusal) = self.node.received(id, bundle) {
                            debug!(path = self.config.path, %refusal, "a bundle is not taken");
                        }
                    }
                    Ok((_, source)) => debug!(path = self.config.path, %source, "not the neighbour's address"),
                    // The error of an earlier datagram does not end the session.
                    Err(error) => debug!(path = self.config.path, %error, "not received"),
                },
                () = sleep_until(wake.into()) => {}
            }
        }
    }

    fn order(&mut self, id: SessionId, command: Command) {
        match command {
            Command::Offer(transfer) => {
                self.told_ready = false;
                self.take(id, transfer);
            }
            Command::Rate(rate) => self.pace.set(Instant::now(), rate),
            Command::Suspend(blocked) => self.blocked = blocked,
            Command::Close => self.closing = true,
            Command::Abort(_) => {}
        }
    }

    /// Queues a bundle whose payload is in memory.
    fn take(&mut self, id: SessionId, mut transfer: Transfer) {
        let (key, length) = (transfer.key, transfer.len());
        if length > MOST_DATAGRAM_BYTES {
            let refused = Outcome::Refused(Refusal::NotAcceptable);
            self.node.finished(id, key, refused);
            return;
        }
        match transfer.file.take() {
            Some(file) => {
                let chunks = transfer.chunks;
                self.read.insert(key);
                self.reading
                    .spawn_blocking(move || handle::read(key, chunks, &file));
            }
            None => self.waiting.push_back(transfer),
        }
    }

    /// Queues a bundle whose payload was on disk.
    fn supply(&mut self, id: SessionId, (key, chunks): Read) {
        self.read.remove(&key);
        match chunks {
            Ok(chunks) => self.waiting.push_back(Transfer::new(key, chunks)),
            Err(error) => {
                let path = &self.config.path;
                warn!(path, %error, "a payload cannot be read");
                let refused = Outcome::Refused(Refusal::NoResources);
                self.node.finished(id, key, refused);
            }
        }
    }

    fn send(&mut self, id: SessionId) {
        let now = Instant::now();
        while !self.blocked && self.pace.is_open(now) {
            let Some(transfer) = self.waiting.pop_front() else {
                return;
            };
            let length = transfer.len();
            let bundle = transfer.chunks.concat();
            let header = self.config.ip_header_bytes();
            let payload = u64::from(self.config.mtu_bytes).saturating_sub(header);
            let packets = (length + HEADER_BYTES).div_ceil(payload.max(8));
            let bytes = length + HEADER_BYTES + packets * header;
            self.pace.sent(now, bytes);
            // A datagram that finds no room in the kernel is lost, as on the link.
            if let Err(error) = socket::send_now(&self.socket, &bundle, self.config.remote) {
                debug!(path = self.config.path, %error, "not sent");
            }
            self.figures.sent_bytes += length;
            self.figures.delivered_bytes += length;
            self.figures.segments_sent += packets;
            self.figures.data_segments_sent += packets;
            self.node.finished(id, transfer.key, Outcome::Acknowledged);
        }
    }
}
