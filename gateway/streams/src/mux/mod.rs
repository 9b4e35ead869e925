//! The state shared by the streams between one run of this node and one of the peer.

mod ahead;
mod app;
#[cfg(test)]
mod check;
mod config;
mod credit;
mod egress;
mod event;
mod expiry;
mod footprint;
mod former;
mod handover;
mod indices;
mod ingress;
mod lane;
mod limits;
mod queue;
mod waiting;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

pub use ahead::Ahead;
pub use config::{Config, Side, Windows};
pub use egress::Sealed;
pub use event::{
    Backlog, Counters, Event, OpenError, PayloadError, StreamError, StreamInfo, StreamState,
    WriteError,
};
pub use lane::{class_of, lane, lanes};

use crate::stream::{Life, Sending, Stream};
use crate::wire::{Announcement, FLOOR_BYTES, Frame, Hello, ResetCode, StreamId, VARINT_MAX};
use credit::PeerCredit;
pub(crate) use handover::MuxState;
use indices::Indices;
pub use queue::Flow;
use queue::{ClassQueue, Place, RestoredFlow};
use waiting::{Blocked, Writers};

/// The streams between one run of this node and one run of the peer;
/// [`crate::Peer`] has one for each run that it knows.
///
/// Calls never block and take no longer than the frames they handle.
pub struct Mux {
    config: Config,
    side: Side,
    incarnation: u64,
    peer_incarnation: Option<u64>,
    /// The peer's run is over: nothing is sent any more.
    former: bool,

    announcement: Announcement,
    peer_announcement: Option<Announcement>,
    hello_sequence: u64,
    hello_due: bool,

    streams: HashMap<StreamId, Stream>,
    /// Streams that were not given up, by the time at which they began.
    by_age: BTreeSet<(Instant, StreamId)>,
    /// Streams without their OPEN.
    early: usize,
    next_id: StreamId,
    /// Own streams below this are void for the peer's present incarnation.
    first_valid: StreamId,
    /// Own streams below this may be in payloads that name no run of the peer,
    /// and so may reach each of its runs.
    unaddressed_below: StreamId,
    peer_first_valid: StreamId,
    /// The peer has sent that value to this run, so it is final.
    peer_first_valid_is_final: bool,
    /// Indices (id / 2) of the peer's streams that are gone.
    closed: Indices,
    /// Indices of the peer's streams whose refusal waits to be sealed.
    refused: Indices,

    classes: Vec<ClassQueue>,
    /// Payloads of this node's former runs that may leave.
    restored: HashMap<(u64, StreamId), RestoredFlow>,
    next_restored_ticket: u32,
    blocked: Blocked,
    /// Streams with an OPEN, bytes or an end to seal.
    unsealed: BTreeSet<StreamId>,
    /// Streams with control frames.
    control: VecDeque<StreamId>,
    /// Control frames about streams that are not here any more.
    loose: VecDeque<Frame>,

    peer_credit: PeerCredit,
    /// Sum of the charges of the streams.
    charged: u64,
    /// Sum of the streams' payloads that no custodian has acknowledged.
    under_way: u64,
    /// Credit has come that other streams than its own may use.
    credit_changed: bool,
    /// The largest windows that were ever given: a lowered window binds the peer only once it has
    /// heard of it.
    granted: Windows,
    /// Credit in use by the peer's bytes here, beyond the floors.
    excess: u64,
    /// The same, and what was promised to a run that is over.
    promised_excess: u64,
    /// Runs of bytes beyond a gap.
    runs: usize,
    /// Consumption that was not reported to the peer, in streams with half a floor or more of it.
    untold: u64,
    untold_streams: Vec<StreamId>,

    /// Limits that are to be sent about a run that is over.
    limits: Vec<(StreamId, limits::Limit)>,

    /// Bytes beyond its credit that a stream may have here, withheld.
    beyond_credit: u64,
    /// Bytes of all copies with which streams can begin anew.
    beginning_bytes: usize,
    /// Streams whose withheld payloads nobody wants.
    unwanted: Vec<StreamId>,
    /// Streams that have ended for the application with bytes left to seal.
    ended: Vec<StreamId>,
    /// Written bytes of all streams that wait to be sealed.
    buffered: usize,
    /// How much may wait at the present rate, for one stream and for all, bytes.
    present_buffers: (usize, usize),
    writers: Writers,
    /// Something has changed that may let writers go on.
    writers_retry: bool,
    /// Some have been told of it since the events were last drained.
    writers_told: bool,

