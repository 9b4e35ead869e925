//! The store as the bundle node sees it: nothing in it waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{BundleId, DurableRecord, Payload, Restored, Store, StoreEvent};

use crate::budget::{Share, Sum};
use crate::log::Put;
use crate::memory::{Place, Residents, Use};
use crate::queue::{Done, Shared};

/// Payloads that are on the disk too have this part (1/n) of the memory of
/// those that are not.
const RESIDENT_PART: u64 = 4;

/// What a node knows of a stored bundle, about. It is taken from that part, of
/// which a quarter (1/n) stays, so that a long blockage takes little more memory
/// than a short one.
const KNOWN_BYTES: u64 = 1024;
const LEAST_RESIDENT_PART: u64 = 4;

/// Stores that wait for memory look again when a step of it is free: it has so
/// many.
const ROOM_STEPS: u64 = 16;

/// How much of what the stores of a disk take together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one segment file.
    pub segment_bytes: u64,
    /// Payload in memory that is not on the disk yet, bytes; and a quarter of
    /// that of payload that is, together with what is known of each bundle.
    pub memory_bytes: u64,
    /// What nobody upstream waits for is written when it is so old, and with it
    /// what is half as old: making it durable costs as much for one bundle as
    /// for many.
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

/// Bundles on a disk: all of them, or those of one shard.
#[derive(Debug)]
pub struct DiskStore {
    shared: Arc<Shared>,
    shard: usize,
    limits: Limits,
    /// A moment, and the boot's time then, ms.
    epoch: (Instant, i64),
    entries: HashMap<u64, Entry>,
    /// How many there are, also in other stores.
    known: Share,
    /// What is written behind, in the order in which it was put.
    behind: VecDeque<(Instant, u64)>,
    behind_bytes: Share,
    /// All that is not on the disk yet, bytes.
    uncommitted_bytes: Share,
    residents: Residents,
    asked_bytes: u64,
    stalled: bool,
    restored: Vec<Restored>,
    first_free_id: u64,
    events: VecDeque<StoreEvent>,
}

