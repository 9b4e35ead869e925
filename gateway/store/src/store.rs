//! The store as the bundle node sees it: nothing in it waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{BundleId, DurableRecord, Payload, Restored, Store, StoreEvent};

use crate::disk::Disk;
use crate::log::{Log, Put};
use crate::memory::{Place, Residents, Use};
use crate::queue::{Done, Shared};
use crate::recovery::{Damage, RecoveryError};
use crate::segment::Identity;
use crate::worker::Worker;

/// Payloads that are on the disk too have this part (1/n) of the memory of
/// those that are not.
const RESIDENT_PART: u64 = 4;

/// What a node knows of a stored bundle, about. It is taken from that part, of
/// which a quarter (1/n) stays, so that a long blockage takes little more memory
/// than a short one.
const KNOWN_BYTES: u64 = 1280;
const LEAST_RESIDENT_PART: u64 = 4;

/// How much of what a store takes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one segment file.
    pub segment_bytes: u64,
    /// Payload in memory that is not on the disk yet, bytes; and a quarter of
    /// that of payload that is, together with what is known of each bundle.
    pub memory_bytes: u64,
    /// What nobody upstream waits for is written when it is so old.
    pub write_behind: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            segment_bytes: 64 << 20,
            memory_bytes: 96 << 20,
            write_behind: Duration::from_millis(250),
        }
    }
}

/// What a start has found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Bundles restored.
    pub bundles: usize,
    /// Their payloads' bytes.
    pub bytes: u64,
    /// What was dropped.
    pub damaged: Vec<Damage>,
}

/// Where a bundle is.
#[derive(Debug)]
enum State {
    /// In memory alone, as long as the process lives.
    Transient,
    /// To be written, unless it is released before its time.
    Behind(Bytes),
    /// Given to the worker.
    Submitted { urgent: bool },
    /// On the disk; in memory too where it has a place there.
    Durable(Option<Place>),
    /// On the disk, and asked for.
    Asked,
}

#[derive(Debug)]
struct Entry {
    state: State,
    payload: Vec<Bytes>,
    bytes: u64,
}

/// Bundles on a disk.
#[derive(Debug)]
pub struct DiskStore {
    shared: Arc<Shared>,
    limits: Limits,
    /// A moment, and the boot's time then, ms.
    epoch: (Instant, i64),
    entries: HashMap<u64, Entry>,
    /// What is written behind, in the order in which it was put.
    behind: VecDeque<(Instant, u64)>,
    behind_bytes: u64,
    /// All that is not on the disk yet, bytes.
    uncommitted_bytes: u64,
    residents: Residents,
    asked_bytes: u64,
    stalled: bool,
    restored: Vec<Restored>,
    first_free_id: u64,
    events: VecDeque<StoreEvent>,
}

