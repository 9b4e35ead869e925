//! The edge's calls on streams.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_streams::{
    Announcement, Epoch, Mux, Open, OpenError, Peer, ResetCode, Side, StreamError, StreamId,
    Windows, WriteError,
};

use crate::config::{HopConfig, send_buffer_bytes};
use crate::engine::Engine;
use crate::hop::HopId;

/// Names a stream of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// The edge node at the other end, by its ipn node number.
    pub peer: u64,
    /// Which of that node's runs it is with; for a stream that was opened here, the run in which it
    /// was opened.
    pub epoch: Epoch,
    /// The stream.
    pub id: StreamId,
}

/// The send buffers of all streams with a peer together hold so many times what one may hold, and
/// at least this, of which several neighbours have equal parts.
const SEND_BUFFERS: u64 = 32;
const LEAST_SEND_BUFFERS_BYTES: u64 = 64 << 20;
const SEND_BUFFERS_OF_ALL_BYTES: u64 = 512 << 20;
const LEAST_PART_BYTES: u64 = 1 << 20;
/// A send buffer holds so many bundles of the present size at least.
const BUNDLES_BUFFERED: u64 = 2;
/// The most bytes that a stream has waiting for paths of longer delay.
const MOST_AHEAD_BYTES: u64 = 16 << 20;

impl Engine {
    /// Opens a stream to an edge node. Bytes may be written at once, and travel with the request.
    ///
    /// # Errors
    /// When the node is not reachable by any hop or route, or has as many
    /// streams as it may.
    pub fn open(
        &mut self,
        now: Instant,
        peer: u64,
        mut open: Open,
    ) -> Result<StreamKey, OpenError> {
        open.class = self.known(open.class);
        if self.hops_to(self.neighbour_to(peer)).is_empty() {
            return Err(OpenError::TooManyStreams);
        }
        self.meet(peer);
        let lane = self.lane_of_request(now, self.neighbour_to(peer), open.class);
        let opened = self.peers.open(now, peer, |streams| {
            let (epoch, id) = streams.open(now, open)?;
            if let Some(lane) = lane {
                // The stream was just opened, so it is there.
                let _ = streams.current().begin_flow(id, lane, 0);
            }
            Ok((epoch, id))
        });
        let (epoch, id) = opened?;
        Ok(StreamKey { peer, epoch, id })
    }

    /// Bytes that may be written now; at 0, a `Writable` event follows.
    pub fn send_capacity(&mut self, key: StreamKey) -> usize {
        self.fit_send_buffers(key.peer);
        let streams = self.peers.get(key.peer);
        match streams.map_or(0, |streams| streams.send_capacity(key.epoch, key.id)) {
            0 => {
                let asked = self.change_run(key, |mux| mux.send_capacity(key.id));
                asked.unwrap_or(0)
            }
            // The query changes nothing.
            capacity => capacity,
        }
    }

    /// Takes bytes to send, at most the capacity last returned.
    ///
    /// # Errors
    /// When the stream is gone or finished, or the bytes are more than that.
    pub fn write(&mut self, now: Instant, key: StreamKey, data: Bytes) -> Result<(), WriteError> {
        let written = self.change_run(key, |mux| mux.write(key.id, data));
        written.ok_or(WriteError::Unknown)??;
        self.after_change(now);
        Ok(())
    }

    /// Received bytes in order, at most `limit`.
    pub fn read(&mut self, now: Instant, key: StreamKey, limit: usize) -> Option<Bytes> {
        // Without bytes nothing has changed.
        let data = self.change_run(key, |mux| mux.read(key.id, limit))??;
        self.after_change(now);
        Some(data)
    }

    /// Ends the sending direction after what was written.
    ///
    /// # Errors
    /// When the stream is gone.
    pub fn finish(&mut self, now: Instant, key: StreamKey) -> Result<(), StreamError> {
        self.on_stream(now, key, |mux| mux.finish(key.id))
    }

    /// Takes no more bytes from the peer; the sending direction goes on.
    ///
    /// # Errors
    /// When the stream is gone.
    pub fn stop(
        &mut self,
        now: Instant,
        key: StreamKey,
        code: ResetCode,
    ) -> Result<(), StreamError> {
        self.on_stream(now, key, |mux| mux.stop(key.id, code))
    }

    /// As [`Engine::reset`], but the peer's application gets all that was
    /// written before it sees `code`.
    ///
    /// # Errors
    /// When the stream is gone.
    pub fn reset_behind(
        &mut self,
        now: Instant,
        key: StreamKey,
        code: ResetCode,
        reason: &str,
    ) -> Result<(), StreamError> {
        self.on_stream(now, key, |mux| mux.reset_behind(key.id, code, reason))
    }