    /// The bytes that all streams have sealed, for their light budgets.
    sent_bytes: u64,

    events: VecDeque<Event>,
    counters: Counters,
}

impl Mux {
    /// Starts with no stream; HELLO is pending at once.
    pub(crate) fn new(config: Config, side: Side, incarnation: u64) -> Self {
        let config = Config {
            windows: limited(config.windows),
            floor_bytes: config.floor_bytes.clamp(FLOOR_BYTES, VARINT_MAX),
            ..config
        };
        Self {
            config,
            side,
            incarnation: incarnation.max(1),
            peer_incarnation: None,
            former: false,
            announcement: Announcement::default(),
            peer_announcement: None,
            hello_sequence: 0,
            hello_due: true,
            streams: HashMap::new(),
            by_age: BTreeSet::new(),
            early: 0,
            next_id: StreamId(side.bit()),
            first_valid: StreamId(side.bit()),
            unaddressed_below: StreamId(side.bit()),
            peer_first_valid: StreamId(0),
            peer_first_valid_is_final: false,
            closed: Indices::new(),
            refused: Indices::new(),
            classes: Vec::new(),
            restored: HashMap::new(),
            next_restored_ticket: 0,
            blocked: Blocked::new(),
            unsealed: BTreeSet::new(),
            control: VecDeque::new(),
            loose: VecDeque::new(),
            peer_credit: PeerCredit::default(),
            charged: 0,
            under_way: 0,
            credit_changed: false,
            granted: config.windows,
            excess: 0,
            promised_excess: 0,
            runs: 0,
            untold: 0,
            untold_streams: Vec::new(),
            limits: Vec::new(),
            beyond_credit: 0,
            beginning_bytes: 0,
            unwanted: Vec::new(),
            ended: Vec::new(),
            buffered: 0,
            present_buffers: (usize::MAX, usize::MAX),
            writers: Writers::new(),
            writers_retry: false,
            writers_told: false,
            sent_bytes: 0,
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Sets what this node reaches; the peer is told.
    pub(crate) fn set_announcement(&mut self, announcement: Announcement) {
        if announcement != self.announcement {
            self.announcement = announcement;
            self.renew_hello();
        }
    }

    /// What the peer reaches, once it has said so.
    pub(crate) fn peer_announcement(&self) -> Option<Announcement> {
        self.peer_announcement
    }

    /// Changes the credit given to the peer; it is told.
    pub(crate) fn set_windows(&mut self, windows: Windows) {
        let windows = limited(windows);
        if windows == self.config.windows {
            return;
        }
        self.config.windows = windows;
        let granted = &mut self.granted;
        granted.stream_window_bytes = granted.stream_window_bytes.max(windows.stream_window_bytes);
        granted.peer_window_bytes = granted.peer_window_bytes.max(windows.peer_window_bytes);
        self.renew_hello();
    }

    /// Changes how much written data may wait to be sealed.
    pub(crate) fn set_send_buffers(&mut self, stream_bytes: usize, total_bytes: usize) {
        self.config.send_buffer_bytes = stream_bytes;
        self.config.send_buffer_total_bytes = total_bytes;
        for id in self.sorted_ids() {
            self.look_at_writer(id);
        }
    }

    /// Changes how many streams may be open at once.
    pub(crate) fn set_max_streams(&mut self, streams: usize) {
        self.config.max_streams = streams;
    }

    /// This node's incarnation.
    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The peer's incarnation, once it was heard.
    pub(crate) fn peer_incarnation(&self) -> Option<u64> {
        self.peer_incarnation
    }

    /// Notes the run of the peer that this is about.
    pub(crate) fn meet(&mut self, peer_incarnation: u64) {
        self.peer_incarnation = Some(peer_incarnation);
        self.renew_hello();
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() {
            // Only once for each time that the events are drained: applications that are told
            // write, after which events are drained again.
            if self.writers_retry && !std::mem::take(&mut self.writers_told) {
                self.wake_writers();
                self.writers_told = !self.events.is_empty();
                self.writers_retry = self.writers_told;
            }
        }
        self.events.pop_front()
    }

    /// Sums since the start.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    fn hello(&self) -> Hello {
        Hello {
            sequence: self.hello_sequence,
            peer_window_bytes: self.config.windows.peer_window_bytes,
            stream_window_bytes: self.config.windows.stream_window_bytes,
            floor_bytes: self.config.floor_bytes,
            first_valid: self.first_valid,
            announcement: self.announcement,
        }
    }

    pub(crate) fn renew_hello(&mut self) {
        self.hello_sequence += 1;
        self.hello_due = true;
    }

    pub(crate) fn next_id(&self) -> StreamId {
        self.next_id
    }

    /// The least id that a stream opened here can have.
    pub(crate) fn first_valid(&self) -> StreamId {
        self.first_valid
    }

    /// Whether anything is known of a stream.
    pub(crate) fn has(&self, id: StreamId) -> bool {
        self.streams.contains_key(&id)
    }

    pub(crate) fn is_peers(&self, id: StreamId) -> bool {
        id.0 & 1 != self.side.bit()
    }

    fn insert_stream(&mut self, id: StreamId, stream: Stream) {
        self.by_age.insert((stream.opened_at, id));
        self.early += usize::from(stream.life == Life::Early);
        self.streams.insert(id, stream);
    }

    fn list_control(&mut self, id: StreamId) {
        if !self.former
            && let Some(stream) = self.streams.get_mut(&id)
            && !std::mem::replace(&mut stream.control.listed, true)
        {
            self.control.push_back(id);
        }
    }

    /// Drops what was written and not sealed, and takes no more. Withheld payloads still leave.
    fn sending_done(&mut self, id: StreamId) {
        self.dequeue(id);
        self.forget_beginning(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            self.buffered -= stream.send.pieces.len();
            stream.send.pieces = Default::default();
            stream.send.state = Sending::Done;
            stream.reset_behind = None;
            stream.deficit = 0;
            self.writers_retry = true;
        }
        self.look_at_writer(id);
        self.enqueue(id, Place::New);
    }

    /// Carries out a reset that waited for the bytes before it to be sealed.
    fn reset_behind_last(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(&id);
        if let Some(reset) = stream.and_then(|stream| stream.reset_behind.take()) {
            let (code, reason) = *reset;
            self.abort(id, code, &reason, false);
        }
    }

    /// Drops a request to open that is not sealed yet.
    fn never_open(&mut self, id: StreamId) {
        self.dequeue(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.open = None;
        }
    }

    fn abort(&mut self, id: StreamId, code: ResetCode, reason: &str, at_once: bool) {
        self.never_open(id);
        self.sending_done(id);
        self.receiving_done(id, None);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        self.early -= usize::from(stream.life == Life::Early);
        stream.life = Life::Draining;
        stream.control.opened = false;
        stream.control.stop = None;
        stream.control.reset = Some(Box::new((code, limited_reason(reason), at_once)));
        self.counters.resets_sent += 1;
        self.list_control(id);
        self.close_if_done(id);
    }

    /// Closes the stream for the application if both directions are done, and
    /// forgets it once all of it is acknowledged and the peer holds nothing of
    /// it either.
    fn close_if_done(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.life == Life::Open && stream.is_done() {
            stream.life = Life::Draining;
            self.counters.closed += 1;
            self.events.push_back(Event::Closed(id));
        }
        let gone = stream.life == Life::Draining
            && !stream.control.listed
            && !stream.has_output()
            && stream.send.ahead.is_empty()
            && stream.unacknowledged == 0;
        if gone && stream.send.outstanding() <= self.peer_credit.floor {
            let opened_at = stream.opened_at;
            self.dequeue(id);
            self.streams.remove(&id);
            self.by_age.remove(&(opened_at, id));
            self.unsealed.remove(&id);
            if self.is_peers(id) {
                self.closed.insert(id.0 / 2..=id.0 / 2);
            }
        }
    }
}

fn limited(windows: Windows) -> Windows {
    Windows {
        stream_window_bytes: windows.stream_window_bytes.min(VARINT_MAX),
        peer_window_bytes: windows.peer_window_bytes.min(VARINT_MAX),
    }
}

fn limited_reason(reason: &str) -> String {
    let mut end = reason.len().min(crate::wire::MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason[..end].to_owned()
}