impl DiskStore {
    /// A store over a disk, and the worker that it needs: whoever has it calls
    /// [`Worker::step`]. `notify` is called when it has done something.
    ///
    /// # Errors
    /// When the disk cannot be read, or holds another node's bundles.
    pub fn over<D: Disk>(
        disk: D,
        identity: Identity,
        limits: Limits,
        now: Instant,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Result<(DiskStore, Worker<D>, Report), RecoveryError> {
        let (log, recovered) = Log::recover(disk, identity, limits.segment_bytes)?;
        let shared = Shared::new(notify);
        let worker = Worker::new(log, shared.clone(), recovered.unverified);
        let report = Report {
            bundles: recovered.bundles.len(),
            bytes: recovered.bundles.iter().map(|b| b.payload_bytes).sum(),
            damaged: recovered.damaged,
        };
        shared.tell(Vec::new(), |figures| {
            figures.restored_bundles = report.bundles as u64;
            figures.damaged_at_start = report.damaged.len() as u64;
        });
        let mut store = DiskStore {
            shared,
            limits,
            epoch: (now, identity.boot_ms),
            entries: HashMap::new(),
            behind: VecDeque::new(),
            behind_bytes: 0,
            uncommitted_bytes: 0,
            residents: Residents::default(),
            asked_bytes: 0,
            stalled: false,
            restored: Vec::new(),
            first_free_id: recovered.first_free_id,
            events: VecDeque::new(),
        };
        for found in recovered.bundles {
            store.entries.insert(
                found.id,
                Entry {
                    state: State::Durable(None),
                    payload: Vec::new(),
                    bytes: found.payload_bytes,
                },
            );
            store.restored.push(Restored {
                id: BundleId(found.id),
                record: found.description,
                payload_bytes: found.payload_bytes,
                stored_for: Duration::from_millis(found.stored_for_ms),
            });
        }
        Ok((store, worker, report))
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    fn boot_ms(&self, at: Instant) -> i64 {
        let (epoch, epoch_ms) = self.epoch;
        let since = at.saturating_duration_since(epoch).as_millis();
        epoch_ms.saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
    }

    fn submit(&mut self, id: u64, stored_at: Instant, record: Bytes, urgent: bool) {
        let stored_at_ms = self.boot_ms(stored_at);
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        entry.state = State::Submitted { urgent };
        let put = Put {
            id,
            stored_at_ms,
            description: record,
            payload: entry.payload.clone(),
        };
        self.shared.ask(|jobs| jobs.puts.push_back(put));
    }

    /// Submits what was put behind first.
    fn submit_next(&mut self) {
        let Some((due, id)) = self.behind.pop_front() else {
            return;
        };
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if let State::Behind(record) = &entry.state {
            let (record, put_at) = (record.clone(), due - self.limits.write_behind);
            self.behind_bytes -= entry.bytes;
            self.submit(id, put_at, record, false);
        }
    }

    /// Drops what is released from the front of the queue, so that its times
    /// wake nobody.
    fn skip_released(&mut self) {
        while let Some((_, id)) = self.behind.front()
            && !self.entries.contains_key(id)
        {
            self.behind.pop_front();
        }
    }

    fn ask(&mut self, id: u64) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.state = State::Asked;
            self.asked_bytes += entry.bytes;
            self.shared.ask(|jobs| jobs.reads.push_back(id));
        }
    }

    /// Takes what the worker has done.
    fn take_done(&mut self) {
        let done = std::mem::take(&mut self.shared.board().done);
        for done in done {
            match done {
                Done::Committed(ids) => ids.into_iter().for_each(|id| self.committed(id)),
                Done::Loaded(id, payload) => self.loaded(id, payload),
                Done::Lost(id, damaged) => {
                    if self.entries.contains_key(&id) {
                        let id = BundleId(id);
                        self.events.push_back(StoreEvent::Lost { id, damaged });
                    }
                }
                Done::Stalled(why) => {
                    self.stalled = true;
                    self.events.push_back(StoreEvent::Stalled(why));
                }
                Done::Resumed => {
                    self.stalled = false;
                    self.events.push_back(StoreEvent::Resumed);
                }
            }
        }
        self.evict();
        self.publish();
    }

    fn committed(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let State::Submitted { urgent } = entry.state else {
            return;
        };
        self.uncommitted_bytes -= entry.bytes;
        let place = self.residents.insert(id, entry.bytes, Use::Waiting);
        entry.state = State::Durable(Some(place));
        if urgent {
            self.events.push_back(StoreEvent::Committed(BundleId(id)));
        }
    }

    fn loaded(&mut self, id: u64, payload: Bytes) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if let State::Asked = entry.state {
            self.asked_bytes -= entry.bytes;
            let place = self.residents.insert(id, entry.bytes, Use::Loaded);
            entry.state = State::Durable(Some(place));
            entry.payload = vec![payload];
            self.events.push_back(StoreEvent::Loaded(BundleId(id)));
        }
    }

    /// Payload that is on the disk and may be in memory too.
    fn most_resident_bytes(&self) -> u64 {
        let part = self.limits.memory_bytes / RESIDENT_PART;
        let known = self.entries.len() as u64 * KNOWN_BYTES;
        part.saturating_sub(known).max(part / LEAST_RESIDENT_PART)
    }

    /// Lets payloads that are on the disk leave memory.
    fn evict(&mut self) {
        let most = self.most_resident_bytes();
        while let Some(id) = self.residents.evict(most) {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.state = State::Durable(None);
                entry.payload = Vec::new();
            }
        }
    }

    fn publish(&self) {
        let figures = &mut self.shared.board().figures;
        figures.uncommitted_bytes = self.uncommitted_bytes;
        figures.resident_bytes = self.residents.bytes();
    }
}

impl Store for DiskStore {
    fn is_durable(&self) -> bool {
        true
    }

    fn restore(&mut self) -> Vec<Restored> {
        std::mem::take(&mut self.restored)
    }