    /// Ends both directions; the peer's application sees `code`.
    ///
    /// # Errors
    /// When the stream is gone.
    pub fn reset(
        &mut self,
        now: Instant,
        key: StreamKey,
        code: ResetCode,
        reason: &str,
    ) -> Result<(), StreamError> {
        self.on_stream(now, key, |mux| mux.reset(key.id, code, reason))
    }

    /// Tells the opener that its target is connected.
    ///
    /// # Errors
    /// When the stream is gone.
    pub fn connected(&mut self, now: Instant, key: StreamKey) -> Result<(), StreamError> {
        self.on_stream(now, key, |mux| mux.connected(key.id))
    }

    /// The address families that a peer's edge reaches, once it has said so.
    pub fn announcement_of(&self, peer: u64) -> Option<Announcement> {
        self.peers.get(peer)?.peer_announcement()
    }

    /// The epoch of a peer's present run, by this node's count.
    pub fn epoch_of(&self, peer: u64) -> Epoch {
        self.peers.get(peer).map(Peer::epoch).unwrap_or_default()
    }

    /// The name of a stream with a peer's present run.
    pub fn key(&self, peer: u64, id: StreamId) -> StreamKey {
        let streams = self.peers.get(peer);
        let epoch = streams.map(|streams| streams.epoch_of(id));
        let epoch = epoch.unwrap_or_default();
        StreamKey { peer, epoch, id }
    }

    /// The incarnation of a peer's present run, once it was heard.
    pub fn run_of(&self, peer: u64) -> Option<u64> {
        self.peers.get(peer)?.peer_incarnation()
    }

    fn on_stream<R>(
        &mut self,
        now: Instant,
        key: StreamKey,
        call: impl FnOnce(&mut Mux) -> Result<R, StreamError>,
    ) -> Result<R, StreamError> {
        let result = self.change_run(key, call).ok_or(StreamError::Unknown)?;
        self.after_change(now);
        result
    }

    /// Looks at the peers that are due: those with requests to open that have waited for their
    /// first bytes, and those with bundles that may have expired.
    pub(crate) fn look_at_due_peers(&mut self, now: Instant) {
        while let Some(peer) = self.peers.pop_due(now) {
            self.change_streams(peer, |streams| streams.handle_timeout(now));
        }
    }

    /// Changes the streams with a peer, and takes up what they then have to say and to seal. `None`
    /// if there are no streams.
    pub(crate) fn change_streams<R>(
        &mut self,
        peer: u64,
        call: impl FnOnce(&mut Peer) -> R,
    ) -> Option<R> {
        self.peers.change(&mut self.actions, peer, call)
    }

    /// As [`Engine::change_streams`], for the peer's run that a stream is with.
    pub(crate) fn change_run<R>(
        &mut self,
        key: StreamKey,
        call: impl FnOnce(&mut Mux) -> R,
    ) -> Option<R> {
        let changed = self.change_streams(key.peer, |streams| {
            streams.streams_of(key.epoch, key.id).map(call)
        });
        changed.flatten()
    }

    /// Creates the streams with a peer at their first use. Returns whether there are any.
    pub(crate) fn meet(&mut self, peer: u64) -> bool {
        if self.peers.contains(peer) {
            return true;
        }
        let neighbour = self.neighbour_to(peer);
        let Some(config) = self.stream_config_to(neighbour) else {
            return false;
        };
        let streams = self.new_peer(peer, config);
        self.peers.insert(peer, neighbour, streams);
        self.ways.add_peer(peer);
        true
    }

    fn new_peer(&self, peer: u64, config: underpass_streams::Config) -> Peer {
        let side = Side::of(self.config.node, peer);
        let mut streams = Peer::new(config, side, self.config.incarnation);
        streams.set_announcement(self.config.reaches);
        streams
    }

    /// Windows and buffers of streams by way of a neighbour: they cover all hops to it together, so
    /// that no hop waits for bytes that another has still to bring. `None` if no hop leads there.
    pub(crate) fn stream_config_to(&self, neighbour: u64) -> Option<underpass_streams::Config> {
        let hops = self.ways.hops_to(neighbour).iter();
        let hops = hops.filter_map(|id| self.hops.get(id));
        let beside = |all: HopConfig, hop: HopConfig| all.beside(&hop);
        let ceilings = hops.clone().map(|hop| hop.ceiling.clone());
        let all = ceilings.reduce(beside)?;
        // What waits here goes by the hops that send.
        let sending = hops.filter(|hop| hop.config.sends).map(|hop| &hop.ceiling);
        let shortest = sending.clone().map(|hop| hop.rtt).min();
        let several = sending.clone().count() > 1;
        let sending = sending.cloned().reduce(beside);
        let sending = sending.unwrap_or_else(|| all.clone());
        let ahead = match sending.send_rate_bps {
            // The rate or the round trip may be unknown; then the present ones are the bound.
            None if several => MOST_AHEAD_BYTES,
            rate_bps => bytes_ahead(rate_bps, sending.rtt - shortest.unwrap_or(sending.rtt)),
        };
        Some(self.stream_config(&all, sending.send_buffer_bytes() + ahead))
    }

