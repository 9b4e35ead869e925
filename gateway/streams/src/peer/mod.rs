//! All streams with one peer node, over its runs and this node's.
//!
//! Each run of the peer has a [`Mux`] of its own, so that payloads sealed by a former run cannot
//! touch a stream of the present one. The streams of a former run still receive what custody
//! brings, within the windows they had, and send nothing. A former run is *settled* when the peer
//! says that all payloads of its former runs have been released (SETTLED), or when its time is
//! over. Streams that have not ended in order by then are reset after their last contiguous byte.

#[cfg(test)]
mod bounded;
mod footprint;
mod former_run;
mod handover;
mod ingress;
#[cfg(test)]
mod laws;
mod sealed_ahead;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Instant;

use bytes::Bytes;
use underpass_cla::Class;
use underpass_completion::Load;

use crate::mux::{
    Backlog, Config, Counters, Event, Flow, Mux, OpenError, Sealed, Side, StreamInfo, Windows,
};
use crate::wire::{Announcement, Frame, HEADER_BYTES, Open, ResetCode, Sealer, StreamId};
use former_run::FormerRun;
pub use handover::PeerState;
pub use sealed_ahead::FormerLimit;

/// Distinguishes the streams of the peer's runs, whose ids begin anew: this process gives a number
/// to each run of the peer that it hears of. A stream that was opened here keeps the epoch in which
/// it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// All streams with one peer node.
///
/// Calls never block and take no longer than the frames they handle. After
/// any of them, [`Peer::poll_event`] may have events and
/// [`Peer::has_pending`] may have changed.
pub struct Peer {
    config: Config,
    /// The streams with the peer's present run.
    current: Mux,
    epoch: Epoch,
    next_epoch: Epoch,
    /// The epochs in which this node opened its streams, by the first id.
    opened: BTreeMap<StreamId, Epoch>,
    /// What former runs of the peer have left, by their incarnation.
    former_runs: BTreeMap<u64, FormerRun>,
    /// Runs below have nothing on its way any more.
    settled_below: u64,
    /// When bundles sealed before the last look have ended.
    look_at: Option<Instant>,
    /// The peer has to be told that this node's former runs are settled.
    settled_due: bool,
    /// Answers of the peer about this node's former runs.
    limits: VecDeque<FormerLimit>,
    /// Last events of streams that are gone with their run.
    events: VecDeque<(Epoch, Event)>,
    /// Streams that are gone with their run, and whose withheld payloads nobody wants.
    unwanted: Vec<(Epoch, StreamId)>,
    /// Sums of the runs that are gone.
    past: Counters,
}

impl Peer {
    /// Starts with no stream. `incarnation` names this run of the node: not
    /// 0, and greater than in every earlier run that the peer may have heard
    /// from. HELLO is pending at once.
    pub fn new(config: Config, side: Side, incarnation: u64) -> Peer {
        Peer {
            config,
            current: Mux::new(config, side, incarnation),
            epoch: Epoch(0),
            next_epoch: Epoch(1),
            opened: BTreeMap::from([(StreamId(side.bit()), Epoch(0))]),
            former_runs: BTreeMap::new(),
            settled_below: 0,
            look_at: None,
            settled_due: false,
            limits: VecDeque::new(),
            events: VecDeque::new(),
            unwanted: Vec::new(),
            past: Counters::default(),
        }
    }

    /// Sets what this node reaches; the peer is told.
    pub fn set_announcement(&mut self, announcement: Announcement) {
        self.current.set_announcement(announcement);
    }

    /// What the peer reaches, once it has said so.
    pub fn peer_announcement(&self) -> Option<Announcement> {
        self.current.peer_announcement()
    }

    /// Changes the credit given to the peer; it is told. Former runs keep theirs.
    pub fn set_windows(&mut self, windows: Windows) {
        self.config.windows = windows;
        self.current.set_windows(windows);
    }

    /// Changes how much written data may wait to be sealed, bytes: of one
    /// stream, and of all together. Former runs keep theirs.
    pub fn set_send_buffers(&mut self, stream_bytes: usize, total_bytes: usize) {
        self.config.send_buffer_bytes = stream_bytes;
        self.config.send_buffer_total_bytes = total_bytes;
        self.current.set_send_buffers(stream_bytes, total_bytes);
    }

    /// Changes how many streams may be open at once; those that are open stay.
    pub fn set_max_streams(&mut self, streams: usize) {
        self.config.max_streams = streams;
        self.current.set_max_streams(streams);
    }

    /// This node's incarnation; only [`Event::IncarnationRaised`] changes it.
    pub fn incarnation(&self) -> u64 {
        self.current.incarnation()
    }

    /// The peer's incarnation, once it was heard.
    pub fn peer_incarnation(&self) -> Option<u64> {
        self.current.peer_incarnation()
    }

