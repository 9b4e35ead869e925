//! A store whose calls are watched: a simulation wakes its worker by them.

use std::time::Instant;

use bytes::Bytes;
use underpass_bundle::{BundleId, DurableRecord, Payload, Restored, Store, StoreEvent};

use crate::store::DiskStore;

/// A store that reports each call that may have changed it.
#[derive(Debug)]
pub struct Watched<F> {
    store: DiskStore,
    tell: F,
}

impl<F: Fn(&DiskStore, bool) + Send> Watched<F> {
    /// `tell` is called after such a call, with whether the call may have asked
    /// the worker for something.
    pub fn new(store: DiskStore, tell: F) -> Watched<F> {
        Watched { store, tell }
    }

    fn asks<R>(&mut self, call: impl FnOnce(&mut DiskStore) -> R) -> R {
        let result = call(&mut self.store);
        (self.tell)(&self.store, true);
        result
    }
}

impl<F: Fn(&DiskStore, bool) + Send> Store for Watched<F> {
    fn is_durable(&self) -> bool {
        self.store.is_durable()
    }

    fn restore(&mut self) -> Vec<Restored> {
        self.asks(DiskStore::restore)
    }

    fn first_free_id(&self) -> BundleId {
        self.store.first_free_id()
    }

    fn free_bytes(&self) -> u64 {
        self.store.free_bytes()
    }

    fn burst_bytes(&self) -> u64 {
        self.store.burst_bytes()
    }

    fn put(
        &mut self,
        now: Instant,
        id: BundleId,
        durable: Option<DurableRecord>,
        payload: Vec<Bytes>,
    ) {
        self.asks(|store| store.put(now, id, durable, payload));
    }

    fn payload(&mut self, id: BundleId) -> Payload {
        self.asks(|store| store.payload(id))
    }

    fn expect(&mut self, id: BundleId) {
        self.asks(|store| store.expect(id));
    }

    fn remove(&mut self, now: Instant, id: BundleId) {
        self.asks(|store| store.remove(now, id));
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        let event = self.store.poll_event();
        (self.tell)(&self.store, false);
        event
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.store.next_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.asks(|store| store.handle_timeout(now));
    }

    fn in_memory_alone(&self, id: BundleId) -> Option<Vec<Bytes>> {
        self.store.in_memory_alone(id)
    }

    fn flush(&mut self) {
        self.asks(DiskStore::flush);
    }

    fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        self.store.footprint(tell);
    }
}