    fn stream_config(&self, hop: &HopConfig, buffer_bytes: u64) -> underpass_streams::Config {
        let window = self
            .config
            .window_bytes
            .unwrap_or_else(|| hop.window_bytes(hop.receive_rate_bps));
        let send_buffer = self.config.send_buffer_bytes.unwrap_or(buffer_bytes);
        let total = self.send_buffers_bytes(send_buffer);
        underpass_streams::Config {
            windows: Windows {
                stream_window_bytes: window,
                // A stream has at most half of what is free for all, and a lone one should have its
                // whole window.
                peer_window_bytes: window * 2,
            },
            send_buffer_bytes: usize::try_from(send_buffer).unwrap_or(usize::MAX),
            send_buffer_total_bytes: usize::try_from(total).unwrap_or(usize::MAX),
            max_streams: self.config.max_streams,
            bundle_lifetime: self.config.lifetime,
            ..underpass_streams::Config::default()
        }
    }

    /// What all streams with a peer may have waiting, if one may have `stream_bytes`.
    fn send_buffers_bytes(&self, stream_bytes: u64) -> u64 {
        let neighbours = self.config.hops.len().max(1) as u64;
        let part = SEND_BUFFERS_OF_ALL_BYTES / neighbours;
        let least = part.clamp(LEAST_PART_BYTES, LEAST_SEND_BUFFERS_BYTES);
        stream_bytes.saturating_mul(SEND_BUFFERS).max(least)
    }

    /// Limits how far ahead the streams with a peer read by the present rate to it: on a beam that
    /// many share, the highest rate of a link is a hundred times its present one, and so would be
    /// what waits here.
    fn fit_send_buffers(&mut self, peer: u64) {
        if self.config.send_buffer_bytes.is_some() {
            return;
        }
        let hops = self.ways.hops_to(self.neighbour_to(peer)).iter();
        let carrying = hops.filter_map(|id| {
            let hop = self.hops.get(id)?;
            let carries = hop.config.sends && hop.is_up() && !hop.blocked;
            carries.then_some((id, hop.round_trip()))
        });
        let (mut bundles, mut rate_bps, mut rtts) = (0, Some(0_u64), None);
        for (id, rtt) in carrying {
            bundles += self.scheduler.max_bundle_bytes(id.terminal());
            let present = self.scheduler.present_bps(id.terminal());
            let sum = |(all, one): (u64, u64)| all.saturating_add(one);
            rate_bps = rate_bps.zip(present).map(sum);
            let (shortest, longest) = rtts.unwrap_or((rtt, rtt));
            rtts = Some((rtt.min(shortest), rtt.max(longest)));
        }
        // While nothing can be sent, the buffers stay as they were.
        let Some((shortest, longest)) = rtts else {
            return;
        };
        let buffer = send_buffer_bytes(rate_bps).max(BUNDLES_BUFFERED * bundles)
            + bytes_ahead(rate_bps, longest - shortest);
        let total = self.send_buffers_bytes(buffer);
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        self.peers
            .set_present_buffers(peer, bytes(buffer), bytes(total));
    }

    /// Puts the configuration of the streams with a peer into force.
    pub(crate) fn apply_stream_limits(&mut self, peer: u64) {
        let config = self.stream_config_to(self.neighbour_to(peer));
        let reaches = self.config.reaches;
        let Some(config) = config else {
            return;
        };
        self.change_streams(peer, |streams| {
            streams.set_announcement(reaches);
            streams.set_windows(config.windows);
            streams.set_send_buffers(config.send_buffer_bytes, config.send_buffer_total_bytes);
            streams.set_max_streams(config.max_streams);
        });
    }

    /// Widens windows and buffers after a hop's ceiling has risen.
    pub(crate) fn widen(&mut self, id: HopId) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        let neighbour = hop.config.neighbour;
        let Some(config) = self.stream_config_to(neighbour) else {
            return;
        };
        for peer in self.peers_behind(neighbour) {
            self.change_streams(peer, |streams| {
                streams.set_windows(config.windows);
                streams.set_send_buffers(config.send_buffer_bytes, config.send_buffer_total_bytes);
            });
        }
    }
}

/// The bytes that have to wait here so that a hop of longer delay is of use, where round trips are
/// so far `apart`: it takes what the other hops would deliver later still.
fn bytes_ahead(rate_bps: Option<u64>, apart: Duration) -> u64 {
    let rate_bps = rate_bps.unwrap_or(0);
    let bytes = u128::from(rate_bps) * (apart / 2).as_micros() / 8_000_000;
    u64::try_from(bytes)
        .unwrap_or(u64::MAX)
        .min(MOST_AHEAD_BYTES)
}
