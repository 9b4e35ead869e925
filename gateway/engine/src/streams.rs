//! The edge's calls on streams.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_streams::{
    Announcement, Epoch, Event, Mux, Open, OpenError, Peer, ResetCode, Side, StreamError, StreamId,
    Windows, WriteError,
};

use crate::config::HopConfig;
use crate::engine::{Action, Engine};
use crate::hop::HopId;

/// Names a stream of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// The edge node at the other end, by its ipn node number.
    pub peer: u64,
    /// Which of that node's runs it is with.
    pub epoch: Epoch,
    /// The stream.
    pub id: StreamId,
}

/// How long a request to open waits for the first bytes.
const OPEN_PAUSE: Duration = Duration::from_millis(2);

/// All streams' send buffers together hold so many times what one may.
const SEND_BUFFERS: u64 = 32;
const LEAST_SEND_BUFFERS_BYTES: u64 = 64 << 20;

impl Engine {
    /// Opens a stream to an edge node. Nothing is waited for: bytes may be
    /// written at once, and travel with the request.
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
        let streams = self.peer(peer).ok_or(OpenError::TooManyStreams)?;
        let (epoch, id) = streams.open(now, open)?;
        // Not sent here: the client's first bytes are mostly written within
        // the pause, and then leave with the request.
        self.opened.insert(peer);
        self.flush_at.get_or_insert(now + OPEN_PAUSE);
        Ok(StreamKey { peer, epoch, id })
    }

    /// Lets requests leave for which no bytes have been written.
    pub(crate) fn flush(&mut self, now: Instant) {
        if self.flush_at.is_some_and(|at| at <= now) {
            self.flush_at = None;
            for peer in std::mem::take(&mut self.opened) {
                self.gather(peer);
            }
        }
    }

    /// Bytes that may be written now; at 0, a `Writable` event follows.
    pub fn send_capacity(&mut self, key: StreamKey) -> usize {
        self.streams_of(key)
            .map_or(0, |mux| mux.send_capacity(key.id))
    }

    /// Takes bytes to send, at most the capacity last told.
    ///
    /// # Errors
    /// When the stream is gone or finished, or the bytes are more than that.
    pub fn write(&mut self, now: Instant, key: StreamKey, data: Bytes) -> Result<(), WriteError> {
        let mux = self.streams_of(key).ok_or(WriteError::Unknown)?;
        mux.write(key.id, data)?;
        self.touched(now, key.peer);
        Ok(())
    }

    /// Received bytes in order, at most `limit`.
    pub fn read(&mut self, now: Instant, key: StreamKey, limit: usize) -> Option<Bytes> {
        let data = self.streams_of(key)?.read(key.id, limit);
        self.touched(now, key.peer);
        data
    }

    /// Ends the sending direction behind what was written.
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
        self.peers.get(&peer)?.peer_announcement()
    }

    /// The epoch of a peer's present run.
    pub fn epoch_of(&self, peer: u64) -> Epoch {
        self.peers.get(&peer).map(Peer::epoch).unwrap_or_default()
    }

    /// The incarnation of a peer's present run, once it was heard.
    pub fn run_of(&self, peer: u64) -> Option<u64> {
        self.peers.get(&peer)?.peer_incarnation()
    }

    /// The streams among which the named one is.
    pub(crate) fn streams_of(&mut self, key: StreamKey) -> Option<&mut Mux> {
        self.peers.get_mut(&key.peer)?.streams_of(key.epoch)
    }

    fn on_stream<R>(
        &mut self,
        now: Instant,
        key: StreamKey,
        call: impl FnOnce(&mut Mux) -> Result<R, StreamError>,
    ) -> Result<R, StreamError> {
        let mux = self.streams_of(key).ok_or(StreamError::Unknown)?;
        let result = call(mux)?;
        self.touched(now, key.peer);
        Ok(result)
    }

    /// A peer's streams have changed: hands on their events, and sends what
    /// may be sent.
    pub(crate) fn touched(&mut self, now: Instant, peer: u64) {
        self.gather(peer);
        self.after_change(now);
    }

    /// Ends streams whose bundles have expired on the way.
    pub(crate) fn end_expired(&mut self, now: Instant) {
        while let Some((at, peer)) = self.peer_times.first().copied()
            && at <= now
        {
            self.peer_times.remove(&(at, peer));
            self.peer_due.remove(&peer);
            if let Some(streams) = self.peers.get_mut(&peer) {
                streams.handle_timeout(now);
            }
            self.gather(peer);
        }
    }

    /// Hands on the events of a peer's streams and tells the scheduler which
    /// of their classes wait.
    pub(crate) fn gather(&mut self, peer: u64) {
        self.take_stock(peer);
        let neighbour = self.neighbour_to(peer);
        for hop in self.hops_to(neighbour).iter() {
            self.update_leaves(*hop);
        }
    }

    /// Hands on the events of a peer's streams, and notes in which classes
    /// they have something to seal.
    pub(crate) fn take_stock(&mut self, peer: u64) {
        let neighbour = self.neighbour_to(peer);
        let Some(streams) = self.peers.get_mut(&peer) else {
            return;
        };
        while let Some((epoch, event)) = streams.poll_event() {
            if let Event::Opened { id, open } = &event
                && !self.classes.contains(&open.class)
                && let Some(mux) = streams.streams_of(epoch)
            {
                // The peer's class; what is sent from here needs an own one.
                // A stream that is gone already sends nothing.
                let _ = mux.set_class(*id, self.config.default_class);
            }
            self.actions
                .push_back(Action::Stream { peer, epoch, event });
        }
        self.note_ended(peer);
        let Some(streams) = self.peers.get_mut(&peer) else {
            return;
        };
        for class in &self.classes {
            let peers = self.waiting.entry((neighbour, *class)).or_default();
            match streams.has_pending(*class) {
                true => peers.insert(peer),
                false => peers.remove(&peer),
            };
        }
        let count = streams.stream_count();
        let counted = self.stream_counts.insert(peer, count).unwrap_or(0);
        self.stream_count = self.stream_count - counted + count;
        let due = streams.next_timeout();
        let before = match due {
            Some(due) => self.peer_due.insert(peer, due),
            None => self.peer_due.remove(&peer),
        };
        if before != due {
            before.map(|before| self.peer_times.remove(&(before, peer)));
            due.map(|due| self.peer_times.insert((due, peer)));
        }
    }

    /// The peer's streams, made at first use.
    pub(crate) fn peer(&mut self, peer: u64) -> Option<&mut Peer> {
        if !self.peers.contains_key(&peer) {
            let hop = *self.hops_to(self.neighbour_to(peer)).first()?;
            let streams = self.new_peer(peer, &self.hops.get(&hop)?.ceiling);
            self.peers.insert(peer, streams);
            self.ways.add_peer(peer);
        }
        self.peers.get_mut(&peer)
    }

    fn new_peer(&self, peer: u64, hop: &HopConfig) -> Peer {
        let config = self.stream_config(hop);
        let side = Side::of(self.config.node, peer);
        let mut streams = Peer::new(config, side, self.config.incarnation);
        streams.set_announcement(self.config.reaches);
        streams
    }

    /// Windows and buffers of streams whose way is by `hop`.
    fn stream_config(&self, hop: &HopConfig) -> underpass_streams::Config {
        let window = self
            .config
            .window_bytes
            .unwrap_or_else(|| hop.window_bytes(hop.receive_rate_bps));
        let send_buffer = self
            .config
            .send_buffer_bytes
            .unwrap_or_else(|| hop.send_buffer_bytes());
        let total = (send_buffer * SEND_BUFFERS).max(LEAST_SEND_BUFFERS_BYTES);
        underpass_streams::Config {
            windows: Windows {
                stream_window_bytes: window,
                // A stream has at most half of what is free for all: a lone
                // one shall have its whole window.
                peer_window_bytes: window * 2,
            },
            send_buffer_bytes: usize::try_from(send_buffer).unwrap_or(usize::MAX),
            send_buffer_total_bytes: usize::try_from(total).unwrap_or(usize::MAX),
            max_streams: self.config.max_streams,
            bundle_lifetime: self.config.lifetime,
            ..underpass_streams::Config::default()
        }
    }

    /// Puts what the configuration says of streams with a peer into force.
    pub(crate) fn apply_stream_limits(&mut self, peer: u64) {
        let hops = self.hops_to(self.neighbour_to(peer));
        let hop = hops.first().and_then(|id| self.hops.get(id));
        let config = hop.map(|hop| self.stream_config(&hop.ceiling));
        let reaches = self.config.reaches;
        if let (Some(config), Some(streams)) = (config, self.peers.get_mut(&peer)) {
            streams.set_announcement(reaches);
            streams.set_windows(config.windows);
            streams.set_send_buffers(config.send_buffer_bytes, config.send_buffer_total_bytes);
            streams.set_max_streams(config.max_streams);
        }
    }

    /// A hop's ceiling has risen: what covers it has to as well.
    pub(crate) fn widen(&mut self, id: HopId) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        let neighbour = hop.config.neighbour;
        let config = self.stream_config(&hop.ceiling);
        // Windows are those of the first hop to a peer, as at its start.
        if self.hops_to(neighbour).first() != Some(&id) {
            return;
        }
        for peer in self.peers_behind(neighbour) {
            if let Some(streams) = self.peers.get_mut(&peer) {
                streams.set_windows(config.windows);
                streams.set_send_buffers(config.send_buffer_bytes, config.send_buffer_total_bytes);
            }
            self.gather(peer);
        }
    }
}
