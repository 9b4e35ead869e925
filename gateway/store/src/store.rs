//! The store as the bundle node sees it: no call waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{BundleId, DurableRecord, Payload, Restored, Store, StoreEvent};
use underpass_payloads::PayloadFile;
use underpass_work::IdMap;

use crate::budget::{Share, Sum};
use crate::log::Put;
use crate::memory::{Place, Residents, Use};
use crate::queue::{Done, Shared};

/// Payloads that are on the disk too may take this part (1/n) of the memory for those that are not.
const RESIDENT_PART: u64 = 4;

/// The approximate memory of a node's notes on a stored bundle. It is taken from that part, down to
/// a quarter (1/n) of it, so that a long blockage takes little more memory than a short one.
const KNOWN_BYTES: u64 = 512;
const LEAST_RESIDENT_PART: u64 = 4;

/// Stores that wait for memory look again when another of so many equal steps is free.
const ROOM_STEPS: u64 = 16;

/// How much the stores of a disk take together.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one segment file.
    pub segment_bytes: u64,
    /// Payload in memory that is not on the disk yet, bytes. A quarter of this on top is for
    /// payload that is on the disk and for the notes on each bundle.
    pub memory_bytes: u64,
    /// Bundles that nobody upstream waits for are written when they are so old, together with those
    /// half as old: making one durable costs as much as many.
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

/// A bundle, with its payload's bytes. A million of them may be on the disk
/// alone, so what is in memory is boxed.
#[derive(Debug)]
enum Entry {
    /// On the disk alone.
    OnDisk(u64),
    /// On the disk, and asked for.
    Asked(u64),
    InMemory(Box<Held>),
}

/// A bundle whose payload is in memory.
#[derive(Debug)]
struct Held {
    state: State,
    payload: Vec<Bytes>,
    bytes: u64,
}

/// Whether it is on the disk too.
#[derive(Debug)]
enum State {
    /// In memory alone, as long as the process lives.
    Transient,
    /// To be written, unless it is released before its time.
    Behind(Bytes),
    /// Given to the worker.
    Submitted { urgent: bool },
    /// On the disk; its place in memory.
    Durable(Place),
}

