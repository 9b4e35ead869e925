//! The turns among the streams of a class that may send: first those that begin or send seldom,
//! then deficit round robin (RFC 8290, Shreedhar and Varghese 1995).
//!
//! Withheld payloads take turns like bytes that are not sealed yet.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use underpass_cla::Class;
use underpass_completion::Load;
use underpass_work::count;

use super::lane::{is_lane, lanes};
use super::{Backlog, Mux};
use crate::stream::{Queued, Sending, Stream};
use crate::wire::StreamId;

/// Fewer bytes than this are sealed only if there are no more; otherwise credit would trickle away
/// in ever smaller frames.
const LEAST_DATA_BYTES: u64 = 4096;

/// The most turns that a stream has ahead of those that send all the time, until each of these has
/// had one.
const MOST_SPARSE_TURNS: u64 = 16;

/// What takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flow {
    /// A stream with the peer's present run.
    Stream(StreamId),
    /// What a former run of this node has left of a stream in custody.
    Restored {
        /// That run's incarnation.
        run: u64,
        /// The stream.
        id: StreamId,
    },
}

/// Where in the queue of its class a flow waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It has something to send again.
    New,
    /// Its turn was cut by the end of a payload and goes on.
    First,
    /// Its turn is over.
    Last,
}

/// Entries of flows, the next one first; an entry whose ticket is not the
/// flow's is void.
type Turns = VecDeque<(Flow, u32)>;

/// The flows of a queue that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct ClassQueue {
    /// Flows that begin, or that had nothing to send when their last turn came,
    /// until they have sent a quantum. They go before those in `busy`.
    sparse: Turns,
    /// The others.
    busy: Turns,
    /// Valid entries in both.
    pub flows: usize,
    /// Of these in `sparse`.
    pub sparse_flows: usize,
    /// Of these, those that are light.
    pub light_flows: usize,
    /// Of these streams whose OPEN waits.
    pub opening: usize,
    /// Bytes of these flows.
    pub bytes: u64,
    /// In a lane: what these flows have left.
    pub load: Load,
    /// How often it was the turn of `busy`.
    busy_turns: u64,
    /// Those that have something withheld in custody.
    withheld: BTreeSet<Flow>,
    /// The one of them whose payload left last when there was no room to seal.
    last_withheld: Option<Flow>,
}

/// Payloads of a stream of a former run that may leave.
#[derive(Debug)]
pub(super) struct RestoredFlow {
    pub class: Class,
    pub payloads: usize,
    ticket: u32,
}

impl Mux {
    /// What waits in `class`, its lanes included. O(1).
    pub(crate) fn backlog(&self, class: Class) -> Backlog {
        let lanes = lanes(class).map(|lane| self.backlog_of(lane));
        lanes.fold(self.backlog_of(class), |sum, lane| Backlog {
            bytes: sum.bytes + lane.bytes,
            has_control: sum.has_control || lane.has_control,
            streams: sum.streams + lane.streams,
        })
    }

    /// What waits in a queue. O(1).
    fn backlog_of(&self, class: Class) -> Backlog {
        let control = class == self.config.control_class && self.has_control();
        match self.classes.get(usize::from(class.0)) {
            None => Backlog {
                has_control: control,
                ..Backlog::default()
            },
            Some(queue) => Backlog {
                bytes: queue.bytes,
                has_control: control || queue.opening > 0,
                streams: queue.flows,
            },
        }
    }

    /// The bytes that wait in a queue, those in the lanes of a class apart. O(1).
    pub(crate) fn waiting_in(&self, queue: Class) -> u64 {
        self.backlog_of(queue).bytes
    }

    /// Whether [`Mux::poll_payload`] has something for `class`. O(1).
    pub(crate) fn has_pending(&self, class: Class) -> bool {
        let backlog = self.backlog_of(class);
        backlog.has_control || backlog.streams > 0 || self.has_credit_now(class).is_some()
    }

    /// Whether a stream waits in `class` that begins or sends seldom. O(1).
    pub(crate) fn has_sparse(&self, class: Class) -> bool {
        let queue = self.classes.get(usize::from(class.0));
        queue.is_some_and(|queue| queue.sparse_flows > 0)
    }

    /// Whether one of them is light. O(1).
    pub(crate) fn has_light(&self, class: Class) -> bool {
        let queue = self.classes.get(usize::from(class.0));
        queue.is_some_and(|queue| queue.light_flows > 0)
    }

    /// Bytes of the stream that may be sealed now.
    pub(super) fn sendable(&self, id: StreamId) -> u64 {
        let Some(stream) = self.streams.get(&id) else {
            return 0;
        };
        // Withheld payloads go first.
        if stream.send.state == Sending::Done || !stream.send.ahead.is_empty() {
            return 0;
        }
        let queued = stream.send.pieces.len() as u64;
        let sendable = self.allowance(&stream.send).min(queued);
        if sendable < queued.min(LEAST_DATA_BYTES) {
            return 0;
        }
        sendable
    }

