//! Where bundles wait.
//!
//! No caller waits for a store: it is told what to keep, and reports the result later by a
//! [`StoreEvent`]. So a slow disk does not delay a link.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_payloads::PayloadFile;
use underpass_work::FastMap;

use crate::agent::BundleId;

/// What makes a bundle survive the end of the process.
#[derive(Clone, Debug)]
pub struct DurableRecord {
    /// All of the bundle except its payload, as [`Restored::record`] gives it back.
    pub record: Bytes,
    /// Whether a custodian upstream waits for [`StoreEvent::Committed`]. If none does, the store
    /// may write the bundle later, or not at all if it is removed soon.
    pub urgent: bool,
    /// The payload, if it is a file that the record names: the store gives the file its name before
    /// the record is written, and deletes it after the record is gone.
    pub file: Option<Arc<PayloadFile>>,
}

/// A bundle that an earlier run of the node has left.
#[derive(Clone, Debug)]
pub struct Restored {
    /// Its name in the store, and so in the agent.
    pub id: BundleId,
    /// [`DurableRecord::record`] as it was given.
    pub record: Bytes,
    /// Its payload's bytes.
    pub payload_bytes: u64,
    /// For how long it has been stored, as far as that is known.
    pub stored_for: Duration,
}

/// Where a payload is.
#[derive(Clone, Debug)]
pub enum Payload {
    /// In memory: its pieces.
    Here(Vec<Bytes>),
    /// Asked for: [`StoreEvent::Loaded`] or [`StoreEvent::Lost`] follows.
    Coming,
    /// The store does not have it.
    Lost,
}

/// What a store reports about its bundles.
#[derive(Clone, Debug)]
pub enum StoreEvent {
    /// The bundle survives the end of the process.
    Committed(BundleId),
    /// The payload is in memory now.
    Loaded(BundleId),
    /// The payload is damaged.
    Lost {
        /// The bundle.
        id: BundleId,
        /// The rest of its payload, if any.
        damaged: Bytes,
    },
    /// Nothing can be written at present; the store tries again by itself.
    Stalled(String),
    /// Writing works again.
    Resumed,
}

/// Keeps bundles from acceptance to release. The agent has all but the payloads in memory, and
/// rebuilds headers at each transmission.
pub trait Store: Send {
    /// Whether it keeps anything beyond the end of the process. If not, it is given no
    /// [`DurableRecord`], and custody is signalled at once.
    fn is_durable(&self) -> bool;

    /// What an earlier run has left, oldest first. Asked once, at the start.
    fn restore(&mut self) -> Vec<Restored>;

    /// The lowest id that no bundle of an earlier run has.
    fn first_free_id(&self) -> BundleId;

    /// Bytes that can be taken now.
    fn free_bytes(&self) -> u64;

    /// Bytes that can be taken at once when nothing waits to be written.
    fn burst_bytes(&self) -> u64;

    /// Stores a bundle; without `durable` no longer than the process lives.
    fn put(
        &mut self,
        now: Instant,
        id: BundleId,
        durable: Option<DurableRecord>,
        payload: Vec<Bytes>,
    );

    /// A restored bundle has its payload in a file, see [`DurableRecord::file`].
    fn adopt(&mut self, _id: BundleId, _file: Arc<PayloadFile>) {}

    /// A payload that is to be sent, by reference.
    fn payload(&mut self, id: BundleId) -> Payload;

    /// Announces that the payload will be asked for soon.
    fn expect(&mut self, id: BundleId);

    /// Forgets a bundle.
    fn remove(&mut self, now: Instant, id: BundleId);

    /// The next thing that happened.
    fn poll_event(&mut self) -> Option<StoreEvent>;

    /// When [`Store::handle_timeout`] must be called at the latest.
    fn next_timeout(&self) -> Option<Instant>;

    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// The payload, if a later process may not find it in the store since it is in memory alone,
    /// for now or for good.
    fn in_memory_alone(&self, id: BundleId) -> Option<Vec<Bytes>>;

    /// Writes what is to be written behind, since the node ends.
    fn flush(&mut self);

    /// Tells how many entries each map, set and queue has, by a name, for
    /// diagnostics and tests.
    fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize));
}

/// A store in memory: it lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    payloads: FastMap<BundleId, Vec<Bytes>>,
}

impl Store for MemoryStore {
    fn is_durable(&self) -> bool {
        false
    }

    fn restore(&mut self) -> Vec<Restored> {
        Vec::new()
    }

    fn first_free_id(&self) -> BundleId {
        BundleId(0)
    }

    fn free_bytes(&self) -> u64 {
        u64::MAX
    }

    fn burst_bytes(&self) -> u64 {
        u64::MAX
    }

    fn put(
        &mut self,
        _now: Instant,
        id: BundleId,
        _durable: Option<DurableRecord>,
        payload: Vec<Bytes>,
    ) {
        self.payloads.insert(id, payload);
    }

    fn payload(&mut self, id: BundleId) -> Payload {
        match self.payloads.get(&id) {
            Some(pieces) => Payload::Here(pieces.clone()),
            None => Payload::Lost,
        }
    }

    fn expect(&mut self, _id: BundleId) {}

    fn remove(&mut self, _now: Instant, id: BundleId) {
        self.payloads.remove(&id);
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        None
    }

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn in_memory_alone(&self, id: BundleId) -> Option<Vec<Bytes>> {
        self.payloads.get(&id).cloned()
    }

    fn flush(&mut self) {}

    fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let MemoryStore { payloads } = self;
        tell("stored payloads", payloads.len());
    }
}