    /// Opens a stream with the peer's present run; its OPEN leaves with the
    /// first bytes, if they are there by the time it is sealed.
    ///
    /// # Errors
    /// When the request or the count of streams does not allow it.
    pub fn open(&mut self, now: Instant, open: Open) -> Result<(Epoch, StreamId), OpenError> {
        let id = self.current.open(now, open)?;
        self.watch_expiry(now);
        Ok((self.epoch, id))
    }

    /// The epoch of the peer's present run.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The streams with the peer's present run.
    pub fn current(&mut self) -> &mut Mux {
        &mut self.current
    }

    /// The epoch that names a stream with the peer's present run.
    pub fn epoch_of(&self, id: StreamId) -> Epoch {
        self.name(self.epoch, id)
    }

    /// The epoch that names a stream with a run of the peer.
    fn name(&self, run: Epoch, id: StreamId) -> Epoch {
        if self.current.is_peers(id) {
            return run;
        }
        let opened = self.opened.range(..=id).next_back();
        opened.map_or(run, |(_, epoch)| *epoch)
    }

    /// Whether a run of the peer is the one that a stream is with.
    fn is_with(&self, run: (Epoch, &Mux), epoch: Epoch, id: StreamId) -> bool {
        match self.current.is_peers(id) {
            true => run.0 == epoch,
            false => run.1.has(id) && self.name(epoch, id) == epoch,
        }
    }

    /// The streams with the run of the peer that a stream is with, as long as
    /// any is left.
    pub fn streams_of(&mut self, epoch: Epoch, id: StreamId) -> Option<&mut Mux> {
        if self.is_with((self.epoch, &self.current), epoch, id) {
            return Some(&mut self.current);
        }
        let mut former = self.former_runs.iter();
        let run = former.find(|(_, e)| self.is_with((e.epoch, &e.mux), epoch, id));
        let run = *run?.0;
        self.former_runs.get_mut(&run).map(|former| &mut former.mux)
    }

    /// The most bytes that may be written to a stream now. At 0, [`Mux::send_capacity`] has the
    /// application told when there is room.
    pub fn send_capacity(&self, epoch: Epoch, id: StreamId) -> usize {
        match self.is_with((self.epoch, &self.current), epoch, id) {
            true => self.current.capacity(id),
            // Nothing is sent to a former run.
            false => 0,
        }
    }

    /// Notes that a bundle with bytes, OPEN or end of these streams, which was sealed for the run
    /// of `epoch`, has been acknowledged by the next custodian, or is gone.
    pub fn acknowledged(&mut self, epoch: Epoch, ids: &[StreamId]) {
        for id in ids {
            // For a stream that has begun anew, nothing sealed before counts.
            let own = !self.current.is_peers(*id);
            let before = own && epoch != self.epoch && self.current.has(*id);
            if !before && let Some(mux) = self.streams_of(self.name(epoch, *id), *id) {
                mux.acknowledged(&[*id]);
            }
        }
    }