    /// Whether the stream has something to send but no credit for it.
    pub(super) fn waits_for_credit(&self, id: StreamId) -> bool {
        let Some(stream) = self.streams.get(&id) else {
            return false;
        };
        match stream.send.ahead.oldest() {
            Some(bytes) => self.allowance(&stream.send) < bytes,
            None => {
                let has_bytes = !stream.send.pieces.is_empty();
                has_bytes && stream.open.is_none() && self.sendable(id) == 0
            }
        }
    }

    /// Bytes of credit with which the stream goes on.
    pub(super) fn need(&self, id: StreamId) -> u64 {
        let send = self.streams.get(&id).map(|stream| &stream.send);
        send.map_or(0, |send| {
            let queued = send.pieces.len() as u64;
            send.ahead.oldest().unwrap_or(queued.min(LEAST_DATA_BYTES))
        })
    }

    /// Puts the stream in its class' queue if it has something to send and
    /// credit for it; otherwise remembers that it waits for credit.
    pub(super) fn enqueue(&mut self, id: StreamId, place: Place) {
        self.note_output(id);
        let waits_for_credit = self.waits_for_credit(id);
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        if stream.queued.is_some() || !stream.has_output() && stream.send.ahead.is_empty() {
            return;
        }
        if waits_for_credit {
            return self.wait_for_credit(id);
        }
        self.forget_blocked(id);
        if self.gathers(id) {
            return;
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let queue = ClassQueue::of(&mut self.classes, stream.class);
        stream.sparse = match place {
            Place::New => {
                if stream.busy_until <= queue.busy_turns {
                    stream.fresh = self.config.quantum_bytes;
                }
                // A flow with much withheld has been waiting for long. It is not sparse, since it
                // would keep flows that begin from their turn.
                stream.fresh > 0 && stream.send.ahead.bytes() <= self.config.quantum_bytes
            }
            Place::First => stream.sparse,
            Place::Last => false,
        };
        stream.ticket = stream.ticket.wrapping_add(1);
        let bytes = stream.send.pieces.len() as u64 + stream.send.ahead.bytes();
        let released = stream.send.released();
        let queued = Queued {
            class: stream.class,
            bytes,
            left_bytes: stream.flow_ends.saturating_sub(released).max(bytes),
        };
        stream.queued = Some(queued);
        if is_lane(queued.class) {
            queue.load.add(queued.left_bytes);
        }
        queue.opening += usize::from(stream.open.is_some());
        queue.bytes += queued.bytes;
        stream.light = stream.sparse && stream.light_budget.covers(self.sent_bytes, queued.bytes);
        queue.light_flows += usize::from(stream.light);
        let entry = (Flow::Stream(id), stream.ticket);
        let withheld = !stream.send.ahead.is_empty();
        queue.insert(entry, stream.sparse, place, withheld);
        self.sweep(usize::from(queued.class.0));
    }

    /// Whether the stream gathers bytes: it has few bytes to seal and so many payloads under way
    /// that it waits for more bytes or an acknowledgement. Each payload that arrives before an
    /// earlier one is a gap at the peer, which accepts a limited number.
    fn gathers(&self, id: StreamId) -> bool {
        let Some(stream) = self.streams.get(&id) else {
            return false;
        };
        let many = self.config.many_payloads;
        let part = self.least_gathering();
        stream.send.state == Sending::Open
            && stream.open.is_none()
            && stream.send.ahead.is_empty()
            && (stream.send.pieces.len() as u64) < LEAST_DATA_BYTES
            && (stream.unacknowledged >= many
                || stream.unacknowledged >= part && self.under_way >= 4 * u64::from(many))
    }

    /// A stream gathers bytes only with so many payloads under way, of which one is acknowledged in
    /// time.
    pub(super) fn least_gathering(&self) -> u32 {
        (self.config.many_payloads / 256).max(1)
    }

    /// Notes that a payload of the stream is acknowledged: a stream that gathered bytes may go on.
    pub(super) fn let_gathered_go_on(&mut self, id: StreamId) {
        let waits = |stream: &Stream| {
            stream.has_output() && stream.queued.is_none() && stream.blocked.is_none()
        };
        if self.streams.get(&id).is_some_and(waits) {
            self.enqueue(id, Place::New);
        }
    }

    /// Takes the stream out of its class' queue, where its entry becomes void,
    /// or from among those that wait for credit.
    pub(super) fn dequeue(&mut self, id: StreamId) {
        self.forget_blocked(id);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let Some(queued) = stream.queued.take() else {
            return;
        };
        stream.ticket = stream.ticket.wrapping_add(1);
        let queue = &mut self.classes[usize::from(queued.class.0)];
        queue.bytes -= queued.bytes;
        if is_lane(queued.class) {
            queue.load.remove(queued.left_bytes);
        }
        queue.opening -= usize::from(stream.open.is_some());
        queue.light_flows -= usize::from(stream.light);
        queue.forget(Flow::Stream(id), stream.sparse);
    }

    /// Notes that a waiting stream has more to send than its flow was expected to have left.
    pub(super) fn flow_grew(&mut self, id: StreamId, left_bytes: u64) {
        let queued = self.streams.get_mut(&id);
        if let Some(queued) = queued.and_then(|stream| stream.queued.as_mut()) {
            let before = std::mem::replace(&mut queued.left_bytes, left_bytes);
            if is_lane(queued.class) {
                let load = &mut self.classes[usize::from(queued.class.0)].load;
                load.remove(before);
                load.add(left_bytes);
            }
        }
    }

    /// Checks whether a light stream that has more to send is still light.
    pub(super) fn look_at_weight(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && let Some(queued) = &stream.queued
            && stream.light
            && !stream.light_budget.covers(self.sent_bytes, queued.bytes)
        {
            stream.light = false;
            self.classes[usize::from(queued.class.0)].light_flows -= 1;
        }
    }

    /// Allows so many payloads of a former run's stream to leave by now.
    pub(crate) fn let_restored_leave(
        &mut self,
        run: u64,
        id: StreamId,
        class: Class,
        payloads: usize,
    ) {
        if self.former || payloads == 0 {
            return;
        }
        let flow = Flow::Restored { run, id };
        let known = self.restored.get_mut(&(run, id));
        if let Some(known) = known {
            known.payloads = payloads;
            return;
        }
        let ticket = self.next_restored_ticket;
        self.next_restored_ticket = ticket.wrapping_add(1);
        let restored = RestoredFlow {
            class,
            payloads,
            ticket,
        };
        self.restored.insert((run, id), restored);
        ClassQueue::of(&mut self.classes, class).insert((flow, ticket), false, Place::Last, true);
    }

    /// Forgets a former run's stream that has nothing more to send.
    pub(crate) fn forget_restored(&mut self, run: u64, id: StreamId) {
        if let Some(restored) = self.restored.remove(&(run, id)) {
            let flow = Flow::Restored { run, id };
            ClassQueue::of(&mut self.classes, restored.class).forget(flow, false);
        }
    }

    /// Ends a turn of a former run's stream, in which one payload left.
    pub(super) fn restored_turn_over(&mut self, run: u64, id: StreamId) {
        let Some(mut restored) = self.restored.remove(&(run, id)) else {
            return;
        };
        restored.payloads -= 1;
        if restored.payloads > 0 {
            let entry = (Flow::Restored { run, id }, restored.ticket);
            let queue = ClassQueue::of(&mut self.classes, restored.class);
            queue.insert(entry, false, Place::Last, true);
            self.restored.insert((run, id), restored);
        }
    }

    /// Whether a flow that was given its turn waited among those that begin or
    /// send seldom.
    pub(super) fn was_sparse(&self, flow: Flow) -> bool {
        match flow {
            Flow::Stream(id) => self.streams.get(&id).is_some_and(|stream| stream.sparse),
            Flow::Restored { .. } => false,
        }
    }

    /// Puts a flow that was given its turn back in front.
    pub(super) fn return_turn(&mut self, flow: Flow) {
        match flow {
            Flow::Stream(id) => self.enqueue(id, Place::First),
            Flow::Restored { run, id } => {
                if let Some(restored) = self.restored.get(&(run, id)) {
                    let entry = (flow, restored.ticket);
                    let queue = ClassQueue::of(&mut self.classes, restored.class);
                    queue.insert(entry, false, Place::First, true);
                }
            }
        }
    }

    /// Begins the stream's turn, unless one that was cut goes on.
    pub(super) fn begin_turn(stream: &mut Stream, quantum: u64) {
        stream.fresh = stream.fresh.min(quantum);
        stream.deficit = Self::turn(stream, quantum);
    }

    /// What the stream may send in its turn, bytes.
    pub(super) fn turn(stream: &Stream, quantum: u64) -> u64 {
        match stream.deficit {
            0 if stream.sparse => stream.fresh.min(quantum),
            0 => quantum,
            left => left,
        }
    }

    pub(super) fn charge_turn(stream: &mut Stream, bytes: u64, quantum: u64) {
        stream.deficit = stream.deficit.saturating_sub(bytes.max(1));
        // A stream that writes byte by byte also has only few turns ahead of the others.
        let least = quantum.div_ceil(MOST_SPARSE_TURNS);
        stream.fresh = stream.fresh.saturating_sub(bytes.max(least));
    }

    /// Notes that the stream's turn is over, and has it wait for the next if
    /// it has more.
    pub(super) fn turn_over(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            let queue = ClassQueue::of(&mut self.classes, stream.class);
            // The stream counts as if it waited behind all others, without waiting.
            stream.busy_until = queue.busy_turns + queue.busy.len() as u64 + 1;
            stream.deficit = 0;
        }
        self.enqueue(id, Place::Last);
    }

