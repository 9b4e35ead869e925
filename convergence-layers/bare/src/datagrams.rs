//! A session over UDP: a bundle in each datagram. Nobody tells whether it has
//! arrived.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use underpass_cla::{Down, Node, Outcome, PathFigures, Refusal, SessionId, Transfer};

use crate::config::{Config, MOST_DATAGRAM_BYTES};
use crate::handle::{self, Command, Orders};
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
    orders.end(
        &**node,
        id,
        session.waiting.iter().map(|transfer| transfer.key),
        down.clone(),
    );
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
            if self.closing && self.waiting.is_empty() {
                return Down::Closed;
            }
            if !self.told_ready && !self.closing && self.waiting.is_empty() {
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
                    Some(command) => self.order(command),
                    None => return Down::Closed,
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
                    // What an earlier datagram met does not end the session.
                    Err(error) => debug!(path = self.config.path, %error, "not received"),
                },
                () = sleep_until(wake.into()) => {}
            }
        }
    }

    fn order(&mut self, command: Command) {
        match command {
            Command::Offer(transfer) => {
                self.told_ready = false;
                self.waiting.push_back(transfer);
            }
            Command::Rate(rate) => self.pace.set(Instant::now(), rate),
            Command::Suspend(blocked) => self.blocked = blocked,
            Command::Close => self.closing = true,
            Command::Abort(_) => {}
        }
    }

    fn send(&mut self, id: SessionId) {
        let now = Instant::now();
        while !self.blocked && self.pace.is_open(now) {
            let Some(transfer) = self.waiting.pop_front() else {
                return;
            };
            let length = transfer.len();
            if length > MOST_DATAGRAM_BYTES {
                let refused = Outcome::Refused(Refusal::NotAcceptable);
                self.node.finished(id, transfer.key, refused);
                continue;
            }
            let bundle = transfer.chunks.concat();
            let header = self.config.ip_header_bytes();
            let payload = u64::from(self.config.mtu_bytes).saturating_sub(header);
            let packets = (length + HEADER_BYTES).div_ceil(payload.max(8));
            let bytes = length + HEADER_BYTES + packets * header;
            self.pace.sent(now, bytes);
            // What the kernel has no room for is lost, as on the link.
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
