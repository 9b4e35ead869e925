//! Reports on their way to the control service: which are posted when, which are kept on disk
//! meanwhile, and when their senders may release them.
//!
//! There are two lanes, each with one post in progress. Urgent reports go at once; the others, and
//! those left over from an absence of the service, once in each interval. A lane posts the newest
//! first, as terminals do.
//!
//! If custody is durable, a report that was not accepted within a quarter of a second is saved; so
//! while the service answers, the disk is not used. Only a saved, accepted or dropped report is
//! released from its sender's custody. When memory is full, saved reports stay only on disk until
//! they can be posted.

mod nodes;
mod posting;
mod spooling;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use posting::{Lane, Outcome};

use nodes::Nodes;
use posting::LaneState;

/// The overhead of an entry beside its report's text.
const OVERHEAD_BYTES: u64 = 128;

/// In memory at most, where there is a disk.
const MEMORY_BYTES: u64 = 16 << 20;

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Whether what is not accepted soon is saved.
    pub durable: bool,
    /// Bytes in all.
    pub bytes: u64,
    /// How often what is not urgent is posted.
    pub interval: Duration,
}

/// A report on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the order in which they came.
    pub id: u64,
    /// Whose it is: an ipn node number.
    pub node: u64,
    /// When it was made, ms after [`Queue::new`]; less than 0 before.
    pub made_ms: i64,
    /// The report, as JSON.
    pub report: Box<str>,
}

/// A report that comes in.
#[derive(Clone, Debug)]
pub struct Taken {
    /// How soon it is to be posted.
    pub lane: Lane,
    /// When it was made.
    pub made: Instant,
    /// The report, as JSON.
    pub report: Box<str>,
}

impl Entry {
    fn bytes(&self) -> u64 {
        self.report.len() as u64 + OVERHEAD_BYTES
    }
}

/// What the queue wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Post these; [`Queue::posted`] takes the outcome.
    Post(Lane, Vec<Arc<Entry>>),
    /// To be made durable: [`Queue::saved`].
    Save(Vec<Arc<Entry>>),
    /// No longer needed on the disk.
    Forget(Vec<u64>),
    /// Needed from the disk: [`Queue::loaded`].
    Load(Vec<u64>),
    /// Reports that came with this ticket need no custody elsewhere any more.
    Release(u64),
}

/// The outcomes of reports since the start, and those that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Reports that wait, those under way included.
    pub waiting: u64,
    /// Those among them that are on the disk.
    pub spooled: u64,
    /// Bytes of those that wait.
    pub waiting_bytes: u64,
    /// Reports that the service took in.
    pub accepted: u64,
    /// Reports that it will never take.
    pub refused: u64,
    /// Reports given up for want of room, or lost by the disk.
    pub dropped: u64,
}

/// Reports on their way to the control service.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    origin: Instant,
    next_id: u64,
    /// In memory.
    in_memory: BTreeMap<u64, Queued>,
    memory_bytes: u64,
    /// On the disk alone.
    disk: BTreeMap<u64, OnDisk>,
    disk_bytes: u64,
    nodes: Nodes,
    /// For each bundle, how many of its reports still need custody.
    tickets: HashMap<u64, usize>,
    urgent: LaneState,
    routine: LaneState,
    /// Since when something urgent waits.
    urgent_since: Option<Instant>,
    /// When the routine lane is next due.
    routine_at: Instant,
    /// Nothing is posted before this.
    paused_until: Option<Instant>,
    /// Posts in a row that did not reach the service.
    failures: u32,
    /// Whether the last post was answered as it should.
    reachable: bool,
    /// Not saved yet, in the order in which they came.
    unsaved: VecDeque<(Instant, u64)>,
    /// What is being saved.
    saving: Vec<u64>,
    /// What is being loaded.
    loading: BTreeMap<u64, OnDisk>,
    /// The disk is not asked before this.
    disk_at: Option<Instant>,
    actions: VecDeque<Action>,
    figures: Figures,
}

/// An entry that is not in memory: its node, and its bytes.
type OnDisk = (u64, u64);

/// An entry that an earlier run has left: its id, its node, and its bytes.
pub type Left = (u64, u64, u64);

#[derive(Debug)]
struct Queued {
    entry: Arc<Entry>,
    lane: Lane,
    saved: Saved,
    in_flight: bool,
    ticket: Option<u64>,
}

/// Whether an entry is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saved {
    No,
    /// The disk was asked, and has not answered.
    Asked,
    Yes,
}

impl Queue {
    /// An empty queue. `left` are the entries of an earlier run on disk, with node and bytes of
    /// each report.
    pub fn new(now: Instant, limits: Limits, left: impl IntoIterator<Item = Left>) -> Queue {
        let disk: BTreeMap<u64, OnDisk> = left
            .into_iter()
            .map(|(id, node, bytes)| (id, (node, bytes + OVERHEAD_BYTES)))
            .collect();
        let mut nodes = Nodes::default();
        for (id, (node, bytes)) in &disk {
            nodes.add(*node, *id, *bytes);
        }
        let mut queue = Queue {
            limits,
            origin: now,
            next_id: disk.last_key_value().map_or(0, |(last, _)| last + 1),
            in_memory: BTreeMap::new(),
            memory_bytes: 0,
            disk_bytes: disk.values().map(|(_, bytes)| bytes).sum(),
            disk,
            nodes,
            tickets: HashMap::new(),
            urgent: LaneState::default(),
            routine: LaneState::default(),
            urgent_since: None,
            routine_at: now,
            paused_until: None,
            failures: 0,
            reachable: true,
            unsaved: VecDeque::new(),
            saving: Vec::new(),
            loading: BTreeMap::new(),
            disk_at: None,
            actions: VecDeque::new(),
            figures: Figures::default(),
        };
        queue.bound();
        queue
    }