    /// Drops void entries once they are the majority.
    fn sweep(&mut self, class: usize) {
        let queue = &mut self.classes[class];
        if queue.sparse.len() + queue.busy.len() <= 2 * queue.flows + 64 {
            return;
        }
        let mut entries = std::mem::take(&mut queue.sparse);
        let mut busy = std::mem::take(&mut queue.busy);
        entries.retain(|entry| self.is_valid(entry));
        busy.retain(|entry| self.is_valid(entry));
        entries.shrink_to(2 * entries.len());
        busy.shrink_to(2 * busy.len());
        let queue = &mut self.classes[class];
        (queue.sparse, queue.busy) = (entries, busy);
    }

    fn is_valid(&self, (flow, ticket): &(Flow, u32)) -> bool {
        match flow {
            Flow::Stream(id) => {
                let stream = self.streams.get(id);
                stream.is_some_and(|stream| stream.queued.is_some() && stream.ticket == *ticket)
            }
            Flow::Restored { run, id } => {
                let restored = self.restored.get(&(*run, *id));
                restored.is_some_and(|restored| restored.ticket == *ticket)
            }
        }
    }

    /// The next flow of the class, taken out of its queue.
    pub(super) fn next_turn(&mut self, class: Class) -> Option<Flow> {
        let index = usize::from(class.0);
        self.let_one_go_on(class);
        loop {
            count();
            let queue = self.classes.get_mut(index)?;
            let sparse = queue.sparse.pop_front();
            let entry = match sparse {
                Some(entry) => entry,
                None => {
                    queue.busy_turns += 1;
                    queue.busy.pop_front()?
                }
            };
            if self.is_valid(&entry) {
                match entry.0 {
                    Flow::Stream(id) => self.dequeue(id),
                    flow @ Flow::Restored { .. } => self.classes[index].forget(flow, false),
                }
                return Some(entry.0);
            }
        }
    }

