//! A disk that outlives its node, and the durable store on it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{BundleId, Keep, Payload, Restored, Store, StoreEvent};

/// What is on stable storage.
#[derive(Debug, Default)]
struct Kept {
    bundles: BTreeMap<BundleId, Bundle>,
    next_id: u64,
}

#[derive(Clone, Debug)]
struct Bundle {
    record: Bytes,
    payload: Bytes,
    at: Instant,
}

/// A node's disk.
#[derive(Clone, Debug)]
pub struct Disk {
    kept: Arc<Mutex<Kept>>,
    /// What a commit takes.
    latency: Duration,
}

impl Disk {
    pub fn new(latency: Duration) -> Disk {
        Disk {
            kept: Arc::default(),
            latency,
        }
    }

    /// The store of the node's next run.
    pub fn store(&self, now: Instant) -> DiskStore {
        DiskStore {
            disk: self.clone(),
            started: now,
            memory: HashMap::new(),
            writing: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn on<R>(&self, call: impl FnOnce(&mut Kept) -> R) -> R {
        call(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The store of one run; what it has not committed goes with it.
pub struct DiskStore {
    disk: Disk,
    started: Instant,
    /// Payloads that are not on the disk.
    memory: HashMap<BundleId, Bytes>,
    /// What is being written, and until when.
    writing: VecDeque<(Instant, BundleId, Bundle)>,
    events: VecDeque<StoreEvent>,
}

impl DiskStore {
    fn commit(&mut self, id: BundleId, bundle: Bundle) {
        self.disk.on(|kept| {
            kept.next_id = kept.next_id.max(id.0 + 1);
            kept.bundles.insert(id, bundle);
        });
        self.memory.remove(&id);
        self.events.push_back(StoreEvent::Committed(id));
    }
}

impl Store for DiskStore {
    fn is_durable(&self) -> bool {
        true
    }

    fn restore(&mut self) -> Vec<Restored> {
        let restored = |(id, bundle): (&BundleId, &Bundle)| Restored {
            id: *id,
            record: bundle.record.clone(),
            payload_bytes: bundle.payload.len() as u64,
            kept_for: self.started.saturating_duration_since(bundle.at),
        };
        self.disk
            .on(|kept| kept.bundles.iter().map(restored).collect())
    }

    fn first_free_id(&self) -> BundleId {
        BundleId(self.disk.on(|kept| kept.next_id))
    }

    fn free_bytes(&self) -> u64 {
        u64::MAX
    }

    fn burst_bytes(&self) -> u64 {
        u64::MAX
    }

    fn put(&mut self, now: Instant, id: BundleId, keep: Option<Keep>, payload: Vec<Bytes>) {
        let payload = Bytes::from(payload.concat());
        let Some(keep) = keep else {
            self.memory.insert(id, payload);
            return;
        };
        let bundle = Bundle {
            record: keep.record,
            payload: payload.clone(),
            at: now,
        };
        if self.disk.latency.is_zero() {
            return self.commit(id, bundle);
        }
        self.memory.insert(id, payload);
        self.writing
            .push_back((now + self.disk.latency, id, bundle));
    }

    fn payload(&mut self, id: BundleId) -> Payload {
        if let Some(payload) = self.memory.get(&id) {
            return Payload::Here(vec![payload.clone()]);
        }
        let kept = |kept: &mut Kept| kept.bundles.get(&id).map(|bundle| bundle.payload.clone());
        match self.disk.on(kept) {
            Some(payload) => Payload::Here(vec![payload]),
            None => Payload::Lost,
        }
    }

    fn expect(&mut self, _id: BundleId) {}

    fn flush(&mut self) {
        while let Some((_, id, bundle)) = self.writing.pop_front() {
            self.commit(id, bundle);
        }
    }

    fn remove(&mut self, _now: Instant, id: BundleId) {
        self.memory.remove(&id);
        self.writing.retain(|(_, writing, _)| *writing != id);
        self.disk.on(|kept| kept.bundles.remove(&id));
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.writing.front().map(|(at, ..)| *at)
    }

    fn handle_timeout(&mut self, now: Instant) {
        while self.writing.front().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, id, bundle)) = self.writing.pop_front()
        {
            self.commit(id, bundle);
        }
    }
}
