//! Shards on their own threads, and the thread of their stores.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{BundleId, DurableRecord, Payload, Restored, Store, StoreEvent};
use underpass_store::{DiskStore, Handle, Limits, open_sharded};

/// Room for three bundles at once.
const LIMITS: Limits = Limits {
    segment_bytes: 1 << 20,
    memory_bytes: 64 << 10,
    write_behind: Duration::from_millis(1),
};
const BUNDLE_BYTES: usize = 15 << 10;
const BUNDLES: usize = 100;
/// A shard that hears nothing for this time would wait for ever.
const FOR_EVER: Duration = Duration::from_secs(120);

struct Shard {
    store: DiskStore,
    notified: Receiver<()>,
}

/// A bundle belongs to the shard that its record names.
fn open(dir: &Path, shards: usize) -> (Vec<Shard>, Handle) {
    let (notify, notified): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::channel()).unzip();
    let notify = Mutex::new(notify);
    let assign = |restored: &Restored| usize::from(restored.record[0]);
    let opened = open_sharded(
        dir,
        20,
        LIMITS,
        Instant::now(),
        shards,
        assign,
        move |shard| {
            // A shard that has ended no longer listens.
            let _ = notify.lock().unwrap()[shard].send(());
        },
    );
    let (stores, handle, report) = opened.expect("it opens");
    assert!(report.damaged.is_empty());
    let both = stores.into_iter().zip(notified);
    let shards = both.map(|(store, notified)| Shard { store, notified });
    (shards.collect(), handle)
}

fn content(id: u64) -> Bytes {
    id.to_be_bytes().repeat(BUNDLE_BYTES / 8).into()
}

impl Shard {
    fn wait(&self) {
        self.notified
            .recv_timeout(FOR_EVER)
            .expect("it is notified");
    }

    /// Puts bundles while there is room, and releases every other one once it is safe;
    /// returns the bundles that are left.
    fn work(mut self, shard: u8, ids: &AtomicU64) -> (Shard, BTreeSet<u64>) {
        let (mut put, mut safe, mut left) = (0, 0, BTreeSet::new());
        while safe < BUNDLES {
            while put < BUNDLES && self.store.free_bytes() >= BUNDLE_BYTES as u64 {
                let id = ids.fetch_add(1, Ordering::Relaxed);
                let durable = DurableRecord {
                    record: Bytes::from(vec![shard; 20]),
                    urgent: true,
                    file: None,
                };
                let payload = vec![content(id)];
                self.store
                    .put(Instant::now(), BundleId(id), Some(durable), payload);
                left.insert(id);
                put += 1;
            }
            let before = safe;
            while let Some(event) = self.store.poll_event() {
                let StoreEvent::Committed(id) = event else {
                    panic!("{event:?}");
                };
                assert!(left.contains(&id.0), "{id:?} is not this shard's");
                safe += 1;
                if safe % 2 == 0 {
                    self.store.remove(Instant::now(), id);
                    left.remove(&id.0);
                }
            }
            if safe == before {
                self.wait();
            }
        }
        (self, left)
    }

    fn load(&mut self, id: u64) -> Bytes {
        loop {
            match self.store.payload(BundleId(id)) {
                Payload::Here(pieces) => return pieces.concat().into(),
                Payload::Coming => self.wait(),
                Payload::Lost => panic!("{id} is lost"),
            }
            while self.store.poll_event().is_some() {}
        }
    }
}

#[test]
fn shards_on_threads_of_their_own_wait_for_nothing_in_vain() {
    let dir = tempfile::tempdir().expect("a folder");
    let (shards, handle) = open(dir.path(), 4);
    let ids = AtomicU64::new(0);
    let mut left = BTreeMap::new();
    let done: Vec<(Shard, BTreeSet<u64>)> = std::thread::scope(|scope| {
        let start = |(number, shard): (usize, Shard)| {
            let ids = &ids;
            scope.spawn(move || shard.work(number as u8, ids))
        };
        let threads: Vec<_> = shards.into_iter().enumerate().map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for (number, (_, ids)) in done.iter().enumerate() {
        left.extend(ids.iter().map(|id| (*id, number)));
    }
    assert_eq!(handle.monitor().figures().uncommitted_bytes, 0);
    handle.close();
    drop(done);
    // Two shards own the bundles of four.
    let (mut shards, handle) = open(dir.path(), 2);
    for (number, shard) in shards.iter_mut().enumerate() {
        let here = |had: usize| if had < 2 { had == number } else { number == 0 };
        let expected = left
            .iter()
            .filter(|(_, had)| here(**had))
            .map(|(id, _)| *id);
        let restored = shard.store.restore();
        assert!(restored.iter().map(|bundle| bundle.id.0).eq(expected));
        for bundle in restored {
            assert_eq!(shard.load(bundle.id.0), content(bundle.id.0));
        }
    }
    handle.close();
}