    /// All streams, in no order.
    pub fn streams(&self) -> impl Iterator<Item = (Epoch, StreamInfo)> + '_ {
        let former_runs = self.former_runs.values().map(|e| (e.epoch, &e.mux));
        let runs = [(self.epoch, &self.current)].into_iter().chain(former_runs);
        runs.flat_map(move |(run, mux)| {
            let streams = mux.streams();
            streams.map(move |info| (self.name(run, info.id), info))
        })
    }

    /// Streams, as long as anything is known of them.
    pub fn stream_count(&self) -> usize {
        let former_runs = self.former_runs.values().map(|former| former.mux.count());
        self.current.count() + former_runs.sum::<usize>()
    }

    /// Resets all streams that began at `before` or earlier. Returns those that were open.
    pub fn reset_older(
        &mut self,
        before: Instant,
        code: ResetCode,
        reason: &str,
    ) -> Vec<(Epoch, StreamId)> {
        let former_runs = self.former_runs.values_mut().map(|e| (e.epoch, &mut e.mux));
        let runs = former_runs.chain([(self.epoch, &mut self.current)]);
        let reset = runs.map(|(run, mux)| (run, mux.reset_older(before, code, reason)));
        let reset: Vec<_> = reset.collect();
        let reset = reset.into_iter();
        let named = reset.flat_map(|(run, ids)| ids.into_iter().map(move |id| (run, id)));
        named.map(|(run, id)| (self.name(run, id), id)).collect()
    }

    /// When the oldest of the others began.
    pub fn oldest_stream(&self) -> Option<Instant> {
        let former_runs = self.former_runs.values().map(|former| &former.mux);
        let runs = former_runs.chain([&self.current]);
        runs.filter_map(Mux::oldest).min()
    }

    /// Sums since the start.
    pub fn counters(&self) -> Counters {
        let mut sums = self.past.clone();
        let former_runs = self.former_runs.values().map(|former| &former.mux);
        for mux in former_runs.chain([&self.current]) {
            sums.absorb(mux.counters());
        }
        sums
    }

    /// The next event, and the epoch of its stream.
    pub fn poll_event(&mut self) -> Option<(Epoch, Event)> {
        self.send_raised_limits();
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let mut former_runs = self.former_runs.values_mut();
        let event = former_runs.find_map(|former| Some((former.epoch, former.mux.poll_event()?)));
        if let Some((run, event)) = event {
            return Some(self.named(run, event));
        }
        self.forget_empty_runs();
        let event = self.current.poll_event()?;
        Some(self.named(self.epoch, event))
    }

    fn named(&self, run: Epoch, event: Event) -> (Epoch, Event) {
        let epoch = event.stream().map_or(run, |id| self.name(run, id));
        (epoch, event)
    }

    /// What waits in `class`. O(1).
    pub fn backlog(&self, class: Class) -> Backlog {
        let mut backlog = self.current.backlog(class);
        backlog.has_control |= self.has_settled(class);
        backlog
    }

    /// The bytes that wait in a queue; those in the lanes of a class are not in its own. O(1).
    pub fn waiting_in(&self, queue: Class) -> u64 {
        self.current.waiting_in(queue)
    }

    /// What the flows that wait in a lane have left; `None` before the first flow.
    pub fn load(&self, lane: Class) -> Option<&Load> {
        self.current.load(lane)
    }

    /// Flows of a lane that have nothing to send and something unacknowledged.
    /// It looks at all streams.
    pub fn unacknowledged_flows(&self, lane: Class) -> u64 {
        self.current.unacknowledged_flows(lane)
    }

    /// Whether there is a payload to seal in `class`. O(1).
    pub fn has_pending(&self, class: Class) -> bool {
        self.has_settled(class) || self.current.has_pending(class)
    }

    /// Whether a stream waits in `class` that begins or sends seldom. O(1).
    pub fn has_sparse(&self, class: Class) -> bool {
        self.current.has_sparse(class)
    }

    /// Whether one of those is light: it has little to send compared with what all streams send.
    /// O(1).
    pub fn has_light(&self, class: Class) -> bool {
        self.current.has_light(class)
    }

    fn has_settled(&self, class: Class) -> bool {
        self.settled_due && class == self.config.control_class
    }

    /// Seals the payload with SETTLED, if it is due in `class`. Its bundle
    /// must stay behind all bundles of this node that were sealed before it
    /// and are not released.
    pub fn poll_settled(&mut self, class: Class) -> Option<Vec<Bytes>> {
        if !self.has_settled(class) {
            return None;
        }
        self.settled_due = false;
        let receiver = self.peer_incarnation().unwrap_or(0);
        let mut sealer = Sealer::new(HEADER_BYTES + 2, self.incarnation(), receiver);
        let sealed = sealer.frame(&Frame::Settled);
        debug_assert!(sealed, "the frame has two bytes");
        Some(sealer.finish())
    }

    /// Seals a payload of at most `max_bytes` (512 at least) with what waits in `class`, or names a
    /// withheld one that may leave; `None` if nothing waits. Frames without data come first, then
    /// streams in turn.
    pub fn poll_payload(&mut self, now: Instant, class: Class, max_bytes: usize) -> Option<Sealed> {
        self.current.poll_payload(now, class, max_bytes)
    }

    /// Lets the next payload that is withheld in `class` leave, where there is no room to seal
    /// another. Returns its flow.
    pub fn poll_withheld(&mut self, now: Instant, class: Class) -> Option<Flow> {
        self.current.poll_withheld(now, class)
    }

    /// Lets `payloads` payloads of a stream of a former run of this node, which custody withholds
    /// in `class`, take turns by now.
    pub fn let_restored_leave(&mut self, run: u64, id: StreamId, class: Class, payloads: usize) {
        self.current.let_restored_leave(run, id, class, payloads);
    }

    /// Notes that nothing of a stream of a former run of this node is withheld any more.
    pub fn forget_restored(&mut self, run: u64, id: StreamId) {
        self.current.forget_restored(run, id);
    }

    /// The next stream whose withheld payloads nobody wants.
    pub fn poll_unwanted(&mut self) -> Option<(Epoch, StreamId)> {
        if let Some(unwanted) = self.unwanted.pop() {
            return Some(unwanted);
        }
        let former_runs = self.former_runs.values_mut().map(|e| (e.epoch, &mut e.mux));
        let mut runs = former_runs.chain([(self.epoch, &mut self.current)]);
        let unwanted = runs.find_map(|(run, mux)| Some((run, mux.poll_unwanted()?)));
        drop(runs);
        let (run, id) = unwanted?;
        Some((self.name(run, id), id))
    }

    /// The next stream whose application has ended both directions while bytes of it are left to
    /// seal. Nobody waits for them here, so they are to be sealed into custody at once
    /// ([`Mux::seal_ahead`]).
    pub fn poll_ended(&mut self) -> Option<(Epoch, StreamId)> {
        let id = self.current.poll_ended()?;
        Some((self.epoch_of(id), id))
    }
}