/// Bundles on a disk: all of them, or those of one shard.
#[derive(Debug)]
pub struct DiskStore {
    shared: Arc<Shared>,
    shard: usize,
    limits: Limits,
    /// A moment, and the boot's time then, ms.
    epoch: (Instant, i64),
    entries: IdMap<u64, Entry>,
    /// How many bundles there are, with those of other stores.
    known: Share,
    /// Bundles to be written behind, in the order in which they were put.
    behind: VecDeque<(Instant, u64)>,
    behind_bytes: Share,
    /// Bytes that are not on the disk yet.
    uncommitted_bytes: Share,
    residents: Residents,
    asked_bytes: u64,
    /// Payloads on disk.
    files: IdMap<u64, Arc<PayloadFile>>,
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
            entries: IdMap::default(),
            known: Share::of(known),
            behind: VecDeque::new(),
            behind_bytes: Share::of(behind),
            uncommitted_bytes: Share::of(&shared.uncommitted),
            residents: Residents::new(Share::of(&shared.resident)),
            asked_bytes: 0,
            files: IdMap::default(),
            stalled: false,
            restored: Vec::new(),
            first_free_id,
            events: VecDeque::new(),
        }
    }

    /// Takes over a bundle that an earlier run has left.
    pub(crate) fn take_up(&mut self, restored: Restored) {
        self.insert(restored.id.0, Entry::OnDisk(restored.payload_bytes));
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
        let file = self.files.get(id).cloned();
        let Some(held) = self.held(id) else {
            return;
        };
        held.state = State::Submitted { urgent };
        let put = Put {
            id,
            stored_at_ms,
            description: record,
            payload: held.payload.clone(),
            file,
        };
        self.shared.ask(self.shard, |jobs| jobs.puts.push_back(put));
    }

    /// A bundle whose payload is in memory.
    fn held(&mut self, id: u64) -> Option<&mut Held> {
        match self.entries.get_mut(id)? {
            Entry::InMemory(held) => Some(held),
            Entry::OnDisk(_) | Entry::Asked(_) => None,
        }
    }

    /// Submits the oldest bundle that is to be written behind.
    fn submit_next(&mut self) {
        let Some((due, id)) = self.behind.pop_front() else {
            return;
        };
        if let Some(held) = self.held(id)
            && let State::Behind(record) = &held.state
        {
            let (record, bytes) = (record.clone(), held.bytes);
            let put_at = due - self.limits.write_behind;
            self.behind_bytes.subtract(bytes);
            self.submit(id, put_at, record, false);
        }
    }

    /// Drops released bundles from the front of the queue, so that their deadlines wake nobody.
    fn skip_released(&mut self) {
        while let Some((_, id)) = self.behind.front()
            && !self.entries.contains_key(*id)
        {
            self.behind.pop_front();
        }
    }

    fn ask(&mut self, id: u64) {
        if let Some(entry) = self.entries.get_mut(id)
            && let Entry::OnDisk(bytes) = *entry
        {
            *entry = Entry::Asked(bytes);
            self.asked_bytes += bytes;
            self.shared.ask(self.shard, |jobs| jobs.reads.push_back(id));
        }
    }

    /// Takes the worker's results.
    fn take_done(&mut self) {
        for done in self.shared.take_done(self.shard) {
            match done {
                Done::Committed(ids) => ids.into_iter().for_each(|id| self.committed(id)),
                Done::Loaded(id, payload) => self.loaded(id, payload),
                Done::Lost(id, damaged) => {
                    // The bundle may be another shard's.
                    if self.entries.contains_key(id) {
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

    /// Notes that bytes no longer wait to be on the disk.
    fn give_back(&mut self, bytes: u64) {
        let before = self.uncommitted_bytes.subtract(bytes);
        let step = (self.limits.memory_bytes / ROOM_STEPS).max(1);
        let after = before - bytes;
        if after == 0 || after / step < before / step {
            self.shared.make_room(self.shard);
        }
    }

    fn committed(&mut self, id: u64) {
        let Some(Entry::InMemory(held)) = self.entries.get_mut(id) else {
            return;
        };
        let State::Submitted { urgent } = held.state else {
            return;
        };
        let bytes = held.bytes;
        let place = self.residents.insert(id, bytes, Use::Waiting);
        held.state = State::Durable(place);
        self.give_back(bytes);
        if urgent {
            self.events.push_back(StoreEvent::Committed(BundleId(id)));
        }
    }

    fn loaded(&mut self, id: u64, payload: Bytes) {
        if let Some(entry) = self.entries.get_mut(id)
            && let Entry::Asked(bytes) = *entry
        {
            self.asked_bytes -= bytes;
            let place = self.residents.insert(id, bytes, Use::Loaded);
            *entry = Entry::InMemory(Box::new(Held {
                state: State::Durable(place),
                payload: vec![payload],
                bytes,
            }));
            self.events.push_back(StoreEvent::Loaded(BundleId(id)));
        }
    }

    /// The most payload of all stores that is on the disk and in memory, too.
    fn resident_limit(&self) -> u64 {
        let part = self.limits.memory_bytes / RESIDENT_PART;
        let known = self.known.sum().total() * KNOWN_BYTES;
        part.saturating_sub(known).max(part / LEAST_RESIDENT_PART)
    }

    /// Drops payloads that are on the disk from memory.
    fn evict(&mut self) {
        let limit = self.resident_limit();
        while let Some(id) = self.residents.evict(limit) {
            if let Some(entry) = self.entries.get_mut(id)
                && let Entry::InMemory(held) = entry
            {
                *entry = Entry::OnDisk(held.bytes);
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
            // A single bundle may be larger than the memory for all.
            0 => u64::MAX,
            _ => {
                let most = uncommitted.most(self.limits.memory_bytes);
                most.saturating_sub(uncommitted.own())
            }
        }
    }

    fn burst_bytes(&self) -> u64 {
        // A caller that waits until an eighth of this is free finds it in this store's reserved
        // part, whatever the others take.
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
        let mut held = Box::new(Held {
            state: State::Transient,
            payload,
            bytes,
        });
        let Some(durable) = durable else {
            self.insert(id, Entry::InMemory(held));
            return;
        };
        if let Some(file) = durable.file {
            self.files.insert(id, file);
        }
        self.uncommitted_bytes.add(bytes);
        if durable.urgent {
            self.insert(id, Entry::InMemory(held));
            self.submit(id, now, durable.record, true);
        } else {
            held.state = State::Behind(durable.record);
            self.insert(id, Entry::InMemory(held));
            self.behind.push_back((now + self.limits.write_behind, id));
            self.behind_bytes.add(bytes);
            // Memory is for bundles that are released soon; when it is nearly full, writing begins.
            // Bundles of other stores wait for calls of those.
            let most = self.behind_bytes.sum().common(self.limits.memory_bytes) / 4 * 3;
            while self.behind_bytes.own() > 0 && self.behind_bytes.sum().total() > most {
                self.submit_next();
            }
        }
        self.evict();
    }

    fn adopt(&mut self, id: BundleId, file: Arc<PayloadFile>) {
        self.files.insert(id.0, file);
    }

    fn payload(&mut self, id: BundleId) -> Payload {
        let BundleId(id) = id;
        match self.entries.get_mut(id) {
            None => Payload::Lost,
            Some(Entry::Asked(_)) => Payload::Coming,
            Some(Entry::OnDisk(_)) => {
                self.ask(id);
                Payload::Coming
            }
            Some(Entry::InMemory(held)) => {
                if let State::Durable(place) = held.state {
                    self.residents.remove(place);
                    let place = self.residents.insert(id, held.bytes, Use::Sent);
                    held.state = State::Durable(place);
                }
                Payload::Here(held.payload.clone())
            }
        }
    }

    fn expect(&mut self, id: BundleId) {
        let Some(Entry::OnDisk(bytes)) = self.entries.get(id.0) else {
            return;
        };
        // With more, payloads would push each other out again.
        if self.asked_bytes + bytes <= self.residents.most(self.resident_limit()) {
            self.ask(id.0);
        }
    }

    fn remove(&mut self, now: Instant, id: BundleId) {
        let BundleId(id) = id;
        let Some(entry) = self.entries.remove(id) else {
            return;
        };
        self.known.subtract(1);
        let mut written = true;
        match entry {
            Entry::OnDisk(_) => {}
            Entry::Asked(bytes) => self.asked_bytes -= bytes,
            Entry::InMemory(held) => match held.state {
                State::Transient => written = false,
                State::Behind(_) => {
                    self.behind_bytes.subtract(held.bytes);
                    self.give_back(held.bytes);
                    self.skip_released();
                    written = false;
                }
                State::Submitted { .. } => self.give_back(held.bytes),
                State::Durable(place) => self.residents.remove(place),
            },
        }
        // This includes a file that no record names: to delete it takes the disk a while.
        let file = self.files.remove(id).map(|file| (id, file));
        if !written && file.is_none() {
            return;
        }
        let at_ms = self.boot_ms(now);
        // The worker must not hear of the file before the release.
        self.shared.ask(self.shard, |jobs| {
            jobs.files.extend(file);
            if written {
                jobs.releases.push(id);
                jobs.released_at_ms = at_ms;
            }
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
        let Entry::InMemory(held) = self.entries.get(id.0)? else {
            return None;
        };
        let on_disk = matches!(held.state, State::Durable(_));
        (!on_disk).then(|| held.payload.clone())
    }

    fn flush(&mut self) {
        while !self.behind.is_empty() {
            self.submit_next();
        }
    }

    fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let DiskStore {
            // Its queues are reported by the worker.
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
            files,
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
        tell("payloads on disk", files.len());
        tell("restored bundles", restored.len());
        tell("store events", events.len());
    }
}