    /// Takes in reports of `node`. With a `ticket`, custody of them is
    /// elsewhere until it is released.
    pub fn take(&mut self, now: Instant, node: u64, reports: Vec<Taken>, ticket: Option<u64>) {
        if let Some(ticket) = ticket {
            match reports.len() {
                0 => self.actions.push_back(Action::Release(ticket)),
                count => drop(self.tickets.insert(ticket, count)),
            }
        }
        for taken in reports {
            self.take_one(now, node, taken, ticket);
        }
        self.bound();
    }

    fn take_one(&mut self, now: Instant, node: u64, taken: Taken, ticket: Option<u64>) {
        let id = self.next_id;
        self.next_id += 1;
        let entry = Entry {
            id,
            node,
            made_ms: self.ms_at(taken.made),
            report: taken.report,
        };
        self.memory_bytes += entry.bytes();
        self.nodes.add(node, id, entry.bytes());
        let queued = Queued {
            entry: Arc::new(entry),
            lane: taken.lane,
            saved: Saved::No,
            in_flight: false,
            ticket,
        };
        self.in_memory.insert(id, queued);
        self.lane(taken.lane).waiting.insert(id);
        if self.limits.durable {
            self.unsaved.push_back((now, id));
        }
        if taken.lane == Lane::Urgent {
            self.urgent_since.get_or_insert(now);
        }
    }

    /// How old an entry is, ms.
    pub fn age_ms(&self, now: Instant, entry: &Entry) -> u64 {
        u64::try_from(self.ms_at(now) - entry.made_ms).unwrap_or(0)
    }

    /// What is to be done next.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        if self.actions.is_empty() {
            self.post_due(now);
            self.save_due(now);
            self.load_due(now);
        }
        self.actions.pop_front()
    }

    /// When [`Queue::poll`] has something without another event.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.post_at().into_iter().chain(self.disk_at()).min()
    }

    /// The queue in figures.
    pub fn figures(&self) -> Figures {
        let queued = self.in_memory.values();
        let spooled = queued.filter(|queued| queued.saved == Saved::Yes).count();
        Figures {
            waiting: (self.in_memory.len() + self.disk.len() + self.loading.len()) as u64,
            spooled: (spooled + self.disk.len() + self.loading.len()) as u64,
            waiting_bytes: self.bytes(),
            ..self.figures
        }
    }

    /// One report less needs the ticket.
    fn release(&mut self, ticket: Option<u64>) {
        let Some(ticket) = ticket else { return };
        let Some(left) = self.tickets.get_mut(&ticket) else {
            return;
        };
        *left -= 1;
        if *left == 0 {
            self.tickets.remove(&ticket);
            self.actions.push_back(Action::Release(ticket));
        }
    }

    /// An entry in memory is finished; the disk must forget it if it may have it.
    fn done(&mut self, id: u64) -> Option<u64> {
        let queued = self.in_memory.remove(&id)?;
        let (node, bytes) = (queued.entry.node, queued.entry.bytes());
        self.memory_bytes -= bytes;
        self.nodes.remove(node, id, bytes);
        self.lane(queued.lane).waiting.remove(&id);
        self.release(queued.ticket);
        (queued.saved != Saved::No).then_some(id)
    }

    fn lane(&mut self, lane: Lane) -> &mut LaneState {
        match lane {
            Lane::Urgent => &mut self.urgent,
            Lane::Routine => &mut self.routine,
        }
    }

    fn bytes(&self) -> u64 {
        let loading = self.loading.values().map(|(_, bytes)| bytes);
        self.memory_bytes + self.disk_bytes + loading.sum::<u64>()
    }

    /// Keeps the bounds: of memory by leaving saved entries only on disk, in all by dropping the
    /// oldest of the node that has the most.
    fn bound(&mut self) {
        while self.limits.durable && self.memory_bytes > MEMORY_BYTES && self.evict_first() {}
        let mut forgotten = Vec::new();
        while self.bytes() > self.limits.bytes {
            let waits = |id: &u64| {
                let queued = self.in_memory.get(id);
                self.disk.contains_key(id) || queued.is_some_and(|queued| !queued.in_flight)
            };
            let Some(id) = self.nodes.most_first().find(waits) else {
                break;
            };
            match self.disk.remove(&id) {
                Some((node, bytes)) => {
                    self.disk_bytes -= bytes;
                    self.nodes.remove(node, id, bytes);
                    forgotten.push(id);
                }
                None => forgotten.extend(self.done(id)),
            }
            self.figures.dropped += 1;
        }
        if !forgotten.is_empty() {
            self.actions.push_back(Action::Forget(forgotten));
        }
    }

    /// ms from the origin to an instant.
    fn ms_at(&self, at: Instant) -> i64 {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        match at.checked_duration_since(self.origin) {
            Some(after) => ms(after),
            None => -ms(self.origin - at),
        }
    }
}

/// The newest of a set, at most `count` of them, by a bound of bytes; at least
/// one if there is any. The oldest first.
fn newest(
    ids: &BTreeSet<u64>,
    count: usize,
    bytes_of: impl Fn(u64) -> u64,
    most_bytes: u64,
) -> Vec<u64> {
    let mut bytes = 0;
    let newest = ids.iter().rev().take(count).take_while(|id| {
        let first = bytes == 0;
        bytes += bytes_of(**id);
        first || bytes <= most_bytes
    });
    let mut newest: Vec<u64> = newest.copied().collect();
    newest.reverse();
    newest
}

#[cfg(test)]
mod tests;