    fn first_free_id(&self) -> BundleId {
        BundleId(self.first_free_id)
    }

    fn free_bytes(&self) -> u64 {
        match self.uncommitted_bytes {
            _ if self.stalled => 0,
            // A lone bundle may be larger than the memory for many.
            0 => u64::MAX,
            waiting => self.limits.memory_bytes.saturating_sub(waiting),
        }
    }

    fn burst_bytes(&self) -> u64 {
        self.limits.memory_bytes
    }

    fn put(
        &mut self,
        now: Instant,
        id: BundleId,
        durable: Option<DurableRecord>,
        payload: Vec<Bytes>,
    ) {
        let BundleId(id) = id;
        let bytes = payload.iter().map(|piece| piece.len() as u64).sum();
        let mut entry = Entry {
            state: State::Transient,
            payload,
            bytes,
        };
        let Some(durable) = durable else {
            self.entries.insert(id, entry);
            return;
        };
        self.uncommitted_bytes += bytes;
        if durable.urgent {
            self.entries.insert(id, entry);
            self.submit(id, now, durable.record, true);
        } else {
            entry.state = State::Behind(durable.record);
            self.entries.insert(id, entry);
            self.behind.push_back((now + self.limits.write_behind, id));
            self.behind_bytes += bytes;
            // Memory is for what is released soon; when it is nearly full, the
            // disk begins.
            while self.behind_bytes > self.limits.memory_bytes / 4 * 3 {
                self.submit_next();
            }
        }
        self.evict();
    }

    fn payload(&mut self, id: BundleId) -> Payload {
        let BundleId(id) = id;
        let Some(entry) = self.entries.get_mut(&id) else {
            return Payload::Lost;
        };
        match entry.state {
            State::Asked => Payload::Coming,
            State::Durable(None) => {
                self.ask(id);
                Payload::Coming
            }
            State::Durable(Some(place)) => {
                self.residents.remove(place);
                let place = self.residents.insert(id, entry.bytes, Use::Sent);
                entry.state = State::Durable(Some(place));
                Payload::Here(entry.payload.clone())
            }
            _ => Payload::Here(entry.payload.clone()),
        }
    }

    fn expect(&mut self, id: BundleId) {
        let entry = self.entries.get(&id.0);
        let Some(entry) = entry.filter(|entry| matches!(entry.state, State::Durable(None))) else {
            return;
        };
        // More would push each other out again.
        if self.asked_bytes + entry.bytes <= self.most_resident_bytes() {
            self.ask(id.0);
        }
    }

    fn remove(&mut self, now: Instant, id: BundleId) {
        let BundleId(id) = id;
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        match entry.state {
            State::Transient => return,
            State::Behind(_) => {
                self.behind_bytes -= entry.bytes;
                self.uncommitted_bytes -= entry.bytes;
                self.skip_released();
                return;
            }
            State::Submitted { .. } => self.uncommitted_bytes -= entry.bytes,
            State::Durable(Some(place)) => self.residents.remove(place),
            State::Durable(None) => {}
            State::Asked => self.asked_bytes -= entry.bytes,
        }
        let at_ms = self.boot_ms(now);
        self.shared.ask(|jobs| {
            jobs.releases.push(id);
            jobs.released_at_ms = at_ms;
        });
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        if self.events.is_empty() {
            self.take_done();
        }
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.behind.front().map(|(due, _)| *due)
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some((due, _)) = self.behind.front()
            && *due <= now
        {
            self.submit_next();
        }
        self.skip_released();
    }

    fn flush(&mut self) {
        while !self.behind.is_empty() {
            self.submit_next();
        }
    }

    fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let DiskStore {
            // Its queues are the worker's, told there.
            shared: _,
            limits: _,
            epoch: _,
            entries,
            behind,
            behind_bytes,
            uncommitted_bytes,
            residents,
            asked_bytes,
            stalled: _,
            restored,
            first_free_id: _,
            events,
        } = self;
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        tell("stored bundles", entries.len());
        tell("bundles to write behind", behind.len());
        tell("bytes to write behind", bytes(*behind_bytes));
        tell("bytes not committed", bytes(*uncommitted_bytes));
        residents.footprint(tell);
        tell("bytes asked for", bytes(*asked_bytes));
        tell("restored bundles", restored.len());
        tell("store events", events.len());
    }
}