    /// The next flow of the class that has something withheld, taken out of
    /// its queue. They take turns.
    pub(super) fn next_withheld(&mut self, class: Class) -> Option<Flow> {
        let queue = self.classes.get_mut(usize::from(class.0))?;
        let last = queue.last_withheld;
        let behind = last.and_then(|last| queue.withheld.range((Excluded(last), Unbounded)).next());
        let flow = *behind.or_else(|| queue.withheld.first())?;
        queue.last_withheld = Some(flow);
        match flow {
            Flow::Stream(id) => self.dequeue(id),
            Flow::Restored { run, id } => {
                queue.forget(flow, false);
                if let Some(restored) = self.restored.get_mut(&(run, id)) {
                    restored.ticket = self.next_restored_ticket;
                    self.next_restored_ticket = self.next_restored_ticket.wrapping_add(1);
                }
            }
        }
        Some(flow)
    }
}

impl ClassQueue {
    pub(super) fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let ClassQueue {
            // Void entries are swept when they are the majority, and when turns come; `flows`
            // counts the valid ones.
            sparse: _,
            busy: _,
            flows,
            sparse_flows: _,
            light_flows: _,
            opening,
            bytes: _,
            load,
            busy_turns: _,
            withheld,
            last_withheld: _,
        } = self;
        tell("flows", *flows);
        tell("groups of flows", load.groups());
        tell("opening flows", *opening);
        tell("withheld flows", withheld.len());
    }

    fn of(classes: &mut Vec<ClassQueue>, class: Class) -> &mut ClassQueue {
        let class = usize::from(class.0);
        if classes.len() <= class {
            classes.resize_with(class + 1, ClassQueue::default);
        }
        &mut classes[class]
    }

    fn insert(&mut self, entry: (Flow, u32), sparse: bool, place: Place, withheld: bool) {
        if withheld {
            self.withheld.insert(entry.0);
        }
        self.flows += 1;
        self.sparse_flows += usize::from(sparse);
        let turns = match sparse {
            true => &mut self.sparse,
            false => &mut self.busy,
        };
        match place {
            Place::First => turns.push_front(entry),
            Place::New | Place::Last => turns.push_back(entry),
        }
    }

    /// Notes that a valid entry has become void.
    fn forget(&mut self, flow: Flow, sparse: bool) {
        self.withheld.remove(&flow);
        self.flows -= 1;
        self.sparse_flows -= usize::from(sparse);
    }
}
