//! A store shared by the agents of a node; the test decides all of its delays.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{BundleId, DurableRecord, Payload, Restored, Store, StoreEvent};

/// The part of the node that survives its end.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    entries: BTreeMap<u64, Entry>,
    events: BTreeMap<usize, VecDeque<StoreEvent>>,
    full: bool,
}

struct Entry {
    shard: usize,
    record: Option<Bytes>,
    payload: Vec<Bytes>,
    committed: bool,
    place: Place,
}

#[derive(PartialEq)]
enum Place {
    Memory,
    Disk,
    Asked,
}

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// One agent's part.
    pub fn part(&self, shard: usize, restored: Vec<Restored>) -> Part {
        Part {
            disk: self.clone(),
            shard,
            restored,
        }
    }

    /// Makes the oldest bundle durable if somebody waits for that, and drops its payload
    /// from memory.
    pub fn commit(&self) -> bool {
        let state = &mut *self.state();
        let waits = |entry: &&mut Entry| entry.record.is_some() && !entry.committed;
        let mut entries = state.entries.iter_mut();
        let Some((id, entry)) =
            entries.find_map(|(id, entry)| waits(&entry).then_some((id, entry)))
        else {
            return false;
        };
        entry.committed = true;
        entry.place = Place::Disk;
        let event = StoreEvent::Committed(BundleId(*id));
        state
            .events
            .entry(entry.shard)
            .or_default()
            .push_back(event);
        true
    }

    /// Reads a payload that was asked for.
    pub fn load(&self) -> bool {
        let state = &mut *self.state();
        let mut asked = state.entries.iter_mut();
        let Some((id, entry)) = asked.find(|(_, entry)| entry.place == Place::Asked) else {
            return false;
        };
        entry.place = Place::Memory;
        let event = StoreEvent::Loaded(BundleId(*id));
        state
            .events
            .entry(entry.shard)
            .or_default()
            .push_back(event);
        true
    }

    pub fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    pub fn bundles(&self) -> usize {
        self.state().entries.len()
    }

    /// The node ends without warning; returns what it had made durable.
    pub fn crash(&self) -> Vec<Restored> {
        let state = &mut *self.state();
        state.events.clear();
        state.entries.retain(|_, entry| entry.committed);
        let restored = state.entries.iter_mut().map(|(id, entry)| {
            entry.place = Place::Disk;
            Restored {
                id: BundleId(*id),
                record: entry.record.clone().unwrap(),
                payload_bytes: entry.payload.iter().map(|piece| piece.len() as u64).sum(),
                stored_for: Duration::from_secs(1),
            }
        });
        restored.collect()
    }
}

/// One agent's part of a disk.
pub struct Part {
    disk: Disk,
    shard: usize,
    restored: Vec<Restored>,
}

impl Store for Part {
    fn is_durable(&self) -> bool {
        true
    }

    fn restore(&mut self) -> Vec<Restored> {
        let restored = std::mem::take(&mut self.restored);
        let mut state = self.disk.state();
        for bundle in &restored {
            state.entries.get_mut(&bundle.id.0).unwrap().shard = self.shard;
        }
        restored
    }

    fn first_free_id(&self) -> BundleId {
        let last = self
            .disk
            .state()
            .entries
            .last_key_value()
            .map(|(id, _)| *id);
        BundleId(last.map_or(0, |id| id + 1))
    }

    fn free_bytes(&self) -> u64 {
        match self.disk.state().full {
            true => 0,
            false => u64::MAX,
        }
    }

    fn burst_bytes(&self) -> u64 {
        u64::MAX
    }

    fn put(
        &mut self,
        _: Instant,
        id: BundleId,
        durable: Option<DurableRecord>,
        payload: Vec<Bytes>,
    ) {
        let entry = Entry {
            shard: self.shard,
            record: durable.map(|durable| durable.record),
            payload,
            committed: false,
            place: Place::Memory,
        };
        let before = self.disk.state().entries.insert(id.0, entry);
        assert!(before.is_none(), "two agents gave the same id");
    }

    fn payload(&mut self, id: BundleId) -> Payload {
        match self.disk.state().entries.get_mut(&id.0) {
            None => Payload::Lost,
            Some(entry) if entry.place == Place::Memory => Payload::Here(entry.payload.clone()),
            Some(entry) => {
                entry.place = Place::Asked;
                Payload::Coming
            }
        }
    }

    fn expect(&mut self, id: BundleId) {
        let state = &mut *self.disk.state();
        if let Some(entry) = state.entries.get_mut(&id.0)
            && entry.place == Place::Disk
        {
            entry.place = Place::Asked;
        }
    }

    fn remove(&mut self, _: Instant, id: BundleId) {
        self.disk.state().entries.remove(&id.0);
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.disk.state().events.get_mut(&self.shard)?.pop_front()
    }

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn in_memory_alone(&self, id: BundleId) -> Option<Vec<Bytes>> {
        let state = self.disk.state();
        let entry = state.entries.get(&id.0)?;
        (!entry.committed).then(|| entry.payload.clone())
    }

    fn flush(&mut self) {}

    fn footprint(&self, _: &mut dyn FnMut(&'static str, usize)) {}
}