impl DiskStore {
    /// The store of a shard, without any bundle. `known` and `behind` are the
    /// sums over all stores of their bundles and of bytes to write behind.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        shard: usize,
        limits: Limits,
        epoch: (Instant, i64),
        first_free_id: u64,
        [known, behind]: [&Arc<Sum>; 2],
    ) -> DiskStore {
        DiskStore {
            shared: shared.clone(),
            shard,
            limits,
            epoch,
            entries: HashMap::new(),
            known: Share::of(known),
            behind: VecDeque::new(),
            behind_bytes: Share::of(behind),
            uncommitted_bytes: Share::of(&shared.uncommitted),
            residents: Residents::new(Share::of(&shared.resident)),
            asked_bytes: 0,
            stalled: false,
            restored: Vec::new(),
            first_free_id,
            events: VecDeque::new(),
        }
    }

    /// Takes up what an earlier run has left.
    pub(crate) fn take_up(&mut self, restored: Restored) {
        let entry = Entry {
            state: State::Durable(None),
            payload: Vec::new(),
            bytes: restored.payload_bytes,
        };
        self.insert(restored.id.0, entry);
        self.restored.push(restored);
    }

    fn insert(&mut self, id: u64, entry: Entry) {
        if self.entries.insert(id, entry).is_none() {
            self.known.add(1);
        }
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
        self.shared.ask(self.shard, |jobs| jobs.puts.push_back(put));
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
            self.behind_bytes.subtract(entry.bytes);
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
            self.shared.ask(self.shard, |jobs| jobs.reads.push_back(id));
        }
    }

    /// Takes what the worker has done.
    fn take_done(&mut self) {
        for done in self.shared.take_done(self.shard) {
            match done {
                Done::Committed(ids) => ids.into_iter().for_each(|id| self.committed(id)),
                Done::Loaded(id, payload) => self.loaded(id, payload),
                Done::Lost(id, damaged) => {
                    // It may be another shard's.
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
    }

    /// Bytes wait no longer to be on the disk.
    fn give_back(&mut self, bytes: u64) {
        let before = self.uncommitted_bytes.subtract(bytes);
        let step = (self.limits.memory_bytes / ROOM_STEPS).max(1);
        let after = before - bytes;
        if after == 0 || after / step < before / step {
            self.shared.make_room(self.shard);
        }
    }

    fn committed(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let State::Submitted { urgent } = entry.state else {
            return;
        };
        let bytes = entry.bytes;
        let place = self.residents.insert(id, bytes, Use::Waiting);
        entry.state = State::Durable(Some(place));
        self.give_back(bytes);
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

    /// Payload that is on the disk and may be in memory too, of all stores.
    fn resident_limit(&self) -> u64 {
        let part = self.limits.memory_bytes / RESIDENT_PART;
        let known = self.known.sum().total() * KNOWN_BYTES;
        part.saturating_sub(known).max(part / LEAST_RESIDENT_PART)
    }

    /// Lets payloads that are on the disk leave memory.
    fn evict(&mut self) {
        let limit = self.resident_limit();
        while let Some(id) = self.residents.evict(limit) {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.state = State::Durable(None);
                entry.payload = Vec::new();
            }
        }
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
        if self.stalled {
            return 0;
        }
        let uncommitted = &self.uncommitted_bytes;
        if uncommitted.sum().total() > 0 {
            self.shared.await_room(self.shard);
        }
        match uncommitted.sum().total() {
            // A lone bundle may be larger than the memory for many.
            0 => u64::MAX,
            _ => {
                let most = uncommitted.most(self.limits.memory_bytes);
                most.saturating_sub(uncommitted.own())
            }
        }
    }

    fn burst_bytes(&self) -> u64 {
        // A caller that waits until an eighth of it is free finds that in what
        // is set apart for this store, whatever the others take.
        let sum = self.uncommitted_bytes.sum();
        sum.equal_part(self.limits.memory_bytes)
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
            self.insert(id, entry);
            return;
        };
        self.uncommitted_bytes.add(bytes);
        if durable.urgent {
            self.insert(id, entry);
            self.submit(id, now, durable.record, true);
        } else {
            entry.state = State::Behind(durable.record);
            self.insert(id, entry);
            self.behind.push_back((now + self.limits.write_behind, id));
            self.behind_bytes.add(bytes);
            // Memory is for what is released soon; when it is nearly full, the
            // disk begins. What other stores have in it waits for their calls.
            let most = self.behind_bytes.sum().common(self.limits.memory_bytes) / 4 * 3;
            while self.behind_bytes.own() > 0 && self.behind_bytes.sum().total() > most {
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
        if self.asked_bytes + entry.bytes <= self.residents.most(self.resident_limit()) {
            self.ask(id.0);
        }
    }

    fn remove(&mut self, now: Instant, id: BundleId) {
        let BundleId(id) = id;
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        self.known.subtract(1);
        match entry.state {
            State::Transient => return,
            State::Behind(_) => {
                self.behind_bytes.subtract(entry.bytes);
                self.give_back(entry.bytes);
                self.skip_released();
                return;
            }
            State::Submitted { .. } => self.give_back(entry.bytes),
            State::Durable(Some(place)) => self.residents.remove(place),
            State::Durable(None) => {}
            State::Asked => self.asked_bytes -= entry.bytes,
        }
        let at_ms = self.boot_ms(now);
        self.shared.ask(self.shard, |jobs| {
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
        if self.next_timeout().is_some_and(|due| due <= now) {
            let until = now + self.limits.write_behind / 2;
            while self.next_timeout().is_some_and(|due| due <= until) {
                self.submit_next();
            }
        }
        self.skip_released();
    }

    fn in_memory_alone(&self, id: BundleId) -> Option<Vec<Bytes>> {
        let entry = self.entries.get(&id.0)?;
        match entry.state {
            State::Transient | State::Behind(_) | State::Submitted { .. } => {
                Some(entry.payload.clone())
            }
            State::Durable(_) | State::Asked => None,
        }
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
            shard: _,
            limits: _,
            epoch: _,
            entries,
            known: _,
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
        tell("bytes to write behind", bytes(behind_bytes.own()));
        tell("bytes not committed", bytes(uncommitted_bytes.own()));
        residents.footprint(tell);
        tell("bytes asked for", bytes(*asked_bytes));
        tell("restored bundles", restored.len());
        tell("store events", events.len());
    }
}
