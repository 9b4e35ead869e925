//! A disk that survives its node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{
    BundleId, DurableRecord, MemoryStore, Payload, Restored, Store, StoreEvent,
};

/// The contents of a node's disk: records and payloads.
pub type Kept = BTreeMap<BundleId, (Bytes, Vec<Bytes>)>;

/// A store in memory that acts as a durable one: its contents survive the node.
#[derive(Default)]
pub struct Durable(pub MemoryStore, pub Arc<Mutex<Kept>>);

impl Durable {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.1.lock().expect("no test fails while it has it")
    }
}

impl Store for Durable {
    fn is_durable(&self) -> bool {
        true
    }
    fn restore(&mut self) -> Vec<Restored> {
        let kept = self.kept().clone();
        let mut restored = Vec::new();
        for (id, (record, payload)) in kept {
            restored.push(Restored {
                id,
                record,
                payload_bytes: payload.iter().map(|piece| piece.len() as u64).sum(),
                stored_for: Duration::ZERO,
            });
            self.0.put(Instant::now(), id, None, payload);
        }
        restored
    }
    fn first_free_id(&self) -> BundleId {
        let last = self.kept().last_key_value().map(|(id, _)| id.0);
        BundleId(last.map_or(self.0.first_free_id().0, |last| last + 1))
    }
    fn free_bytes(&self) -> u64 {
        self.0.free_bytes()
    }
    fn burst_bytes(&self) -> u64 {
        self.0.burst_bytes()
    }
    fn put(
        &mut self,
        now: Instant,
        id: BundleId,
        durable: Option<DurableRecord>,
        payload: Vec<Bytes>,
    ) {
        if let Some(durable) = &durable {
            self.kept()
                .insert(id, (durable.record.clone(), payload.clone()));
        }
        self.0.put(now, id, durable, payload);
    }
    fn payload(&mut self, id: BundleId) -> Payload {
        self.0.payload(id)
    }
    fn expect(&mut self, id: BundleId) {
        self.0.expect(id);
    }
    fn remove(&mut self, now: Instant, id: BundleId) {
        self.kept().remove(&id);
        self.0.remove(now, id);
    }
    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.0.poll_event()
    }
    fn next_timeout(&self) -> Option<Instant> {
        self.0.next_timeout()
    }
    fn handle_timeout(&mut self, now: Instant) {
        self.0.handle_timeout(now);
    }
    fn in_memory_alone(&self, id: BundleId) -> Option<Vec<Bytes>> {
        match self.kept().contains_key(&id) {
            true => None,
            false => self.0.in_memory_alone(id),
        }
    }
    fn flush(&mut self) {
        self.0.flush();
    }
    fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        self.0.footprint(tell);
    }
}
